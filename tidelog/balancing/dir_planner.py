"""Plans moves of replicas between the log directories of one node, a pure function: each directory gets a share of the
bytes of all, in proportion to the size of its disk.

Invariants:
  1. A replica moves only out of a directory that is above its bound, or into one that is below it: its share, and a
     tenth of that or `SLACK_BYTES` more or less.
  2. A directory stays above its bound only if each of its replicas is so large that the directory that takes it would
     be as full, or if no other disk has space for one.
  3. After each move, the directory that took the replica is less full than the one that gave it was. So the plan ends,
     and what it leaves needs no further move: a second plan is empty.

Not here: which directories and replicas take part (cluster_balance.py), the execution (log_dir_moves.py).
Cost: 100 nodes of 4 directories with 1,500 replicas each take less than a second.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.types import TopicPartition

SLACK_BYTES: Final = 64 << 20
"""Differences below it are not worth a copy."""

_SLACK_PART: Final = 10

_UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of a log directory."""

    total_bytes: int = _UNKNOWN
    usable_bytes: int = _UNKNOWN


def even_directories(
    held: Mapping[str, Mapping[TopicPartition, int]],
    disks: Mapping[str, Disk],
    staying: Mapping[str, int],
) -> dict[TopicPartition, str]:
    """The new directories of the replicas that move.

    held: the directories that take replicas, with the bytes of each replica that may move. staying: bytes of others in
    these directories. disks: if the size of one is unknown, all count as equal.
    """
    directories = _Directories(held, disks, staying)
    while (move := directories.next_move()) is not None:
        directories.apply(*move)
    origins = {partition: path for path, replicas in held.items() for partition in replicas}
    return {partition: path for partition, path in directories.moved.items() if path != origins[partition]}


class _Directories:
    """The directories while they are planned."""

    def __init__(
        self,
        held: Mapping[str, Mapping[TopicPartition, int]],
        disks: Mapping[str, Disk],
        staying: Mapping[str, int],
    ) -> None:
        known = {path: disks.get(path, Disk()) for path in held}
        all_known = all(disk.total_bytes > 0 for disk in known.values())
        self._weights = {path: disk.total_bytes if all_known else 1 for path, disk in known.items()}
        self._bytes = {path: sum(replicas.values()) + staying.get(path, 0) for path, replicas in held.items()}
        total, weight = sum(self._bytes.values()), sum(self._weights.values())
        self._shares = {path: total * self._weights[path] // weight for path in held}
        self._space = {
            path: total if disk.usable_bytes == _UNKNOWN else disk.usable_bytes for path, disk in known.items()
        }
        """What may be copied into each directory. What leaves it frees space only later."""
        self._held = {
            path: sorted((size, partition) for partition, size in replicas.items() if size)
            for path, replicas in held.items()
        }
        self.moved: dict[TopicPartition, str] = {}

    def next_move(self) -> tuple[str, str, tuple[int, TopicPartition]] | None:
        """Source, target, and the replica."""
        order = sorted(self._bytes, key=lambda path: (self._surplus(path), path))
        for source in reversed(order):
            for target in order:
                needed = self._surplus(source) > self._slack(source) or -self._surplus(target) > self._slack(target)
                if needed and (replica := self._movable(source, target)) is not None:
                    return source, target, replica
        return None

    def apply(self, source: str, target: str, replica: tuple[int, TopicPartition]) -> None:
        """Move the replica."""
        size, partition = replica
        self._held[source].remove(replica)
        insort(self._held[target], replica)
        self._bytes[source] -= size
        self._bytes[target] += size
        self._space[target] -= size
        self.moved[partition] = target

    def _movable(self, source: str, target: str) -> tuple[int, TopicPartition] | None:
        """The largest replica that takes neither directory past its share; without one, the smallest, if the target
        is then less full than the source was."""
        held = self._held[source]
        most = min(self._surplus(source), -self._surplus(target), self._space[target])
        if index := bisect_right(held, most, key=lambda replica: replica[0]):
            return held[index - 1]
        if not held or held[0][0] > self._space[target]:
            return None
        filled = (self._bytes[target] + held[0][0]) * self._weights[source]
        # Without this, a replica could move back and forth, and the plan would not end.
        return held[0] if filled < self._bytes[source] * self._weights[target] else None

    def _surplus(self, path: str) -> int:
        """The bytes above its share; negative: below it."""
        return self._bytes[path] - self._shares[path]

    def _slack(self, path: str) -> int:
        return max(self._shares[path] // _SLACK_PART, SLACK_BYTES)
