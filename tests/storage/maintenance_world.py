"""A log directory under maintenance."""

from __future__ import annotations

import random
from uuid import UUID

from storage.append_info import Origin
from storage.directory.log_cleaner import Cleaned
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.directory.maintenance import Maintenance
from storage.directory.maintenance_config import MaintenanceConfig
from storage.directory.scrub_segment import Finding
from storage.files.disk_executor import Executor, InlineExecutor
from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk
from tests.storage.workbench import NOW, SetClock, batch
from tidelog.errors import TidelogError
from tidelog.types import (
    LeaderEpoch,
    Millis,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

CONFIG = MaintenanceConfig(
    reserve_bytes=10_000,
    checkpoint_ms=5_000,
    flush_check_ms=1_000,
    retention_check_ms=20_000,
    cleaner_backoff_ms=15_000,
    cleaner_map_bytes=1 << 20,
)


class Owner:
    """Records the results of maintenance."""

    def __init__(self) -> None:
        self.troubles: list[TidelogError] = []
        self.rooms: list[bool] = []
        self.starts: list[TopicPartition] = []
        self.rounds: list[Cleaned] = []
        self.findings: list[Finding] = []
        self.producers: list[tuple[int, int]] = []

    def producers_counted(self, count: int, forgotten: int) -> None:
        self.producers.append((count, forgotten))

    def failed(self, error: TidelogError) -> None:
        self.troubles.append(error)

    def space_changed(self, directory: LogDirectory) -> None:
        self.rooms.append(directory.reserve.low)

    def log_start_moved(self, log: Log) -> None:
        self.starts.append(log.topic_partition)

    def cleaned(self, directory: LogDirectory, round_: Cleaned) -> None:
        self.rounds.append(round_)

    def found(self, directory: LogDirectory, log: Log, finding: Finding) -> None:
        self.findings.append(finding)


class World:
    """A directory, its maintenance, and a clock for both."""

    def __init__(self, background: Executor | None = None, config: MaintenanceConfig = CONFIG) -> None:
        self.disk = FakeDisk()
        self.clock = SetClock()
        self.now = Millis(0)
        self.directory = LogDirectory(
            "/data",
            files=self.disk,
            clock=self.clock,
            rng=random.Random(1),
            background=background or InlineExecutor(),
            reserve_bytes=config.reserve_bytes,
        )
        self.owner = Owner()
        self.maintenance = Maintenance(LogManager([self.directory]), config, self.owner, monotonic_ms=lambda: self.now)

    def make(self, topic: str, config: LogConfig) -> Log:
        number = len(self.directory.logs) + 1
        return self.directory.create_log(TopicPartition(topic, PartitionIndex(0)), TopicId(UUID(int=number)), config)

    def fill(self, log: Log, batches: int, *, keys: int = 5) -> None:
        for number in range(batches):
            data = batch(b"x" * 100, key=b"%d" % (number % keys), timestamp=NOW + number)
            log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(0), origin=Origin.COORDINATOR)
        self.directory.commit.request(log)
        log.advance_high_watermark(log.log_end_offset)

    def wait(self, ms: int) -> None:
        for _ in range(ms // 500):
            self.now = Millis(self.now + 500)
            self.clock.now += 500
            self.maintenance.tick(self.now)
