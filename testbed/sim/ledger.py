"""The committed log of one partition, in commit order: the reference for all replicas and readers.

Invariants: a committed record stays in the ledger when cleaning removes it from the logs. For each record the ledger
knows whether its transaction is decided, whether a later record with its key is, and whether anything allows the record
to be gone. Not here: comparison with logs and readers (checkers.py, readings.py).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from testbed.sim.deletions import Deletions
from testbed.sim.loop import SimulationError
from testbed.sim.unclean import Loss
from testbed.sim.workload import IDENTITY, Sent
from tidelog.records import RecordBatch, iter_batches
from tidelog.records.v2.control import EndTxnMarker, decode_control
from tidelog.records.v2.record import Record

DAY_MS: Final = 86_400_000
CLOCKS_DIFFER_MS: Final = 3_600_000
"""More than the largest clock error of a world."""
METADATA_LOG: Final = "__cluster_metadata-0"


class Violation(SimulationError):
    """The cluster broke a guarantee."""


def identity(record: Record) -> bytes | None:
    """The identity of a record: its value, or the header of a tombstone."""
    return next((value for key, value in record.headers if key == IDENTITY), record.value)


@dataclass(slots=True)
class Cleanup:
    """What cleaning may remove from the logs of a topic, by all settings that it has ever had. Times in ms, sizes in
    bytes."""

    compact: bool = False
    delete_retention_ms: int = DAY_MS
    retention_ms: float = math.inf
    retention_bytes: float = math.inf
    unclean: bool = False
    tiered: bool = False

    def widen(self, configs: Mapping[str, str]) -> None:
        """Add the current settings of the topic."""
        policy = configs.get("cleanup.policy", "delete")
        self.compact |= "compact" in policy
        self.tiered |= configs.get("remote.storage.enable") == "true"
        self.unclean |= configs.get("unclean.leader.election.enable") == "true"
        self.delete_retention_ms = min(self.delete_retention_ms, int(configs.get("delete.retention.ms", DAY_MS)))
        if "delete" in policy:
            age, size = (int(configs.get(key, -1)) for key in ("retention.ms", "retention.bytes"))
            self.retention_ms = min(self.retention_ms, age if age >= 0 else 7 * DAY_MS)
            self.retention_bytes = min(self.retention_bytes, size if size >= 0 else math.inf)

    @property
    def expires(self) -> bool:
        """Whether retention can remove records within the duration of a world. Each replica goes by its own clock."""
        return self.retention_ms < CLOCKS_DIFFER_MS or self.retention_bytes < math.inf

    @property
    def takes_tombstones(self) -> bool:
        """Whether a tombstone, or a marker without its transaction, can reach the age of removal within the duration
        of a world."""
        return self.compact and self.delete_retention_ms < CLOCKS_DIFFER_MS


@dataclass(slots=True)
class Ledger:
    """The committed log of one partition. It keeps everything, also of compacted topics."""

    name: str
    cleanup: Cleanup = field(default_factory=Cleanup)
    start: int = 0  # the highest log start offset that any replica has had
    end: int = 0
    deletions: Deletions = field(default_factory=Deletions)
    # anything may be lost: until an unclean leader has begun, or permanently after a power loss of all machines
    lossy: bool = False
    loss: Loss | None = None  # by unclean elections
    forgiven: int = 0  # how many times committed records were allowed to be lost
    batches: dict[int, bytes] = field(default_factory=dict)  # by base offset, ascending
    next_of: dict[int, int] = field(default_factory=dict)  # by base offset of a batch: its next offset
    values: dict[int, bytes | None] = field(default_factory=dict)  # by offset, ascending, data records only
    offsets: dict[bytes, int] = field(default_factory=dict)  # by value; each value is committed once
    last_of: dict[str, Sent] = field(default_factory=dict)  # by idempotent producer: its last committed record
    markers: set[tuple[int, int]] = field(default_factory=set)  # of transactions: producer ID and epoch
    leaders: dict[int, str] = field(default_factory=dict)  # by epoch: node and incarnation
    begun: dict[int, int] = field(default_factory=dict)  # by epoch: end of the committed log when its leader began
    aborted: set[int] = field(default_factory=set)
    _bases: list[int] = field(default_factory=list)
    _order: list[int] = field(default_factory=list)  # offsets of data records
    _undecided: dict[int, list[int]] = field(default_factory=dict)  # by producer ID, oldest first
    _ended: dict[int, tuple[int, int]] = field(default_factory=dict)  # by producer ID: epochs of its last marker
    _keyed: list[tuple[int, bytes]] = field(default_factory=list)  # not yet below the last stable offset
    _latest: dict[bytes, int] = field(default_factory=dict)  # by key: its last record that is decided and not aborted
    _tombstones: set[int] = field(default_factory=set)
    _cleaned: set[bytes] = field(default_factory=set)  # batches that are verified as correctly cleaned

    @property
    def deleted_to(self) -> int:
        """An operator has requested the deletion of everything below."""
        return self.deletions.limit(self.end)

    @property
    def is_metadata(self) -> bool:
        """Whether this is the metadata log, which no client writes to."""
        return self.name == METADATA_LOG

    @property
    def is_internal(self) -> bool:
        """Whether only coordinators write to this log, or only the controller."""
        return self.name.startswith("__")

    @property
    def stable(self) -> int:
        """The last stable offset: everything below it is committed and decided."""
        return next((offsets[0] for offsets in self._undecided.values()), self.end)

    def is_undecided(self, offset: int) -> bool:
        """Whether the record belongs to an open transaction."""
        return any(offset in offsets for offsets in self._undecided.values())

    # --- commits ---

    def add(self, batch: RecordBatch) -> list[int]:
        """Append a committed batch. Returns the offsets of the transaction that it decides. Raises Violation."""
        base = int(batch.base_offset)
        self.batches[base] = bytes(batch.buffer)
        self._bases.append(base)
        self.end = self.next_of[base] = int(batch.next_offset)
        decided = [] if self.is_metadata or not batch.is_transactional else self._note_transaction(batch)
        if batch.is_control:
            self._settle()
            return decided
        for record in batch.records():
            offset = int(record.offset)
            self.values[offset] = identity(record)
            self._order.append(offset)
            if record.key is not None:
                self._keyed.append((offset, record.key))
            if record.value is None:
                self._tombstones.add(offset)
        self._settle()
        return decided

    def _note_transaction(self, batch: RecordBatch) -> list[int]:
        producer, epoch = int(batch.producer_id), int(batch.producer_epoch)
        ended, coordinator = self._ended.get(producer, (-1, -1))
        if epoch < ended:
            raise Violation(
                f"{self.name}: a record of producer {producer} in epoch {epoch} is committed at {batch.base_offset}, "
                f"after the marker of epoch {ended}"
            )
        if not batch.is_control:
            mine = range(int(batch.base_offset), int(batch.next_offset))
            self._undecided.setdefault(producer, []).extend(mine)
            return []
        control = decode_control(next(iter(batch.records())))
        assert isinstance(control, EndTxnMarker), f"{self.name}: {control} in a transaction"
        if control.coordinator_epoch < coordinator:
            raise Violation(
                f"{self.name}: a marker of coordinator epoch {control.coordinator_epoch} is committed at "
                f"{batch.base_offset}, after one of epoch {coordinator}"
            )
        self.markers.add((producer, epoch))
        self._ended[producer] = epoch, control.coordinator_epoch
        offsets = self._undecided.pop(producer, [])
        if not control.committed:
            self.aborted.update(offsets)
        return offsets

    def _settle(self) -> None:
        """Count keys up to the last stable offset: the cleaner does not go beyond it."""
        if not self._keyed or not self.cleanup.compact:
            return
        stable, count = self.stable, 0
        for offset, key in self._keyed:
            if offset >= stable:
                break
            count += 1
            if offset not in self.aborted:
                self._latest[key] = offset
        del self._keyed[:count]

    def forgive(self, end: int) -> None:
        """Allow the loss of everything committed from `end` on."""
        self.end = min(self.end, end)
        self.deletions.lost_above(self.end)
        self.forgiven += 1
        if self.loss is not None:
            self.loss.gone.update(item for item in self.values.items() if item[0] >= self.end)
        self.batches = {base: data for base, data in self.batches.items() if base < self.end}
        self.values = {offset: value for offset, value in self.values.items() if offset < self.end}
        self.offsets = {value: offset for value, offset in self.offsets.items() if offset < self.end}
        self.last_of.clear()  # later records of its producers may be lost too
        self._bases, self._order = list(self.batches), list(self.values)

    def forgive_range(self, start: int, end: int) -> None:
        """Allow the loss of the records in [start, end) that had to be in a log. Compaction leaves gaps too."""
        if self.loss is not None:
            self.loss.accepted.append(range(start, end))
        while (offset := self.missing(start, end)) is not None:
            value = self.values.pop(offset, None)
            if self.loss is not None:
                self.loss.gone.add((offset, value))
            if value is not None:
                self.offsets.pop(value, None)
            start = offset + 1
        self.forgiven += 1
        self.last_of.clear()
        self._order = list(self.values)

    def is_judged(self, node: str) -> bool:
        """Whether the log of this node must contain what is committed."""
        return not self.lossy and (self.loss is None or node in self.loss.sound)

    # --- allowed losses ---

    def may_be_gone(self, offset: int) -> bool:
        """Whether a record committed at that offset may be missing in a log and may be skipped by a reader."""
        if offset < self.start or self.lossy:
            return True
        if not self.cleanup.compact or offset >= self.stable:
            return False
        if offset in self.aborted:
            return True
        for key in self._keys_at(offset):
            if self._latest.get(key, -1) > offset:
                return True
        return offset in self._tombstones and self.cleanup.takes_tombstones

    def _keys_at(self, offset: int) -> list[bytes]:
        data = self.batches[self._bases[bisect_left(self._bases, offset + 1) - 1]]
        batch = next(iter(iter_batches(data)))
        return [record.key for record in batch.records() if record.offset == offset and record.key is not None]

    def record_at(self, offset: int) -> Record:
        """The record at the offset of a data record."""
        data = self.batches[self._bases[bisect_left(self._bases, offset + 1) - 1]]
        return next(each for each in next(iter(iter_batches(data))).records() if each.offset == offset)

    def decided_records(self) -> list[Record]:
        """The records that a reader with read_committed receives, whether cleaning has removed them since or not."""
        stable = self.stable
        visible = {offset for offset in self.values if offset < stable and offset not in self.aborted}
        batches = (batch for data in self.batches.values() for batch in iter_batches(data))
        return [record for batch in batches for record in batch.records() if record.offset in visible]

    def missing(self, start: int, end: int) -> int | None:
        """The first offset in [start, end) whose batch must be in a log that has no batch in this range; None if
        there is none. A deletion may move start, end and watermark into a batch."""
        holder = max(0, bisect_right(self._bases, start) - 1)
        for base in self._bases[holder : bisect_left(self._bases, end)]:
            batch = next(iter(iter_batches(self.batches[base])))
            for offset in range(max(base, start), min(int(batch.next_offset), end)):
                if offset in self.values:
                    if not self.may_be_gone(offset):
                        return offset
                elif batch.is_control and offset >= self.start and not self.cleanup.takes_tombstones:
                    return offset
        return None

    def passed_over(self, start: int, end: int, *, decided: bool) -> int | None:
        """The first record in [start, end) that a reader must receive; None if there is none. decided: the reader
        reads with read_committed."""
        for offset in self._order[bisect_left(self._order, start) : bisect_left(self._order, end)]:
            if not (decided and offset in self.aborted) and not self.may_be_gone(offset):
                return offset
        return None

    def is_left_of(self, batch: RecordBatch, known: bytes) -> bool:
        """Whether the batch is a valid result of cleaning the batch committed at its offset."""
        if not self.cleanup.compact or batch.next_offset > self.stable:
            return False
        data = bytes(batch.buffer)
        if data in self._cleaned:
            return True
        whole = next(iter(iter_batches(known)))
        if _header(whole) != _header(batch):
            return False
        there, left = list(whole.records()), list(batch.records())
        kept = set(left)
        gone = [record for record in there if record not in kept]
        if len(gone) + len(left) != len(there):
            return False
        if batch.is_control and gone and not self.cleanup.takes_tombstones:
            return False
        if not batch.is_control and not all(self.may_be_gone(int(record.offset)) for record in gone):
            return False
        self._cleaned.add(data)
        return True

    def size_from(self, start: int) -> int:
        """Bytes of the committed batches from an offset on."""
        return sum(len(data) for base, data in self.batches.items() if base >= start)

    def youngest_ms(self, start: int, end: int) -> int:
        """The largest timestamp of a batch in [start, end); -1 if there is none."""
        bases = self._bases[bisect_left(self._bases, start) : bisect_left(self._bases, end)]
        headers = (next(iter(iter_batches(self.batches[base]))) for base in bases)
        return max((int(batch.max_timestamp) for batch in headers), default=-1)


def is_commit(batch: RecordBatch) -> bool:
    """Whether this control batch commits a transaction."""
    control = decode_control(next(iter(batch.records())))
    return isinstance(control, EndTxnMarker) and control.committed


def _header(batch: RecordBatch) -> tuple[object, ...]:
    """The header fields that cleaning leaves unchanged."""
    return (
        batch.base_offset,
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        batch.is_control,
    )
