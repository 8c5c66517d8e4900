"""The producer state of one log: duplicate detection and checks before an append, updates after it, and the effects of
rolls, truncations and a moving log start.

Invariants:
  1. The state does not change before the batches are in the log. A duplicate changes nothing.
  2. A snapshot at a segment's base offset contains exactly what lies below it: it is taken before the segment starts.
  3. A truncation removes the snapshots above it before the directory is synced. The state is rebuilt from the remaining
     log before the next append or answer: no state above a truncation survives.
Not here: the state itself (producer_state.py), how it is rebuilt (producer_recovery.py), the order of the steps of an
append or a truncation (log.py).
Source: Kafka's UnifiedLog.analyzeAndValidateProducerState, LocalLog.roll, UnifiedLog.truncateTo.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from storage.append_info import LogAppendInfo, Origin
from storage.files.file_system import Files
from storage.log.cold_read import TransactionsRead
from storage.log.validation import Prepared
from storage.log_config import LogConfig
from storage.producers.aborted_transactions import AbortedTransactions, HoleRule
from storage.producers.producer_entry import ProducerBatch, read_marker
from storage.producers.producer_recovery import Replayed, rebuild
from storage.producers.producer_state import Duplicate, ProducerChanges, ProducerStateManager
from storage.producers.verification import NOTHING_VERIFIED, UNVERIFIED, TransactionCheck, VerificationGuard
from storage.recovery.loaded import Damage, LoadedLog
from storage.segment.segment import LogSegment
from storage.segment.segment_bytes import SegmentBytes
from storage.segment.segments import LogSegments
from storage.segment.transaction_index import AbortedTransaction
from tidelog.records.producer_snapshot import decode_snapshot
from tidelog.records.v2.batch import CONTROL_BIT
from tidelog.records.v2.header import walk_headers
from tidelog.types import NO_PRODUCER_ID, NO_TIMESTAMP, Buffer, Millis, Offset, TimestampType

_ROLLS_SHARE: Final = 8
"""The file of agreed transaction indexes lists every segment. It is written when an eighth of the segments are new, so
that the cost of a roll does not grow with the number of segments.
"""


class LogProducers:
    """The producers of one log. Methods that access the disk raise OSError."""

    __slots__ = ("_aborted", "_checked", "_rolls", "_segments", "damage", "notes", "state")

    def __init__(
        self,
        files: Files,
        path: str,
        segments: LogSegments,
        loaded: LoadedLog,
        config: LogConfig,
        *,
        high_watermark: Offset,
        now: Millis,
    ) -> None:
        """Loads the newest snapshot and replays the batches after it. high_watermark: from the checkpoint."""
        self._segments = segments
        self._rolls = 0
        """Rolls since the agreed transaction indexes were last recorded."""
        self._checked: tuple[Sequence[ProducerBatch], ProducerChanges] | None = None
        """The batches checked last and the changes they cause; applied once the batches are in the log."""
        self.state = ProducerStateManager(files, path, config.producer_id_expiration_ms)
        self._aborted = AbortedTransactions(files, path)
        log_start, log_end = loaded.log_start, loaded.log_end
        read_from = log_end if loaded.read_from is None else min(loaded.read_from, log_end)
        # They may contain lost batches, but for those at the start: a power loss can bring back a segment below the
        # local start without its snapshot, and the producers of the remote part are in that of the local start only.
        removed = self.state.remove_snapshots_above(max(read_from, log_start, loaded.local_log_start))
        self.state.remove_strays([segment.base_offset for segment in segments])
        if removed:
            files.sync_directory(path)
        replayed = rebuild(
            self.state,
            segments.all,
            log_start=log_start,
            log_end=log_end,
            high_watermark=high_watermark,
            now=now,
            aborted=self._aborted,
            read_from=read_from,
        )
        self.notes = tuple(replayed.notes)
        self.damage = _damage(replayed, loaded.log_end)
        """What could not be replayed; None for nothing."""
        if loaded.read_from is not None:
            self._aborted.recovered(loaded.read_from)
        elif loaded.fresh:
            self._aborted.begin(segments.active.base_offset)
        else:
            self._aborted.recall(segments.active)

    def aborted(
        self, start: Offset, end: Offset, is_hole: HoleRule, *, wait: bool = True
    ) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions with records in [start, end). is_hole: LogReader.is_hole. wait: wait for the disk;
        if False, raises Unverified instead. Also raises BrokenChain."""
        return self._aborted.collect(self._segments, start, end, is_hole, wait=wait)

    def enter(self, read: TransactionsRead, is_hole: HoleRule) -> None:
        """Store the transaction data that was read of a segment, unless the segment has grown since."""
        if read.segment.size == read.size:
            self._aborted.enter(read.segment, self._segments, is_hole, read.found, read.end)

    def unverified(self, end: Offset) -> list[LogSegment]:
        """The closed segments below `end` whose batches a search for aborted transactions would have to read."""
        closed = [segment for segment in self._segments.all[:-1] if segment.base_offset < end]
        return self._aborted.unverified(closed)

    def is_duplicate(self, records: Buffer) -> bool:
        """True if the header of the first batch matches a batch that is already in the log."""
        for header in walk_headers(records):
            return header.producer_id > NO_PRODUCER_ID and self.state.is_duplicate(ProducerBatch(header))
        return False

    def begin_verification(self, records: Buffer) -> VerificationGuard:
        """As `ProducerStateManager.begin_verification`, for a client's batch; NOTHING_VERIFIED also for a duplicate."""
        for header in walk_headers(records):
            if self.state.is_duplicate(ProducerBatch(header)):
                break
            return self.state.begin_verification(header.producer_id, header.producer_epoch, header.base_sequence)
        return NOTHING_VERIFIED

    def check(
        self, prepared: Prepared, origin: Origin, check: TransactionCheck = UNVERIFIED
    ) -> Sequence[ProducerBatch] | Duplicate:
        """The batches with a producer id, if they may be appended; a Duplicate if the first batch is already in the
        log. check: of transactional batches and markers.

        Raises OutOfOrderSequenceNumber, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced, and
        CorruptRecord for a marker that cannot be read; in replication only CorruptRecord.
        """
        batches = []
        for i, header in enumerate(prepared.headers):
            if header.producer_id > NO_PRODUCER_ID:
                marker = read_marker(prepared.batch(i)) if header.attributes & CONTROL_BIT else None
                batches.append(ProducerBatch(header, marker))
        if batches and origin is not Origin.REPLICATION:
            checked = self.state.check(batches, origin, check)
            if isinstance(checked, Duplicate):
                return checked
            self._checked = batches, checked
        return batches

    def appended(self, batches: Sequence[ProducerBatch], now: Millis) -> None:
        """Apply checked batches that are now in the active segment."""
        aborted: list[AbortedTransaction] = []
        checked, self._checked = self._checked, None
        if checked is not None and checked[0] is batches:
            aborted = self.state.apply(checked[1])
        else:
            for batch in batches:
                aborted += self.state.replay(batch)
        self.state.appended(batches, now)
        if aborted:
            self._aborted.append(self._segments.active.base_offset, aborted)

    def rolled(self, closed: Offset, base_offset: Offset) -> None:
        """The segment at `closed` is closed, the segment at `base_offset` is new."""
        self._aborted.close(closed, self._open_since)
        self._aborted.begin(base_offset)
        self._rolls += 1
        if self._rolls * _ROLLS_SHARE >= len(self._segments):
            self._rolls = 0
            self._aborted.note_agreements(self._segments, self._open_since)

    @property
    def _open_since(self) -> Offset | None:
        return next(iter(self.state.open_transactions), None)

    def closing(self, log_end: Offset) -> None:
        """Prepare for a clean stop after the last append. Removes the snapshot of an earlier stop that has no segment:
        the next start would treat that segment as lost."""
        self.state.take_snapshot(log_end)
        self.state.remove_strays([segment.base_offset for segment in self._segments])
        self._aborted.note_agreements(self._segments, self._open_since)

    def segments_removed(self, log_start: Offset) -> list[str]:
        """Segments below the one that contains `log_start` left the log. Returns their snapshot paths, to be
        removed."""
        return self.state.take_strays([segment.base_offset for segment in self._segments.from_offset(log_start)])

    def segments_replaced(self, old: Sequence[Offset], base_offset: Offset) -> None:
        """A cleaned segment replaced the segments at `old`: removes the snapshots at their base offsets."""
        self.state.remove_strays([segment.base_offset for segment in self._segments])
        self._aborted.replaced(old, base_offset)

    def truncating(self, log_end: Offset) -> bool:
        """Prepare to truncate to `log_end`. Returns True if the directory must be synced before an append."""
        stale = self.state.remove_snapshots_above(log_end)
        return self._aborted.truncating() or stale

    def truncated(self, after: ProducersAfterTruncation) -> Damage | None:
        """Take the producer state after a truncation. Returns what could not be read; None for nothing."""
        assert after.state is not None, "it has been read"
        self.state, self._checked = after.state, None
        self._aborted.truncating()
        self._aborted.truncate_to(after.last_base, after.log_end)
        return _damage(after.replayed, after.log_end)

    def emptied(self) -> None:
        """The log is empty and its only segment is new."""
        self.state.clear()
        self.state.remove_snapshots_above(Offset(-1))
        self._aborted.forget()
        self._aborted.begin(self._segments.active.base_offset)

    def begun_at(self, offset: Offset, snapshot: bytes, now: Millis) -> None:
        """The log is empty and its only segment is new. snapshot: of what lies below, which is in its file already."""
        self.state.begin_with(offset, decode_snapshot(snapshot, f"the producer snapshot at offset {offset}"), now)
        self._aborted.forget()
        self._aborted.begin(self._segments.active.base_offset)


