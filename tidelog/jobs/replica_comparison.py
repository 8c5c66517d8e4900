"""Compares the replicas of one partition while their batches arrive, and names the first difference.

Batches of all replicas are taken in lockstep, by offset. The bytes of a batch are the same on every replica, because
followers store what the leader sends: offsets, leader epoch, checksum and records.

On a compacted topic each replica is compacted by itself at a time of its own, so batches may differ. There records are
compared, by offset: what two replicas have at one offset must be equal, and a record that a replica lacks must be one
that compaction may remove (`CompactedComparison`).

Invariants:
  1. A replica lacks an offset only if it has shown what is around it.
  2. Memory: what was fed and not yet compared. For a compacted topic also one entry for each key of which a replica
     lacks the last record so far, at most `KEYS_MAX`, and the records of open transactions.

Not here: reading (tidelog/client/replica_reader.py), checksums and the order within one replica (replica_check.py).
Source: what the cleaner removes: Kafka's LogCleaner, KIP-98 for transactions, KIP-534 for tombstones and markers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from tidelog.types import LeaderEpoch, NodeId, Offset, ProducerId

KEYS_MAX: Final = 1_000_000
"""Entries of missing keys: some 200 MiB. Further keys are counted and not compared."""


class AuditedBatch(NamedTuple):
    """A batch of a replica."""

    offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    checksum: int
    """As stored in its header."""
    data: bytes
    """All its bytes."""

    def __str__(self) -> str:
        return (
            f"offsets {self.offset}..{self.last_offset}, epoch {self.leader_epoch}, checksum {self.checksum:08x}, "
            f"{len(self.data)} bytes"
        )


class AuditedRecord(NamedTuple):
    """A record of a compacted topic."""

    offset: Offset
    leader_epoch: LeaderEpoch
    digest: bytes
    """Digest of key, value, headers and timestamp."""
    key: bytes | None
    """Digest of the key; None if it has none."""
    is_tombstone: bool = False
    producer: ProducerId | None = None
    """The producer of a record in a transaction; None outside a transaction."""
    is_committed: bool | None = None
    """The outcome in a marker; None for a record."""

    def __str__(self) -> str:
        return f"offset {self.offset}, epoch {self.leader_epoch}, digest {self.digest.hex()[:8]}"


Item = TypeVar("Item", AuditedBatch, AuditedRecord)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference."""

    offset: Offset
    kind: str
    """missing, epoch, checksum, bounds (batches begin at the same offset and end at different ones) or bytes."""
    found: Mapping[NodeId, str | None]
    """What each replica has at the offset; None if it lacks it."""

    def __str__(self) -> str:
        groups: dict[str, list[str]] = {}
        for node, what in self.found.items():
            groups.setdefault(what or "nothing", []).append(str(node))
        parts = "; ".join(
            f"{'nodes' if len(nodes) > 1 else 'node'} {', '.join(nodes)} {'have' if len(nodes) > 1 else 'has'} {what}"
            for what, nodes in groups.items()
        )
        return f"{self.kind} at offset {self.offset}: {parts}"


class ReplicaComparison(ABC, Generic[Item]):
    """Compares the records of a partition's replicas, each read at its own pace, up to the first difference."""

    def __init__(self, nodes: Sequence[NodeId]) -> None:
        self._queues: dict[NodeId, deque[Item]] = {node: deque() for node in nodes}
        self._starts: dict[NodeId, Offset] = {}
        self._ends: dict[NodeId, Offset] = {}
        self.difference: Difference | None = None
        """The first difference; nothing is compared behind it."""
        self.compared = 0
        """Batches or records that were compared on at least two replicas."""

    def begin_at(self, node: NodeId, start: Offset) -> None:
        """The replica shows nothing below `start`: retention has removed it."""
        self._starts[node] = start

    def feed(self, node: NodeId, items: Sequence[Item]) -> None:
        """Add the next records of a replica, by offset."""
        # After a difference the replicas are only checked, each by itself: what nothing takes would fill the memory.
        if self.difference is None:
            self._queues[node].extend(items)
            self._compare()

    def close(self, node: NodeId, end: Offset) -> None:
        """The replica has shown everything below `end`; the rest is unknown."""
        if self.difference is None:
            self._ends[node] = end
            self._compare()

    def hungry(self) -> list[NodeId]:
        """The replicas from which more records are needed to continue the comparison; none after a difference."""
        if self.difference is not None:
            return []
        return [node for node, queue in self._queues.items() if not queue and node not in self._ends]

    def _take(self) -> Iterator[tuple[Offset, dict[NodeId, Item | None]]]:
        """Yield the replicas' records at each next offset, None for a replica that lacks it, while all are known."""
        while not self.hungry():
            fronts = [queue[0].offset for queue in self._queues.values() if queue]
            if not fronts:
                return
            offset = min(fronts)
            found: dict[NodeId, Item | None] = {}
            for node, queue in self._queues.items():
                if queue and queue[0].offset == offset:
                    found[node] = queue.popleft()
                # Retention may have removed it below the start, and from the end on it was not read: not missing.
                elif self._starts.get(node, 0) <= offset < self._ends.get(node, offset + 1):
                    found[node] = None
            yield offset, found

    @abstractmethod
    def finish(self) -> None:
        """All replicas are closed."""

    @abstractmethod
    def _compare(self) -> None:
        """Compare what all replicas have shown."""


