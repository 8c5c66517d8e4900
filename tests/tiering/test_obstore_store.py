"""Real object stores behind the library, a folder and an S3 server: one contract, each error with its next step."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.files.file_system import WouldBlock
from storage.files.os_files import OsFiles
from storage.log_config import LogConfig
from testbed.fake_object_store import FakeObjectStore
from tests.storage.workbench import NOW, Bench, contents
from tests.tiering.remote_bench import TOPIC, copy, copy_all, read_all, reader
from tests.tiering.s3_gateway import ACCESS_KEY, BUCKET, SECRET_KEY, s3_gateway
from tidelog.errors import InvalidConfig, UnsupportedVersion
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.obstore_store import open_object_store
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_errors import (
    ObjectStoreFull,
    ObjectStoreRefused,
    ObjectStoreUnavailable,
    RemoteObjectDamaged,
    RemoteObjectMissing,
)
from tidelog.tiering.segment_manifest import manifest_key, read_manifest, segment_key
from tidelog.tiering.segment_object import verify_object
from tidelog.types import Buffer

MIB = 1 << 20


def check_contract(store: ObjectStore) -> None:
    """What the remote tier relies on, in every store."""
    store.put("a/b/one", [b"hello ", memoryview(b"world")])
    store.put("a/b/empty", [])
    large = random.Random(1).randbytes(MIB)
    store.put("a/two", (large for _ in range(19)))  # in several parts
    assert store.size("a/b/one") == 11
    assert store.size("a/b/empty") == 0
    assert store.size("a/two") == 19 * MIB
    assert bytes(store.get_range("a/b/one", 3, 5)) == b"lo wo"
    assert bytes(store.get_range("a/two", 9 * MIB - 5, 10)) == large[-5:] + large[:5]
    assert {found.key: found.size for found in store.list("a/b")} == {"a/b/one": 11, "a/b/empty": 0}
    assert {found.key for found in store.list("")} == {"a/b/one", "a/b/empty", "a/two"}
    assert list(store.list("none")) == []

    store.put("a/b/one", [b"again"])  # a repeated put of a copy whose answer was lost
    assert bytes(store.get_range("a/b/one", 0, 5)) == b"again"

    for start, size in ((3, 5), (5, 1), (100, 1)):
        with pytest.raises(RemoteObjectDamaged):
            store.get_range("a/b/one", start, size)
    for missing in (lambda: store.size("none"), lambda: store.get_range("none", 0, 1)):
        with pytest.raises(RemoteObjectMissing):
            missing()

    for broken in (broken_source(1), broken_source(20)):
        with pytest.raises(OSError, match="the disk fails"):
            store.put("a/never", broken)
        with pytest.raises(RemoteObjectMissing):
            store.size("a/never")

    store.drop_cached("a/two")
    assert bytes(store.get_range("a/two", 9 * MIB - 5, 10)) == large[-5:] + large[:5]

    for key in ("a/two", "a/two", "none"):
        store.delete(key)
    assert {found.key for found in store.list("a")} == {"a/b/one", "a/b/empty"}


def broken_source(after: int) -> Iterator[Buffer]:
    for _ in range(after):
        yield bytes(MIB)
    raise OSError("the disk fails")


def test_the_fake_keeps_the_contract() -> None:
    check_contract(FakeObjectStore())


def test_a_folder_keeps_the_contract(tmp_path: Path) -> None:
    check_contract(open_object_store(f"file://{tmp_path}/is/created"))


def test_segments_are_copied_to_a_folder_and_read_back(tmp_path: Path) -> None:
    bench = Bench(LogConfig(segment_bytes=3 * MIB), path=str(tmp_path / "log"))
    while len(bench.log.segments) < 3:
        bench.lead(bench.rng.randbytes(90_000), timestamp=NOW + bench.log.log_end_offset)
    store = open_object_store(f"file://{tmp_path}/store")
    segments = copy_all(bench.log, store)
    for segment in segments:
        verify_object(store, segment_key(TOPIC, segment), segment)
        assert read_manifest(store, manifest_key(TOPIC, segment)).segment == segment
    again, cache = open_object_store(f"file://{tmp_path}/store"), RemoteCache(8 * MIB)
    read = read_all([reader(again, segment, cache) for segment in segments], 500_000)
    assert read == b"".join(contents(bench.log))[: len(read)]
    assert len(read) == sum(segment.log_size for segment in segments)


def test_a_folder_has_the_object_on_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local segment is deleted after the copy. The library syncs nothing, so the store must: the file, and the
    name of each folder above it."""
    synced: list[Path] = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    store = open_object_store(f"file://{tmp_path}/store")
    store.put("a/b/one", [b"x"])
    root = tmp_path / "store"
    assert synced == [root / "a/b/one", root / "a/b", root / "a", root, tmp_path]


