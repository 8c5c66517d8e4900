"""The parts of a fake disk: files and directories with the state that programs see, the state on the disk, and the
changes in between.

Invariants: only `sync` and `crash` apply changes to the disk, in whole, in part or not at all. Flipped bits are known
until they are overwritten or truncated: a corrupt byte that is read and written back is still corrupt. Not here:
handles, faults, free space (fake_disk.py).
"""

from __future__ import annotations

import random
from typing import Final

BLOCK_BYTES: Final = 4096
"""The disk writes whole blocks of this size, in any order."""

Memo = dict[int, "Inode | Directory"]


class Image:
    """Bytes followed by zeros up to `size`: an empty file of 10 MiB needs no memory.

    rot: by position, the bits that differ from what was written.
    """

    __slots__ = ("data", "rot", "size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0
        self.rot: dict[int, int] = {}

    def write(self, position: int, data: bytes) -> None:
        have = len(self.data)
        if have < position:
            self.data.extend(bytes(position - have))
        end = position + len(data)
        if self.rot:
            kept = (at for at in self.rot if not position <= at < end or data[at - position] == self.data[at])
            self.rot = {at: self.rot[at] for at in kept}
        self.data[position:end] = data
        self.size = max(self.size, end)

    def resize(self, size: int) -> None:
        del self.data[size:]
        self.size = size
        if self.rot:
            self.rot = {at: bits for at, bits in self.rot.items() if at < size}

    def flip(self, position: int, bits: int) -> None:
        """Flip these bits of an existing byte, or flip them back."""
        self.data[position] ^= bits
        if left := self.rot.pop(position, 0) ^ bits:
            self.rot[position] = left

    def turn_rot(self) -> None:
        """Flip all corrupt bits back and keep them known; a second call flips them again."""
        for position, bits in self.rot.items():
            self.data[position] ^= bits

    def read(self, size: int, position: int) -> bytes:
        end = min(position + size, self.size)
        found = bytes(self.data[position:end])
        return found if len(found) >= end - position else found + bytes(end - position - len(found))

    def copy(self) -> Image:
        other = Image()
        other.data, other.size, other.rot = bytearray(self.data), self.size, dict(self.rot)
        return other


class Inode:
    """One file: the state that readers see, the state on the disk, and the changes in between, in order.

    A change is (position, bytes) for a write and (size, None) for a truncation or an extension. settled: number of
    changes that are no longer pending.
    """

    __slots__ = ("allocated", "durable", "links", "mapped", "pending", "seen", "settled")

    def __init__(self) -> None:
        self.seen = Image()
        self.durable = Image()
        self.pending: list[tuple[int, bytes | None]] = []
        self.settled = 0
        self.allocated = 0
        self.mapped = 0
        self.links = 0
        """Names beside the first one."""

    def put(self, position: int, data: bytes) -> None:
        """Write through the page cache."""
        self.seen.write(position, data)
        self.pending.append((position, data))

    def resize(self, size: int) -> None:
        """Truncate, or extend with zeros, in the page cache."""
        self.seen.resize(size)
        self.pending.append((size, None))

    def apply(self, change: tuple[int, bytes | None]) -> None:
        """Make one change durable."""
        position, data = change
        if data is None:
            self.durable.resize(position)
        else:
            self.durable.write(position, data)

    @property
    def changes(self) -> int:
        """The number of changes so far."""
        return self.settled + len(self.pending)

    def sync(self, changes: int) -> None:
        """Make the first `changes` changes durable: those before the sync began."""
        count = max(0, changes - self.settled)
        for change in self.pending[:count]:
            self.apply(change)
        del self.pending[:count]
        self.settled += count

    def lose_writes(self) -> None:
        """A sync failed: what it was to save never becomes durable, except the size."""
        kept = [change for change in self.pending if change[1] is None]
        self.settled += len(self.pending) - len(kept)
        self.pending = kept

    def twin(self, memo: Memo) -> Inode:
        """A copy of the file for another tree, not mapped. memo: the copies made so far, by the identity of the
        original."""
        other = memo.get(id(self))
        if other is None:
            other = memo[id(self)] = Inode()
            other.seen, other.durable = self.seen.copy(), self.durable.copy()
            other.pending, other.allocated, other.links = list(self.pending), self.allocated, self.links
        assert isinstance(other, Inode)
        return other

    def crash(self, rng: random.Random) -> None:
        """Come back with the state on the disk and some of the pending changes."""
        pending, self.pending = self.pending, []
        self.settled += len(pending)
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
                end = min(len(data), start + BLOCK_BYTES - (position + start) % BLOCK_BYTES)
                if rng.random() < 0.5:
                    self.apply((position + start, data[start:end]))
                start = end


class Directory:
    """One directory: the names that programs see, those on the disk, and the changes in between, in order."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.pending: list[tuple[str, Inode | Directory | None, str | None]] = []

    def change(self, name: str, node: Inode | Directory | None, *, moved_from: str | None = None) -> None:
        """Bind a name, or free it (None). moved_from: the name that is freed in the same step."""
        self._bind(self.entries, name, node, moved_from)
        self.pending.append((name, node, moved_from))

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def twin(self, memo: Memo) -> Directory:
        """A copy of the directory for another tree, with all its names, current and on the disk."""
        other = memo.get(id(self))
        if other is None:
            other = memo[id(self)] = Directory()
            other.entries = {name: node.twin(memo) for name, node in self.entries.items()}
            other.durable = {name: node.twin(memo) for name, node in self.durable.items()}
            other.pending = [
                (name, None if node is None else node.twin(memo), moved_from) for name, node, moved_from in self.pending
            ]
        assert isinstance(other, Directory)
        return other

    def crash(self, rng: random.Random) -> None:
        for name, node, moved_from in self.pending[: rng.randrange(len(self.pending) + 1) if self.pending else 0]:
            self._bind(self.durable, name, node, moved_from)
        self.pending.clear()
        self.entries = dict(self.durable)
        for _, node in sorted(self.entries.items()):
            node.crash(rng)

    @staticmethod
    def _bind(
        entries: dict[str, Inode | Directory], name: str, node: Inode | Directory | None, moved_from: str | None
    ) -> None:
        if moved_from is not None:
            entries.pop(moved_from, None)
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node
