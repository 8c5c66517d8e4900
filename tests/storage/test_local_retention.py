"""A log with a remote tier: what may leave the node, where the log then starts for whom, and what a crash leaves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storage.checkpoints.checkpoint_file import LEADER_EPOCH_CHECKPOINT, LOCAL_START_CHECKPOINT
from storage.isolation import FetchIsolation
from storage.log_config import LogConfig
from testbed.fake_disk import SimulatedCrash
from tests.fakes.log_start import delete_records
from tests.storage.workbench import NOW, SMALL, Bench, batch, contents
from tidelog.errors import DiskFull, OffsetMovedToTieredStorage, OffsetOutOfRange
from tidelog.types import EARLIEST, LeaderEpoch, Millis, Offset

DAY = 86_400_000
TIERED = replace(
    SMALL,
    segment_bytes=400,
    file_delete_delay_ms=1000,
    remote_storage=True,
    retention_ms=30 * DAY,
    local_retention_ms=DAY,
)


def filled(config: LogConfig = TIERED) -> Bench:
    """A log of small segments in two leader epochs, durable and committed."""
    bench = Bench(config)
    for number in range(12):
        bench.lead(b"%02d" % number + b"." * 60, epoch=number // 6, timestamp=NOW + number)
    bench.commit()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    return bench


def bases(bench: Bench) -> list[int]:
    return [segment.base_offset for segment in bench.log.segments]


def drop_expired(bench: Bench, now: int = NOW + 2 * DAY) -> None:
    bench.clock.now = now
    bench.directory.drop_expired(bench.log)


def test_only_copied_segments_leave_the_node() -> None:
    bench = filled()
    before = [*bases(bench), bench.log.log_end_offset]
    drop_expired(bench)
    assert bases(bench) == before, "nothing is copied yet: the records would be nowhere. The last segment is closed"

    bench.log.copied_end = Offset(before[2] - 1)
    drop_expired(bench)
    assert bases(bench) == before[1:], "the second segment is copied in part"

    bench.log.copied_end = bench.log.log_end_offset
    drop_expired(bench)
    assert bases(bench) == [bench.log.log_end_offset], "a log without new records is empty here, as in Kafka"


def test_an_active_segment_past_local_retention_is_closed_for_the_tier() -> None:
    """Only closed segments are copied, and only copied ones expire: of a topic that is not written to any more, the
    last records would outlive retention.ms. As Kafka, which rolls by local.retention.ms."""
    bench = filled()
    before, end = bases(bench), bench.log.log_end_offset
    drop_expired(bench, NOW + DAY)
    assert bases(bench) == before, "its youngest record is young enough"
    bench.log.config = replace(TIERED, retention_ms=-1, local_retention_ms=-1)
    drop_expired(bench)
    assert bases(bench) == before, "nothing leaves this node by age"
    bench.log.config = TIERED
    drop_expired(bench)
    drop_expired(bench, NOW + 9 * DAY)
    assert bases(bench) == [*before, end], "once: the new one is empty"
    assert bench.lead(b"next", epoch=1) == end


def test_an_active_segment_that_is_not_committed_is_not_closed() -> None:
    bench = filled()
    bench.lead(b"not replicated yet", epoch=1)
    before = bases(bench)
    drop_expired(bench)
    assert bases(bench) == before


def test_a_snapshot_of_the_topic_keeps_the_log_and_not_the_copied_segments() -> None:
    """Its readers get them from the remote tier: a disk need not be large enough for the snapshot."""
    bench = filled()
    before = [*bases(bench), bench.log.log_end_offset]
    bench.log.pinned, bench.log.copied_end = True, Offset(before[3])
    drop_expired(bench)
    assert bases(bench) == before[3:], "what is not copied stays"
    assert bench.log.log_start_offset == 0, "the log has its records, as the snapshot says"
    bench.log.config = replace(bench.log.config, remote_storage=False)
    drop_expired(bench, NOW + 60 * DAY)
    assert bases(bench) == before[3:], "without a remote tier a snapshot keeps everything on the node"


def test_the_log_goes_on_to_start_where_it_did() -> None:
    bench = filled()
    first = bases(bench)[2]
    bench.log.copied_end = Offset(first)
    drop_expired(bench)
    log = bench.log
    assert (log.log_start_offset, log.local_log_start_offset) == (0, first)
    earliest = log.fetch_offset_by_timestamp(EARLIEST, up_to=log.log_end_offset)
    assert earliest is not None
    assert (earliest.offset, earliest.leader_epoch) == (0, 0), "epochs of copied records stay known"
    assert [entry.start_offset for entry in log.epochs.entries] == [0, 6]


def test_a_read_below_the_local_start_is_sent_to_the_remote_tier() -> None:
    bench = filled()
    first = bases(bench)[2]
    bench.log.copied_end = Offset(first)
    drop_expired(bench)
    for offset in range(first):
        with pytest.raises(OffsetMovedToTieredStorage, match=f"the local log starts at {first}"):
            bench.log.fetch(Offset(offset), 100, FetchIsolation.HIGH_WATERMARK)
    assert bench.log.fetch(Offset(first), 100, FetchIsolation.HIGH_WATERMARK).next_offset > first
    delete_records(bench.log, Offset(2))
    with pytest.raises(OffsetOutOfRange):
        bench.log.fetch(Offset(1), 100, FetchIsolation.HIGH_WATERMARK)
    with pytest.raises(OffsetMovedToTieredStorage):
        bench.log.fetch(Offset(2), 100, FetchIsolation.HIGH_WATERMARK)


def test_local_retention_by_size() -> None:
    bench = filled(replace(TIERED, local_retention_ms=-1, retention_ms=-1, local_retention_bytes=500))
    bench.log.copied_end = bench.log.log_end_offset
    drop_expired(bench)
    sizes = [segment.size for segment in bench.log.segments]
    assert sum(sizes) >= 500 > sum(sizes[1:])


def test_without_local_limits_those_of_both_tiers_hold() -> None:
    bench = filled(replace(TIERED, local_retention_ms=-2, retention_ms=DAY))
    bench.log.copied_end = Offset(bases(bench)[1])
    first = bench.log.copied_end
    drop_expired(bench, NOW + DAY - 1)
    assert bench.log.local_log_start_offset == 0
    drop_expired(bench)
    assert (bench.log.log_start_offset, bench.log.local_log_start_offset) == (0, first)


def test_deleted_records_leave_the_node_without_a_copy() -> None:
    bench = filled()
    second = bases(bench)[1]
    delete_records(bench.log, Offset(second))
    drop_expired(bench, NOW)
    assert bases(bench)[0] == second
    assert (bench.log.log_start_offset, bench.log.local_log_start_offset) == (second, second)


def test_both_starts_survive_restarts() -> None:
    """After a clean stop, a kill and a power loss, also with a log start above 0."""
    bench = filled()
    first = bases(bench)[2]
    bench.log.copied_end = Offset(first)
    delete_records(bench.log, Offset(3))
    drop_expired(bench)
    expected = [bytes(bench.log.read(Offset(first), 10_000, up_to=bench.log.log_end_offset).records)]
    for again in (bench.restart_clean, bench.kill, bench.crash):
        log = again()
        assert log.damage is None
        assert (log.log_start_offset, log.local_log_start_offset) == (3, first)
        assert [bytes(log.read(Offset(first), 10_000, up_to=log.log_end_offset).records)] == expected
        assert log.epochs.entries[0].start_offset == 3
        assert log.copied_end == 0, "the coordinator says it again"
        drop_expired(bench)
        assert log.local_log_start_offset == first


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_lost_epochs_of_the_remote_part_are_damage(how: str) -> None:
    """Those of the local batches are found again, but no local batch has the others: without them a leader would
    believe no remote segment. It stays damage after another restart, when the file has been written again."""
    bench = filled()
    first = bases(bench)[3]
    bench.log.copied_end = Offset(first)
    drop_expired(bench)
    path = f"{bench.log.path}/{LEADER_EPOCH_CHECKPOINT}"
    if how == "clean":
        bench.directory.close_clean()
    else:
        bench.disk.kill()
    bench.files.remove(path)
    log = bench.reopen()
    for _ in range(2):
        assert log.damage is not None
        assert (log.damage.first_offset, log.damage.end_offset) == (0, first)
        assert "leader epochs of what is in the remote tier are lost" in log.damage.reason
        assert log.epochs.entries[0].start_offset == first
        assert log.read(Offset(first), 10_000, up_to=log.log_end_offset).records, "what is local is read"
        bench.commit()
        log = bench.restart_clean()


def test_a_segment_that_is_missing_above_the_local_start_is_lost() -> None:
    """Only what was recorded as copied may be absent: the rest is damage."""
    bench = filled()
    first, second = bases(bench)[2:4]
    bench.log.copied_end = Offset(first)
    drop_expired(bench)
    path = bench.log.segments[0].path
    bench.disk.kill()
    bench.files.remove(path)
    log = bench.reopen()
    assert log.damage is not None
    assert log.damage.first_offset <= first < second == log.damage.end_offset


def test_a_truncation_below_the_local_start_empties_the_log() -> None:
    """An unclean election elsewhere: nothing local is left, and no record of a local start above the end. The log
    starts where it did: with a later start, this replica as a leader would delete the remote segments below it."""
    bench = filled()
    first = bases(bench)[2]
    bench.log.copied_end = Offset(first)
    drop_expired(bench)
    bench.log.truncate_to(Offset(first - 2))
    for _ in range(2):
        log = bench.log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0,) * 3
        log.append(batch(b"again"), assign_offsets=True, leader_epoch=LeaderEpoch(7))
        log.flush()
        assert len(contents(log)) == 1
        log.truncate_to(Offset(0))
        bench.kill()
        assert bench.log.damage is None


def crash_points(seeds: int = 2) -> Iterator[tuple[Bench, int]]:
    """A log after the power has failed while it dropped its copied segments, at each call of the disk, and up to where
    it was copied."""
    for seed in range(seeds):
        call = 0
        while True:
            call += 1
            bench = filled()
            copied = bench.log.copied_end = Offset(bases(bench)[2])
            bench.disk.crash_at_call(bench.disk.calls + call)
            try:
                drop_expired(bench)
                bench.clock.now += 2000
                bench.directory.remove_deleted_files()
                bench.disk.heal()
            except SimulatedCrash:
                bench.disk.crash(random.Random(call * 7 + seed))
                yield bench, copied
                continue
            break


def test_a_power_loss_at_any_call_of_the_disk_loses_nothing() -> None:
    """Whatever part of the removal is on the disk: the log is undamaged, everything that left it was copied."""
    crashes = moved = 0
    for bench, copied in crash_points():
        crashes += 1
        log = bench.reopen()
        assert log.damage is None, log.damage
        assert (log.log_start_offset, log.log_end_offset) == (0, 12)
        start = log.local_log_start_offset
        moved += start > 0
        assert start in (0, copied)
        read = log.read(start, 100_000, up_to=log.log_end_offset)
        assert read.next_offset > start
        log.append(batch(b"goes on"), assign_offsets=True, leader_epoch=LeaderEpoch(1))
    assert crashes > 20
    assert 0 < moved < crashes


def test_a_full_disk_leaves_the_segments() -> None:
    bench = filled()
    before = [*bases(bench), bench.log.log_end_offset]
    bench.log.copied_end = Offset(before[2])
    bench.disk.fail("write", LOCAL_START_CHECKPOINT, error=28)
    failures: list[object] = []
    bench.clock.now = NOW + 2 * DAY
    bench.directory.drop_expired(bench.log, failures.append)
    assert [type(each) for each in failures] == [DiskFull]
    assert bases(bench) == before
    drop_expired(bench)
    assert bases(bench) == before[2:]


def test_a_topic_without_a_remote_tier_is_as_before() -> None:
    bench = filled(replace(TIERED, remote_storage=False, retention_ms=DAY))
    drop_expired(bench)
    assert bench.log.log_start_offset == bench.log.local_log_start_offset == 12
    assert bench.files.size(f"{bench.path}/{LOCAL_START_CHECKPOINT}") is None
    assert Millis(bench.clock.now) > NOW


def test_without_a_remote_tier_segments_expire_also_where_a_snapshot_of_producers_is_lost() -> None:
    bench = filled(replace(TIERED, remote_storage=False, retention_bytes=1))
    before = bases(bench)
    bench.log.producers.state.snapshots.remove(Offset(before[-1]))
    drop_expired(bench, now=NOW)
    assert bases(bench) == before[-1:]
