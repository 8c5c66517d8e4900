"""The producers of one log: validation of their batches, open transactions, last stable offset.

Invariants:
  1. `check` changes nothing. `apply` applies its result once the batches are in the log.
  2. The first unstable offset is the first offset of the oldest transaction that is open or whose marker is not below
     the high watermark yet. The last stable offset is never above it.
  3. A snapshot contains the effect of all batches below the offset in its name. It is derived data: synced only before
     the log below it is deleted (`keeping`), used only if its checksum is right. Snapshots above a truncation offset
     are removed, durably, before anything is appended.
  4. A producer without an open transaction expires `producer.id.expiration.ms` after its last batch was appended, by
     the clock of this node: the timestamps of its records may be far in the past. A snapshot does not contain the
     append times, so they count from the loading of the state.
Not here: the effect of one batch (producer_entry.py), rebuilding from a log (producer_recovery.py), the transaction
indexes (aborted_transactions.py).
Source: Kafka's ProducerStateManager.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from storage.append_info import Origin
from storage.files.file_system import Files, read_file, remove_files, sync_paths, write_file
from storage.producers.producer_entry import CompletedTransaction, ProducerBatch, ProducerState
from storage.producers.snapshot_files import snapshot_offset, snapshot_path
from storage.producers.verification import (
    NOTHING_VERIFIED,
    UNVERIFIED,
    VERSION_2,
    TransactionCheck,
    VerificationGuard,
    Verifications,
)
from storage.segment.transaction_index import AbortedTransaction
from tidelog.errors import CorruptLog, InvalidTxnState, OutOfOrderSequenceNumber
from tidelog.records.producer_snapshot import ProducerSnapshot, decode_snapshot, encode_snapshot
from tidelog.records.v2.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.types import INT64_MAX, NO_PRODUCER_EPOCH, NO_SEQUENCE, Millis, Offset, ProducerId


class Duplicate(NamedTuple):
    """A batch that was appended before, at these offsets. timestamp: its largest timestamp."""

    first_offset: Offset
    last_offset: Offset
    timestamp: Millis


class StartedTransaction(NamedTuple):
    """A transaction whose first record has this offset."""

    producer_id: ProducerId
    first_offset: Offset


class ProducerChanges(NamedTuple):
    """The effect of batches on the state."""

    states: dict[ProducerId, ProducerState]
    transactions: Sequence[CompletedTransaction | StartedTransaction]
    """The transactions, in the order of the batches."""
    verified: dict[ProducerId, int]
    """For each producer of transactional batches, the last epoch whose guards no longer match."""


class ExpirableProducer(NamedTuple):
    """A producer without an open transaction."""

    producer_id: ProducerId
    known_since: Millis
    """Wall-clock time of its first append here, or of the loading of the state."""
    appended_at: Millis
    """The same of its last append."""


class ProducerStateManager:
    """Producer state and snapshots of one log. Use on the owner's thread only."""

    __slots__ = (
        "_appended_at",
        "_directory",
        "_files",
        "_known_since",
        "_producers",
        "_unreplicated",
        "expiration_ms",
        "open_transactions",
        "snapshots",
        "verifications",
    )

    def __init__(self, files: Files, directory: str, expiration_ms: int) -> None:
        """Also lists the snapshots. directory: of the partition. Raises OSError."""
        self._files, self._directory = files, directory
        self.expiration_ms = expiration_ms
        self._producers: dict[ProducerId, ProducerState] = {}
        self._appended_at: dict[ProducerId, Millis] = {}
        """Wall-clock time at which a producer's last batch was appended, or its state loaded."""
        self._known_since: dict[ProducerId, Millis] = {}
        """The same of its first batch."""
        self.open_transactions: dict[Offset, ProducerId] = {}
        """Open transactions by first offset, oldest first. For reading."""
        self._unreplicated: dict[Offset, Offset] = {}
        """Completed transactions whose markers are not below the high watermark: last offset by first offset."""
        found = (snapshot_offset(name) for name in files.list(directory))
        self.snapshots = sorted(offset for offset in found if offset is not None)
        """The offsets of the snapshot files, ascending. For reading."""
        self.verifications = Verifications()

    def succeed(self, state: ProducerStateManager) -> None:
        """Take over everything that the state of another log with the same records has in memory: producers whose
        batches are deleted, append times, and verifications in progress. That one is not used any more."""
        self._producers, self._unreplicated = state._producers, state._unreplicated
        self._appended_at, self._known_since = state._appended_at, state._known_since
        self.open_transactions, self.verifications = state.open_transactions, state.verifications

    def active_producers(self) -> tuple[ProducerState, ...]:
        """All known producers (Kafka's DescribeProducers)."""
        return tuple(self._producers.values())

    @property
    def first_unstable_offset(self) -> Offset | None:
        """First offset of the oldest transaction that is open or whose marker is not below the high watermark; None if
        there is no such transaction."""
        if not self.open_transactions and not self._unreplicated:
            return None
        oldest_open = next(iter(self.open_transactions), Offset(INT64_MAX))
        return min((oldest_open, *self._unreplicated))

    @property
    def has_transactions(self) -> bool:
        """True if a known producer has an open transaction or had one."""
        return bool(self.open_transactions) or any(state.coordinator_epoch >= 0 for state in self._producers.values())

    def is_duplicate(self, batch: ProducerBatch) -> bool:
        """True if a client's batch is one of the last five of its producer."""
        state = self._producers.get(batch.header.producer_id)
        return state is not None and state.duplicate_of(batch) is not None

    def state_of(self, producer_id: ProducerId) -> ProducerState | None:
        """The state of a producer; None if it is unknown."""
        return self._producers.get(producer_id)

    def begin_verification(self, producer_id: ProducerId, epoch: int, sequence: int = NO_SEQUENCE) -> VerificationGuard:
        """The guard with which a batch of a transaction may be appended once the transaction coordinator has confirmed
        the transaction; NOTHING_VERIFIED if it needs no confirmation: the transaction is open in the log. sequence: of
        the first record; -1 if the batch has none. Raises InvalidProducerEpoch if the log has a newer epoch of the
        producer."""
        state = self._producers.get(producer_id)
        if state is not None:
            state.ensure_epoch(epoch)
            if state.has_open_transaction(epoch):
                return NOTHING_VERIFIED
        return self.verifications.begin(producer_id, epoch, sequence)

    def check(
        self, batches: Sequence[ProducerBatch], origin: Origin, check: TransactionCheck = UNVERIFIED
    ) -> ProducerChanges | Duplicate:
        """Validate batches before their append. Returns their effect, or the position of an earlier copy (clients
        only). check: of transactional batches and markers.

        Raises OutOfOrderSequenceNumber, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced (not in
        replication).
        """
        states: dict[ProducerId, ProducerState] = {}
        transactions: list[CompletedTransaction | StartedTransaction] = []
        verified: dict[ProducerId, int] = {}
        for batch in batches:
            producer_id = batch.header.producer_id
            state = states.get(producer_id) or self._producers.get(producer_id)
            if state is None:
                state = ProducerState(producer_id)
            elif (followed := state.followed_by(batch)) is not None:
                states[producer_id] = followed
                continue
            elif origin is Origin.CLIENT:
                earlier = state.duplicate_of(batch)
                if earlier is not None:
                    return Duplicate(earlier.first_offset, earlier.last_offset, earlier.timestamp)
            if check.guard is not None:
                self._ensure_verified(state, batch, check.version, check.guard)
            elif check.version >= VERSION_2 and origin is Origin.CLIENT and state.epoch == NO_PRODUCER_EPOCH:
                _ensure_begins(batch, 0)
            after, completed = state.after(batch, origin, check)
            if batch.header.attributes & TRANSACTIONAL_BIT:
                of_next = batch.marker is not None and check.version >= VERSION_2
                verified[producer_id] = batch.header.producer_epoch - of_next
            if completed is not None:
                transactions.append(completed)
            if after.transaction_start >= 0 and after.transaction_start != state.transaction_start:
                transactions.append(StartedTransaction(producer_id, after.transaction_start))
            states[producer_id] = after
        return ProducerChanges(states, transactions, verified)

    def _ensure_verified(
        self, state: ProducerState, batch: ProducerBatch, version: int, guard: VerificationGuard
    ) -> None:
        """Raises InvalidTxnState for a transactional batch whose transaction is neither open in the log nor verified,
        OutOfOrderSequenceNumber if an earlier batch of it must be appended first."""
        header = batch.header
        if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) != TRANSACTIONAL_BIT:
            return
        state.ensure_epoch(header.producer_epoch)
        if state.has_open_transaction(header.producer_epoch):
            return
        lowest = self.verifications.lowest_sequence(header.producer_id, header.producer_epoch, guard)
        if lowest is None:
            raise InvalidTxnState(
                f"producer {header.producer_id} sent a batch in epoch {header.producer_epoch}, but no transaction of "
                "this epoch is open in the partition: it has ended, or the batch came too late"
            )
        _ensure_begins(batch, 0 if version >= VERSION_2 and state.epoch == NO_PRODUCER_EPOCH else lowest)

    def apply(self, changes: ProducerChanges) -> list[AbortedTransaction]:
        """Apply the result of `check` once the batches are in the log. Returns the transactions that they aborted."""
        self._producers.update(changes.states)
        for producer_id, epoch in changes.verified.items():
            self.verifications.end(producer_id, epoch)
        aborted: list[AbortedTransaction] = []
        for transaction in changes.transactions:
            if isinstance(transaction, StartedTransaction):
                self.open_transactions[transaction.first_offset] = transaction.producer_id
            else:
                aborted += self._complete(transaction)
        return aborted

    def _complete(self, transaction: CompletedTransaction) -> list[AbortedTransaction]:
        producer_id, first_offset, last_offset, aborted = transaction
        self.open_transactions.pop(first_offset, None)
        self._unreplicated[first_offset] = last_offset
        if not aborted:
            return []
        stable = next(iter(self.open_transactions), Offset(last_offset + 1))
        return [AbortedTransaction(producer_id, first_offset, last_offset, stable)]

    def replay(self, batch: ProducerBatch) -> Sequence[AbortedTransaction]:
        """Apply a batch that is in the log already. Returns the transactions that it aborted."""
        producer_id = batch.header.producer_id
        before = self._producers.get(producer_id) or ProducerState(producer_id)
        followed = before.followed_by(batch)
        if followed is not None:
            self._producers[producer_id] = followed
            return ()
        after, completed = before.after(batch, Origin.REPLICATION)
        self._producers[producer_id] = after
        if batch.header.attributes & TRANSACTIONAL_BIT:
            self.verifications.end(producer_id, after.epoch)
        if completed is not None:
            return self._complete(completed)
        if after.transaction_start >= 0 > before.transaction_start:
            self.open_transactions[after.transaction_start] = producer_id
        return ()

    def high_watermark_moved(self, high_watermark: Offset) -> None:
        """Remove completed transactions with their marker below the high watermark: they are stable."""
        if self._unreplicated:
            self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= high_watermark}

    def appended(self, batches: Iterable[ProducerBatch], now: Millis) -> None:
        """Record the append time of batches whose effect has been applied."""
        for batch in batches:
            producer_id = batch.header.producer_id
            self._appended_at[producer_id] = now
            self._known_since.setdefault(producer_id, now)

    def loaded(self, now: Millis) -> None:
        """Set the append times after loading to `now`: the files do not contain them."""
        self._appended_at = dict.fromkeys(self._producers, now)
        self._known_since = dict(self._appended_at)

    def expirable(self) -> list[ExpirableProducer]:
        """The producers without an open transaction, in the order in which they became known."""
        return [
            ExpirableProducer(producer_id, self._known_since[producer_id], self._appended_at[producer_id])
            for producer_id, state in self._producers.items()
            if state.transaction_start < 0
        ]

    def expire(self, now: Millis) -> int:
        """Remove producers whose idle time has expired. Returns their number."""
        expired = [each.producer_id for each in self.expirable() if now - each.appended_at >= self.expiration_ms]
        self.forget(expired)
        return len(expired)

    def forget(self, producer_ids: Iterable[ProducerId]) -> None:
        """Remove these producers; none may have an open transaction."""
        for producer_id in producer_ids:
            del self._producers[producer_id], self._appended_at[producer_id], self._known_since[producer_id]

    def decided_below(self, offset: Offset) -> Offset:
        """An offset such that every transaction that began below it has ended below `offset`, according to the newest
        snapshot at or below `offset`; 0 if that cannot be read. Raises OSError."""
        older = self.snapshots[: bisect_right(self.snapshots, offset)]
        if not older:
            return Offset(0)
        try:
            entries = self._read_snapshot(older[-1])
        except CorruptLog:
            return Offset(0)
        return min((Offset(one.transaction_start) for one in entries if one.transaction_start >= 0), default=older[-1])

    def _read_snapshot(self, offset: Offset) -> list[ProducerSnapshot]:
        path = snapshot_path(self._directory, offset)
        return decode_snapshot(read_file(self._files, path) or b"", path)

    def take_snapshot(self, offset: Offset) -> None:
        """Write a snapshot of the state below `offset`, unless it exists. Does nothing for offset 0. Raises OSError."""
        if offset <= 0 or offset in self.snapshots:
            return
        data = encode_snapshot(state.to_snapshot() for state in self._producers.values())
        write_file(self._files, snapshot_path(self._directory, offset), data, sync=False)
        insort(self.snapshots, offset)

    def keeping(self, base: Offset) -> Callable[[], None]:
        """Returns a function, for any thread, that makes the first snapshot at or above `base` durable: the batches
        below `base` are about to be deleted, and the state could not be rebuilt from them. If a snapshot is removed
        meanwhile, the next one is synced instead. The function raises OSError."""
        at = bisect_left(self.snapshots, base)
        paths = [snapshot_path(self._directory, offset) for offset in self.snapshots[at:]]

        def make_durable() -> None:
            for path in paths:
                try:
                    sync_paths(self._files, [path])
                except FileNotFoundError:
                    continue
                self._files.sync_directory(self._directory)
                return

        return make_durable

    def load(self, up_to: Offset) -> tuple[Offset | None, list[str]]:
        """Replace the state by that of the newest readable snapshot at or below `up_to`.

        Returns its offset, None if there is none, and messages about unreadable newer ones. Those are not used again
        and are rewritten when their offset is reached. Raises OSError.
        """
        self.clear()
        notes = []
        for offset in reversed(self.snapshots[: bisect_right(self.snapshots, up_to)]):
            try:
                entries = self._read_snapshot(offset)
            except CorruptLog as error:
                notes.append(error.message)
                self.snapshots.remove(offset)
                continue
            self._take(entries)
            return offset, notes
        return None, notes

    def _take(self, entries: Iterable[ProducerSnapshot]) -> None:
        states = [ProducerState.from_snapshot(entry) for entry in entries]
        self._producers = {state.producer_id: state for state in states}
        starts = sorted((state.transaction_start, state.producer_id) for state in states)
        self.open_transactions = {start: producer_id for start, producer_id in starts if start >= 0}

    def begin_with(self, offset: Offset, entries: Iterable[ProducerSnapshot], now: Millis) -> None:
        """Replace the state by that of the snapshot at `offset`, the only one there is."""
        self.clear()
        self.snapshots[:] = [offset]
        self._take(entries)
        self.loaded(now)

    def clear(self) -> None:
        """Reset the state; snapshot files stay."""
        self._producers = {}
        self._appended_at = {}
        self._known_since = {}
        self.open_transactions = {}
        self._unreplicated = {}
        self.verifications = Verifications()

    def remove_snapshots_above(self, offset: Offset) -> bool:
        """Remove snapshots above `offset`; the caller syncs the directory. Returns True if there were any. Raises
        OSError."""
        at = bisect_right(self.snapshots, offset)
        above = self.snapshots[at:]
        del self.snapshots[at:]
        remove_files(self._files, [snapshot_path(self._directory, stale) for stale in above])
        return bool(above)

    def remove_strays(self, bases: Sequence[Offset]) -> None:
        """Remove the files of the snapshots that `take_strays` returns. Raises OSError."""
        remove_files(self._files, self.take_strays(bases))

    def take_strays(self, bases: Sequence[Offset]) -> list[str]:
        """Remove from the list the snapshots that belong to no segment, except the last one if it is above the last
        base offset (clean stop). bases: base offsets of the segments, ascending. Returns the paths of the files to
        remove."""
        of_segments = set(bases)
        kept: list[Offset] = []
        strays: list[Offset] = []
        for offset in self.snapshots:
            clean_stop = offset == self.snapshots[-1] and bool(bases) and offset > bases[-1]
            (kept if offset in of_segments or clean_stop else strays).append(offset)
        self.snapshots[:] = kept
        return [snapshot_path(self._directory, offset) for offset in strays]


def _ensure_begins(batch: ProducerBatch, sequence: int) -> None:
    """Raises OutOfOrderSequenceNumber if the first batch of a transaction begins after this sequence."""
    header = batch.header
    if header.base_sequence > sequence:
        raise OutOfOrderSequenceNumber(
            f"producer {header.producer_id} began a transaction in epoch {header.producer_epoch} with sequence "
            f"{header.base_sequence}, expected {sequence}: an earlier batch is missing"
        )
