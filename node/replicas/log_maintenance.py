"""Looks after the logs of a node while it lives: calls storage's upkeep, says what it meets, and tells of damage.

Left to others: what is done and when (storage/directory/maintenance.py), what damage means for a replica
(replica_manager.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from node.runtime.clock import Clock
from node.runtime.memory_budget import PRODUCER_BYTES, Kind, MemoryBudget
from storage.directory.log_cleaner import Cleaned
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.directory.maintenance import Maintenance
from storage.directory.maintenance_config import MaintenanceConfig
from storage.directory.scrub_segment import Finding, FindingKind
from storage.log.log import Log
from storage.recovery.loaded import Damage
from tidelog.errors import TidelogError

_log = logging.getLogger("node.maintenance")

TICK_MS: Final = 500
"""How exact the intervals are."""


class LogMaintenance:
    """See the module's words."""

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
        """logs: loaded. damage_found: told, each time it is seen, what of a log is lost. log_start_moved: told which
        logs have lost records to retention."""
        self._clock = clock
        self._damage_found, self._log_start_moved = damage_found, log_start_moved
        self._producers = memory.charge(Kind.PRODUCER_STATE, 0)
        self.producers_forgotten = 0
        """Since the process began."""
        self.maintenance = Maintenance(logs, config, self, monotonic_ms=clock.monotonic_ms)

    async def run(self) -> None:
        """Look after the logs until cancelled."""
        try:
            while True:
                self.maintenance.tick(self._clock.monotonic_ms())
                await self._clock.sleep_ms(TICK_MS)
        finally:
            self.maintenance.stop()

    # --- what upkeep tells (MaintenanceOwner) ---

    def producers_counted(self, count: int, forgotten: int) -> None:
        """What their state costs is part of the node's memory."""
        self._producers.resize(count * PRODUCER_BYTES)
        self.producers_forgotten += forgotten
        if forgotten:
            _log.warning("%d idle producers are forgotten before their time: %d are known still", forgotten, count)

    def trouble(self, error: TidelogError) -> None:
        """Something failed."""
        _log.warning("%s", error.message)

    def room_changed(self, directory: LogDirectory) -> None:
        """A directory has fallen below its reserve, or is above it again."""
        reserve = directory.reserve
        if reserve.low:
            _log.error(
                "the disk of %s is full but for its reserve: appends are refused, reads and deletions go on",
                directory.path,
                extra={"free": reserve.free, "reserve": reserve.wanted, "enough": reserve.enough},
            )
        else:
            _log.info("the disk of %s has room again: appends go on", directory.path, extra={"free": reserve.free})

    def log_start_moved(self, log: Log) -> None:
        """Retention has taken records from the beginning of a log."""
        self._log_start_moved(log)

    def cleaned(self, directory: LogDirectory, round_: Cleaned) -> None:
        """A log has been compacted."""
        del directory
        stats = round_.stats
        _log.info(
            "%s is compacted up to offset %d",
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
        """The scrub found something."""
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
