"""Compacts many logs, the dirtiest first, one at a time and no faster than it may. Pure but for the swap of segments.

    piece = cleaner.begin(logs, now)             owner's thread; None: nothing is worth it, ask again later
    outcome = piece.work()                       any thread, after piece.wait_ms
    piece = cleaner.settle(outcome, ...)         owner's thread; the next piece, None: this log is done

Kept true:
  1. A log whose batches cannot be read is reported once and left alone until it is opened anew; the others go on.
  2. The log that a round is about can be appended to, read, flushed, cut, emptied, closed and deleted meanwhile: what
     changes its old segments cancels the round. So does damage that is found in it: the start after this one is to look
     for that again, which a swap would have it forget.
  3. Which transactions were aborted is known, not guessed: where this life of the process has not compared a segment's
     transaction index with its batches, they are read first, a segment in one piece.
  4. Where the log is clean up to is written down behind the last swap: a crash in between costs another round.
Left to others: executors and timers (maintenance.py, node/), what cleaning is (cleaning.py, batch_filter.py).
Source: Kafka's LogCleaner and LogCleanerManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from storage.compaction.batch_filter import FilterStats, LastRecord
from storage.compaction.cleaning import Cleaning, CleaningCancelled, CleaningPlan, Source
from storage.directory.cleanable import Cleanable, measure
from storage.directory.throttle import Throttle
from storage.log.log import Log
from storage.log.retention import youngest_ms
from storage.producers.aborted_transactions import Told, tell
from storage.segment.batch_walk import BrokenChain
from storage.segment.index_errors import IndexRefusal
from storage.segment.segment import LogSegment
from tidelog.errors import CorruptLog, TidelogError
from tidelog.types import Millis, Offset, TopicPartition

T = TypeVar("T")
PIECE_BYTES: Final = 8 << 20
"""Read and written between two looks at the throttle: some 50 ms of one core."""


class Piece(NamedTuple):
    """Work to be done on any thread, so many milliseconds from now. It returns bytes, or raises."""

    work: Callable[[], int]
    wait_ms: Millis


class Cleaned(NamedTuple):
    """A round that has ended."""

    log: TopicPartition
    end: Offset
    stats: FilterStats


def measure_log(log: Log, now: Millis) -> Cleanable:
    """How much of a log could be cleaned. now: wall clock. Raises CorruptLog, KafkaStorageError."""
    return log.guard(
        "measuring",
        lambda: measure(
            log.segments,
            log.config,
            now=now,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            cleaned=log.directory.cleaned(log),
            limit=min(log.last_stable_offset, log.front.durably_decided()),
        ),
    )


def begin_cleaning(log: Log, cleanable: Cleanable, map_bytes: int, now: Millis) -> Cleaning:
    """Begin a round: the log knows of it from here on. Raises CorruptLog, KafkaStorageError."""
    segments = [segment for segment in log.segments if segment.base_offset < cleanable.end]
    ends = [*(segment.base_offset for segment in segments[1:]), cleanable.end]

    def take() -> CleaningPlan:
        return CleaningPlan(
            log.files,
            log.path,
            log.config,
            [
                Source(segment, segment.path, segment.base_offset, end, segment.size, youngest_ms(segment))
                for segment, end in zip(segments, ends, strict=True)
            ],
            cleanable.first_dirty,
            log.aborted_transactions(segments[0].base_offset, cleanable.end),
            {
                state.producer_id: LastRecord(
                    state.batches[-1].last_offset if state.batches else None, state.epoch, state.coordinator_epoch
                )
                for state in log.active_producers()
            },
            map_bytes,
            now,
            log.epoch_entries(),
        )

    cleaning = Cleaning(log.guard("planning the cleaning of", take))
    log.front.cleaning = cleaning
    return cleaning


class TransactionReading:
    """What the batches of one closed segment say of transactions: read anywhere, by segments of its own. `told`: that,
    once it has run."""

    __slots__ = ("_config", "_directory", "_files", "_read", "log", "segment", "told")

    def __init__(self, log: Log, segment: LogSegment) -> None:
        self.log, self.segment = log, segment
        self.told: Told | None = None
        self._files, self._directory, self._config = log.files, log.path, log.config
        self._read = [each for each in log.segments if each.base_offset <= segment.base_offset]

    @property
    def holds(self) -> bool:
        """Is what it reads the log's still, and not appended to?"""
        segments = self.log.segments
        return not self.log.closed and list(segments[: len(self._read)]) == self._read != list(segments)

    def run(self) -> int:
        """Any thread. Returns the bytes of the segment, most of which are not read. Raises BrokenChain, OSError."""
        segments = [
            LogSegment(self._files, self._directory, each.base_offset, self._config, created_ms=Millis(0))
            for each in self._read
        ]
        try:
            self.told = tell(self._files, self._directory, segments, segments[-1])
        finally:
            for segment in segments:
                segment.close()
        return segments[-1].size