def test_a_folder_is_not_open_to_every_user_of_the_machine(tmp_path: Path) -> None:
    """As log directories are not: the records are the same. What was there before keeps its rights."""
    before = os.umask(0o022)
    try:
        (tmp_path / "mounted").mkdir()
        store = open_object_store(f"file://{tmp_path}/mounted/history/of/us")
        store.put("orders-1/0/one", [b"a record"])
    finally:
        os.umask(before)
    folders = [each for each in sorted((tmp_path / "mounted").rglob("*")) if each.is_dir()]
    assert [stat.S_IMODE(each.stat().st_mode) for each in folders] == [0o750] * 5
    assert stat.S_IMODE((tmp_path / "mounted").stat().st_mode) == 0o755


def test_a_folder_gives_up_the_page_cache_of_an_object(tmp_path: Path) -> None:
    """A read that does not wait tells what is in the page cache. tmpfs is memory itself."""
    store = open_object_store(f"file://{tmp_path}/store")
    data = random.Random(1).randbytes(9 * MIB)
    for key in ("copied", "other"):
        store.put(key, [data])
    store.drop_cached("copied")
    copied, other = (OsFiles().open(f"{tmp_path}/store/{key}", read_only=True) for key in ("copied", "other"))
    assert other.pread_now(len(data), 0) == data
    if "tmpfs" not in subprocess.check_output(("stat", "-f", "-c", "%T", tmp_path), text=True):
        with pytest.raises(WouldBlock):
            copied.pread_now(len(data), 0)
    assert bytes(store.get_range("copied", 0, len(data))) == data
    with pytest.raises(RemoteObjectMissing, match="reading none"):
        store.drop_cached("none")
    copied.close()
    other.close()


def test_a_full_disk_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of the library."""

    def put(*_arguments: object, **_named: object) -> None:
        raise OSError("Generic LocalFileSystem error: Unable to copy data: No space left on device (os error 28)")

    store = open_object_store(f"file://{tmp_path}")
    monkeypatch.setattr("obstore.put", put)
    with pytest.raises(ObjectStoreFull, match="give the store more space, or shorten retention"):
        store.put("key", [b"x"])


SKEWED = (
    "Generic S3 error: Error performing list request: Server returned non-2xx status code: 403 Forbidden: "
    "<Error><Code>RequestTimeTooSkewed</Code></Error>"
)
DENIED = SKEWED.replace("RequestTimeTooSkewed", "AccessDenied")
BAD_REQUEST = SKEWED.replace("403 Forbidden", "400 Bad Request")
EXPIRED = BAD_REQUEST.replace("RequestTimeTooSkewed", "ExpiredToken")
OTHER_REGION = BAD_REQUEST.replace("RequestTimeTooSkewed", "AuthorizationHeaderMalformed")


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (SKEWED, "set this node's by NTP"),
        (DENIED, "give this process cred"),
        (EXPIRED, "give this process cred"),
        (OTHER_REGION, "correct AWS_REGION"),
    ],
)
def test_a_refusal_is_told_as_such_whatever_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, step: str
) -> None:
    """The library has no error of its own for a listing that is refused."""

    def listed(*_arguments: object, **_named: object) -> None:
        raise OSError(words)

    store = open_object_store(f"file://{tmp_path}")
    monkeypatch.setattr("obstore.list", listed)
    with pytest.raises(ObjectStoreRefused, match=step):
        list(store.list(""))


def test_the_name_of_a_topic_neither_hides_the_answer_nor_counts_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library repeats the key, and ours has a limit for its message."""
    answer = "NoSuchBucket"

    def put(_store: object, key: str, *_arguments: object, **_named: object) -> None:
        raise OSError(
            f"Object at location {key} not found: PUT http://host/{key}: 404 Not Found: <Code>{answer}</Code>"
        )

    store = open_object_store(f"file://{tmp_path}")
    monkeypatch.setattr("obstore.put", put)
    with pytest.raises(ObjectStoreRefused, match="<Code>NoSuchBucket</Code>; create the bucket"):
        store.put("t" * 249, [b"x"])
    answer = "SlowDown"
    with pytest.raises(ObjectStoreUnavailable, match="SlowDown"):
        store.put("ExpiredToken/1", [b"x"])


