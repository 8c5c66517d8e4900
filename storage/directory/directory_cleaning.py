"""The compaction of one log directory: one cleaning after the other, in pieces on its background executor, at a limited
rate.

Invariants: at most one piece is in progress. After a cleaning the next log is chosen at once; if no log needs cleaning,
after `cleaner.backoff.ms`. After `stop` nothing new begins.
Not here: the choice of the log, the pieces and the pauses between them (log_cleaner.py); ticks (maintenance.py).
"""

from __future__ import annotations

from collections.abc import Callable

from storage.directory.log_cleaner import Cleaned, LogCleaner, Piece
from storage.directory.log_directory import LogDirectory
from storage.directory.maintenance_config import MaintenanceConfig
from tidelog.errors import TidelogError
from tidelog.types import METADATA_TOPIC, Millis


class DirectoryCleaning:
    """Runs the cleaner of one log directory. For the owner's thread; only the pieces run elsewhere."""

    def __init__(
        self,
        directory: LogDirectory,
        config: MaintenanceConfig,
        monotonic_ms: Callable[[], Millis],
        *,
        on_cleaned: Callable[[LogDirectory, Cleaned], None],
        on_failure: Callable[[TidelogError], None],
    ) -> None:
        self.cleaner = LogCleaner(
            map_bytes=config.cleaner_map_bytes, bytes_per_second=config.cleaner_rate_max, on_failure=on_failure
        )
        self._directory, self._on_cleaned, self._monotonic_ms = directory, on_cleaned, monotonic_ms
        self._backoff_ms = config.cleaner_backoff_ms
        self._piece: Piece | None = None
        self._due = Millis(monotonic_ms() + config.cleaner_backoff_ms)
        self._busy = False
        self._stopped = not config.cleaner
        self.bytes_processed = 0
        """Bytes read and written since the process started."""
        self.rounds = 0
        """Successful cleanings since the process started."""

    def tick(self, now: Millis) -> None:
        """Begin or continue a cleaning if one is due. now: monotonic milliseconds."""
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
        """Begin nothing new. The piece in progress finishes."""
        self._stopped = True

    def _run(self, piece: Piece) -> None:
        self._busy, self._piece = True, None
        started = self._monotonic_ms()
        self._directory.background.submit(piece.work, lambda result: self._done(started, result))

    def _done(self, started: Millis, result: int | BaseException) -> None:
        self._busy = False
        ended, before = self._monotonic_ms(), self.cleaner.last
        if isinstance(result, int):
            self.bytes_processed += result
        self._piece = self.cleaner.settle(result, self._directory.clock.wall_ms(), started=started, ended=ended)
        last = self.cleaner.last
        if last is not None and last is not before:
            self.rounds += 1
            self._on_cleaned(self._directory, last)
        if self._piece is None:
            self._due = ended
            return
        self._due = Millis(ended + self._piece.wait_ms)
        if self._piece.wait_ms == 0 and not self._stopped:
            self._run(self._piece)