class ProducersAfterTruncation:
    """Producer state at a truncation offset, rebuilt from snapshots and batches. The owner's thread creates it and uses
    the indexes. `read` runs on any thread, through own handles. Then the log takes `state` and `replayed`."""

    def __init__(
        self,
        files: Files,
        path: str,
        config: LogConfig,
        snapshots: Sequence[Offset],
        segments: Sequence[LogSegment],
        last_size: int,
        *,
        log_start: Offset,
        log_end: Offset,
        high_watermark: Offset,
        now: Millis,
    ) -> None:
        """segments: the remaining ones, the last one truncated to `last_size` bytes. snapshots: their offsets. Raises
        BrokenChain, OSError."""
        self._files, self._directory = files, path
        self._expiration_ms, self._now = config.producer_id_expiration_ms, now
        self._log_start, self._high_watermark = log_start, high_watermark
        self._segments = [SegmentBytes(files, each) for each in segments]
        self._segments[-1].size = last_size
        bases = [segment.base_offset for segment in segments]
        for start in (log_start, *snapshots):  # where the replay may begin
            holder = bisect_right(bases, start) - 1
            if holder >= 0 and bases[holder] < start <= log_end:
                self._segments[holder].note(start, segments[holder].start_for(start))
        self.log_end, self.last_base = log_end, segments[-1].base_offset
        self.state: ProducerStateManager | None = None
        self.replayed = Replayed([], [])

    def read(self) -> None:
        """Rebuild the state. Call once the log ends at `log_end` and has no snapshots above. Raises OSError."""
        self.state = ProducerStateManager(self._files, self._directory, self._expiration_ms)
        try:
            self.replayed = rebuild(
                self.state,
                self._segments,
                log_start=self._log_start,
                log_end=self.log_end,
                high_watermark=self._high_watermark,
                now=self._now,
            )
        finally:
            for segment in self._segments:
                segment.close()


def _damage(replayed: Replayed, log_end: Offset) -> Damage | None:
    damage: Damage | None = None
    for segment, broken in replayed.broken:
        first = Offset(min(broken.next_offset, log_end))  # a damaged batch may claim an offset beyond the log end
        found = Damage(segment.path, broken.position, first, max(log_end, Offset(first + 1)), broken.reason)
        damage = found if damage is None else damage.joined(found)
    return damage


def first_result(prepared: Prepared, duplicate: Duplicate, config: LogConfig) -> LogAppendInfo:
    """The answer to the first append of a duplicate batch. prepared: the duplicate."""
    stamped = config.timestamp_type is TimestampType.LOG_APPEND_TIME
    return prepared.info._replace(
        first_offset=duplicate.first_offset,
        last_offset=duplicate.last_offset,
        max_timestamp=duplicate.timestamp,
        log_append_time=duplicate.timestamp if stamped else NO_TIMESTAMP,
        duplicate=True,
        checksum=None,
    )