@pytest.mark.parametrize(
    ("answer", "missing"),
    [
        ("<Code>NoSuchKey</Code>", True),
        ("<Code>BlobNotFound</Code>", True),
        ("<Code>NoSuchUpload</Code>", False),
        ("<html>nginx</html>", False),
    ],
)
def test_only_the_stores_word_that_there_is_no_object_deletes_it(
    monkeypatch: pytest.MonkeyPatch, answer: str, missing: bool
) -> None:
    """A proxy, or another server at the endpoint, also answers 404: a segment that counts as deleted is forgotten, and
    its object stays for ever."""

    def delete(*_arguments: object) -> None:
        raise FileNotFoundError(f"Object at location key not found: 404 Not Found: {answer}")

    use_s3(monkeypatch, "http://127.0.0.1:1")
    store = open_object_store(f"s3://{BUCKET}")
    monkeypatch.setattr("obstore.delete", delete)
    if missing:
        store.delete("key")
    else:
        with pytest.raises(ObjectStoreUnavailable, match="look at the store"):
            store.delete("key")


def test_a_folder_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    """As one on a disk that is no longer mounted: objects in its place would be hidden once it is, and those on the
    disk would count as missing, or as deleted."""
    store = open_object_store(f"file://{tmp_path}/disk/store")
    store.put("a/one", [b"x"])
    (tmp_path / "disk").rename(tmp_path / "away")
    for call in (
        lambda: store.put("a/two", [b"x"]),
        lambda: store.get_range("a/one", 0, 1),
        lambda: store.size("a/one"),
        lambda: store.delete("a/one"),
    ):
        with pytest.raises(ObjectStoreUnavailable, match="mount or restore its folder"):
            call()
    (tmp_path / "away").rename(tmp_path / "disk")
    assert [found.key for found in store.list("")] == ["a/one"]


def test_a_panic_of_the_library_is_an_error_of_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no Exception: the thread would end, and the copy would wait for ever."""
    panic = type("PanicException", (BaseException,), {})

    def put(*_arguments: object, **_named: object) -> None:
        raise panic("request valid: InvalidUri(InvalidFormat)")

    store = open_object_store(f"file://{tmp_path}")
    monkeypatch.setattr("obstore.put", put)
    with pytest.raises(ObjectStoreUnavailable, match=r"InvalidUri.*look at the store"):
        store.put("key", [b"x"])


def test_a_store_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another request would take as long again, on one of few threads."""

    def unanswered(*_arguments: object, **_named: object) -> None:
        raise OSError("Generic S3 error: Error performing GET in 30s - HTTP error: error sending request")

    def asked_again(*_arguments: object) -> None:
        raise AssertionError("it was asked for the size")

    use_s3(monkeypatch, "http://127.0.0.1:1")
    store = open_object_store(f"s3://{BUCKET}/prefix")
    monkeypatch.setattr("obstore.get_range", unanswered)
    monkeypatch.setattr("obstore.head", asked_again)
    with pytest.raises(ObjectStoreUnavailable, match="error sending request"):
        store.get_range("key", 0, 1)


@pytest.mark.parametrize(
    "url",
    [
        *("", "/folder", "http://host/path", "s3://", "s3:///prefix", "s3:bucket", "foo://bucket"),
        *("file://", "file://host/folder", "file:folder"),
    ],
)
def test_a_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match=r"use s3://BUCKET/PREFIX|more than a bucket and a prefix"):
        open_object_store(url)


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/prefix", "az://container/prefix?sig=secret"])
def test_a_url_with_credentials_is_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(InvalidConfig, match="put credentials") as refused:
        open_object_store(url)
    assert "secret" not in refused.value.message


