"""What is committed in one partition, in the order in which it became so: the truth all replicas and readers share.

Kept true: what was committed stays in the ledger, whatever cleaning takes from the logs; of each record it is known
whether its transaction is decided, whether a later one with its key is, and whether anything allows it to be gone.
Left to others: holding logs and readers against it (checkers.py, readings.py).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.sim.loop import SimulationError
from tests.sim.unclean import Loss
from tests.sim.workload import IDENTITY, Sent
from tidelog.records import RecordBatch, iter_batches
from tidelog.records.v2.control import EndTxnMarker, decode_control
from tidelog.records.v2.record import Record

DAY_MS: Final = 86_400_000
CLOCKS_DIFFER_MS: Final = 3_600_000
"""More than any clock of a world is wrong by."""


class Violation(SimulationError):
    """A promise of the cluster is broken."""


def identity(record: Record) -> bytes | None:
    """By what a record is known: its value, or what the header of a tombstone says."""
    return next((value for key, value in record.headers if key == IDENTITY), record.value)


@dataclass(slots=True)
class Cleanup:
    """What may be taken from the logs of a topic, by all settings that it has ever had. Times in ms, sizes in bytes."""

    compact: bool = False
    delete_retention_ms: int = DAY_MS
    retention_ms: float = math.inf
    retention_bytes: float = math.inf
    unclean: bool = False

    def widen(self, configs: Mapping[str, str]) -> None:
        """The topic has these settings now."""
        policy = configs.get("cleanup.policy", "delete")
        self.compact |= "compact" in policy
        self.unclean |= configs.get("unclean.leader.election.enable") == "true"
        self.delete_retention_ms = min(self.delete_retention_ms, int(configs.get("delete.retention.ms", DAY_MS)))
        if "delete" in policy:
            age, size = (int(configs.get(key, -1)) for key in ("retention.ms", "retention.bytes"))
            self.retention_ms = min(self.retention_ms, age if age >= 0 else 7 * DAY_MS)
            self.retention_bytes = min(self.retention_bytes, size if size >= 0 else math.inf)

    @property
    def expires(self) -> bool:
        """Does retention take records within a world's life, from each replica by its own clock?"""
        return self.retention_ms < CLOCKS_DIFFER_MS or self.retention_bytes < math.inf

    @property
    def takes_tombstones(self) -> bool:
        """Can a tombstone, or a marker without its transaction, be old enough to go within a world's life?"""
        return self.compact and self.delete_retention_ms < CLOCKS_DIFFER_MS


