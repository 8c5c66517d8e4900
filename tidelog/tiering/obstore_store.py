"""An object store behind the library obstore: S3 and what speaks its protocol, Google Cloud Storage, Azure, a folder.

Credentials come from where each service's own tools look in the environment of the process: AWS_* and the roles of
EKS, ECS and EC2; GOOGLE_APPLICATION_CREDENTIALS and the metadata server; AZURE_*. A URL with credentials is refused: it
would end up in logs.

Not here: when to retry a call that failed (the caller). Within a call obstore repeats requests for some seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from tidelog.errors import InvalidConfig, TidelogError, UnsupportedVersion
from tidelog.tiering.object_store import ObjectStore, StoredObject
from tidelog.tiering.remote_errors import (
    ObjectStoreFull,
    ObjectStoreRefused,
    ObjectStoreUnavailable,
    RemoteObjectDamaged,
    RemoteObjectMissing,
)
from tidelog.types import Buffer, Millis

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_SCHEMES: Final = ("s3", "gs", "az", "file")
_PART_BYTES: Final = 8 << 20
"""Of a large object. S3 takes 10,000 parts: 80 GB, while a segment has at most 2 GiB."""
_PARTS_IN_FLIGHT: Final = 2
"""A copy takes that many parts of memory, and one more."""
_REQUEST_TIMEOUT: Final = timedelta(seconds=30)
"""A part then needs 0.3 MB/s. A request that takes longer would hold its thread."""
_RETRIES_MAX: Final = 2
_FULL: Final = ("QuotaExceeded", "StorageFull", "InsufficientStorage", "No space left on device", "Disk quota exceeded")
"""S3 has no error for it. These are words of the stores that can be full, and of Linux for a folder."""
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_REFUSED: Final = (": 401 ", ": 403 ", "ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "XAdminUserNotFound")
"""The library has errors of their own for the first two, but not for a listing. S3 answers 400 for tokens, and servers
that speak its protocol 404 for a key that they do not know."""
_REGION: Final = ("AuthorizationHeaderMalformed", "PermanentRedirect", "incorrectly configured region")
_CLOCK: Final = ("RequestTimeTooSkewed", "RequestExpired", "Request has expired", "Request date header too old")
_GIVE_CREDENTIALS: Final = "give this process credentials that may read, write, list and delete there"
_STEPS: Final[Sequence[tuple[Sequence[str], type[TidelogError], str]]] = (
    (_CLOCK, ObjectStoreRefused, "the clocks of this node and of the store differ too much: set this node's by NTP"),
    (_REGION, ObjectStoreRefused, "correct AWS_REGION in the environment of this process"),
    (_REFUSED, ObjectStoreRefused, _GIVE_CREDENTIALS),
    (_NO_BUCKET, ObjectStoreRefused, "create the bucket, or correct the URL"),
    (_FULL, ObjectStoreFull, "give the store more space, or shorten retention"),
)
"""Words of the library or the store, the error, and what to do."""
_NO_OBJECT: Final = ("NoSuchKey", "BlobNotFound")
"""Codes in the body of a 404 that mean the object, of S3 and Google, and of Azure."""
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_FOLDER_MODE: Final = 0o750
_NO_RANGE: Final = (": 416 ", "Requested range was invalid")
"""HTTP's answer to a range behind the end of the object, and the one of a folder."""
_REASON_MAX: Final = 400
"""Characters of the library's message that ours repeats. The whole message decides what it means."""


def open_object_store(url: str, *, create: bool = True) -> ObjectStore:
    """The store at `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `file:///FOLDER`. Nothing is
    sent yet. create: the folder, if it is missing. Raises InvalidConfig for any other URL, UnsupportedVersion without
    the package, ObjectStoreRefused."""
    parts = ensure_store_url(url)
    return ObstoreStore(url, parts.scheme, unquote(parts.path), create=create)


