"""The log of one partition: append, read up to a watermark, flush, truncate.

Invariants:
  1. A rejected append changes nothing. An append that does not fit on the disk is rejected as a whole.
  2. Everything below `durable_offset` is as durable as the topic promises: with durability `fsync`, bytes, file names
     and epoch entries are on the disk; with `page-cache`, the operating system has them. Only a truncation lowers it.
  3. During a truncation (`truncation`, log_truncation.py) the log is neither appended to nor flushed.
  4. Every method runs on the owner's thread. Only `FlushTicket.run` and `TruncationTicket.run` may run elsewhere.
Not here: permission to append (replication/), when to flush (group_commit.py, the caller), recovery (loading.py).
Source: Kafka's UnifiedLog and LocalLog; design section 3 for the order of steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from storage.append_info import LogAppendInfo, Origin
from storage.files.disk_executor import Executor
from storage.files.file_system import Files, WouldBlock, sync_paths
from storage.isolation import FetchIsolation
from storage.log.cold_read import BytesRead, ReadTicket, TransactionsRead
from storage.log.directory_claims import DirectoryClaims
from storage.log.flush import FlushTicket
from storage.log.log_flow import LogFlow
from storage.log.log_positions import LogPositions
from storage.log.log_producers import first_result
from storage.log.log_read import LogRead
from storage.log.log_reader import LogReader
from storage.log.log_start import LogStart
from storage.log.log_truncation import LogTruncator
from storage.log.log_writer import LogWriter
from storage.log.recent_appends import RecentAppends
from storage.log.truncation_ticket import Emptying, RemotePart, TruncationTicket, reported_error
from storage.log.validation import append_rules, prepare_follower, prepare_leader
from storage.log_config import LogConfig
from storage.producers.aborted_transactions import Unverified
from storage.producers.producer_state import Duplicate
from storage.producers.verification import UNVERIFIED, TransactionCheck
from storage.recovery.loaded import LoadedLog
from storage.segment.batch_walk import BrokenChain
from storage.segment.segment import INDEX_SUFFIX, SUFFIXES, TIME_INDEX_SUFFIX, LogSegment, OpenSegments, segment_path
from storage.segment.segments import LogSegments
from storage.segment.time_lookup import TimestampedOffset, ensure_time, find_largest_timestamp, find_timestamp
from storage.segment.transaction_index import AbortedTransaction
from tidelog.epochs import epoch_before
from tidelog.errors import (
    CorruptLog,
    FencedLeaderEpoch,
    InvalidTopic,
    KafkaStorageError,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    RecordListTooLarge,
    RecordTooLarge,
    TidelogError,
)
from tidelog.records.assignment import Inspected
from tidelog.types import (
    EARLIEST,
    INT64_MAX,
    LATEST,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    Buffer,
    DirectoryId,
    EpochStart,
    LeaderEpoch,
    Millis,
    Offset,
    TopicId,
    TopicPartition,
    WallClock,
)

T = TypeVar("T")
_INTERNAL: Final = "__"
"""Prefix of the names of internal topics, as in Kafka."""


class LogHost(Protocol):
    """A log directory, as its logs use it. LogDirectory implements and documents it."""

    @property
    def files(self) -> Files: ...
    @property
    def clock(self) -> WallClock: ...
    @property
    def rng(self) -> random.Random: ...
    @property
    def claims(self) -> DirectoryClaims: ...
    @property
    def open_segments(self) -> OpenSegments: ...
    @property
    def recent_appends(self) -> RecentAppends: ...
    @property
    def reader(self) -> Executor: ...
    @property
    def offline(self) -> str | None: ...
    def fail(self, doing: str, error: OSError) -> TidelogError: ...
    def note_changed(self, log: Log) -> None: ...
    def note_durable(self, log: Log) -> None: ...
    def reserve_space(self, tp: TopicPartition, size: int) -> None: ...
    def drop_before(self, log: Log, offset: Offset, done: Callable[[TidelogError | None], None]) -> None: ...
    def request_flush(self, log: Log) -> None: ...


class Log(LogPositions):
    def __init__(
        self,
        directory: LogHost,
        path: str,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        loaded: LoadedLog,
        high_watermark: Offset = Offset(0),
    ) -> None:
        """loaded: from load_log. high_watermark: from the checkpoint. Loads the producer state, which may wait for the
        disk. Raises OSError."""
        files = directory.files
        segments = LogSegments(files, path, directory.rng, loaded.segments, directory.open_segments)
        super().__init__(
            files, directory.clock, path, topic_partition, topic_id, config, loaded, high_watermark, segments
        )
        self.directory = directory
        self.bytes_rejected = 0
        """Bytes of the appends that were rejected for their size, as received."""
        self.flow = LogFlow()
        self.last_flush_ms = self.clock.wall_ms()
        self.notes: tuple[str, ...] = (*loaded.notes, *self.producers.notes)
        holes_below = INT64_MAX if config.compact else loaded.holes_below
        self._reader = LogReader(segments, self.epochs, holes_below, directory.recent_appends)
        self._writer = LogWriter(self, self._reader, self._rolled)
        self.front = LogStart(self, self._reader, self._writer, directory.claims)
        """The start of the log, its deleted files, and the cleaning in progress."""
        self._truncator = LogTruncator(self, self._reader, self.front, directory.claims)
        self.first_unfetched: Callable[[], Offset] | None = None
        """Of the leader: what a follower that is fetching has not fetched yet begins there. Compaction keeps tombstones
        and markers from there on. None: nobody fetches from this log."""
        self.pinned = False
        """A topic snapshot needs the records: neither retention nor compaction removes any."""
        self.closed = False
        """True if the log was closed, deleted or set aside."""
        self.sealed = False
        """True while a copy in another log directory takes the place of this log: it stays as it is, for readers."""
        self.truncations = 0
        """Truncations begun: a copy that was begun before one is worthless."""
        self.moved_from: DirectoryId | None = None
        """The log directory that this log was moved from, until the metadata name its present one."""

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, offsets {self.log_start_offset}..{self.log_end_offset - 1})"

    # --- state ----------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def active(self) -> LogSegment:
        return self.segments.active

    def advance_high_watermark(self, offset: Offset) -> bool:
        """Mark everything below `offset` as committed; at most up to the log end. Returns True if that is new."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.directory.note_changed(self)
        self.producers.state.high_watermark_moved(offset)
        return True

    def keep_recent_appends(self, *, keep: bool) -> None:
        """keep: keep the leader's last appends in memory, to answer followers without a read; False: drop them."""
        self._reader.keep_recent(keep=keep)

    def reconfigure(self, config: LogConfig) -> None:
        """Apply changed topic settings. Durability cannot change. Index settings apply to new segments."""
        assert config.durability is self.config.durability, "a topic's durability is fixed when it is created"
        if config.compact or self.config.compact:
            self._reader.holes_below = INT64_MAX if config.compact else self.log_end_offset
        self.config = config
        self.rules = append_rules(config)
        self.directory.note_changed(self)

    # --- append ---------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Buffer,
        *,
        assign_offsets: bool,
        leader_epoch: LeaderEpoch,
        origin: Origin = Origin.CLIENT,
        epochs: Sequence[EpochStart] = (),
        inspected: Inspected | None = None,
        check: TransactionCheck = UNVERIFIED,
    ) -> LogAppendInfo:
        """Append whole batches. A partial batch at the end is dropped.

        assign_offsets: True on the leader, in epoch `leader_epoch`: assigns offsets to one v2 batch, or to messages of
        v0 or v1, in the topic's format and codec. False on a follower: offsets and epochs stay as they are in the
        bytes. epochs: the leader's epoch entries over the batches, entered into the follower's cache; without them the
        batches' own epochs count (v0 and v1 have none). inspected: the result of `inspect_sent` with the log's `rules`.
        check: of a transactional batch or a marker, on the leader.
        The buffer is not kept, unless it is `bytes`.

        If it raises, nothing was appended. Raises CorruptRecord, RecordTooLarge, RecordListTooLarge, InvalidRecord,
        InvalidTimestamp, InvalidTopic, UnsupportedForMessageFormat, UnsupportedCompressionType, UnsupportedVersion,
        OutOfOrderSequenceNumber, InvalidProducerEpoch, InvalidTxnState, TransactionCoordinatorFenced,
        OffsetsNotMonotonic, FencedLeaderEpoch, DiskFull, CorruptLog (the log is damaged), KafkaStorageError (its
        directory is offline or has just failed).
        """
        self._ensure_usable()
        assert self.truncation is None, "no appends during a truncation"
        if not self.lost.takes_appends:  # the end itself may be missing: offsets would be assigned twice
            raise CorruptLog(
                f"{self.topic_partition} takes no appends: it lost {self.damage}; it must be refetched first"
            )
        now = self.clock.wall_ms()
        start, end = self.log_start_offset, self.log_end_offset
        if assign_offsets:
            self._ensure_may_write(leader_epoch, origin)
            try:
                prepared = prepare_leader(
                    records,
                    self.rules,
                    log_start=start,
                    log_end=end,
                    leader_epoch=leader_epoch,
                    now=now,
                    origin=origin,
                    inspected=inspected,
                )
            except RecordTooLarge:
                self.bytes_rejected += len(records)
                raise
        else:
            prepared = prepare_follower(records, log_start=start, log_end=end, last_epoch=self.last_epoch)
        if prepared is None:
            return LogAppendInfo(log_start_offset=start)
        info = prepared.info
        if assign_offsets and info.valid_bytes > self.config.segment_bytes:
            self.bytes_rejected += len(records)
            raise RecordListTooLarge(
                f"{info.valid_bytes} bytes in one append, segment.bytes of {self.topic_partition.topic} is "
                f"{self.config.segment_bytes}: send smaller batches"
            )
        batches = self.producers.check(prepared, origin if assign_offsets else Origin.REPLICATION, check)
        if isinstance(batches, Duplicate):
            first = first_result(prepared, batches, self.config)  # the answer to the first append of the batch
            return first._replace(last_leader_epoch=epoch_before(self.epochs.entries, batches.last_offset + 1))
        self.directory.reserve_space(self.topic_partition, info.valid_bytes)
        try:
            self._writer.write(prepared, now, epochs, leader_epoch if assign_offsets else None, batches)
        except BrokenChain as broken:
            self.lost.takes_appends = False
            raise self._damaged(broken, self.log_end_offset) from broken
        except OSError as error:
            raise self.directory.fail(f"appending to {self.path}", error) from error
        if self.flush_state.target == self.log_end_offset:
            self.directory.request_flush(self)
        has_epoch = info.last_leader_epoch != NO_LEADER_EPOCH  # messages of v0 and v1 have none
        return info if has_epoch else info._replace(last_leader_epoch=self.last_epoch)

    def _ensure_may_write(self, leader_epoch: LeaderEpoch, origin: Origin) -> None:
        if leader_epoch < self.epochs.latest:
            raise FencedLeaderEpoch(
                f"append to {self.topic_partition} in leader epoch {leader_epoch} rejected: the log has epoch "
                f"{self.epochs.latest}"
            )
        if origin is Origin.CLIENT and self.topic_partition.topic.startswith(_INTERNAL):
            raise InvalidTopic(
                f"{self.topic_partition.topic} is an internal topic that only nodes may write to: use another topic"
            )

    # --- roll -----------------------------------------------------------------------------------------------------

    def roll(self, now: Millis, why: str = "requested") -> LogSegment:
        """Start a new segment at the log end. why: for the log line. Raises OSError."""
        return self._writer.roll(self.log_end_offset, now, why)

    def _rolled(self, notes: Sequence[str]) -> None:
        self.notes += tuple(notes)
        self.flush_state.require(self.log_end_offset)
        self.directory.request_flush(self)

    # --- read -----------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: Offset,
        max_bytes: int,
        *,
        up_to: Offset,
        min_one_batch: bool = True,
        wait: bool = True,
        ready: ReadTicket | None = None,
    ) -> LogRead:
        """Read whole batches of one segment, starting with the batch that contains `offset`, all below `up_to`.

        max_bytes: upper limit; with `min_one_batch` at least one batch is returned if there is one. The first batch may
        start below `offset`. wait, ready: see LogReader.read. Raises OffsetOutOfRange if `offset` is not between the
        log start and `up_to`, OffsetMovedToTieredStorage if it is below the local log start, CorruptLog,
        KafkaStorageError.
        """
        self._ensure_usable()
        up_to = min(up_to, end := self.log_end_offset)
        if not self.log_start_offset <= offset <= up_to:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is outside the readable range {self.log_start_offset}.."
                f"{up_to}"
            )
        lost = None if self.damage is None else self.damage.at(offset)
        if lost is not None:
            raise CorruptLog(f"{self.topic_partition} lost {lost}")
        if offset == up_to:
            return LogRead(b"", offset, ())
        if offset < self.local_log_start_offset:
            raise OffsetMovedToTieredStorage(
                f"offset {offset} of {self.topic_partition} is in the remote tier: the local log starts at "
                f"{self.local_log_start_offset}; read it from there"
            )
        try:
            found = ready if isinstance(ready, BytesRead) else None
            return self._reader.read(offset, max_bytes, up_to, min_one_batch, wait=wait, ready=found, end=end)
        except BrokenChain as broken:
            raise self._damaged(broken, offset, unreadable=True) from broken
        except OSError as error:
            raise self.directory.fail(f"reading {self.path}", error) from error

    def is_hole(self, last: LogSegment, base_offset: Offset) -> bool:
        return self._reader.is_hole(last, base_offset)

    def fetch(self, offset: Offset, max_bytes: int, isolation: FetchIsolation) -> LogRead:
        """`read` up to the end that is visible at this isolation. With the last stable offset, the result lists the
        aborted transactions. Raises like `read`."""
        found = self.try_fetch(offset, max_bytes, isolation, wait=True)
        assert isinstance(found, LogRead), "it has waited for the disk"
        return found

    def try_fetch(
        self,
        offset: Offset,
        max_bytes: int,
        isolation: FetchIsolation,
        ready: ReadTicket | None = None,
        *,
        wait: bool = False,
    ) -> LogRead | ReadTicket:
        """`fetch` that does not wait for the disk, unless with `wait`. If the disk is needed, returns a ticket: run it
        on any thread, call again with it as `ready`, release it. Raises like `read`."""
        if isinstance(ready, TransactionsRead) and self.is_current(ready):
            self.finish_transactions_read(ready)
        up_to = self.end_for(isolation)
        if up_to < offset <= self.log_end_offset:
            return LogRead(b"", offset, ())
        # Memory has the batches as they were appended: a follower of a damaged log must get the error of the file.
        if isolation is FetchIsolation.LOG_END and ready is None and self.damage is None:
            self._ensure_usable()
            recent = self._reader.from_memory(offset, max_bytes, up_to) if offset >= self.log_start_offset else None
            if recent is not None:
                return recent
        try:
            read = self.read(offset, max_bytes, up_to=up_to, wait=wait, ready=ready)
            if isolation is not FetchIsolation.LAST_STABLE_OFFSET or not len(read.records):
                return read
            return read._replace(aborted=self.aborted_transactions(offset, read.next_offset, wait=wait))
        except Unverified as unread:
            return self.begin_transactions_read(unread.segment)
        except WouldBlock:
            return self._reader.begin(self.files, offset, max_bytes)

    def _damaged(self, broken: BrokenChain, offset: Offset, *, unreadable: bool = False) -> CorruptLog:
        """Record a break in the chain of batches, and return its error. unreadable: `offset` itself cannot be read."""
        log_start, log_end = self.log_start_offset, self.log_end_offset
        damage = self.lost.record_break(self.segments, broken, offset, log_start, log_end, unreadable=unreadable)
        return CorruptLog(f"{self.topic_partition} lost {damage}; read it from another replica")

    # --- producers and transactions -------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> Offset | None:
        """First offset of the oldest transaction that is open, or whose marker is not below the high watermark."""
        first = self.producers.state.first_unstable_offset
        return None if first is None else max(first, self.log_start_offset)

    @property
    def last_stable_offset(self) -> Offset:
        """Everything below it is committed, and every transaction with records there is decided."""
        unstable = self.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def end_for(self, isolation: FetchIsolation) -> Offset:
        """The log end that a reader of this isolation sees."""
        match isolation:
            case FetchIsolation.LOG_END:
                return self.log_end_offset
            case FetchIsolation.HIGH_WATERMARK:
                return self.high_watermark
            case FetchIsolation.LAST_STABLE_OFFSET:
                return self.last_stable_offset

    def aborted_transactions(self, start: Offset, end: Offset, *, wait: bool = True) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions with records in [start, end), by first offset. wait: wait for the disk; if False,
        raises Unverified instead. Raises CorruptLog, KafkaStorageError."""
        return self.guard("reading", lambda: self.producers.aborted(start, end, self._reader.is_hole, wait=wait))

    def begin_transactions_read(self, segment: LogSegment) -> TransactionsRead:
        """A ticket that reads the transaction data of a segment. If `is_current` holds after it has run, pass it to
        `finish_transactions_read`."""
        segments = [each for each in self.segments if each.base_offset <= segment.base_offset]
        return TransactionsRead(self.files, self.path, segments, segment, self._reader.generation)

    def is_current(self, ticket: TransactionsRead) -> bool:
        """True if the log is open and no segment was truncated, replaced or removed since the ticket began."""
        return not self.closed and ticket.generation == self._reader.generation

    def finish_transactions_read(self, ticket: TransactionsRead) -> None:
        """Store the index entries that a current ticket has read. Raises CorruptLog, KafkaStorageError, DiskFull."""
        self.guard("reading", lambda: self.producers.enter(ticket, self._reader.is_hole))

    # --- lookups --------------------------------------------------------------------------------------------------

    def fetch_offset_by_timestamp(self, timestamp: int, *, up_to: Offset) -> TimestampedOffset | None:
        """The result of ListOffsets: the log start for EARLIEST, `up_to` for LATEST (both without a timestamp), the
        first record with the largest timestamp for MAX_TIMESTAMP, else the first record at or after the timestamp; all
        below `up_to`. None if there is no such record.

        Raises InvalidRequest for any other negative number, UnsupportedForMessageFormat for a timestamp on a topic of
        format v0, which has none; CorruptLog, KafkaStorageError.
        """
        self._ensure_usable()
        if timestamp == EARLIEST:
            start = self.log_start_offset
            return TimestampedOffset(start, NO_TIMESTAMP, epoch_before(self.epochs.entries, start + 1))
        if timestamp == LATEST:
            return TimestampedOffset(up_to, NO_TIMESTAMP, self.epochs.latest)
        if timestamp == MAX_TIMESTAMP:
            return self.largest_timestamp(up_to=up_to)
        ensure_time(timestamp, self.config.magic, self.topic_partition)
        return self.offset_for_timestamp(timestamp, up_to=up_to)

    def offset_for_timestamp(self, timestamp: int, *, up_to: Offset) -> TimestampedOffset | None:
        """The first record at or after `timestamp` (ms) below `up_to`. Raises CorruptLog, KafkaStorageError."""
        start = self.log_start_offset
        return self.guard("reading", lambda: find_timestamp(self.segments.all, timestamp, start, up_to))

    def largest_timestamp(self, *, up_to: Offset) -> TimestampedOffset | None:
        """The first record with the largest timestamp below `up_to`; None if there is none (KIP-734)."""
        return self.guard("reading", lambda: find_largest_timestamp(self.segments.all, self.log_start_offset, up_to))

    def guard(self, doing: str, work: Callable[[], T]) -> T:
        """Run `work` and translate its errors. Raises CorruptLog, KafkaStorageError, DiskFull."""
        self._ensure_usable()
        try:
            return work()
        except BrokenChain as broken:
            raise self._damaged(broken, self.log_start_offset) from broken
        except OSError as error:
            raise self.directory.fail(f"{doing} {self.path}", error) from error

    # --- epochs ---------------------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        """Start leader epoch `epoch` at the log end. Raises FencedLeaderEpoch for an older epoch."""
        assert self.truncation is None, "no new epoch during a truncation"
        if epoch < self.epochs.latest:
            raise FencedLeaderEpoch(f"{self.topic_partition} is in epoch {self.epochs.latest}: epoch {epoch} is stale")
        self.epochs.assign(epoch, self.log_end_offset)

    # --- flush ----------------------------------------------------------------------------------------------------

    def begin_flush(self, *, everything: bool = False) -> FlushTicket | None:
        """A ticket for what must be synced now: the whole log; on page-cache topics only up to what a roll or
        `flush.messages` requested.

        everything: the whole log on any topic. Returns None if there is nothing to do. Every ticket must be passed to
        `finish_flush` or `abandon_flush`. Raises KafkaStorageError.
        """
        self._ensure_usable()
        assert self.truncation is None, "no flush during a truncation"
        up_to = self.log_end_offset if self._fsync or everything else min(self.flush_state.target, self.log_end_offset)
        segments, now = self.segments.from_offset(self.recovery_point), self.clock.wall_ms()
        try:
            return self.flush_state.begin(segments, up_to, self.epochs, now)
        except OSError as error:
            raise self.directory.fail(f"flushing {self.path}", error) from error

    def finish_flush(self, ticket: FlushTicket) -> None:
        """Mark the offsets that the ticket covers, up to any truncation since, as durable. The ticket has run."""
        self.last_flush_ms = self.clock.wall_ms()
        moved = self.flush_state.finish(ticket, self.last_flush_ms)
        if self.truncation is None:
            self.end_at(self.log_end_offset)
        if not self.closed:
            self.segments.keep_open(ticket.closed)
        if moved and self._fsync and not self.closed:
            self.directory.note_durable(self)

    def abandon_flush(self, ticket: FlushTicket) -> None:
        self.flush_state.abandon(ticket)

    def flush(self) -> None:
        """Make everything durable. For closing, recovery, tools. Raises KafkaStorageError, DiskFull."""
        ticket = self.begin_flush(everything=True)
        if ticket is None:
            return
        try:
            ticket.run()
        except OSError as error:
            self.abandon_flush(ticket)
            raise self.directory.fail(f"flushing {self.path}", error) from error
        self.finish_flush(ticket)

    def flush_overdue(self, now: Millis) -> bool:
        """True if the log has unflushed records older than `flush.ms`. The next ticket then covers the whole log."""
        if self.log_end_offset <= self.recovery_point or now - self.last_flush_ms < self.config.flush_ms:
            return False
        self.flush_state.require(self.log_end_offset)
        return True

    # --- truncation -----------------------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> None:
        """Remove everything at and above `offset`, durably, before returning. Does nothing at or above the log end.

        The new log end is the end of the last remaining batch. It may be below `offset`: a batch that contains `offset`
        is removed whole, and the remaining bytes do not record a hole before `offset`. Raises KafkaStorageError,
        CorruptLog, and DiskFull if nothing was removed yet; a disk that gets full later takes the directory offline.
        """
        self._truncate_here(self.begin_truncation(offset))

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Empty the log and set its start to `offset`, durably, before returning. Raises KafkaStorageError, and
        DiskFull if nothing was removed yet.

        Removed segments cannot be restored. If the disk gets full after the first removal, the directory goes offline
        as after any disk failure, and the next start finds an empty log.
        """
        self._truncate_here(self.begin_truncation(offset, fully=True))

    def _truncate_here(self, ticket: TruncationTicket | None) -> None:
        ended = ticket is None
        while ticket is not None and not ended:
            try:
                ticket.run()
            except OSError as error:
                ended = self.truncation_ran(ticket, error)
            else:
                ended = self.truncation_ran(ticket, None)

    def begin_truncation(
        self, offset: Offset, *, fully: bool = False, remote: RemotePart | None = None
    ) -> TruncationTicket | None:
        """Begin `truncate_to`, or `truncate_fully_and_start_at` if `fully`. Run the ticket on any thread, then call
        `truncation_ran`, until that returns True. Until then the log must not be appended to, flushed, read or closed.
        remote: empty the log; it then starts with these records in the remote tier, and goes on at `offset`.
        Returns None if there is nothing to do. Raises like those two."""
        self._ensure_usable()
        try:
            empties = fully or remote is not None
            self.truncation = self._truncator.begin_fully(offset, remote) if empties else self._truncator.begin(offset)
        except BrokenChain as broken:
            raise self._damaged(broken, offset) from broken
        except OSError as error:
            raise self.directory.fail(f"truncating {self.path} at offset {offset}", error) from error
        self.truncations += 1
        self.directory.note_changed(self)
        return self.truncation

    def truncation_ran(self, ticket: TruncationTicket, error: BaseException | None) -> bool:
        """Continue after the ticket has run or raised `error`. Returns True if the truncation has ended; if False, run
        the ticket again. Raises like `truncate_to`, which ends the truncation too."""
        assert ticket is self.truncation, "one truncation at a time"
        ended = True
        try:
            if error is not None:
                raise error
            if not self.closed:
                self._ensure_usable()
                ended = self._truncator.proceed(ticket)
        except BrokenChain as broken:
            raise self._damaged(broken, ticket.end) from broken
        except OSError as failed:
            raise self.directory.fail(
                f"truncating {self.path} at offset {ticket.end}", reported_error(ticket, failed)
            ) from failed
        finally:
            if ended:
                self.truncation = None
                self._reader.forget()
                ticket.release()
                self.directory.note_changed(self)
        if ended and isinstance(ticket, Emptying) and self._fsync and not self.closed:
            self.directory.note_durable(self)
        return ended

    # --- moves between log directories ----------------------------------------------------------------------------

    def succeed(self, log: Log) -> None:
        """Continue a sealed log of another log directory with the same records: take over what only memory has."""
        assert log.sealed, "otherwise it may have changed"
        assert (self.log_start_offset, self.log_end_offset) == (log.log_start_offset, log.log_end_offset), "not a copy"
        self.advance_high_watermark(log.high_watermark)
        self.epochs.truncate_from_start(self.log_start_offset)  # it may have moved since the copy began
        self.producers.state.succeed(log.producers.state)
        self._reader.succeed(log._reader)
        self.bytes_rejected = log.bytes_rejected
        if log.config is not self.config:
            self.reconfigure(log.config)  # the topic's settings changed meanwhile

    # --- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Make everything durable, trim the indexes, close the files. Raises KafkaStorageError, DiskFull."""
        if self.closed:
            return
        if self.directory.offline is None:
            self.flush()
            self.guard("closing", self._close_indexes)
            self.guard("closing", lambda: self.producers.closing(self.log_end_offset))
        self.release()

    def _close_indexes(self) -> None:
        """Trim both indexes and make them durable, with their names: the first entries were held in memory."""
        base = self.active.base_offset
        self.active.become_inactive()
        kinds = SUFFIXES if self.config.preallocate else (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        sync_paths(self.files, [segment_path(self.path, base, kind) for kind in kinds])
        self.files.sync_directory(self.path)

    def release(self) -> None:
        """Close the files as they are, for example after a failure."""
        self.closed = True
        self.front.stop_cleaning()
        self.flush_state.epoch_file.retire()
        self._reader.forget()
        self.segments.close()

    def _ensure_usable(self) -> None:
        if self.directory.offline is not None:
            raise KafkaStorageError(f"{self.topic_partition}: its log directory is offline: {self.directory.offline}")
        if self.closed:
            raise KafkaStorageError(f"{self.topic_partition} is closed: look up its current node")
