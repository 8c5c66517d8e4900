"""The periodic work on all logs of a node, the same on leaders and followers.

    `flush.ms`, the reserve, files to remove       flush.scheduler.interval.ms
    checkpoints                                    flush.offset.checkpoint.interval.ms
    retention                                      retention.check.interval.ms
    expiry of producers                            producer.id.expiration.check.interval.ms
    the number of producers                        flush.scheduler.interval.ms
    compaction                                     cleaner.backoff.ms (directory_cleaning.py)
    the scrub                                      with every tick, at its configured rate (scrub.py)

Invariants: each kind of work has its own interval, and a late tick runs it once. A tick examines a limited number of
logs, and the next tick continues. An error in one log or directory does not delay the others.
Not here: calling `tick` (node/replicas/log_maintenance.py), the work itself (log.py, log_directory.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from heapq import nsmallest
from operator import itemgetter
from typing import Final, Protocol

from storage.directory.directory_cleaning import DirectoryCleaning
from storage.directory.log_cleaner import Cleaned
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.directory.maintenance_config import MaintenanceConfig
from storage.directory.scrub import Scrub
from storage.directory.scrub_segment import Finding
from storage.log.log import Log
from storage.producers.producer_state import ExpirableProducer
from tidelog.errors import TidelogError
from tidelog.types import METADATA_TOPIC, Millis

_LOGS_AT_ONCE: Final = 64
"""Logs that one tick examines for one kind of work: each may open an index, some 50 µs."""
_PRODUCERS_SLACK: Final = 16
"""A sixteenth of the limit more is removed than necessary, so that the next check need not repeat it."""
SENT_AGAIN_MS: Final = 15 * 60_000
"""A client gives a batch up at its delivery timeout, 2 minutes by default (Tidelog, Kafka) or 5 (librdkafka)."""
_ROUND_MS_MAX: Final = 10
"""A tick starts with the next log only within this many milliseconds: moving a log start is an fsync."""


class MaintenanceOwner(Protocol):
    """Receives the results of maintenance, on the owner's thread."""

    def producers_counted(self, count: int, forgotten: int) -> None:
        """count: producers known in all logs. forgotten: producers removed just now because of the limit."""

    def failed(self, error: TidelogError) -> None:
        """An operation failed. A failed disk has taken its directory offline already; other errors are transient."""

    def space_changed(self, directory: LogDirectory) -> None:
        """The free space of a directory fell below its reserve, or rose above it again."""

    def log_start_moved(self, log: Log) -> None:
        """Retention removed records from the start of a log."""

    def cleaned(self, directory: LogDirectory, round_: Cleaned) -> None:
        """A log was compacted."""

    def found(self, directory: LogDirectory, log: Log, finding: Finding) -> None:
        """The scrub found an error."""


class _Rounds:
    """One kind of work on every log, a few logs per tick, repeated when due (monotonic milliseconds)."""

    def __init__(
        self, work: Callable[[LogDirectory, Log], object], every_ms: int, monotonic_ms: Callable[[], Millis]
    ) -> None:
        self._work, self._every_ms, self._monotonic_ms = work, every_ms, monotonic_ms
        self._due = Millis(monotonic_ms() + every_ms)
        self._rest: Iterator[tuple[LogDirectory, Log]] | None = None

    def tick(self, now: Millis, logs: LogManager, owner: MaintenanceOwner) -> None:
        if self._rest is None and now >= self._due:
            self._due = Millis(now + self._every_ms)
            self._rest = iter(list(logs.logs()))
        began = self._monotonic_ms()
        for _ in range(_LOGS_AT_ONCE):
            if self._monotonic_ms() - began >= _ROUND_MS_MAX:
                return
            entry = None if self._rest is None else next(self._rest, None)
            if entry is None:
                self._rest = None
                return
            directory, log = entry
            if directory.offline is None and not log.closed and log.damage is None and log.truncation is None:
                try:
                    self._work(directory, log)
                except TidelogError as error:
                    owner.failed(error)


