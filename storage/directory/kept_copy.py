"""A copy of a partition directory, kept before records are given up. Files are hard-linked; only files that will be
modified in place are copied.

Invariants: when `keep_copy` returns, the copy has durable names and the content of the directory. A failure leaves no
copy. A truncation modifies only its last segment in place; an append only the last one of the log.
Not here: when a copy is made (node/replicas/follower_log.py, salvage.py), its name (log_directory.py).
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from contextlib import closing, suppress
from typing import Final

from storage.files.deleted_files import remove_log_directory
from storage.files.file_system import Files, directory_of
from storage.log.truncation_ticket import Shortening, TruncationTicket
from storage.segment.segment import ALL_SUFFIXES

_CHUNK_BYTES: Final = 1 << 20
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
"""Error numbers of file systems without hard links."""


def keep_copy(files: Files, directory: str, copy: str, changing: Collection[str]) -> None:
    """Copy `directory` to the new directory `copy` on the same file system, by hard links. changing: names of files
    that will be modified in place; they are copied. Any thread. Raises OSError."""
    files.make_directory(copy)
    try:
        for name in files.list(directory):
            if name in changing or not _link(files, f"{directory}/{name}", f"{copy}/{name}"):
                copy_file(files, f"{directory}/{name}", f"{copy}/{name}")
        files.sync_directory(copy)
        files.sync_directory(directory_of(copy))
    except OSError:
        with suppress(OSError):
            remove_log_directory(files, copy)
        raise


def names_of(base_offset: int) -> frozenset[str]:
    return frozenset(f"{base_offset:020d}{suffix}" for suffix in ALL_SUFFIXES)


def copied_first(ticket: TruncationTicket, copy: str) -> None:
    """Let the truncation keep a copy of the log as its first step. A full disk then rejects the truncation."""
    changing = names_of(ticket.last.base_offset) if isinstance(ticket, Shortening) else frozenset()
    lower_claims = ticket.lower_claims

    def copy_and_lower() -> None:
        if not ticket.files.is_directory(copy):
            keep_copy(ticket.files, ticket.directory, copy, changing)
        lower_claims()

    ticket.lower_claims = copy_and_lower


def copy_file(files: Files, source: str, target: str) -> None:
    """Copy a file durably. Raises OSError."""
    with closing(files.open(source, read_only=True)) as read, closing(files.open(target, create=True)) as written:
        size = read.size()
        for position in range(0, size, _CHUNK_BYTES):
            written.pwritev([read.pread(min(_CHUNK_BYTES, size - position), position)], position)
        written.sync()


def _link(files: Files, path: str, name: str) -> bool:
    """Create a hard link. Returns False if the file system does not support it."""
    try:
        files.link(path, name)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True