@dataclass(slots=True)
class Ledger:
    """See the module's words. Of compacted records too everything is kept."""

    name: str
    cleanup: Cleanup = field(default_factory=Cleanup)
    start: int = 0  # the highest log start that a replica has had
    end: int = 0
    deleted_to: int = 0  # an operator asked for everything below to be deleted
    lossy: bool = False  # anything may be lost: until an unclean leader has begun, or with the power of all, for good
    loss: Loss | None = None  # by unclean elections
    forgiven: int = 0  # how many times committed records were given up
    batches: dict[int, bytes] = field(default_factory=dict)  # by base offset, ascending
    next_of: dict[int, int] = field(default_factory=dict)  # by base offset of a batch: the offset behind it
    values: dict[int, bytes | None] = field(default_factory=dict)  # by offset, ascending, data records only
    offsets: dict[bytes, int] = field(default_factory=dict)  # by value: each is committed once
    last_of: dict[str, Sent] = field(default_factory=dict)  # by idempotent producer: what came last
    markers: set[tuple[int, int]] = field(default_factory=set)  # of transactions: producer id and epoch
    leaders: dict[int, str] = field(default_factory=dict)  # by epoch: which life of which node
    begun: dict[int, int] = field(default_factory=dict)  # by epoch: where the committed part ended when first led
    aborted: set[int] = field(default_factory=set)
    _bases: list[int] = field(default_factory=list)
    _order: list[int] = field(default_factory=list)  # offsets of data records
    _undecided: dict[int, list[int]] = field(default_factory=dict)  # by producer id, the oldest first
    _ended: dict[int, tuple[int, int]] = field(default_factory=dict)  # by producer id: epochs of its last marker
    _keyed: list[tuple[int, bytes]] = field(default_factory=list)  # not below the last stable offset yet
    _latest: dict[bytes, int] = field(default_factory=dict)  # by key: its last record that is decided, and not aborted
    _tombstones: set[int] = field(default_factory=set)
    _cleaned: set[bytes] = field(default_factory=set)  # batches that were found to be rightly cleaned

    @property
    def is_metadata(self) -> bool:
        """Is this the metadata log, which no client writes to?"""
        return self.name.startswith("__")

    @property
    def stable(self) -> int:
        """Everything below is committed and decided."""
        return next((offsets[0] for offsets in self._undecided.values()), self.end)

    # --- what becomes committed ---

    def add(self, batch: RecordBatch) -> list[int]:
        """The batch continues the ledger. Returns the offsets of the transaction that it decides. Raises Violation."""
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
                f"{self.name}: what producer {producer} sent in epoch {epoch} is committed at {batch.base_offset}, "
                f"behind the marker of epoch {ended}"
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
                f"{batch.base_offset}, behind one of epoch {coordinator}"
            )
        self.markers.add((producer, epoch))
        self._ended[producer] = epoch, control.coordinator_epoch
        offsets = self._undecided.pop(producer, [])
        if not control.committed:
            self.aborted.update(offsets)
        return offsets

    def _settle(self) -> None:
        """Keys count once nothing before them is undecided: only what is stable may be cleaned, or clean."""
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
        """What was committed from `end` on may be lost."""
        self.end = min(self.end, end)
        self.forgiven += 1
        if self.loss is not None:
            self.loss.gone.update(item for item in self.values.items() if item[0] >= self.end)
        self.batches = {base: data for base, data in self.batches.items() if base < self.end}
        self.values = {offset: value for offset, value in self.values.items() if offset < self.end}
        self.offsets = {value: offset for value, offset in self.offsets.items() if offset < self.end}
        self.last_of.clear()  # what its producers have sent meanwhile may be lost too
        self._bases, self._order = list(self.batches), list(self.values)

    def is_judged(self, node: str) -> bool:
        """Must the log of this node have what is committed?"""
        return not self.lossy and (self.loss is None or node in self.loss.sound)

    # --- what may be gone ---

    def may_be_gone(self, offset: int) -> bool:
        """May a record that was committed there be missing in a log, or be passed over by a reader?"""
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

    def missing(self, start: int, end: int) -> int | None:
        """The first offset in [start, end) that must be in a log which has no batch there; None where none must."""
        holder = max(0, bisect_right(self._bases, start) - 1)
        for base in self._bases[holder : bisect_left(self._bases, end)]:
            batch = next(iter(iter_batches(self.batches[base])))
            for offset in range(max(base, start), int(batch.next_offset)):
                if offset in self.values:
                    if not self.may_be_gone(offset):
                        return offset
                elif batch.is_control and offset >= self.start and not self.cleanup.takes_tombstones:
                    return offset
        return None

    def passed_over(self, start: int, end: int, *, decided: bool) -> int | None:
        """The first record in [start, end) that a reader must be given, None where there is none. decided: it reads
        what is decided only."""
        for offset in self._order[bisect_left(self._order, start) : bisect_left(self._order, end)]:
            if not (decided and offset in self.aborted) and not self.may_be_gone(offset):
                return offset
        return None

    def is_left_of(self, batch: RecordBatch, known: bytes) -> bool:
        """Is the batch what cleaning may have left of the one that was committed there?"""
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

    def youngest_ms(self, start: int, end: int) -> int:
        """The largest timestamp of a batch in [start, end); -1 for none."""
        bases = self._bases[bisect_left(self._bases, start) : bisect_left(self._bases, end)]
        headers = (next(iter(iter_batches(self.batches[base]))) for base in bases)
        return max((int(batch.max_timestamp) for batch in headers), default=-1)


def is_commit(batch: RecordBatch) -> bool:
    """Does this control batch commit a transaction?"""
    control = decode_control(next(iter(batch.records())))
    return isinstance(control, EndTxnMarker) and control.committed


def _header(batch: RecordBatch) -> tuple[object, ...]:
    """What cleaning leaves as it was."""
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
