"""The file system interface that the log needs: small enough to fake, exact enough to define what survives a crash.

Invariants of every implementation (tests/storage/test_files_contract.py runs against each):
  1. `File.sync` makes the file's bytes and size durable, not its name. `Files.sync_directory` makes names durable.
  2. `Files.rename` replaces the target atomically: after a crash the name refers to the old file or to the new one.
  3. A failed write may have written a part. A failed `sync` leaves the state of the bytes unknown, and a later
     successful `sync` does not make them durable (the kernel may have dropped the dirty pages).
  4. Errors are OSError with an errno. The only other exception is WouldBlock, which is not a disk error.
Not here: what an error means for the log directory (log_directory.py), file formats (the modules that use the files).
Paths are plain strings with "/", as the operating system takes them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from typing import Final, NamedTuple, Protocol

from tidelog.types import Buffer

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers that mean "no free space" rather than a broken disk."""


class WouldBlock(Exception):
    """A non-blocking read would have to wait for the disk."""


class File(Protocol):
    """One open file, read and written at positions. Not thread-safe, except `pread` and `sync` on a shared handle."""

    @property
    def path(self) -> str:
        """The path that the file was opened with."""

    def size(self) -> int:
        """Length in bytes."""

    def pread(self, size: int, position: int) -> bytes:
        """`size` bytes from `position` on; fewer only at the end of the file."""

    def pread_now(self, size: int, position: int) -> Buffer:
        """As `pread`, without waiting for the disk. Raises WouldBlock if not all bytes are in memory. May wait on
        platforms that cannot report this."""

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write the buffers one after the other from `position` on. After an OSError a part may have been written."""

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros."""

    def reserve(self, size: int) -> None:
        """Allocate disk space for the first `size` bytes. A shorter file is extended with zeros, a longer one is
        unchanged."""

    def sync(self) -> None:
        """Make bytes and size durable (fdatasync)."""

    def share(self) -> File:
        """This handle with one more user. It closes with the last `close`. Call on the owner's thread only."""

    def close(self) -> None:
        """Release one user; the last one closes the file."""


class Mapping(Protocol):
    """A file mapped into memory, of fixed size. Writes are visible in the file, but may be lost unless synced. A page
    that the disk cannot provide raises OSError here, never a signal (guard.py)."""

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes from `position` on."""

    def search(self, entries: int, warm: int, size: int, at: int, wide: int, target: int) -> int:
        """The last slot of the sorted entries at the start of the mapping whose field is at most `target`; -1 if there
        is none. Parameters as in guard.py."""

    def reserve(self, end: int) -> None:
        """Allocate disk space for the bytes below `end`. Raises OSError if the disk is full, so that `write` never
        raises a signal."""

    def write(self, position: int, data: bytes) -> None:
        """Write `data` at `position`, which must be reserved."""

    def close(self) -> None:
        """Unmap. The file's size may change only afterwards."""


class Space(NamedTuple):
    """Space of a file system in bytes: what this process may still write, and the total."""

    free: int
    total: int


class DirectoryLock(Protocol):
    """The lock of a log directory, held while this process uses the directory."""

    def release(self) -> None: ...


class Files(Protocol):
    """Operations on names: directories and files."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing, or for reading only. create: create an empty file if there is none."""

    def map(self, path: str, size: int, *, writable: bool) -> Mapping:
        """Map the first `size` (> 0) bytes. writable: extend the file to `size` first, without allocating space."""

    def size(self, path: str) -> int | None:
        """Length of the file in bytes, None if there is no such file."""

    def is_directory(self, path: str) -> bool:
        """True if `path` is a directory."""

    def list(self, path: str) -> list[str]:
        """Sorted names in a directory."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory within its directory, atomically. An existing file is replaced."""

    def link(self, path: str, name: str) -> None:
        """Add a second name for a file on the same file system (hard link). Raises OSError with EPERM or a similar
        errno if the file system has no hard links."""

    def remove(self, path: str) -> None:
        """Remove a name of a file. The bytes are freed with the last name."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""

    def space(self, path: str) -> Space:
        """Free and total space of the file system that contains the directory."""

    def lock(self, path: str) -> DirectoryLock:
        """Acquire the lock file `path`, created if missing. Raises BlockingIOError if another process holds it."""


def is_full(error: BaseException) -> bool:
    """True if the error means that there is no free space, rather than a broken disk."""
    return isinstance(error, OSError) and error.errno in FULL


def sync_all(files: Sequence[File]) -> None:
    """Sync the files. A sync that fails for lack of space has lost bytes like any failed sync, and a later sync does
    not recover them: the raised OSError therefore never counts as "full"."""
    for file in files:
        try:
            file.sync()
        except OSError as error:
            if not is_full(error):
                raise
            raise OSError(errno.EIO, f"no free space for written bytes when they were synced ({error})") from error


def sync_paths(files: Files, paths: Iterable[str]) -> None:
    """Make the bytes of these files durable, as `sync_all`."""
    for path in paths:
        with closing(files.open(path)) as file:
            sync_all([file])


def remove_files(files: Files, paths: Iterable[str]) -> bool:
    """Remove files, except those that are missing. Returns True if any existed. Any thread. Raises OSError."""
    found = False
    for path in paths:
        if files.size(path) is not None:
            with suppress(FileNotFoundError):  # the directory may be renamed meanwhile
                files.remove(path)
            found = True
    return found


def read_file(files: Files, path: str) -> bytes | None:
    """All bytes of a small file, None if there is no such file."""
    try:
        with closing(files.open(path, read_only=True)) as file:
            return file.pread(file.size(), 0)
    except FileNotFoundError:
        return None


def write_file(files: Files, path: str, data: bytes, *, sync: bool = True) -> None:
    """Replace the file at `path` with `data` atomically: after a crash the file has the old contents or the new ones.

    sync: also make the new contents durable before returning. Without it, a crash may leave the file empty.
    """
    temporary = f"{path}.tmp"
    with closing(files.open(temporary, create=True)) as file:
        file.truncate(0)
        file.pwritev([data], 0)
        if sync:
            file.sync()
    files.rename(temporary, path)
    if sync:
        files.sync_directory(directory_of(path))


def directory_of(path: str) -> str:
    directory, slash, _ = path.rpartition("/")
    return directory or ("/" if slash else ".")
