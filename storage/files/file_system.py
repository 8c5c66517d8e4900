"""The disk, as much of it as the log needs: small enough to be faked, exact enough to say what survives a crash.

Kept true by every implementation (tests/storage/test_files_contract.py runs against each):
  1. `File.sync` makes the file's bytes and size durable, not its name; `Files.sync_directory` makes names durable.
  2. `Files.rename` replaces the target in one step: a crash leaves the old file or the new one under that name.
  3. A write that fails may have written a part; a failed `sync` says nothing about the bytes, and a later one that
     succeeds does not make up for it (the kernel may have dropped the dirty pages).
  4. Errors are OSError with an errno; nothing else is raised, but for WouldBlock, which is no error of the disk.
Left to others: what an error means for the log directory (log_directory.py), file formats (everyone else).
Paths are plain strings with "/", as the operating system takes them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Error numbers that say "no room" rather than "broken"."""


class WouldBlock(Exception):
    """A read that was not to wait for the disk would have had to."""


class File(Protocol):
    """One open file, read and written at positions. Not for several threads, except `pread` and `sync` on a shared
    handle."""

    @property
    def path(self) -> str:
        """The path it was opened by."""
        ...

    def size(self) -> int:
        """Length in bytes."""
        ...

    def pread(self, size: int, position: int) -> bytes:
        """`size` bytes from `position` on; fewer only where the file ends."""
        ...

    def pread_now(self, size: int, position: int) -> Buffer:
        """As `pread`, without waiting for the disk. Raises WouldBlock where not all of it is in memory; where the
        platform cannot tell, it may wait."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write the buffers one behind the other from `position` on, all of it or OSError (a part may then be
        there)."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file, or lengthen it with zeros."""
        ...

    def reserve(self, size: int) -> None:
        """Take room on the disk for the first `size` bytes; a shorter file is lengthened with zeros, a longer one keeps
        its bytes."""
        ...

    def sync(self) -> None:
        """Make bytes and size durable (fdatasync)."""
        ...

    def share(self) -> File:
        """This handle with one more user: it closes with the last `close`. Called on the owner's thread only."""
        ...

    def close(self) -> None:
        """One user less."""
        ...


class Mapping(Protocol):
    """A file mapped into memory, of fixed size. What is written shows in the file and, unless synced, may be lost.
    A page that the disk cannot give is an OSError here, never a signal (guard.py)."""

    def read(self, position: int, size: int) -> bytes:
        """Bytes of it."""
        ...

    def search(self, entries: int, warm: int, size: int, at: int, wide: int, target: int) -> int:
        """The last of the sorted entries at its beginning whose field is not above `target`; -1 where there is none.
        Parameters as in guard.py."""
        ...

    def reserve(self, end: int) -> None:
        """Make sure that the bytes below `end` have room on the disk: a full disk is told here, as OSError, and
        never by a signal while writing to memory."""
        ...

    def write(self, position: int, data: bytes) -> None:
        """Put `data` at `position`; the place must have been reserved."""
        ...

    def close(self) -> None:
        """Unmap. Only then may the file's size change."""
        ...


class Room(NamedTuple):
    """A file system's bytes: what this process may still write, and all there are."""

    free: int
    total: int


class DirectoryLock(Protocol):
    """Held as long as this process works on a log directory."""

    def release(self) -> None:
        """Let others have it."""
        ...


class Files(Protocol):
    """Names: directories and files."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing, or for reading only. create: make an empty file where there is none."""
        ...

    def map(self, path: str, size: int, *, writable: bool) -> Mapping:
        """Map the first `size` (> 0) bytes. writable: lengthen the file to `size` first, without taking room on the
        disk."""
        ...

    def size(self, path: str) -> int | None:
        """Length in bytes of the file of this name, None where there is none."""
        ...

    def is_directory(self, path: str) -> bool:
        """Is there a directory of this name?"""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory, and those above it, where missing."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name within its directory; a file of the new name is replaced in one
        step."""
        ...

    def link(self, path: str, name: str) -> None:
        """Give a file a second name, on the same file system. Raises OSError, EPERM or the like where that has none."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file's name; its bytes go with the last one."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def room(self, path: str) -> Room:
        """How much room the file system of a directory has."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Take the lock file `path`, made where missing. Raises BlockingIOError where another process has it."""
        ...


def is_full(error: BaseException) -> bool:
    """Does the error say that there is no room, rather than that the disk is broken?"""
    return isinstance(error, OSError) and error.errno in FULL


def sync_all(files: Sequence[File]) -> None:
    """Sync these. A sync that finds no room has lost bytes like any other that fails, and a later one does not make up
    for it: the OSError raised never says "full"."""
    for file in files:
        try:
            file.sync()
        except OSError as error:
            if not is_full(error):
                raise
            raise OSError(errno.EIO, f"written bytes found no room when they were synced ({error})") from error


def sync_paths(files: Files, paths: Iterable[str]) -> None:
    """Make the bytes of these files durable, as `sync_all`."""
    for path in paths:
        file = files.open(path)
        try:
            sync_all([file])
        finally:
            file.close()


def read_file(files: Files, path: str) -> bytes | None:
    """All bytes of a small file, None where there is none."""
    try:
        file = files.open(path, read_only=True)
    except FileNotFoundError:
        return None
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_file(files: Files, path: str, data: bytes, *, sync: bool = True) -> None:
    """Put `data` in place of the file at `path` so that a crash leaves the old contents or the new, nothing between.

    sync: also make it durable before returning; without, a crash may also leave the new name with no bytes.
    """
    temporary = f"{path}.tmp"
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwritev([data], 0)
        if sync:
            file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    if sync:
        files.sync_directory(directory_of(path))


def directory_of(path: str) -> str:
    """The directory that a path lies in."""
    directory, slash, _ = path.rpartition("/")
    return directory or ("/" if slash else ".")
