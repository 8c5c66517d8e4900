"""A disk in memory that behaves like the worst permitted one: for tests, and for whole clusters in one process.

Invariants:
  1. Synced data survives a crash: bytes by `File.sync`, as far as they were written when it was called; names by
     `Files.sync_directory`.
  2. Unsynced data may survive or not, as the random generator decides: nothing of it, all of it, the first writes with
     the last one torn at any byte, or any of its blocks. The same holds for names, in the order of their changes.
  3. After a failed sync, readers see the bytes that were to be synced, but no later sync makes them durable, as on
     Linux: they must be written again. The file size belongs to the file system and is not lost with them.
  4. The same calls with the same generator give the same disk.
  5. Bits flip where a test requests it, for readers and after a crash alike; the disk knows them until they are
     overwritten.

Not here: time. A slow call reports its duration (`on_wait`) and a test moves its clock; in the simulator an executor
decides how long a sync takes. Source: scenarios 3 and 14 of the design; hashicorp/raft-wal's types/vfs.go for the
interface.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from storage.files import guard
from storage.files.file_system import DirectoryLock, File, Mapping, Space, WouldBlock
from testbed.fake_tree import BLOCK_BYTES, Directory, Inode, Memo
from tidelog.types import Buffer

_ENDLESS: Final = 1 << 60
"""Capacity in bytes of a disk without a limit."""


class SimulatedCrash(BaseException):
    """The machine stopped inside this call. Not an Exception, so that no handler of the code under test catches it."""


class Fault:
    """A plan for the next `times` calls of `operation` on paths that contain `path`: they take `wait_ms` and raise
    `error` (0: none)."""

    __slots__ = ("error", "operation", "path", "skip", "times", "wait_ms")

    def __init__(self, operation: str, path: str, error: int, times: int, skip: int, wait_ms: int = 0) -> None:
        self.operation, self.path, self.error, self.times, self.skip = operation, path, error, times, skip
        self.wait_ms = wait_ms

    def hits(self, operation: str, path: str) -> bool:
        """Whether the plan covers this call; counts the call if so."""
        if self.times == 0 or operation != self.operation or self.path not in path:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class FakeFile:
    """An open file of a FakeDisk. A crash of the disk closes it: use after the crash is a bug of the test or the
    simulator."""

    __slots__ = ("_disk", "_inode", "_path", "_read_only", "_run_number", "_users")

    def __init__(self, disk: FakeDisk, path: str, inode: Inode, *, read_only: bool) -> None:
        self._disk, self._path, self._inode, self._read_only = disk, path, inode, read_only
        self._run_number = disk.run_number
        self._users = 1

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._inode.seen.size

    def pread(self, size: int, position: int) -> bytes:
        self._disk.touch("read", self._path, self._run_number)
        return self._inode.seen.read(size, position)

    def pread_now(self, size: int, position: int) -> Buffer:
        if self._disk.is_cold is not None and self._disk.is_cold(self._path):
            raise WouldBlock
        return self.pread(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        assert not self._read_only, f"{self._path} is open for reading only"
        assert self._users > 0, f"{self._path} is closed"
        self._disk.write(self._path, self._inode, b"".join(buffers), position, self._run_number)

    def truncate(self, size: int) -> None:
        inode = self._inode
        assert inode.mapped == 0 or size >= inode.seen.size, f"{self._path} is truncated while it is mapped"
        self._disk.touch("truncate", self._path, self._run_number)
        self._disk.resize(inode, size)

    def reserve(self, size: int) -> None:
        self._disk.touch("reserve", self._path, self._run_number)
        self._disk.allocate(self._inode, size)
        if size > self._inode.seen.size:
            self._disk.resize(self._inode, size)

    def sync(self) -> None:
        assert self._users > 0, f"{self._path} is closed"
        inode = self._inode
        begun_with = inode.changes
        self._disk.touch("sync", self._path, self._run_number, inode)
        inode.sync(begun_with)
        self._disk.syncs += 1

    def share(self) -> File:
        assert self._users > 0, f"{self._path} is closed"
        self._users += 1
        return self

    def close(self) -> None:
        assert self._users > 0, f"{self._path} is closed"
        self._users -= 1


class FakeMapping:
    """A mapped file of a FakeDisk. The buffer of a writable one extends to the end of the written bytes."""

    __slots__ = ("_buffer", "_disk", "_inode", "_path", "_reserved", "_run_number", "_size")

    def __init__(self, disk: FakeDisk, path: str, inode: Inode, size: int, *, writable: bool) -> None:
        self._disk, self._path, self._inode, self._size = disk, path, inode, size
        self._run_number = disk.run_number
        self._reserved = 0
        self._buffer = inode.seen.data if writable else inode.seen.read(size, 0)
        inode.mapped += 1

    def read(self, position: int, size: int) -> bytes:
        self._disk.page_fault("load", self._path)
        return guard.load(self._buffer, position, size)

    def search(self, entries: int, warm: int, size: int, at: int, wide: int, target: int) -> int:
        self._disk.page_fault("load", self._path)
        return guard.search(self._buffer, entries, warm, size, at, wide, target)

    def reserve(self, end: int) -> None:
        if end <= self._reserved:
            return
        assert end <= self._size, "reserved space ends beyond the mapping"
        self._disk.touch("reserve", self._path, self._run_number)
        end = min(self._size, -(-end // BLOCK_BYTES) * BLOCK_BYTES)
        self._disk.allocate(self._inode, end)
        self._reserved = end

    def write(self, position: int, data: bytes) -> None:
        assert position + len(data) <= self._reserved, "write to bytes that were not reserved"
        self._disk.page_fault("store", self._path)
        self._inode.put(position, data)

    def close(self) -> None:
        if self._run_number == self._disk.run_number:
            self._inode.mapped -= 1


class _FakeLock:
    def __init__(self, disk: FakeDisk, path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class FakeDisk:
    """The disk of one machine.

    capacity: limit of file contents in bytes, None for none. `syncs` counts the file syncs that succeeded, `calls` all
    calls that change something or may fail.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.used = 0
        self.run_number = 0
        self.calls = 0
        self.syncs = 0
        self.locked: set[str] = set()
        self._crash_at: int | None = None
        self._faults: list[Fault] = []
        self.on_call: Callable[[str], None] | None = None
        """Called with the operation before each call that `calls` counts: to inspect the state of the disk (`twin`)."""
        self.on_step: Callable[[str, str], None] | None = None
        """Called with operation and path before each counted call takes effect: other users may use the disk
        meanwhile."""
        self.on_wait: Callable[[int], None] | None = None
        """Called with the duration of a slow call in milliseconds, before it takes effect."""
        self.is_cold: Callable[[str], bool] | None = None
        """Called with the path before a read without waiting: returns True if data is outside the page cache. None:
        all data is cached."""
        self._root = Directory()
        self._rotten: list[Inode] = []

    def twin(self) -> FakeDisk:
        """A copy of this disk without its handles, locks and planned failures: a test can crash the copy and inspect
        what survives."""
        other = FakeDisk(capacity=self.capacity)
        other.used = self.used
        memo: Memo = {}
        other._root = self._root.twin(memo)
        other._rotten = [node for inode in self._rotten if isinstance(node := memo.get(id(inode)), Inode)]
        return other

    # --- faults ---------------------------------------------------------------------------------------------------

    def fail(self, operation: str, path: str = "", *, error: int = errno.EIO, times: int = 1, skip: int = 0) -> Fault:
        """Plan a failure. operation: read, write, truncate, sync, reserve, open, map, rename, remove, make_directory,
        sync_directory, load or store (accesses to mapped pages, which `calls` does not count). path: a part of the
        paths concerned. skip: number of matching calls that still succeed. times: -1 for no limit.
        """
        fault = Fault(operation, path, error, times, skip)
        self._faults.append(fault)
        return fault

    def slow(self, operation: str, path: str = "", *, wait_ms: int, times: int = -1, skip: int = 0) -> Fault:
        """Plan calls that succeed after `wait_ms`; otherwise as `fail`."""
        fault = Fault(operation, path, 0, times, skip, wait_ms)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Drop all planned failures, slow calls and a planned crash."""
        self._faults.clear()
        self._crash_at = None

    def crash_at_call(self, number: int) -> None:
        """Raise SimulatedCrash inside the call that `calls` will count as `number`; the test then calls `crash`."""
        self._crash_at = number

    def crash(self, rng: random.Random) -> None:
        """The machine loses power and comes back: all handles, mappings and locks are dead."""
        self.run_number += 1
        self._crash_at = None
        self.locked.clear()
        self._root.crash(rng)
        self.used = self._count_used(self._root, set())

    def kill(self) -> None:
        """The process ends, the machine does not: handles and locks are invalid, the page cache remains."""
        self.run_number += 1
        self._crash_at = None
        self.locked.clear()
        self._unmap(self._root)

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flip one bit of the file, on the disk and for readers."""
        inode = self._file(path)
        if inode not in self._rotten:
            self._rotten.append(inode)
        for image in (inode.seen, inode.durable):
            if position < len(image.data):
                image.flip(position, 1 << bit)

    @property
    def rots(self) -> bool:
        """Whether any flipped bit may not have been overwritten."""
        return bool(self._rotten)

    @contextlib.contextmanager
    def as_written(self) -> Iterator[None]:
        """Restore all flipped bits for the duration of the block, in which nothing may be written."""
        self._rotten = [inode for inode in self._rotten if inode.seen.rot or inode.durable.rot]
        images = [image for inode in self._rotten for image in (inode.seen, inode.durable)]
        for image in images:
            image.turn_rot()
        try:
            yield
        finally:
            for image in images:
                image.turn_rot()

    def safe_end(self, path: str, start: int, end: int) -> int:
        """The end of the safe bytes of a file from `start` on: readers see the bytes before it unchanged after any
        crash. `end` if all are safe; `start` if the name of the file may be lost."""
        names = _names(path)
        directory, node = self._root, None
        for name in names:
            node = directory.durable.get(name)
            if node is None or node is not directory.entries.get(name):
                return start
            if isinstance(node, Directory):
                directory = node
        if not isinstance(node, Inode):
            return start
        safe = min(end, node.durable.size)
        for position, data in node.pending:
            if data is None or (position < safe and node.durable.read(len(data), position) != data):
                safe = min(safe, position)
        if node.durable.read(safe - start, start) != node.seen.read(safe - start, start):
            return start
        return max(safe, start)

    # --- calls of handles -----------------------------------------------------------------------------------------

    def touch(self, operation: str, path: str, run_number: int, inode: Inode | None = None) -> None:
        """Count a call and fail it if that is planned. inode: of a sync, whose failure loses the bytes it was to
        save."""
        if run_number != self.run_number:
            raise OSError(errno.EBADF, f"the machine was restarted since {path} was opened")
        if self.on_call is not None:
            self.on_call(operation)
        if self.on_step is not None:
            self.on_step(operation, path)
        self.calls += 1
        if self.calls == self._crash_at:
            raise SimulatedCrash(f"in {operation} of {path}")
        for fault in self._faults:
            if fault.hits(operation, path):
                if fault.wait_ms and self.on_wait is not None:
                    self.on_wait(fault.wait_ms)
                if not fault.error:
                    continue
                if inode is not None:
                    inode.lose_writes()
                raise OSError(fault.error, os.strerror(fault.error), path)

    def page_fault(self, operation: str, path: str) -> None:
        """A mapping needs a page: fail if that is planned."""
        for fault in self._faults:
            if fault.hits(operation, path):
                raise OSError(fault.error, os.strerror(fault.error), path)

    def write(self, path: str, inode: Inode, data: bytes, position: int, run_number: int) -> None:
        """Write through the page cache; on a full disk as much as fits, then raise the error."""
        try:
            self.touch("write", path, run_number)
        except (SimulatedCrash, OSError):
            if run_number == self.run_number:
                self._put(inode, data[: len(data) // 2], position)  # a failed call may have written a part
            raise
        grown = position + len(data) - inode.allocated
        if grown > 0 and self.capacity is not None and self.used + grown > self.capacity:
            fits = len(data) - (self.used + grown - self.capacity)
            if fits > 0:
                self._put(inode, data[:fits], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._put(inode, data, position)

    def _put(self, inode: Inode, data: bytes, position: int) -> None:
        end = position + len(data)
        if end > inode.allocated:
            self.used += end - inode.allocated
            inode.allocated = end
        inode.put(position, data)

    def allocate(self, inode: Inode, end: int) -> None:
        """Allocate space up to `end` without changing the contents."""
        grown = end - inode.allocated
        if grown > 0:
            if self.capacity is not None and self.used + grown > self.capacity:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.used += grown
            inode.allocated = end

    def resize(self, inode: Inode, size: int) -> None:
        """Truncate, or extend with zeros that need no space."""
        if inode.allocated > size:
            self.used -= inode.allocated - size
            inode.allocated = size
        inode.resize(size)

    # --- Files ----------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.touch("open", path, self.run_number)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = Inode()
            directory.change(name, node)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return FakeFile(self, path, node, read_only=read_only)

    def map(self, path: str, size: int, *, writable: bool) -> Mapping:
        self.touch("map", path, self.run_number)
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None and writable:
            node = Inode()
            directory.change(name, node)
        inode = self._file(path) if node is None else node
        if isinstance(inode, Directory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if inode.seen.size < size:
            if not writable:
                raise OSError(errno.EINVAL, "mapped beyond the end of the file", path)
            self.resize(inode, size)
        return FakeMapping(self, path, inode, size, writable=writable)

    def size(self, path: str) -> int | None:
        try:
            return self._file(path).seen.size
        except FileNotFoundError:
            return None

    def is_directory(self, path: str) -> bool:
        try:
            self._directory(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: str) -> list[str]:
        self.touch("read", path, self.run_number)
        return sorted(self._directory(path).entries)

    def make_directory(self, path: str) -> None:
        self.touch("make_directory", path, self.run_number)
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = Directory()
                directory.change(name, node)
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            directory = node

    def rename(self, old: str, new: str) -> None:
        self.touch("rename", old, self.run_number)
        directory, old_name = self._parent(old)
        new_directory, new_name = self._parent(new)
        assert directory is new_directory, f"{old} is renamed into another directory, {new}"
        node = directory.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        replaced = directory.entries.get(new_name)
        if isinstance(replaced, Inode):
            self._unlink(replaced)
        directory.change(new_name, node, moved_from=old_name)

    def remove(self, path: str) -> None:
        self.touch("remove", path, self.run_number)
        inode = self._file(path)
        directory, name = self._parent(path)
        directory.change(name, None)
        self._unlink(inode)

    def link(self, path: str, name: str) -> None:
        self.touch("link", path, self.run_number)
        inode = self._file(path)
        directory, new_name = self._parent(name)
        if new_name in directory.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        directory.change(new_name, inode)
        inode.links += 1

    def _unlink(self, inode: Inode) -> None:
        if inode.links:
            inode.links -= 1
        else:
            self.used -= inode.allocated

    def remove_directory(self, path: str) -> None:
        self.touch("remove", path, self.run_number)
        if self._directory(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        directory, name = self._parent(path)
        directory.change(name, None)

    def sync_directory(self, path: str) -> None:
        self.touch("sync_directory", path, self.run_number)
        self._directory(path).sync()

    def space(self, path: str) -> Space:
        self._directory(path)
        total = _ENDLESS if self.capacity is None else self.capacity
        return Space(max(total - self.used, 0), total)

    def lock(self, path: str) -> DirectoryLock:
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self.open(path, create=True).close()
        self.locked.add(path)
        return _FakeLock(self, path)

    # --- the tree -------------------------------------------------------------------------------------------------

    def _parent(self, path: str) -> tuple[Directory, str]:
        directory, name = _split(path)
        return self._directory(directory), name

    def _directory(self, path: str) -> Directory:
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            directory = node
        return directory

    def _file(self, path: str) -> Inode:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _count_used(self, directory: Directory, seen: set[int]) -> int:
        used = 0
        for node in directory.entries.values():
            if isinstance(node, Directory):
                used += self._count_used(node, seen)
            elif id(node) in seen:
                node.links += 1
            else:
                seen.add(id(node))
                node.allocated, node.links = len(node.durable.data), 0
                used += node.allocated
        return used

    def _unmap(self, directory: Directory) -> None:
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._unmap(node)
            else:
                node.mapped = 0


@lru_cache(maxsize=4096)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, str]:
    """The directory of a path and its name there."""
    directory, _, name = path.rpartition("/")
    return directory, name
