"""A directory on a nearly full disk keeps a reserve: appends are rejected, work that frees space continues, and appends
resume."""

from __future__ import annotations

import random

import pytest

from storage.append_info import Origin
from storage.directory.log_directory import LogDirectory
from storage.directory.reserve import AUTOMATIC, AUTOMATIC_MAX, Reserve
from storage.files.file_system import Space
from storage.files.os_files import OsFiles
from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk
from tests.storage.workbench import TOPIC_ID, TP, SetClock, batch, stamped
from tidelog.errors import DiskFull
from tidelog.types import METADATA_TOPIC, LeaderEpoch, Offset, PartitionIndex, TopicPartition

RESERVE = 100_000
VALUE = b"v" * 10_000


def full_directory(room: int = 400_000) -> tuple[FakeDisk, LogDirectory, Log]:
    """A log in a directory with a reserve, filled until it rejects appends."""
    disk = FakeDisk()
    directory = LogDirectory("/data", files=disk, clock=SetClock(), rng=random.Random(1), reserve_bytes=RESERVE)
    log = directory.create_log(TP, TOPIC_ID, LogConfig(segment_bytes=50_000, segment_index_bytes=240))
    disk.capacity = disk.used + room
    directory.reserve.query()
    with pytest.raises(DiskFull):
        while True:
            append(log)
    return disk, directory, log


def append(log: Log, origin: Origin = Origin.CLIENT) -> None:
    log.append(batch(VALUE), assign_offsets=True, leader_epoch=LeaderEpoch(0), origin=origin)


def test_the_error_has_directory_space_reserve_and_next_step() -> None:
    disk, _, log = full_directory()
    end = log.log_end_offset
    with pytest.raises(DiskFull, match=r"/data is full but for its reserve.*100000; .* 125000 are free: delete topics"):
        append(log)
    with pytest.raises(DiskFull):
        log.append(stamped(end, VALUE), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    assert log.log_end_offset == end
    assert end > 10, "appends used what was above the reserve"
    assert disk.space("/data").free > 0, "the disk itself is not full"


def test_reads_truncation_checkpoints_and_a_clean_stop_continue() -> None:
    disk, directory, log = full_directory()
    assert len(log.read(Offset(0), 1, up_to=log.log_end_offset).records) > len(VALUE)
    log.truncate_to(Offset(log.log_end_offset - 1))
    directory.write_checkpoints()
    directory.close_clean()
    again = LogDirectory("/data", files=disk, clock=SetClock(), rng=random.Random(1), reserve_bytes=RESERVE)
    assert again.identity.was_clean
    assert again.reserve.low
    again.load_logs(lambda _name, _id: log.config)
    assert again.logs[TP].log_end_offset == log.log_end_offset


def test_new_logs_are_rejected_except_the_metadata_log() -> None:
    _, directory, log = full_directory()
    other = TopicPartition("events", PartitionIndex(0))
    with pytest.raises(DiskFull, match="reserve"):
        directory.create_log(other, TOPIC_ID, log.config)
    metadata = directory.create_log(TopicPartition(METADATA_TOPIC, PartitionIndex(0)), TOPIC_ID, log.config)
    append(metadata, Origin.COORDINATOR)
    assert metadata.log_end_offset == 1


def test_appends_resume_when_a_quarter_more_is_free() -> None:
    disk, directory, log = full_directory()
    assert disk.capacity is not None
    missing = RESERVE - disk.space("/data").free
    disk.capacity += missing + RESERVE // 10  # just above the reserve
    with pytest.raises(DiskFull):
        append(log)
    disk.capacity += RESERVE // 4
    append(log)
    assert not directory.reserve.low


def test_deleting_a_log_frees_space_for_the_others() -> None:
    disk, directory, log = full_directory(room=600_000)
    assert disk.capacity is not None
    other = TopicPartition("events", PartitionIndex(0))
    disk.capacity += RESERVE
    small = directory.create_log(other, TOPIC_ID, log.config)
    disk.capacity -= RESERVE
    directory.reserve.query()
    with pytest.raises(DiskFull):
        append(small)
    directory.delete_log(TP)
    append(small)


def test_the_file_system_is_not_queried_for_every_append() -> None:
    class Counting(FakeDisk):
        asked = 0

        def space(self, path: str) -> Space:
            self.asked += 1
            return super().space(path)

    disk = Counting(capacity=100 << 20)
    directory = LogDirectory("/data", files=disk, clock=SetClock(), rng=random.Random(1), reserve_bytes=RESERVE)
    log = directory.create_log(TP, TOPIC_ID, LogConfig(segment_index_bytes=240))
    for _ in range(500):
        append(log)
    assert disk.asked <= 2


def test_the_automatic_reserve_is_a_tenth_of_a_small_disk_and_64_mib_of_a_large_one() -> None:
    for capacity, required in ((24 << 20, (24 << 20) // 10), (1 << 40, AUTOMATIC_MAX)):
        disk = FakeDisk(capacity=capacity)
        disk.make_directory("/data")
        assert Reserve(disk, "/data", AUTOMATIC).required == required


def test_the_real_file_system_reports_its_space(tmp_path: object) -> None:
    room = OsFiles().space(str(tmp_path))
    assert 0 < room.free <= room.total
