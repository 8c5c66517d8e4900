"""Helpers of the storage tests: a settable clock, batches to append, and a log directory that can crash and be opened
again."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import copy
from typing import TypeVar
from uuid import UUID

from storage.directory.log_directory import LogDirectory
from storage.files.disk_executor import Executor
from storage.files.file_system import Files
from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk
from tidelog.epochs import end_of_epoch
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.types import Codec, EpochEnd, LeaderEpoch, Millis, Offset, PartitionIndex, TopicId, TopicPartition

T = TypeVar("T")
NOW = Millis(1_700_000_000_000)
TP = TopicPartition("orders", PartitionIndex(0))
TOPIC_ID = TopicId(UUID(int=0x1234567890))
SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=200, segment_index_bytes=240)
"""Rolls after a dozen batches, with several index entries per segment."""


class SetClock:
    """A wall clock that shows the time that was set."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def wall_ms(self) -> Millis:
        return Millis(self.now)


def batch(*values: bytes, timestamp: int = NOW, codec: Codec = Codec.NONE, key: bytes | None = b"k") -> bytes:
    """A producer's batch: base offset 0, no epoch."""
    builder = RecordBatchBuilder(codec=codec)
    for value in values or (b"value",):
        builder.append(key=key, value=value, timestamp=Millis(timestamp))
    return builder.build()


def stamped(base: int, *values: bytes, epoch: int = 0, timestamp: int = NOW) -> bytes:
    """A batch as a leader sends it to its followers."""
    builder = RecordBatchBuilder(base_offset=Offset(base), leader_epoch=LeaderEpoch(epoch))
    for value in values or (b"value",):
        builder.append(key=b"k", value=value, timestamp=Millis(timestamp))
    return builder.build()


def epoch_end(log: Log, epoch: int) -> EpochEnd:
    """As a leader answers with this log."""
    return end_of_epoch(log.epochs.entries, LeaderEpoch(epoch), log.log_start_offset, log.log_end_offset)


class Deferred:
    """An executor that runs its work on request."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        def run() -> None:
            result: T | BaseException
            try:
                result = work()
            except Exception as error:  # noqa: BLE001
                result = error
            done(result)

        self.waiting.append(run)

    def run_one(self) -> None:
        self.waiting.pop(0)()

    def run_all(self) -> None:
        while self.waiting:
            self.run_one()


class Bench:
    """One log directory with one log, on a FakeDisk by default."""

    def __init__(
        self,
        config: LogConfig = SMALL,
        *,
        files: Files | None = None,
        path: str = "/data",
        seed: int = 0,
        executor: Executor | None = None,
    ) -> None:
        self.disk = FakeDisk()
        self.files: Files = files or self.disk
        self.config = config
        self.path = path
        self.clock = SetClock()
        self.rng = random.Random(seed)
        self.executor = executor
        self.directory = self.open_directory()
        self.log = self.directory.create_log(TP, TOPIC_ID, config)
        self.directory.commit.request(self.log)

    def open_directory(self) -> LogDirectory:
        return LogDirectory(self.path, files=self.files, clock=self.clock, rng=random.Random(7), executor=self.executor)

    def reopen(self) -> Log:
        """Open directory and log again, after `close_clean`, `kill` or `crash`."""
        self.directory = self.open_directory()
        self.log = self.directory.load_logs(lambda _tp, _id: self.config)[TP]
        return self.log

    def restart_clean(self) -> Log:
        self.directory.close_clean()
        return self.reopen()

    def twin(self) -> Bench:
        """Another one, with a copy of this disk, opened again after `close_clean`."""
        other = copy(self)
        other.disk = other.files = self.disk.twin()
        other.reopen()
        return other

    def kill(self) -> Log:
        """Kill the process; the machine continues. Nothing written is lost, nothing is closed."""
        self.disk.kill()
        return self.reopen()

    def crash(self, seed: int | None = None) -> Log:
        """Power fails and returns."""
        self.disk.crash(self.rng if seed is None else random.Random(seed))
        return self.reopen()

    # --- shorthands -----------------------------------------------------------------------------------------------

    def lead(self, *values: bytes, epoch: int = 0, timestamp: int = NOW) -> int:
        """Append as leader. Returns the last offset."""
        data = batch(*values, timestamp=timestamp)
        return self.log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(epoch)).last_offset

    def follow(self, *batches: bytes) -> int:
        """Append as follower, all in one. Returns the last offset."""
        data = b"".join(batches)
        return self.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(0)).last_offset

    def commit(self) -> None:
        """One group commit."""
        self.directory.commit.request(self.log)

    def commit_log(self) -> None:
        """A flush of the log on the caller's thread."""
        self.log.flush()

    def read_first(self) -> bytes:
        """The first batch."""
        return bytes(self.log.read(self.log.log_start_offset, 1, up_to=self.log.log_end_offset).records)

    def contents(self) -> list[bytes]:
        """Every batch of the log, in order."""
        return contents(self.log)

    @property
    def segment_path(self) -> str:
        """Path of the active segment's .log file."""
        return self.log.active.path


def contents(log: Log) -> list[bytes]:
    """Every batch of a log, read batch by batch."""
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1, up_to=log.log_end_offset)
        if not len(read.records):
            break
        found.append(bytes(read.records))
        offset = read.next_offset
    return found