class LogCleaner:
    """The cleaner of one log directory. `uncleanable`: logs that it leaves alone, and why. `last`: the last round that
    ended. All but `Piece.work` is for the owner's thread."""

    def __init__(self, *, map_bytes: int, bytes_per_second: int, on_trouble: Callable[[TidelogError], None]) -> None:
        """map_bytes: memory for the offset map. bytes_per_second: most that it reads and writes. on_trouble: told what
        keeps a log from being cleaned."""
        self._map_bytes = map_bytes
        self._throttle = Throttle(bytes_per_second)
        self._on_trouble = on_trouble
        self._round: tuple[Log, Cleaning] | None = None
        self._reading: TransactionReading | None = None
        self._refused: dict[Log, str] = {}
        self.last: Cleaned | None = None
        self.dirty_share = 0.0
        """The largest of a log, when one was last looked for."""

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """By log, what keeps it from being cleaned."""
        return {log.topic_partition: why for log, why in self._refused.items() if not log.closed}

    @property
    def busy_with(self) -> TopicPartition | None:
        """The log that a round is about."""
        if self._reading is not None:
            return self._reading.log.topic_partition
        return None if self._round is None else self._round[0].topic_partition

    def begin(self, logs: Iterable[Log], now: Millis) -> Piece | None:
        """Choose the log with the largest dirty share of those worth it, and begin. now: wall clock."""
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
        """The first piece of a round: read what batches say of transactions where that is not known, else plan."""
        unbelieved = self._try(lambda: log.guard("reading", lambda: log.front.unbelieved(cleanable.end)))
        if unbelieved is None:
            return None
        if unbelieved:
            self._reading = TransactionReading(log, unbelieved[0])
            return Piece(self._reading.run, Millis(0))
        cleaning = self._try(lambda: begin_cleaning(log, cleanable, self._map_bytes, now))
        if cleaning is None:
            return None
        self._round = log, cleaning
        return Piece(lambda: cleaning.run(PIECE_BYTES), Millis(0))

    def _may_clean(self, log: Log) -> bool:
        if not log.config.compact or log.closed or log.damage is not None or log.directory.offline is not None:
            return False
        if log.cut is not None:
            return False
        return log not in self._refused

    def settle(self, outcome: int | BaseException, now: Millis, *, started: Millis, ended: Millis) -> Piece | None:
        """A piece has returned so many bytes, or raised that. now: wall clock. started, ended: of the piece, monotonic.
        Returns the next piece, None where the round is over. Raises what is no trouble of log or disk."""
        if self._reading is not None:
            return self._settle_reading(self._reading, outcome, now, started, ended)
        assert self._round is not None, "no round is under way"
        log, cleaning = self._round
        if isinstance(outcome, BaseException) or cleaning.cancelled or log.damage is not None:
            self._give_up(log, cleaning, CleaningCancelled() if isinstance(outcome, int) else outcome)
            return None
        if self._try(lambda: self._advance(log, cleaning, now)) is None:
            self._give_up(log, cleaning, CleaningCancelled())
            return None
        if cleaning.ended:
            log.front.cleaning = self._round = None
            self.last = Cleaned(log.topic_partition, cleaning.end, cleaning.stats)
            return None
        wait = self._throttle.wait_after(outcome, started, ended)
        return Piece(lambda: cleaning.run(PIECE_BYTES), wait)

    def _settle_reading(
        self, reading: TransactionReading, outcome: int | BaseException, now: Millis, started: Millis, ended: Millis
    ) -> Piece | None:
        self._reading, log, told = None, reading.log, reading.told
        if not reading.holds:
            return None
        if isinstance(outcome, BaseException) or told is None:
            self._report(log, outcome)
            return None

        def enter() -> Cleanable:
            log.guard("writing a transaction index of", lambda: log.front.believe(reading.segment, told))
            return measure_log(log, now)

        cleanable = self._try(enter)
        if cleanable is None or not cleanable.is_worth_it(log.config) or not self._may_clean(log):
            return None
        piece = self._begin(log, cleanable, now)
        return None if piece is None else Piece(piece.work, self._throttle.wait_after(outcome, started, ended))

    def _advance(self, log: Log, cleaning: Cleaning, now: Millis) -> bool:
        """Swap in what is ready; write down what is done."""
        if cleaning.ready is not None:
            sources, cleaned = cleaning.ready
            old = [source.segment for source in sources]
            log.guard("swapping cleaned segments into", lambda: log.front.replace(old, cleaned, now))
            cleaning.ready = None
        if cleaning.ended:
            log.guard("noting the cleaning of", lambda: log.directory.note_cleaned(log, cleaning.end))
        return True

    def _give_up(self, log: Log, cleaning: Cleaning, cause: BaseException) -> None:
        """End a round that cannot be finished, and remove what it was writing."""
        self._round = None
        log.front.stop_cleaning()
        self._report(log, cause)
        if not log.closed and log.directory.offline is None:
            self._try(lambda: log.guard("removing an unfinished cleaning of", cleaning.remove_files))

    def _report(self, log: Log, cause: object) -> None:
        """Tell what ended a round, and leave a log alone that cannot be read."""
        if isinstance(cause, OSError):
            self._on_trouble(log.directory.fail(f"cleaning {log.path}", cause))
        elif isinstance(cause, BrokenChain | IndexRefusal | TidelogError):
            why = cause.message if isinstance(cause, TidelogError) else str(cause)
            self._refused[log] = why
            self._on_trouble(
                CorruptLog(
                    f"{log.topic_partition} cannot be compacted, and is left as it is until it is opened anew: {why}"
                )
            )
        elif isinstance(cause, BaseException) and not isinstance(cause, CleaningCancelled):
            raise cause

    def _try(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except TidelogError as error:
            self._on_trouble(error)
            return None
