"""A copy of a log's directory, kept before records are given up: files get a second name (hard links), only those that
will be written in place are copied.

Kept true: when `keep_copy` returns, the copy has durable names and holds what the directory held; what failed leaves no
copy behind. A cut writes in place only in the segment that it shortens; an append only in the last one.
Left to others: when a copy is due (node/replicas/follower_log.py, salvage.py), its name (log_directory.py).
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Collection
from typing import Final

from storage.files.file_system import Files, directory_of
from storage.log.log_truncation import Shortening, TruncationTicket
from storage.segment.segment import ALL_SUFFIXES

_CHUNK_BYTES: Final = 1 << 20
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
"""Error numbers of a file system that gives a file no second name."""


def keep_copy(files: Files, directory: str, copy: str, changing: Collection[str]) -> None:
    """Give everything in `directory` a second name in the new directory `copy`, on the same file system. changing:
    names of files that are going to be written in place. Any thread. Raises OSError."""
    files.make_directory(copy)
    try:
        for name in files.list(directory):
            if name in changing or not _link(files, f"{directory}/{name}", f"{copy}/{name}"):
                copy_file(files, f"{directory}/{name}", f"{copy}/{name}")
        files.sync_directory(copy)
        files.sync_directory(directory_of(copy))
    except OSError:
        with contextlib.suppress(OSError):
            for name in files.list(copy):
                files.remove(f"{copy}/{name}")
            files.remove_directory(copy)
        raise


def names_of(base_offset: int) -> frozenset[str]:
    """The names of one segment's files."""
    return frozenset(f"{base_offset:020d}{suffix}" for suffix in ALL_SUFFIXES)


def copied_first(ticket: TruncationTicket, copy: str) -> None:
    """Have the cut keep a copy of the log, before anything else. A full disk then refuses the cut."""
    changing = names_of(ticket.last.base_offset) if isinstance(ticket, Shortening) else frozenset()
    lower_claims = ticket.lower_claims

    def copy_and_lower() -> None:
        if not ticket.files.is_directory(copy):
            keep_copy(ticket.files, ticket.directory, copy, changing)
        lower_claims()

    ticket.lower_claims = copy_and_lower


def copy_file(files: Files, source: str, target: str) -> None:
    """Copy the bytes of a file, durably. Raises OSError."""
    read = files.open(source, read_only=True)
    try:
        written = files.open(target, create=True)
        try:
            size = read.size()
            for position in range(0, size, _CHUNK_BYTES):
                written.pwritev([read.pread(min(_CHUNK_BYTES, size - position), position)], position)
            written.sync()
        finally:
            written.close()
    finally:
        read.close()


def _link(files: Files, path: str, name: str) -> bool:
    """Give the file a second name. False where its file system has none."""
    try:
        files.link(path, name)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True