class Maintenance:
    """The periodic work on all log directories. For the owner's thread."""

    def __init__(
        self,
        logs: LogManager,
        config: MaintenanceConfig,
        owner: MaintenanceOwner,
        *,
        monotonic_ms: Callable[[], Millis],
    ) -> None:
        now = monotonic_ms()
        self._logs, self._owner, self._config = logs, owner, config
        self._low: set[LogDirectory] = set()
        self._next_check, self._next_checkpoint = now, Millis(now + config.checkpoint_ms)
        self._retention = _Rounds(self._delete_old, config.retention_check_ms, monotonic_ms)
        self._expiry = _Rounds(self._expire_producers, config.producer_check_ms, monotonic_ms)
        self.cleanings = {
            each: DirectoryCleaning(each, config, monotonic_ms, on_cleaned=owner.cleaned, on_failure=owner.failed)
            for each in logs.directories
        }
        self.scrubs = {
            directory: Scrub(
                directory,
                directory.background,
                rate_max=config.scrub_rate_max,
                interval_ms=config.scrub_interval_ms,
                monotonic_ms=monotonic_ms,
                on_finding=owner.found,
                on_failure=owner.failed,
            )
            for directory in logs.directories
        }

    def tick(self, now: Millis) -> None:
        """Run the tasks that are due. now: monotonic milliseconds."""
        if now >= self._next_check:
            self._next_check = Millis(now + self._config.flush_check_ms)
            for directory in self._logs.working:
                self._check_directory(directory)
            self._owner.producers_counted(*limit_producers(self._logs, self._config.producers_max))
        if now >= self._next_checkpoint:
            self._next_checkpoint = Millis(now + self._config.checkpoint_ms)
            for directory in self._logs.working:
                directory.write_checkpoints()
        for rounds in (self._retention, self._expiry):
            rounds.tick(now, self._logs, self._owner)
        for directory, cleaning in self.cleanings.items():
            cleaning.tick(now)
            self.scrubs[directory].tick(now)

    def stop(self) -> None:
        """Begin nothing new: the logs are about to be closed."""
        for directory, cleaning in self.cleanings.items():
            cleaning.stop()
            self.scrubs[directory].stop()

    def _check_directory(self, directory: LogDirectory) -> None:
        try:
            directory.check_space()
        except TidelogError as error:
            self._owner.failed(error)
            return
        if directory.reserve.low != (directory in self._low):
            self._low ^= {directory}
            self._owner.space_changed(directory)
        directory.request_flushes()
        directory.remove_deleted_files()

    @staticmethod
    def _expire_producers(directory: LogDirectory, log: Log) -> None:
        log.producers.state.expire(directory.clock.wall_ms())

    def _delete_old(self, directory: LogDirectory, log: Log) -> None:
        """Remove the segments that retention or the log start release. The metadata log has its own rules."""
        if log.topic_partition.topic == METADATA_TOPIC:
            return

        def done(failure: TidelogError | None) -> None:
            if failure is None:
                self._owner.log_start_moved(log)
            else:
                self._owner.failed(failure)

        directory.drop_expired(log, done)


def limit_producers(logs: LogManager, most: int) -> tuple[int, int]:
    """Above `most` producers in all logs, remove some as if they had expired, of the topics that have the most, in the
    order of `_removal_rank`; none with an open transaction. Returns the number of known and of removed producers.

    Idempotent producers are cheap to create, and each is kept for `producer.id.expiration.ms` in every partition that
    it has written to. Kafka has no such limit. Each replica applies it by itself, as it does with expiry.
    """
    known: dict[str, list[tuple[Log, Millis]]] = {}
    counts: Counter[str] = Counter()
    for directory, log in logs.logs():
        if count := len(log.producers.state.active_producers()):
            known.setdefault(log.topic_partition.topic, []).append((log, directory.clock.wall_ms()))
            counts[log.topic_partition.topic] += count
    total = counts.total()
    if total <= most:
        return total, 0
    idle = {
        topic: [
            (_removal_rank(each, now), each.producer_id, log)
            for log, now in of_topic
            for each in reversed(log.producers.state.expirable())
        ]
        for topic, of_topic in known.items()
    }
    share = _largest_share(
        counts, {topic: len(each) for topic, each in idle.items()}, total - most + most // _PRODUCERS_SLACK
    )
    forgotten = 0
    for topic, candidates in idle.items():
        # Who floods one topic with producer ids must not make the node forget the producers of another topic.
        excess = nsmallest(max(counts[topic] - share, 0), candidates, key=itemgetter(0))
        forgotten += len(excess)
        for _, producer_id, log in excess:
            log.producers.state.forget((producer_id,))
    return total - forgotten, forgotten


def _removal_rank(producer: ExpirableProducer, now: Millis) -> tuple[bool, int]:
    """The order in which the producers of a topic are removed: first those that have nothing to send again, the longest
    idle ones before others; then those that became known last."""
    if now - producer.appended_at >= SENT_AGAIN_MS:
        return False, producer.appended_at
    # Producer ids are made up at no cost: the newest of them must not push out a producer that may send a batch again.
    return True, -producer.known_since


def _largest_share(counts: Mapping[str, int], idle: Mapping[str, int], excess: int) -> int:
    """The largest number of producers that every topic may keep so that at least `excess` are removed, or 0. idle: how
    many of its producers each topic can lose."""

    def is_too_large(share: int) -> bool:
        return sum(min(idle[topic], max(count - share, 0)) for topic, count in counts.items()) < excess

    return bisect_left(range(1, max(counts.values()) + 1), x=True, key=is_too_large)