class BatchComparison(ReplicaComparison[AuditedBatch]):
    """Compares batch by batch, for topics without compaction."""

    def finish(self) -> None:
        """All replicas are closed."""

    def _compare(self) -> None:
        for offset, found in self._take():
            kind = _batch_difference(list(found.values()))
            if kind:
                self.difference = _difference(kind, offset, found)
                return
            self.compared += len(found) > 1


def _batch_difference(found: Sequence[AuditedBatch | None]) -> str:
    present = [each for each in found if each is not None]
    if len(present) < len(found):
        return "missing"
    first = present[0]
    if all(each.data == first.data for each in present[1:]):
        return ""
    if len({each.last_offset for each in present}) > 1:
        return "bounds"
    if len({each.leader_epoch for each in present}) > 1:
        return "epoch"
    return "checksum" if len({each.checksum for each in present}) > 1 else "bytes"


@dataclass(slots=True)
class _Missing:
    """The last record of a key so far, which a replica lacks."""

    offset: Offset
    found: dict[NodeId, AuditedRecord | None] = field(repr=False)


class _Round(NamedTuple):
    key: bytes
    found: dict[NodeId, AuditedRecord | None]
    is_tombstone: bool


class CompactedComparison(ReplicaComparison[AuditedRecord]):
    """Compares record by record, for topics with compaction.

    A replica may lack a record if it has a later one of the same key, if a later one is a tombstone (which it may have
    removed as well, after `delete.retention.ms`), if the record is a tombstone itself, belongs to an aborted
    transaction, or has no key. Markers of transactions may be missing. A later record in a transaction counts once its
    commit marker is seen: the cleaner does not use undecided records.
    """

    def __init__(self, nodes: Sequence[NodeId], *, keys_max: int = KEYS_MAX) -> None:
        super().__init__(nodes)
        self._keys_max = keys_max
        self._missing: dict[tuple[NodeId, bytes], _Missing] = {}
        self._open: dict[ProducerId, list[_Round]] = {}
        self._replaced_at: dict[tuple[NodeId, bytes], Offset] = {}
        """While transactions are open: the last record of a key that replaces earlier ones. A transaction ends after
        later records of its keys were compared."""
        self.uncompared_keys = 0
        """Missing records that were not followed, because of `keys_max`."""

    def finish(self) -> None:
        """All replicas are closed: records that are missing still are lost. A replica that ends before another one is
        not judged, since the later record of a key may lie behind its end."""
        if self.difference is not None:
            return
        for rounds in self._open.values():
            for each in rounds:
                self._apply(each, is_decided=False)
        ends = {node: self._ends.get(node, Offset(0)) for node in self._queues}
        whole = {node for node, end in ends.items() if end == max(ends.values())}
        lost = [each for (node, _), each in self._missing.items() if node in whole]
        if lost:
            first = min(lost, key=lambda each: each.offset)
            self.difference = _difference("missing", first.offset, first.found)

    def _compare(self) -> None:
        for offset, found in self._take():
            present = [each for each in found.values() if each is not None]
            first = present[0]
            if any((each.digest, each.leader_epoch) != (first.digest, first.leader_epoch) for each in present[1:]):
                kind = "epoch" if all(each.digest == first.digest for each in present) else "bytes"
                self.difference = _difference(kind, offset, found)
                return
            self.compared += len(present) > 1
            if first.is_committed is not None:
                self._end_transaction(first)
            elif first.key is not None:
                each = _Round(first.key, found, first.is_tombstone)
                if first.producer is None:
                    self._apply(each)
                else:
                    self._open.setdefault(first.producer, []).append(each)

    def _end_transaction(self, marker: AuditedRecord) -> None:
        assert marker.producer is not None, "a marker has a producer"
        for each in self._open.pop(marker.producer, ()):
            if marker.is_committed:
                self._apply(each)
        if not self._open:
            self._replaced_at.clear()

    def _apply(self, each: _Round, *, is_decided: bool = True) -> None:
        """Follow which replicas lack the last record of the key. is_decided: False if its transaction is open, so that
        no replica may have removed it, nor an earlier record because of it."""
        offset = _offset_of(each)
        for node, record in each.found.items():
            place = node, each.key
            known = self._missing.get(place)
            if known is not None and known.offset > offset:
                continue  # a transaction ends after later records of its keys were compared
            if record is not None or (each.is_tombstone and is_decided):
                if is_decided:
                    self._missing.pop(place, None)
                    if self._open:
                        self._replaced_at[place] = Offset(max(offset, self._replaced_at.get(place, offset)))
            elif is_decided and self._replaced_at.get(place, offset) > offset:
                continue  # the replica has a later record of the key: compaction may have removed this one
            elif known is None and len(self._missing) >= self._keys_max:
                self.uncompared_keys += 1
            else:
                self._missing[place] = _Missing(offset, each.found)


def _offset_of(each: _Round) -> Offset:
    return next(record.offset for record in each.found.values() if record is not None)


def _difference(kind: str, offset: Offset, found: Mapping[NodeId, Item | None]) -> Difference:
    return Difference(offset, kind, {node: None if each is None else str(each) for node, each in found.items()})
