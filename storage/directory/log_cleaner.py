"""Compacts the logs of one directory, the dirtiest first, one at a time and at a limited rate. Pure except for the
replacement of segments.

    piece = cleaner.begin(logs, now)             owner's thread; None: no log is worth it, call again later
    outcome = piece.work()                       any thread, after piece.wait_ms
    piece = cleaner.settle(outcome, ...)         owner's thread; the next piece, or None: this log is done

Invariants:
  1. A log whose batches cannot be read is reported once and skipped until it is opened again. The others continue.
  2. During a cleaning the log can be appended to, read, flushed, truncated, emptied, closed and deleted. A change of
     the segments being cleaned cancels the cleaning. So does damage found in the log: the next start must find it
     again, which a replacement of segments would prevent.
  3. The aborted transactions are known, not guessed. If this process has not compared the transaction index of a
     segment with its batches, the batches are read first, one segment per piece.
  4. The offset up to which the log is clean is recorded after the last replacement. A crash before that costs another
     cleaning.
Not here: executors and timers (maintenance.py, node/), the cleaning itself (cleaning.py, batch_filter.py).
Source: Kafka's LogCleaner and LogCleanerManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from storage.compaction.batch_filter import FilterStats, LastRecord
from storage.compaction.cleaning import Cleaning, CleaningCancelled, CleaningPlan, CleaningSource
from storage.directory.cleanable import Cleanable, measure
from storage.log.cold_read import TransactionsRead
from storage.log.log import Log
from storage.log.retention import youngest_ms
from storage.segment.abstract_index import IndexFailure
from storage.segment.batch_walk import BrokenChain
from tidelog.errors import CorruptLog, TidelogError
from tidelog.types import INT64_MAX, Millis, Offset, TopicPartition

T = TypeVar("T")
PIECE_BYTES: Final = 8 << 20
"""Bytes read and written between two checks of the throttle: some 50 ms of one core."""


class Piece(NamedTuple):
    """Work to run on any thread, after `wait_ms` milliseconds. It returns the bytes read and written, or raises."""

    work: Callable[[], int]
    wait_ms: Millis


class CleaningThrottle:
    """A rate limit: how long to wait between two pieces."""

    __slots__ = ("_free_at", "_rate")

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    def wait_after(self, worked: int, started: Millis, now: Millis) -> Millis:
        """The milliseconds to wait after a piece of `worked` bytes, which ran from `started` to `now` (monotonic). Idle
        time is not credited."""
        self._free_at = max(self._free_at, float(started)) + worked * 1000 / self._rate
        return Millis(max(0, int(self._free_at - now)))


class Cleaned(NamedTuple):
    log: TopicPartition
    end: Offset
    stats: FilterStats


def measure_log(log: Log, now: Millis) -> Cleanable:
    """How much of a log can be cleaned. now: wall clock. Raises CorruptLog, KafkaStorageError."""
    return log.guard(
        "measuring",
        lambda: measure(
            log.segments,
            log.config,
            now=now,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            cleaned=log.directory.claims.cleaned(log.topic_partition),
            limit=min(log.last_stable_offset, log.front.durably_decided()),
        ),
    )


def begin_cleaning(log: Log, cleanable: Cleanable, map_bytes: int, now: Millis) -> Cleaning:
    """Begin a cleaning and register it with the log. Raises CorruptLog, KafkaStorageError."""
    segments = [segment for segment in log.segments if segment.base_offset < cleanable.end]
    ends = [*(segment.base_offset for segment in segments[1:]), cleanable.end]

    def take() -> CleaningPlan:
        return CleaningPlan(
            log.files,
            log.path,
            log.config,
            [
                CleaningSource(segment, segment.path, segment.base_offset, end, segment.size, youngest_ms(segment))
                for segment, end in zip(segments, ends, strict=True)
            ],
            cleanable.first_dirty,
            log.aborted_transactions(segments[0].base_offset, cleanable.end),
            {
                state.producer_id: LastRecord(
                    state.batches[-1].last_offset if state.batches else None, state.epoch, state.coordinator_epoch
                )
                for state in log.producers.state.active_producers()
            },
            map_bytes,
            now,
            log.epochs.entries,
            Offset(INT64_MAX) if log.first_unfetched is None else log.first_unfetched(),
        )

    cleaning = Cleaning(log.guard("planning the cleaning of", take))
    log.front.cleaning = cleaning
    return cleaning


class LogCleaner:
    """The cleaner of one log directory. `uncleanable`: the logs that it skips, and why. `last`: the last finished
    cleaning. For the owner's thread, except `Piece.work`."""

    def __init__(self, *, map_bytes: int, bytes_per_second: int, on_failure: Callable[[TidelogError], None]) -> None:
        """map_bytes: memory for the offset map. bytes_per_second: limit for reads and writes. on_failure: called with
        each error that stops the cleaning of a log."""
        self._map_bytes = map_bytes
        self._throttle = CleaningThrottle(bytes_per_second)
        self._on_failure = on_failure
        self._round: tuple[Log, Cleaning] | None = None
        self._reading: tuple[Log, TransactionsRead] | None = None
        self._refused: dict[Log, str] = {}
        self.last: Cleaned | None = None
        self.dirty_share = 0.0
        """The largest dirty ratio of a log at the last search."""

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        return {log.topic_partition: why for log, why in self._refused.items() if not log.closed}

    @property
    def busy_with(self) -> TopicPartition | None:
        if self._reading is not None:
            return self._reading[0].topic_partition
        return None if self._round is None else self._round[0].topic_partition

    def begin(self, logs: Iterable[Log], now: Millis) -> Piece | None:
        """Choose the log with the largest dirty ratio among those worth a cleaning, and begin. now: wall clock."""
        assert self.busy_with is None, f"{self.busy_with} is being cleaned already"
        self._refused = {log: why for log, why in self._refused.items() if not log.closed}
        self.dirty_share = 0.0
        best: tuple[Log, Cleanable] | None = None
        for log in logs:
            if not self._may_clean(log):
                continue
            cleanable = self._try(lambda log=log: measure_log(log, now))  # type: ignore[misc]
            if cleanable is None:
                continue
            self.dirty_share = max(self.dirty_share, cleanable.ratio)
            if cleanable.is_worth_it(log.config) and (best is None or cleanable.ratio > best[1].ratio):
                best = log, cleanable
        if best is None:
            return None
        return self._begin(*best, now)

    def _begin(self, log: Log, cleanable: Cleanable, now: Millis) -> Piece | None:
        """The first piece of a cleaning: reads unknown transaction data, else plans the cleaning."""
        unverified = self._try(lambda: log.guard("reading", lambda: log.producers.unverified(cleanable.end)))
        if unverified is None:
            return None
        if unverified:
            ticket = log.begin_transactions_read(unverified[0])

            def read() -> int:
                ticket.run()
                return ticket.size

            self._reading = log, ticket
            return Piece(read, Millis(0))
        cleaning = self._try(lambda: begin_cleaning(log, cleanable, self._map_bytes, now))
        if cleaning is None:
            return None
        self._round = log, cleaning
        return Piece(lambda: cleaning.run(PIECE_BYTES), Millis(0))

    def _may_clean(self, log: Log) -> bool:
        if not log.config.compact or log.closed or log.damage is not None or log.directory.offline is not None:
            return False
        # The setting can come from the node too, which no controller refuses: without this, records below the end of a
        # topic snapshot would be gone.
        if log.pinned or log.truncation is not None:
            return False
        return log not in self._refused

    def settle(self, outcome: int | BaseException, now: Millis, *, started: Millis, ended: Millis) -> Piece | None:
        """Process the result of a piece: its bytes, or the error that it raised. now: wall clock. started, ended: of
        the piece, monotonic. Returns the next piece; None if the cleaning is over. Raises every error that is not
        caused by the log or the disk."""
        if self._reading is not None:
            return self._settle_reading(*self._reading, outcome, now, started, ended)
        assert self._round is not None, "no cleaning is in progress"
        log, cleaning = self._round
        if isinstance(outcome, BaseException) or cleaning.cancelled or log.damage is not None or log.pinned:
            self._abort(log, cleaning, CleaningCancelled() if isinstance(outcome, int) else outcome)
            return None
        if self._try(lambda: self._advance(log, cleaning, now)) is None:
            self._abort(log, cleaning, CleaningCancelled())
            return None
        if cleaning.ended:
            log.front.cleaning = self._round = None
            self.last = Cleaned(log.topic_partition, cleaning.end, cleaning.stats)
            return None
        wait = self._throttle.wait_after(outcome, started, ended)
        return Piece(lambda: cleaning.run(PIECE_BYTES), wait)

    def _settle_reading(
        self,
        log: Log,
        ticket: TransactionsRead,
        outcome: int | BaseException,
        now: Millis,
        started: Millis,
        ended: Millis,
    ) -> Piece | None:
        self._reading = None
        if not log.is_current(ticket):
            return None
        if isinstance(outcome, BaseException):
            self._report(log, outcome)
            return None

        def enter() -> Cleanable:
            log.finish_transactions_read(ticket)
            return measure_log(log, now)

        cleanable = self._try(enter)
        if cleanable is None or not cleanable.is_worth_it(log.config) or not self._may_clean(log):
            return None
        piece = self._begin(log, cleanable, now)
        return None if piece is None else Piece(piece.work, self._throttle.wait_after(outcome, started, ended))

    def _advance(self, log: Log, cleaning: Cleaning, now: Millis) -> bool:
        """Replace the segments that are ready, and record a finished cleaning."""
        if cleaning.ready is not None:
            sources, cleaned = cleaning.ready
            old = [source.segment for source in sources]
            log.directory.note_changed(log)  # the files of the old segments wait for their removal
            log.guard("replacing cleaned segments in", lambda: log.front.replace(old, cleaned, now))
            cleaning.ready = None
        if cleaning.ended:
            claims, tp = log.directory.claims, log.topic_partition
            log.guard("recording the cleaning of", lambda: claims.note_cleaned(tp, cleaning.end))
        return True

    def _abort(self, log: Log, cleaning: Cleaning, cause: BaseException) -> None:
        """Cancel a cleaning and remove its unfinished files."""
        self._round = None
        log.front.stop_cleaning()
        self._report(log, cause)
        if not log.closed and log.directory.offline is None:
            self._try(lambda: log.guard("removing an unfinished cleaning of", cleaning.remove_files))

    def _report(self, log: Log, cause: object) -> None:
        """Report why a cleaning ended, and skip the log from now on if it cannot be read."""
        if isinstance(cause, OSError):
            self._on_failure(log.directory.fail(f"cleaning {log.path}", cause))
        elif isinstance(cause, BrokenChain | IndexFailure | TidelogError):
            why = cause.message if isinstance(cause, TidelogError) else str(cause)
            self._refused[log] = why
            self._on_failure(
                CorruptLog(f"{log.topic_partition} cannot be compacted and is skipped until it is opened again: {why}")
            )
        elif isinstance(cause, BaseException) and not isinstance(cause, CleaningCancelled):
            raise cause

    def _try(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except TidelogError as error:
            self._on_failure(error)
            return None
