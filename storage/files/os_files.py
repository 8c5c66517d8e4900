"""The operating system's disk as `Files`. The only module of storage that calls the operating system.

Assumptions: fdatasync makes a file's bytes and size durable, fsync of a directory its names. Rename is atomic. Writes
and mappings of a file share one page cache (Linux). preadv2 with RWF_NOWAIT fails with EAGAIN or returns fewer bytes
than requested if pages are missing; file systems without support for it fail with EOPNOTSUPP.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from storage.files import guard
from storage.files.file_system import DirectoryLock, File, Mapping, Space, WouldBlock
from tidelog.types import Buffer

_RESERVE_BYTES: Final = 4096
"""Mappings allocate disk space by the page, so that a sparse index uses only the space of its entries."""


_FILE_MODE: Final = 0o640
_DIRECTORY_MODE: Final = 0o750
"""Of what is created: the group may read records, others may not. The umask of the process can only take away."""

_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
_CLEARED_BYTES_MAX: Final = 16 << 10
"""Above this size, zeroing a buffer before the read costs more than allocating an uninitialised one."""
_uncleared = ctypes.pythonapi.PyByteArray_FromStringAndSize
_uncleared.restype, _uncleared.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)


class OsFile:
    """A file descriptor with a user count."""

    __slots__ = ("_fd", "_path", "_users")

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self._path = path
        self._users = 1

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, size: int, position: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        have = len(data)
        while have < size and (data := os.pread(self._fd, size - have, position + have)):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def pread_now(self, size: int, position: int) -> Buffer:
        buffer: bytearray = bytearray(size) if size <= _CLEARED_BYTES_MAX else _uncleared(None, size)
        try:
            have = os.preadv(self._fd, (buffer,), position, _NOWAIT)
        except BlockingIOError:
            raise WouldBlock from None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.pread(size, position)
        if have == size:
            return buffer
        if position + have < self.size():
            raise WouldBlock
        return memoryview(buffer)[:have]

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        size = 0
        for buffer in buffers:
            size += len(buffer)
        written = os.pwritev(self._fd, buffers, position)
        if written != size:
            self._write_rest(buffers, written, position)

    def _write_rest(self, buffers: Sequence[Buffer], written: int, position: int) -> None:
        """Continue after a short write. The error that caused it is raised by the next attempt."""
        rest = memoryview(b"".join(buffers))
        while written < len(rest):
            written += os.pwrite(self._fd, rest[written:], position + written)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, size: int) -> None:
        if size:
            os.posix_fallocate(self._fd, 0, size)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def share(self) -> File:
        assert self._users > 0, f"{self._path} is closed"
        self._users += 1
        return self

    def close(self) -> None:
        assert self._users > 0, f"{self._path} is closed"
        self._users -= 1
        if self._users == 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


_POPULATE_READ: Final = 22
"""MADV_POPULATE_READ (Linux 5.14): load pages into memory, with an error where touching them would raise SIGBUS. Older
kernels fail with EINVAL."""


class _PopulatedBytes:
    """The bytes of a mapping without the compiled guard: each access first requests the pages from the kernel. SIGBUS
    still ends the process if a page is evicted in between, or on kernels without MADV_POPULATE_READ."""

    __slots__ = ("_map", "_path", "_view")

    def __init__(self, mapped: mmap.mmap, view: memoryview, path: str) -> None:
        self._map, self._view, self._path = mapped, view, path

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, place: slice, /) -> Buffer:
        self._populate(place)
        return self._view[place]

    def __setitem__(self, place: slice, data: bytes, /) -> None:
        self._populate(place)
        self._view[place] = data

    def _populate(self, place: slice) -> None:
        start = place.start - place.start % mmap.PAGESIZE
        try:
            self._map.madvise(_POPULATE_READ, start, place.stop - start)
        except OSError as error:
            if error.errno != errno.EINVAL:
                reason = f"byte {place.start} or a later byte of the page range cannot be read ({error})"
                raise OSError(errno.EIO, reason, self._path) from None


class OsMapping:
    """A shared mapping. A page that the disk cannot provide raises OSError (guard.py)."""

    __slots__ = ("_bytes", "_map", "_path", "_reserved", "_view")

    def __init__(self, path: str, size: int, *, writable: bool) -> None:
        fd = os.open(path, (os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY) | os.O_CLOEXEC, _FILE_MODE)
        try:
            if writable and os.fstat(fd).st_size < size:
                os.ftruncate(fd, size)
            self._map = mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        finally:
            os.close(fd)
        self._map.madvise(mmap.MADV_RANDOM)  # without it, the first access reads ahead, zeroing megabytes of a new file
        self._view = memoryview(self._map)
        self._bytes = self._view if guard.COMPILED else _PopulatedBytes(self._map, self._view, path)
        self._path = path
        self._reserved = 0

    def read(self, position: int, size: int) -> bytes:
        return guard.load(self._bytes, position, size)

    def search(self, entries: int, warm: int, size: int, at: int, wide: int, target: int) -> int:
        return guard.search(self._bytes, entries, warm, size, at, wide, target)

    def reserve(self, end: int) -> None:
        if end <= self._reserved:
            return
        assert end <= len(self._view), "reserved space ends beyond the mapping"
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            start = self._reserved
            length = min(max(end - start, _RESERVE_BYTES), len(self._view) - start)
            os.posix_fallocate(fd, start, length)
        finally:
            os.close(fd)
        self._reserved = start + length

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        assert end <= self._reserved, "write to bytes that were not reserved"
        guard.store(self._bytes, position, data)

    def close(self) -> None:
        self._view.release()
        self._map.close()


class OsLock:
    """An flock held as long as its descriptor is open."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        os.close(self._fd)


class OsFiles:
    """Files and directories of this machine."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        return OsFile(self.descriptor(path, create=create, read_only=read_only), path)

    @staticmethod
    def descriptor(path: str, *, create: bool, read_only: bool) -> int:
        """A new descriptor of the file, opened as `open` does."""
        flags = os.O_RDONLY if read_only else os.O_RDWR
        return os.open(path, flags | (os.O_CREAT if create else 0) | os.O_CLOEXEC, _FILE_MODE)

    def map(self, path: str, size: int, *, writable: bool) -> Mapping:
        return OsMapping(path, size, writable=writable)

    def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size  # noqa: PTH116 - called per file at start; a Path takes four times as long
        except FileNotFoundError:
            return None

    def is_directory(self, path: str) -> bool:
        return Path(path).is_dir()

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 - as above

    def make_directory(self, path: str) -> None:
        Path(path).mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        Path(old).replace(new)

    def link(self, path: str, name: str) -> None:
        Path(name).hardlink_to(path)

    def remove(self, path: str) -> None:
        Path(path).unlink()

    def remove_directory(self, path: str) -> None:
        Path(path).rmdir()

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self, path: str) -> Space:
        found = os.statvfs(path)
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def lock(self, path: str) -> DirectoryLock:
        return OsLock(path)
