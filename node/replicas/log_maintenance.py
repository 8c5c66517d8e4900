"""Maintenance of a node's logs: runs storage's maintenance, logs its results and reports damage.

Not here: the maintenance itself (storage/directory/maintenance.py), the effect of damage on a replica
(replica_damage.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from node.runtime.memory_budget import PRODUCER_BYTES, Kind, MemoryBudget
from storage.directory.log_cleaner import Cleaned
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.directory.maintenance import Maintenance
from storage.directory.maintenance_config import MaintenanceConfig
from storage.directory.scrub_segment import Finding, FindingKind
from storage.log.log import Log
from storage.recovery.loaded import Damage
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.types import Millis

_log = logging.getLogger("node.maintenance")

TICK_MS: Final = 500
"""The precision of the intervals."""

SAMPLE_MS: Final = 10_000
"""Interval at which the rates of all logs are taken."""


class LogMaintenance:
    """The task that drives `Maintenance`, and the receiver of its results."""

    def __init__(
        self,
        logs: LogManager,
        config: MaintenanceConfig,
        *,
        clock: Clock,
        damage_found: Callable[[Log, Damage], None],
        log_start_moved: Callable[[Log], None],
        memory: MemoryBudget,
    ) -> None:
        """logs: loaded. damage_found: called each time damage is found. log_start_moved: called when retention has
        advanced the log start offset of a log."""
        self._clock, self._logs = clock, logs
        self._sampled_at = clock.monotonic_ms()
        self._damage_found, self._log_start_moved = damage_found, log_start_moved
        self._producers = memory.charge(Kind.PRODUCER_STATE, 0)
        self.producers_forgotten = 0
        """Since the process started."""
        self.maintenance = Maintenance(logs, config, self, monotonic_ms=clock.monotonic_ms)

    async def run(self) -> None:
        """Maintain the logs until cancelled."""
        try:
            while True:
                now = self._clock.monotonic_ms()
                self.maintenance.tick(now)
                self._sample(now)
                await self._clock.sleep_ms(TICK_MS)
        finally:
            self.maintenance.stop()

    def _sample(self, now: Millis) -> None:
        if now - self._sampled_at < SAMPLE_MS:
            return
        self._sampled_at = now
        for directory in self._logs.directories:
            for log in directory.logs.values():
                log.flow.sample(now)

    # --- results of maintenance (MaintenanceOwner) ---

    def producers_counted(self, count: int, forgotten: int) -> None:
        """Charge the memory of producer states to the node's budget."""
        self._producers.resize(count * PRODUCER_BYTES)
        self.producers_forgotten += forgotten
        if forgotten:
            _log.warning("%d producers were removed early, at the producer limit; %d remain", forgotten, count)

    def failed(self, error: TidelogError) -> None:
        """Log a failure."""
        _log.warning("%s", error.message)

    def space_changed(self, directory: LogDirectory) -> None:
        """The free space of a log directory fell below its reserve, or rose above it again."""
        reserve = directory.reserve
        if reserve.low:
            _log.error(
                "the disk of %s is full except for its reserve: appends are rejected; delete topics or add space",
                directory.path,
                extra={"free": reserve.free, "reserve": reserve.required, "enough": reserve.enough},
            )
        else:
            _log.info("the disk of %s has space again: appends resume", directory.path, extra={"free": reserve.free})

    def log_start_moved(self, log: Log) -> None:
        """Retention has advanced the log start offset of a log."""
        self._log_start_moved(log)

    def cleaned(self, directory: LogDirectory, round_: Cleaned) -> None:
        """Log a completed compaction."""
        del directory
        stats = round_.stats
        _log.info(
            "%s: compacted up to offset %d",
            round_.log,
            round_.end,
            extra={
                "records": stats.records_read,
                "kept": stats.records_kept,
                "bytes": stats.bytes_read,
                "bytes_kept": stats.bytes_kept,
            },
        )

    def found(self, directory: LogDirectory, log: Log, finding: Finding) -> None:
        """Log a finding of the scrub, and report it if it is damage."""
        del directory
        _log.log(logging.WARNING if finding.repaired else logging.ERROR, "%s: %s", log.topic_partition, finding)
        if finding.kind in (FindingKind.LOG, FindingKind.HEADER):
            damage = Damage(
                finding.path,
                finding.position,
                finding.first_offset,
                finding.end_offset,
                finding.reason,
                readable=finding.kind is FindingKind.HEADER,
            )
            self._damage_found(log, damage)