def ensure_store_url(url: str) -> SplitResult:
    """The parts of the URL of a store. Raises InvalidConfig."""
    try:
        parts = urlsplit(url)
    except ValueError as error:  # it may have credentials, and is not repeated
        raise InvalidConfig(f"the URL of the object store is invalid: {error}; correct it") from error
    # A path that does not begin with a slash would depend on the directory in which the process was started.
    if parts.scheme not in _SCHEMES or not (parts.path[:1] == "/" if parts.scheme == "file" else parts.netloc):
        shown = url if "@" not in url and not parts.query else f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
        raise InvalidConfig(
            f'"{shown}" is not the URL of an object store: use '
            "s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER"
        )
    if "@" in parts.netloc or parts.query or parts.fragment or (parts.scheme == "file" and parts.netloc):
        raise InvalidConfig(
            f"the URL of the object store {parts.scheme}://{parts.hostname}{parts.path} has more than a bucket and a "
            "prefix: put credentials and options into the environment of the process (docs/tiering.md)"
        )
    return parts


def _required() -> Any:
    try:
        import obstore
        import obstore.store
    except ImportError as missing:
        raise UnsupportedVersion("object stores need obstore: pip install 'tidelog[tiering]'") from missing
    return obstore


class ObstoreStore:
    """`ObjectStore` documents the methods."""

    def __init__(self, url: str, scheme: str, path: str, *, create: bool) -> None:
        self._obs = _required()
        self._url = url
        self._is_s3 = scheme == "s3"
        self._folder = path.rstrip("/") or "/" if scheme == "file" else None
        if self._is_s3:
            _ensure_endpoint()
        try:
            self._store = self._opened(url, create=create)
        except Exception as error:
            step = "correct the URL, or credentials and options in the environment of this process (docs/tiering.md)"
            if self._folder is not None:
                step = f"name a folder that this process may {'make and write to' if create else 'read, or mount it'}"
            raise ObjectStoreRefused(f"the object store {url} cannot be opened: {_line(error)}; {step}") from error

    def _opened(self, url: str, *, create: bool) -> Any:
        store = self._obs.store
        if self._folder is not None:
            if create:
                _make_folder(Path(self._folder))
            return store.LocalStore(self._folder, mkdir=create)
        client: ClientConfig = {"timeout": _REQUEST_TIMEOUT, "connect_timeout": timedelta(seconds=5)}
        if _allows_http():
            client["allow_http"] = True
        retry: RetryConfig = {"max_retries": _RETRIES_MAX, "retry_timeout": _REQUEST_TIMEOUT}
        return store.from_url(url, client_options=client, retry_config=retry)

    @property
    def url(self) -> str:
        return self._url

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        source = _Source(parts)
        with self._errors("writing", key, source):
            # The library would make it, in place of a disk that is not mounted, and hide the objects there once it is.
            self._ensure_folder()
            if self._folder is not None:
                _make_folder(Path(self._folder, key).parent)
            first = []
            size = 0
            for part in source:
                first.append(part)
                size += len(part)
                if size > _PART_BYTES:
                    self._put_large(key, chain(first, source))
                    break
            else:  # one request instead of three
                self._obs.put(self._store, key, b"".join(first), use_multipart=False)
            if self._folder is not None:
                self._sync(key)

    def _put_large(self, key: str, parts: Iterator[Buffer]) -> None:
        self._obs.put(self._store, key, parts, chunk_size=_PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT)

    def _sync(self, key: str) -> None:
        """The library renames a file into place and syncs nothing. A power loss would take the object, whose segment is
        deleted by then: sync the file, its folders, and the folder in which the uppermost may be new."""
        assert self._folder is not None
        file = Path(self._folder, key)
        for path in (file, *file.parents):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if path == Path(self._folder).parent:
                break

    def size(self, key: str) -> int:
        with self._errors("reading", key):
            return int(self._obs.head(self._store, key)["size"])

    def get_range(self, key: str, start: int, size: int) -> Buffer:
        try:
            with self._errors("reading", key):
                data = memoryview(self._range(key, start, size))
        except ObjectStoreUnavailable as error:
            # A store that does not answer is not asked for the size: that would take as long again.
            if not any(word in error.message for word in _NO_RANGE) or self.size(key) > start:
                raise
            data = memoryview(b"")
        if len(data) != size:
            raise RemoteObjectDamaged(
                f"the object {key} in {self._url} has no bytes {start + len(data)} to {start + size - 1}: it is "
                "shorter than it was when it was written; restore it, or delete the records up to the end of its "
                "segment"
            )
        return data

    def drop_cached(self, key: str) -> None:
        if self._folder is None:
            return
        with self._errors("reading", key):
            descriptor = os.open(Path(self._folder, key), os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def _range(self, key: str, start: int, size: int) -> Buffer:
        if self._folder is None:
            data: Buffer = self._obs.get_range(self._store, key, start=start, length=size)
            return data
        # The library would clear the memory first, and read on a thread of its own: a third of what a range costs.
        file = os.open(Path(self._folder, key), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(file, size, start)
        finally:
            os.close(file)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        with self._errors("listing", prefix or "everything"):
            for batch in self._obs.list(self._store, prefix or None):
                for found in sorted(batch, key=lambda each: str(each["path"])):
                    modified = Millis(int(found["last_modified"].timestamp() * 1000))
                    yield StoredObject(found["path"], found["size"], modified)

    def delete(self, key: str) -> None:
        try:
            with self._errors("deleting", key):
                self._obs.delete(self._store, key)
        except RemoteObjectMissing:
            return

    def _ensure_folder(self) -> None:
        if self._folder is not None and not Path(self._folder).is_dir():
            raise ObjectStoreUnavailable(
                f"the object store {self._url} is not there: mount or restore its folder; it is tried again"
            )

    @contextmanager
    def _errors(self, doing: str, key: str, source: _Source | None = None) -> Iterator[None]:
        """Translate the errors of the library."""
        try:
            yield
        except BaseException as error:
            # A panic of the library is no Exception: it would end the thread, and the caller would wait for ever.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            if source is not None and source.error is not None:
                raise source.error from None
            if isinstance(error, TidelogError):
                raise
            raise self._translated(error, doing, key) from error

    def _translated(self, error: BaseException, doing: str, key: str) -> TidelogError:
        errors, words = self._obs.exceptions, _line(error, key)
        what = f"{doing} {key} in the object store {self._url} failed: {words[:_REASON_MAX]}"
        for signs, kind, step in _STEPS:
            if any(sign in words for sign in signs):
                return kind(f"{what}; {step}")
        if isinstance(error, (errors.PermissionDeniedError, errors.UnauthenticatedError, PermissionError)):
            return ObjectStoreRefused(f"{what}; {_GIVE_CREDENTIALS}")
        if isinstance(error, (errors.NotFoundError, FileNotFoundError)) and doing in ("reading", "deleting"):
            self._ensure_folder()
            if self._means_the_object(words, doing):
                return RemoteObjectMissing(
                    f"{what}; correct the URL if the objects are in another store, restore the object, or delete the "
                    "records up to the end of its segment"
                )
        return ObjectStoreUnavailable(f"{what}; it is tried again: look at the store and the network to it")

    def _means_the_object(self, words: str, doing: str) -> bool:
        """False if something else answered "not found", as another server or a proxy: the object may be there, and must
        not count as deleted."""
        if (code := _CODE.search(words)) is not None:
            return code[1] in _NO_OBJECT
        # S3 does not answer 404 to the deletion of a key that it does not have.
        return not (self._is_s3 and doing == "deleting")


def _make_folder(folder: Path) -> None:
    """The library would let every user of the machine read the records in it, which log directories do not."""
    for each in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        each.mkdir(_FOLDER_MODE, exist_ok=True)


class _Source:
    """The parts of an object, and the error that ended them."""

    def __init__(self, parts: Iterable[Buffer]) -> None:
        self._parts = iter(parts)
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[Buffer]:
        return self

    def __next__(self) -> Buffer:
        try:
            return next(self._parts)
        except StopIteration:
            raise
        except Exception as error:
            self.error = error
            raise


def _line(error: BaseException, key: str = "") -> str:
    """The message of the library in a line; it appends a page of its own structures. Without the key, which it repeats:
    that leaves no room for the answer of the store, and the name of a topic may be a word of an answer."""
    line = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return line.replace(key, "...") if key else line


def _allows_http() -> bool:
    return os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on")


def _ensure_endpoint() -> None:
    """The library would panic, or fail with each request. Raises ObjectStoreRefused."""
    for name in _ENDPOINTS:
        endpoint = os.environ.get(name, "")
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise ObjectStoreRefused(f"{name} of this process is not a URL: write it as https://HOST:PORT")
        if endpoint.startswith("http://") and not _allows_http():
            raise ObjectStoreRefused(
                f"{name} of this process begins with http://: set AWS_ALLOW_HTTP=true too if the store has no TLS"
            )
