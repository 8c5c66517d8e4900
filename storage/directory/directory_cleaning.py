"""Compaction in one log directory: round after round, piece by piece on its background executor, as fast as it may.

Kept true: one piece is under way at most; after a round the next one is looked for at once, and where nothing is worth
it, after `cleaner.backoff.ms`; once stopped, nothing more begins.
Left to others: which log, what a piece is, how long to wait (log_cleaner.py); ticks (maintenance.py).
"""

from __future__ import annotations

from collections.abc import Callable

from storage.directory.log_cleaner import Cleaned, LogCleaner, Piece
from storage.directory.log_directory import LogDirectory
from storage.directory.maintenance_config import MaintenanceConfig
from tidelog.errors import TidelogError
from tidelog.types import METADATA_TOPIC, Millis


class DirectoryCleaning:
    """See the module's words. All on the owner's thread, but for the pieces."""

    def __init__(
        self,
        directory: LogDirectory,
        config: MaintenanceConfig,
        *,
        monotonic_ms: Callable[[], Millis],
        on_trouble: Callable[[TidelogError], None],
        on_cleaned: Callable[[Cleaned], None],
    ) -> None:
        """on_cleaned: told of each round that has ended well."""
        self.cleaner = LogCleaner(
            map_bytes=config.cleaner_map_bytes, bytes_per_second=config.cleaner_rate_max, on_trouble=on_trouble
        )
        self._directory, self._backoff_ms = directory, config.cleaner_backoff_ms
        self._monotonic_ms, self._on_cleaned = monotonic_ms, on_cleaned
        self._piece: Piece | None = None
        self._due = Millis(monotonic_ms() + config.cleaner_backoff_ms)
        self._busy = False
        self._stopped = not config.cleaner
        self.bytes_worked = 0
        """Read and written since the process began."""
        self.rounds = 0
        """Ended well since the process began."""

    def tick(self, now: Millis) -> None:
        """Begin a round, or go on, where that is due. now: monotonic milliseconds."""
        if self._busy or self._stopped or now < self._due or self._directory.offline is not None:
            return
        if self._piece is None:
            logs = [log for log in self._directory.logs.values() if log.topic_partition.topic != METADATA_TOPIC]
            self._piece = self.cleaner.begin(logs, self._directory.clock.wall_ms())
            if self._piece is None:
                self._due = Millis(now + self._backoff_ms)
                return
        self._run(self._piece)

    def stop(self) -> None:
        """Begin nothing more; what is under way ends with its piece."""
        self._stopped = True

    def _run(self, piece: Piece) -> None:
        self._busy, self._piece = True, None
        started = self._monotonic_ms()
        self._directory.background.submit(piece.work, lambda result: self._done(started, result))

    def _done(self, started: Millis, result: int | BaseException) -> None:
        self._busy = False
        ended, before = self._monotonic_ms(), self.cleaner.last
        if isinstance(result, int):
            self.bytes_worked += result
        self._piece = self.cleaner.settle(result, self._directory.clock.wall_ms(), started=started, ended=ended)
        last = self.cleaner.last
        if last is not None and last is not before:
            self.rounds += 1
            self._on_cleaned(last)
        if self._piece is None:
            self._due = ended
            return
        self._due = Millis(ended + self._piece.wait_ms)
        if self._piece.wait_ms == 0 and not self._stopped:
            self._run(self._piece)