def test_a_url_that_cannot_be_taken_apart_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="URL of the object store is invalid"):
        open_object_store("s3://[bucket/prefix")


@pytest.mark.parametrize(
    ("name", "value", "step"),
    [
        ("AWS_ENDPOINT_URL", "minio:9000", "write it as https://HOST:PORT"),
        ("AWS_ALLOW_HTTP", "", "set AWS_ALLOW_HTTP=true"),
        ("AWS_SECRET_ACCESS_KEY", None, "correct the URL, or credentials and options in the environment"),
    ],
)
def test_an_environment_that_cannot_work_is_refused_when_the_store_is_opened(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None, step: str
) -> None:
    use_s3(monkeypatch, "http://127.0.0.1:1")
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(ObjectStoreRefused, match=step):
        open_object_store(f"s3://{BUCKET}/prefix")


def test_a_folder_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ObjectStoreRefused, match="name a folder that this process may make and write to"):
        open_object_store(f"file://{tmp_path}/file")
    with pytest.raises(ObjectStoreRefused, match="name a folder that this process may read, or mount it"):
        open_object_store(f"file://{tmp_path}/none", create=False)


@pytest.mark.parametrize("word", ["true", "TRUE", "1", "yes", "on"])
def test_a_store_without_tls_is_allowed_by_each_word_for_yes(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    use_s3(monkeypatch, "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", word)
    with pytest.raises(ObjectStoreUnavailable, match="error sending request"):
        open_object_store(f"s3://{BUCKET}").size("key")


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(UnsupportedVersion, match=r"pip install 'tidelog\[tiering\]'"):
        open_object_store("file:///tmp")


def test_a_store_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 1 of loopback: nobody listens."""
    use_s3(monkeypatch, "http://127.0.0.1:1")
    store = open_object_store(f"s3://{BUCKET}/prefix")
    for call in (
        lambda: store.size("key"),
        lambda: store.get_range("key", 0, 1),
        lambda: store.put("key", [b"x"]),
        lambda: store.delete("key"),
        lambda: list(store.list("")),
    ):
        with pytest.raises(ObjectStoreUnavailable, match="look at the store and the network to it"):
            call()


def use_s3(monkeypatch: pytest.MonkeyPatch, endpoint: str, secret: str = SECRET_KEY) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": secret,
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.deep
@pytest.mark.integration
def test_an_s3_server_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shows the whole contract, a copy that is verified and read back, and each refusal, against a real S3 server
    (versitygw): it takes some seconds to start and to take objects in parts."""
    with s3_gateway(tmp_path) as endpoint:
        use_s3(monkeypatch, endpoint)
        store = open_object_store(f"s3://{BUCKET}/tide/log")
        check_contract(store)

        bench = Bench(LogConfig(segment_bytes=12 * MIB))
        while len(bench.log.segments) < 2:
            bench.lead(bench.rng.randbytes(900_000))
        segment = copy(bench.log, 0, store)
        verify_object(store, segment_key(TOPIC, segment), segment)
        assert read_manifest(store, manifest_key(TOPIC, segment)).segment == segment
        read = read_all([reader(store, segment)], 3 * MIB)
        assert read == b"".join(contents(bench.log))[: segment.log_size]

        file = tmp_path / "root" / BUCKET / "tide/log" / segment_key(TOPIC, segment)
        data = bytearray(file.read_bytes())
        data[5 * MIB] ^= 1
        file.write_bytes(data)
        with pytest.raises(RemoteObjectDamaged):
            verify_object(store, segment_key(TOPIC, segment), segment)

        use_s3(monkeypatch, endpoint, "wrong")
        with pytest.raises(ObjectStoreRefused, match="give this process credentials"):
            open_object_store(f"s3://{BUCKET}/tide/log").size("key")
        use_s3(monkeypatch, endpoint)
        other = open_object_store("s3://no-such-bucket/tide/log")
        with pytest.raises(ObjectStoreRefused, match="create the bucket, or correct the URL"):
            other.put("key", [b"x"])
        with pytest.raises(ObjectStoreRefused, match="create the bucket, or correct the URL"):
            other.get_range("key", 0, 1)  # the objects are not lost: the URL is wrong
    with pytest.raises(ObjectStoreUnavailable):
        store.get_range("key", 0, 1)
