"""A disk in memory that behaves like the worst one allowed: for tests, and for whole clusters in one process.

Kept true:
  1. What was synced survives a crash: bytes by `File.sync`, names by `Files.sync_folder`.
  2. What was not may survive or not, as the random generator says: nothing of it, all of it, the first writes with the
     last one torn at any byte, or any of its blocks. Names likewise, in the order in which they were given.
  3. After a failed sync the bytes that were to be synced are seen by readers and never become durable by a later sync,
     as on Linux: only writing them again does that.
  4. Same calls, same generator: same disk.
Left to others: time (an executor says how long a sync takes).
Source: the experience collected in scenarios 3 and 14 of the design; hashicorp/raft-wal's types/vfs.go for the look.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from typing import Final

from storage.files import Buffer, File, FolderLock, Mapping, Room

_BLOCK_BYTES: Final = 4096
"""The disk writes whole blocks of this size, in any order."""


_ENDLESS: Final = 1 << 60
"""Bytes of a disk without a limit."""


class SimulatedCrash(BaseException):
    """The machine stopped inside this call. Not an Exception, so that no handler of the code under test catches it."""


class Fault:
    """A planned failure: the next `times` calls of `operation` on paths that contain `path` raise `error`."""

    __slots__ = ("error", "operation", "path", "skip", "times")

    def __init__(self, operation: str, path: str, error: int, times: int, skip: int) -> None:
        self.operation, self.path, self.error, self.times, self.skip = operation, path, error, times, skip

    def hits(self, operation: str, path: str) -> bool:
        """Does this call fail? Counts it."""
        if self.times == 0 or operation != self.operation or self.path not in path:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class _Image:
    """Bytes that end in as many zeros as `size` says: an empty file of 10 MiB takes no memory."""

    __slots__ = ("data", "size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0

    def write(self, position: int, data: bytes) -> None:
        have = len(self.data)
        if have < position:
            self.data.extend(bytes(position - have))
        end = position + len(data)
        self.data[position:end] = data
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size

    def read(self, size: int, position: int) -> bytes:
        end = min(position + size, self.size)
        found = bytes(self.data[position:end])
        return found if len(found) >= end - position else found + bytes(end - position - len(found))

    def copy(self) -> _Image:
        other = _Image()
        other.data, other.size = bytearray(self.data), self.size
        return other


class _Inode:
    """One file: what readers see, what the disk has, and the changes between the two, in order.

    A change is (position, bytes) for a write and (size, None) for a cut or a lengthening.
    """

    __slots__ = ("allocated", "durable", "mapped", "pending", "seen")

    def __init__(self) -> None:
        self.seen = _Image()
        self.durable = _Image()
        self.pending: list[tuple[int, bytes | None]] = []
        self.allocated = 0
        self.mapped = 0

    def put(self, position: int, data: bytes) -> None:
        """Write through the page cache."""
        self.seen.write(position, data)
        self.pending.append((position, data))

    def resize(self, size: int) -> None:
        """Cut, or lengthen with zeros, in the page cache."""
        self.seen.resize(size)
        self.pending.append((size, None))

    def apply(self, change: tuple[int, bytes | None]) -> None:
        """Make one change durable."""
        position, data = change
        if data is None:
            self.durable.resize(position)
        else:
            self.durable.write(position, data)

    def sync(self) -> None:
        for change in self.pending:
            self.apply(change)
        self.pending.clear()

    def crash(self, rng: random.Random) -> None:
        """Come back with what the disk has, and with some of what it did not have to keep."""
        pending, self.pending = self.pending, []
        if pending:
            fate = rng.randrange(4)
            if fate == 1:
                for change in pending:
                    self.apply(change)
            elif fate == 2:
                self._keep_first(pending, rng)
            elif fate == 3:
                self._keep_blocks(pending, rng)
        self.seen = self.durable.copy()
        self.mapped = 0

    def _keep_first(self, pending: list[tuple[int, bytes | None]], rng: random.Random) -> None:
        kept = rng.randrange(len(pending))
        for change in pending[:kept]:
            self.apply(change)
        position, data = pending[kept]
        if data is not None:
            self.apply((position, data[: rng.randrange(len(data) + 1)]))

    def _keep_blocks(self, pending: list[tuple[int, bytes | None]], rng: random.Random) -> None:
        for position, data in pending:
            if data is None:
                self.apply((position, None))
                continue
            start = 0
            while start < len(data):
                end = min(len(data), start + _BLOCK_BYTES - (position + start) % _BLOCK_BYTES)
                if rng.random() < 0.5:
                    self.apply((position + start, data[start:end]))
                start = end


class _Folder:
    """One folder: the names that programs see, those that the disk has, and the changes between, in order."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, _Inode | _Folder] = {}
        self.durable: dict[str, _Inode | _Folder] = {}
        self.pending: list[tuple[str, _Inode | _Folder | None, str | None]] = []

    def change(self, name: str, node: _Inode | _Folder | None, *, moved_from: str | None = None) -> None:
        """Bind a name, or free it (None). moved_from: the name that is freed in the same step."""
        self._bind(self.entries, name, node, moved_from)
        self.pending.append((name, node, moved_from))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def crash(self, rng: random.Random) -> None:
        for name, node, moved_from in self.pending[: rng.randrange(len(self.pending) + 1) if self.pending else 0]:
            self._bind(self.durable, name, node, moved_from)
        self.pending.clear()
        self.entries = dict(self.durable)
        for _, node in sorted(self.entries.items()):
            node.crash(rng)

    @staticmethod
    def _bind(
        entries: dict[str, _Inode | _Folder], name: str, node: _Inode | _Folder | None, moved_from: str | None
    ) -> None:
        if moved_from is not None:
            entries.pop(moved_from, None)
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class FakeFile:
    """An open file of a FakeDisk. After a crash of the disk it is dead: a process that survived its machine is a
    bug."""

    __slots__ = ("_disk", "_inode", "_life", "_path", "_read_only", "_users")

    def __init__(self, disk: FakeDisk, path: str, inode: _Inode, *, read_only: bool) -> None:
        self._disk, self._path, self._inode, self._read_only = disk, path, inode, read_only
        self._life = disk.life
        self._users = 1

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._inode.seen.size

    def pread(self, size: int, position: int) -> bytes:
        self._disk.touch("read", self._path, self._life)
        return self._inode.seen.read(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        assert not self._read_only, f"{self._path} is open for reading only"
        assert self._users > 0, f"{self._path} is closed"
        self._disk.write(self._path, self._inode, b"".join(buffers), position, self._life)

    def truncate(self, size: int) -> None:
        inode = self._inode
        assert inode.mapped == 0 or size >= inode.seen.size, f"{self._path} is cut while it is mapped"
        self._disk.touch("truncate", self._path, self._life)
        self._disk.resize(inode, size)

    def sync(self) -> None:
        assert self._users > 0, f"{self._path} is closed"
        inode = self._inode
        self._disk.touch("sync", self._path, self._life, inode)
        inode.sync()
        self._disk.syncs += 1

    def share(self) -> File:
        assert self._users > 0, f"{self._path} is closed"
        self._users += 1
        return self

    def close(self) -> None:
        assert self._users > 0, f"{self._path} is closed"
        self._users -= 1


class FakeMapping:
    """A mapped file of a FakeDisk. The buffer of a writable one reaches as far as has been written."""

    __slots__ = ("_buffer", "_disk", "_inode", "_life", "_path", "_reserved", "_size")

    def __init__(self, disk: FakeDisk, path: str, inode: _Inode, size: int, *, writable: bool) -> None:
        self._disk, self._path, self._inode, self._size = disk, path, inode, size
        self._life = disk.life
        self._reserved = 0
        self._buffer = inode.seen.data if writable else inode.seen.read(size, 0)
        inode.mapped += 1

    @property
    def buffer(self) -> Buffer:
        return self._buffer

    def reserve(self, end: int) -> None:
        if end <= self._reserved:
            return
        assert end <= self._size, "room beyond the mapping"
        self._disk.touch("reserve", self._path, self._life)
        end = min(self._size, -(-end // _BLOCK_BYTES) * _BLOCK_BYTES)
        self._disk.allocate(self._inode, end)
        self._reserved = end

    def write(self, position: int, data: bytes) -> None:
        assert position + len(data) <= self._reserved, "written without room reserved"
        self._inode.put(position, data)

    def close(self) -> None:
        if self._life == self._disk.life:
            self._inode.mapped -= 1


class _FakeLock:
    def __init__(self, disk: FakeDisk, path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locked.discard(self._path)


class FakeDisk:
    """The disk of one machine.

    capacity: bytes of file contents that fit, None for no limit. `syncs` counts the syncs of files that succeeded,
    `calls` all calls that change something or may fail.
    """

    def __init__(self, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.used = 0
        self.life = 0
        self.calls = 0
        self.syncs = 0
        self.locked: set[str] = set()
        self._crash_at: int | None = None
        self._faults: list[Fault] = []
        self._root = _Folder()

    # --- faults ---------------------------------------------------------------------------------------------------

    def fail(self, operation: str, path: str = "", *, error: int = errno.EIO, times: int = 1, skip: int = 0) -> Fault:
        """Plan a failure. operation: read, write, truncate, sync, reserve, open, map, rename, remove, make_folder or
        sync_folder; path: a part of the paths it is about; skip: so many matching calls still succeed; times -1: for
        ever.
        """
        fault = Fault(operation, path, error, times, skip)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Forget all planned failures, and a planned crash."""
        self._faults.clear()
        self._crash_at = None

    def crash_at_call(self, number: int) -> None:
        """Raise SimulatedCrash inside the call that `calls` will count as `number`; then call `crash`."""
        self._crash_at = number

    def crash(self, rng: random.Random) -> None:
        """The machine loses power and comes back: all handles, mappings and locks are dead."""
        self.life += 1
        self._crash_at = None
        self.locked.clear()
        self._root.crash(rng)
        self.used = self._count_used(self._root)

    def kill(self) -> None:
        """The process dies, the machine does not: handles and locks are dead, the page cache is still there."""
        self.life += 1
        self._crash_at = None
        self.locked.clear()
        self._unmap(self._root)

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Rot: one bit of the file changes, on the disk and for readers."""
        inode = self._file(path)
        for image in (inode.seen, inode.durable):
            if position < len(image.data):
                image.data[position] ^= 1 << bit

    def safe_end(self, path: str, start: int, end: int) -> int:
        """Where the bytes of a file from `start` on stop being safe: those before it are what readers see now after any
        crash. `end` where all are; `start` where the file's own name may be gone."""
        names = _names(path)
        folder, node = self._root, None
        for name in names:
            node = folder.durable.get(name)
            if node is None or node is not folder.entries.get(name):
                return start
            if isinstance(node, _Folder):
                folder = node
        if not isinstance(node, _Inode):
            return start
        safe = min(end, node.durable.size)
        for position, data in node.pending:
            if data is None or (position < safe and node.durable.read(len(data), position) != data):
                safe = min(safe, position)
        if node.durable.read(safe - start, start) != node.seen.read(safe - start, start):
            return start
        return max(safe, start)

    # --- what handles use -----------------------------------------------------------------------------------------

    def touch(self, operation: str, path: str, life: int, inode: _Inode | None = None) -> None:
        """Count a call, and fail it where that is planned. inode: of a sync, whose failure loses what it was to
        save."""
        if life != self.life:
            raise OSError(errno.EBADF, f"the machine was restarted since {path} was opened")
        self.calls += 1
        if self.calls == self._crash_at:
            raise SimulatedCrash(f"in {operation} of {path}")
        for fault in self._faults:
            if fault.hits(operation, path):
                if inode is not None:
                    inode.pending.clear()
                raise OSError(fault.error, os.strerror(fault.error), path)

    def write(self, path: str, inode: _Inode, data: bytes, position: int, life: int) -> None:
        """Write through the page cache; on a full disk as much as fits, then the error."""
        try:
            self.touch("write", path, life)
        except (SimulatedCrash, OSError):
            if life == self.life:
                self._put(inode, data[: len(data) // 2], position)  # a call that fails may have done a part
            raise
        grown = position + len(data) - inode.allocated
        if grown > 0 and self.capacity is not None and self.used + grown > self.capacity:
            fits = len(data) - (self.used + grown - self.capacity)
            if fits > 0:
                self._put(inode, data[:fits], position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._put(inode, data, position)

    def _put(self, inode: _Inode, data: bytes, position: int) -> None:
        end = position + len(data)
        if end > inode.allocated:
            self.used += end - inode.allocated
            inode.allocated = end
        inode.put(position, data)

    def allocate(self, inode: _Inode, end: int) -> None:
        """Take room up to `end` without changing the contents."""
        grown = end - inode.allocated
        if grown > 0:
            if self.capacity is not None and self.used + grown > self.capacity:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.used += grown
            inode.allocated = end

    def resize(self, inode: _Inode, size: int) -> None:
        """Cut, or lengthen with zeros that take no room."""
        if inode.allocated > size:
            self.used -= inode.allocated - size
            inode.allocated = size
        inode.resize(size)

    # --- Files ----------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.touch("open", path, self.life)
        folder, name = self._parent(path)
        node = folder.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            node = _Inode()
            folder.change(name, node)
        if isinstance(node, _Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return FakeFile(self, path, node, read_only=read_only)

    def map(self, path: str, size: int, *, writable: bool) -> Mapping:
        self.touch("map", path, self.life)
        folder, name = self._parent(path)
        node = folder.entries.get(name)
        if node is None and writable:
            node = _Inode()
            folder.change(name, node)
        inode = self._file(path) if node is None else node
        if isinstance(inode, _Folder):
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

    def is_folder(self, path: str) -> bool:
        try:
            self._folder(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: str) -> list[str]:
        self.touch("read", path, self.life)
        return sorted(self._folder(path).entries)

    def make_folder(self, path: str) -> None:
        self.touch("make_folder", path, self.life)
        folder = self._root
        for name in _names(path):
            node = folder.entries.get(name)
            if node is None:
                node = _Folder()
                folder.change(name, node)
            if not isinstance(node, _Folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = node

    def rename(self, old: str, new: str) -> None:
        self.touch("rename", old, self.life)
        folder, old_name = self._parent(old)
        new_folder, new_name = self._parent(new)
        assert folder is new_folder, f"{old} is renamed into another folder, {new}"
        node = folder.entries.get(old_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        replaced = folder.entries.get(new_name)
        if isinstance(replaced, _Inode):
            self.used -= replaced.allocated
        folder.change(new_name, node, moved_from=old_name)

    def remove(self, path: str) -> None:
        self.touch("remove", path, self.life)
        inode = self._file(path)
        folder, name = self._parent(path)
        folder.change(name, None)
        self.used -= inode.allocated

    def remove_folder(self, path: str) -> None:
        self.touch("remove", path, self.life)
        if self._folder(path).entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        folder, name = self._parent(path)
        folder.change(name, None)

    def sync_folder(self, path: str) -> None:
        self.touch("sync_folder", path, self.life)
        self._folder(path).sync()

    def room(self, path: str) -> Room:
        self._folder(path)
        total = _ENDLESS if self.capacity is None else self.capacity
        return Room(max(total - self.used, 0), total)

    def lock(self, path: str) -> FolderLock:
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self.open(path, create=True).close()
        self.locked.add(path)
        return _FakeLock(self, path)

    # --- the tree -------------------------------------------------------------------------------------------------

    def _parent(self, path: str) -> tuple[_Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name

    def _folder(self, path: str) -> _Folder:
        folder = self._root
        for name in _names(path):
            node = folder.entries.get(name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not isinstance(node, _Folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = node
        return folder

    def _file(self, path: str) -> _Inode:
        folder, name = self._parent(path)
        node = folder.entries.get(name)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _count_used(self, folder: _Folder) -> int:
        used = 0
        for node in folder.entries.values():
            if isinstance(node, _Folder):
                used += self._count_used(node)
            else:
                node.allocated = len(node.durable.data)
                used += node.allocated
        return used

    def _unmap(self, folder: _Folder) -> None:
        for node in folder.entries.values():
            if isinstance(node, _Folder):
                self._unmap(node)
            else:
                node.mapped = 0


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
