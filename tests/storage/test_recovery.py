"""Opening a log after a kill, a power failure, or corruption: what is truncated, kept and reported.

log-append-roll-flush.txt (recovery point), index-files.txt (rebuilding), scenarios 1, 8 and 14 as far as one log
shows."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from storage.files.file_system import read_file, write_file
from storage.log_config import LogConfig
from storage.segment.segment import segment_path
from testbed.fake_disk import SimulatedCrash
from tests.storage.workbench import NOW, SMALL, Bench, Deferred, stamped
from tidelog.errors import CorruptLog, KafkaStorageError
from tidelog.types import Durability, Offset, PartitionKey


def filled(count: int = 40, config: LogConfig = SMALL) -> Bench:
    bench = Bench(config)
    for i in range(count):
        bench.lead(b"value %d" % i, timestamp=NOW + i)
    return bench


def put(bench: Bench, path: str, data: bytes) -> None:
    """Change a file from outside, durably."""
    file = bench.disk.open(path, create=True)
    file.truncate(0)
    file.pwritev([data], 0)
    file.sync()
    file.close()


def get(bench: Bench, path: str) -> bytes:
    data = read_file(bench.disk, path)
    assert data is not None
    return data


# --- torn tails -----------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_truncated_at_every_byte_of_the_last_batch() -> None:
    bench = filled(5)
    path, whole, kept = bench.segment_path, get(bench, bench.segment_path), bench.contents()
    last = len(kept[-1])
    bench.disk.kill()
    for missing in range(1, last):
        put(bench, path, whole[:-missing])
        bench.reopen()
        assert bench.contents() == kept[:-1]
        assert bench.log.damage is None
        assert bench.disk.size(path) == len(whole) - last
        assert "was truncated" in bench.directory.notes[0]
        bench.disk.heal()
        bench.disk.kill()
        write_file(bench.disk, "/data/held-offset-marks", b"")  # each torn file stands for a crash of its own


@pytest.mark.parametrize("tail", [b"\0" * 200, b"\0" * 11, b"garbage " * 30, b"\xff" * 61])
def test_a_tail_of_zeros_or_garbage_is_truncated(tail: bytes) -> None:
    bench = filled(5)
    kept, whole = bench.contents(), get(bench, bench.segment_path)
    bench.disk.kill()
    put(bench, bench.segment_path, whole + tail)
    bench.reopen()
    assert bench.contents() == kept
    assert bench.disk.size(bench.segment_path) == len(whole)
    bench.lead(b"goes on")


def test_after_a_kill_everything_written_exists() -> None:
    bench = filled(60)
    before, epochs = bench.contents(), bench.log.epochs.entries
    bench.kill()
    assert bench.contents() == before
    assert bench.log.epochs.entries == epochs
    assert bench.log.durable_offset == bench.log.log_end_offset == 60


def test_segments_after_a_truncation_are_set_aside() -> None:
    bench = filled(60, replace(SMALL, durability=Durability.PAGE_CACHE, segment_bytes=1_000))
    bases = [segment.base_offset for segment in bench.log.segments]
    second = segment_path(bench.log.path, bases[1], ".log")
    bench.disk.kill()
    write_file(bench.disk, "/data/recovery-point-offset-checkpoint", b"0\n0\n")
    put(bench, second, get(bench, second)[:-5])
    bench.reopen()
    assert bases[1] < bench.log.log_end_offset < bases[2]
    assert bench.disk.size(segment_path(bench.log.path, bases[2], ".log.stray"))
    bench.lead(b"goes on")


def test_indexes_are_rebuilt_as_the_appends_wrote_them() -> None:
    bench = filled(60)
    bench.log.close()
    names = [name for name in bench.disk.list(bench.log.path) if name.endswith("index")]
    before = {name: get(bench, f"{bench.log.path}/{name}") for name in names}
    assert any(before.values())
    bench.disk.kill()
    for name in names:
        bench.disk.remove(f"{bench.log.path}/{name}")
    bench.reopen()
    bench.log.close()
    assert {name: get(bench, f"{bench.log.path}/{name}") for name in names} == before


def test_garbage_in_an_index_is_noticed_and_rebuilt() -> None:
    for suffix in (".index", ".timeindex"):
        for garbage in (b"\0" * 48, b"abc", b"\xff" * 24):
            bench = filled(60)
            contents = bench.contents()
            bench.directory.close_clean()
            for base in (0, bench.log.active.base_offset):
                put(bench, segment_path(bench.log.path, base, suffix), garbage)
            bench.reopen()
            assert bench.contents() == contents
            assert bench.log.offset_for_timestamp(NOW + 3, up_to=Offset(99)) == (3, NOW + 3, 0)
            bench.lead(b"goes on")


def test_a_missing_or_damaged_epoch_file_is_rebuilt_from_the_batches() -> None:
    for damage in (None, b"", b"0\n7\n1 2\n", b"nonsense", b"0\n2\n5 10\n4 20\n"):
        bench = Bench()
        for epoch in (1, 1, 3, 3, 8):
            bench.lead(b"x" * 300, epoch=epoch)
        expected = bench.log.epochs.entries
        bench.directory.close_clean()
        path = f"{bench.log.path}/leader-epoch-checkpoint"
        if damage is None:
            bench.disk.remove(path)
        else:
            put(bench, path, damage)
        bench.reopen()
        assert bench.log.epochs.entries == expected


# --- clean stops ----------------------------------------------------------------------------------------------------


def test_a_clean_start_reads_little_and_changes_nothing() -> None:
    bench = filled(200)
    before = bench.contents()
    bench.log.advance_high_watermark(Offset(150))
    bench.directory.close_clean()
    calls = bench.disk.calls
    bench.reopen()
    assert bench.directory.identity.was_clean
    assert bench.directory.notes == []
    assert bench.disk.calls - calls < 40 + 6 * len(bench.log.segments)
    assert (bench.log.high_watermark, bench.log.durable_offset, bench.log.recovery_point) == (150, 200, 200)
    assert bench.contents() == before


def test_the_clean_stop_marker_is_removed_when_the_directory_is_opened() -> None:
    for seed in range(10):
        bench = filled(3)
        bench.restart_clean()
        assert bench.directory.identity.was_clean
        bench.crash(seed)
        assert not bench.directory.identity.was_clean


def test_a_false_clean_marker_is_rejected() -> None:
    """Kafka accepts it: nothing is truncated, and an index entry after the torn end moves the log end back to the base
    offset."""
    bench = filled(30)
    kept = bench.contents()
    bench.log.flush()
    bench.directory.write_checkpoints()
    whole = get(bench, bench.segment_path)
    bench.disk.kill()
    put(bench, bench.segment_path, whole + b"\0" * 100)
    write_file(bench.disk, "/data/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":-1}')
    bench.reopen()
    assert bench.directory.identity.was_clean
    assert "marker rejected" in bench.directory.notes[0]
    assert bench.contents() == kept


def test_a_clean_marker_over_unflushed_records_is_rejected() -> None:
    """Batches and indexes are consistent; only the recovery point shows that the last record may not be on the disk."""
    bench = filled(30, LogConfig(index_interval_bytes=1 << 20))
    bench.restart_clean()
    bench.lead(b"written, not synced")
    bench.disk.kill()
    write_file(bench.disk, "/data/.kafka_cleanshutdown", b"{}")
    bench.reopen()
    assert "marker rejected" in bench.directory.notes[0]
    assert bench.log.durable_offset == 31
    for seed in range(5):
        bench.crash(seed)
        assert bench.log.log_end_offset == 31, "it became durable before it counted as durable"


def test_a_clean_marker_over_a_log_that_lost_its_end_finds_the_damage() -> None:
    bench = filled(30)
    bench.directory.close_clean()
    path = bench.segment_path
    put(bench, path, get(bench, path)[:-20])
    bench.reopen()
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.end_offset) == (29, 30)


# --- damage ---------------------------------------------------------------------------------------------------------


def durable_offset(count: int = 30) -> Bench:
    bench = filled(count)
    bench.commit()
    assert bench.log.durable_offset == count
    return bench


def test_corruption_below_the_durable_offset_is_reported_and_not_truncated() -> None:
    """Scenario 8, variant: corruption above the recovery point, found after an unclean stop, is not treated as a torn
    tail."""
    bench = durable_offset()
    bench.disk.kill()
    size = bench.disk.size(bench.segment_path) or 0
    bench.disk.flip_bit(bench.segment_path, size - 1)
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset, damage.path) == (29, 30, bench.segment_path)
    assert bench.log.log_end_offset == 30, "existing records are kept"
    assert bench.disk.size(bench.segment_path) == size
    assert bench.directory.damaged() == {PartitionKey(bench.log.topic_id, bench.log.topic_partition.partition): damage}
    with pytest.raises(CorruptLog, match="takes no appends"):
        bench.lead()


def test_a_lost_end_below_the_durable_offset_is_reported() -> None:
    bench = durable_offset()
    bench.disk.kill()
    put(bench, bench.segment_path, get(bench, bench.segment_path)[:-200])
    bench.reopen()
    assert bench.log.damage is not None
    assert bench.log.damage.end_offset == 30
    assert bench.log.durable_offset == bench.log.damage.first_offset == bench.log.log_end_offset < 30


def test_a_broken_chain_keeps_the_bytes_after_it() -> None:
    bench = durable_offset()
    active = bench.log.active
    bench.disk.kill()
    data = get(bench, active.path)
    put(bench, active.path, data[:8] + b"\x7f" + data[9:])  # the first batch's length
    bench.reopen()
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.position) == (active.base_offset, 0)
    assert bench.disk.size(active.path) == len(data)


def test_damage_is_found_again_after_a_clean_stop() -> None:
    bench = durable_offset()
    bench.disk.kill()
    bench.disk.flip_bit(bench.segment_path, (bench.disk.size(bench.segment_path) or 0) - 1)
    bench.reopen()
    first = bench.log.damage
    bench.restart_clean()
    assert bench.log.damage == first
    bench.kill()
    assert bench.log.damage == first


def test_a_damaged_log_is_emptied_and_refetched() -> None:
    bench = durable_offset()
    bench.disk.kill()
    bench.disk.flip_bit(bench.segment_path, 70)
    bench.reopen()
    found = bench.log.damage
    assert found is not None
    with pytest.raises(CorruptLog, match="refetch it"):
        bench.log.truncate_to(Offset(30))
    bench.log.truncate_fully_and_start_at(Offset(0))
    assert bench.log.damage is None
    bench.follow(stamped(0, b"again"))
    bench.commit()
    bench.crash(1)
    assert (bench.log.damage, bench.log.durable_offset) == (None, 1)


def test_a_damaged_log_can_be_truncated_below_the_damage() -> None:
    bench = durable_offset()
    active = bench.log.active
    bench.disk.kill()
    data = get(bench, active.path)
    put(bench, active.path, data[:8] + b"\x7f" + data[9:])
    bench.reopen()
    bench.log.truncate_to(Offset(active.base_offset - 1))
    assert bench.log.damage is None
    assert bench.log.log_end_offset == active.base_offset - 1
    bench.lead(b"goes on")
    bench.kill()
    assert bench.log.damage is None


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("segment", [0, -1])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("bits", [(3,), (10,), (11,), (16, 17), (8, 9, 10, 11, 17), (66,)])
def test_a_damaged_log_continues_where_the_damage_began(
    bits: tuple[int, ...], batch: int, segment: int, clean: bool
) -> None:
    """Truncated there it is sound: no later batch returns, although the next append is as long as the damaged batch and
    ends where the next one had begun."""
    bench = durable_offset()
    whole, rotten = bench.contents(), bench.log.segments[segment]
    before = whole[rotten.base_offset : rotten.base_offset + batch]
    bench.disk.kill()
    for byte in bits:
        bench.disk.flip_bit(rotten.path, sum(map(len, before)) + byte, bit=2)
    bench.reopen()
    damage = bench.log.damage
    if damage is None:  # repaired, or in a place where only a reader or the scrub looks
        return
    bench.log.truncate_to(damage.first_offset)
    assert bench.log.damage is None
    size = len(whole[damage.first_offset]) - len(stamped(0, b""))
    bench.follow(stamped(damage.first_offset, b"x" * size, epoch=0))
    after = bench.contents()
    assert after[:-1] == whole[: damage.first_offset]
    bench.commit()
    if clean:
        bench.restart_clean()
    else:
        bench.kill()
    assert bench.log.damage is None
    assert bench.contents() == after


def test_a_log_without_its_files_is_damaged() -> None:
    bench = durable_offset()
    bench.disk.kill()
    for name in bench.disk.list(bench.log.path):
        if name[0] == "0":
            bench.disk.remove(f"{bench.log.path}/{name}")
    bench.reopen()
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.end_offset) == (0, 30)


def test_a_log_without_its_directory_is_missing() -> None:
    bench = durable_offset()
    key = PartitionKey(bench.log.topic_id, bench.log.topic_partition.partition)
    bench.disk.kill()
    bench.disk.rename(bench.log.path, "/data/elsewhere")
    directory = bench.open_directory()
    assert directory.load_logs(lambda _tp, _id: SMALL) == {}
    assert directory.damaged()[key].end_offset == 30
    log = directory.create_log(bench.log.topic_partition, bench.log.topic_id, SMALL)
    assert directory.damaged() == {}
    assert log.damage is None


def test_page_cache_topics_lose_their_tail_without_damage() -> None:
    bench = filled(30, replace(SMALL, durability=Durability.PAGE_CACHE))
    assert bench.log.durable_offset == 30
    bench.crash(2)
    assert bench.log.damage is None
    assert bench.log.log_end_offset < 30


def test_durable_batches_are_not_read_again() -> None:
    """Recovery checks from the recovery point on; readers and the scrub find corruption below it."""
    bench = durable_offset()
    bench.directory.write_checkpoints()
    bench.lead(b"one more")
    bench.disk.kill()
    bench.disk.flip_bit(bench.segment_path, 70)
    bench.reopen()
    assert bench.log.damage is None
    assert (bench.log.durable_offset, bench.log.log_end_offset) == (31, 31)


def test_a_broken_chain_below_the_recovery_point_is_damage() -> None:
    bench = durable_offset()
    bench.directory.write_checkpoints()
    active = bench.log.active
    bench.disk.kill()
    data = get(bench, active.path)
    put(bench, active.path, data[:8] + b"\x7f" + data[9:])
    bench.reopen()
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.end_offset) == (active.base_offset, 30)


@pytest.mark.parametrize("durable", [False, True], ids=["durable", "below the recovery point"])
def test_a_last_batch_with_a_shorter_length_is_damage_and_no_torn_tail(durable: bool) -> None:
    """Its length is corrupt: the bytes that seem to follow it are its own. They are not truncated, and nothing is
    appended where they begin."""
    bench = durable_offset(29)
    bench.lead(b"x" * 62)
    bench.commit()
    if durable:
        bench.directory.write_checkpoints()
    last = list(bench.log.active.walk())[-1]
    bench.disk.kill()
    data = get(bench, bench.segment_path)
    assert last.length == 120
    bench.disk.flip_bit(bench.segment_path, last.position + 11, bit=3)
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset, damage.position) == (29, 30, last.position)
    assert bench.disk.size(bench.segment_path) == len(data)
    with pytest.raises(CorruptLog, match="takes no appends"):
        bench.lead()
    bench.disk.flip_bit(bench.segment_path, last.position + 11, bit=3)
    bench.kill()
    assert (bench.log.damage, bench.log.log_end_offset) == (None, 30), "after a repair nothing is missing"


@pytest.mark.parametrize("durability", list(Durability))
@pytest.mark.parametrize("bit", range(5))
def test_a_base_offset_corrupted_to_the_recovery_point_is_damage(durability: Durability, bit: int) -> None:
    """No checksum covers it: by the headers alone the log seems to end with that batch at the right offset, and the
    bytes after it seem to be a torn tail."""
    bench = filled(32, LogConfig(durability=durability))
    bench.log.flush()
    bench.commit()
    bench.directory.write_checkpoints()
    rotten = list(bench.log.active.walk())[31 - (1 << bit)]
    bench.disk.kill()
    size = bench.disk.size(bench.segment_path)
    bench.disk.flip_bit(bench.segment_path, rotten.position + 7, bit)
    bench.reopen()
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.end_offset) == (rotten.base_offset, 32)
    assert bench.disk.size(bench.segment_path) == size


@pytest.mark.parametrize("durability", list(Durability))
def test_a_base_offset_corrupted_before_a_hole_is_damage_and_no_torn_tail(durability: Durability) -> None:
    """A compacted leader left a hole after the batch: nothing shows where the batch belongs."""
    bench = Bench(LogConfig(durability=durability))
    for offset in (*range(16), *range(18, 32)):
        bench.follow(stamped(offset, b"value %d" % offset))
    bench.log.flush()
    bench.commit()
    bench.directory.write_checkpoints()
    before = bench.contents()
    rotten = list(bench.log.active.walk())[15]
    bench.disk.kill()
    whole = get(bench, bench.segment_path)
    bench.disk.flip_bit(bench.segment_path, rotten.position + 7, 4)
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset, damage.position) == (15, 32, rotten.position)
    assert bench.disk.size(bench.segment_path) == len(whole)
    bench.disk.flip_bit(bench.segment_path, rotten.position + 7, 4)
    bench.kill()
    assert (bench.contents(), bench.log.damage) == (before, None), "after a repair nothing is missing"


@pytest.mark.parametrize("durable", [False, True], ids=["durable", "below the recovery point"])
def test_the_last_byte_of_a_closed_segment_is_no_preallocated_zero(durable: bool) -> None:
    """The length of its last batch is smaller by one. A record without headers ends with a zero."""
    bench = Bench(replace(SMALL, segment_bytes=1000))
    for number in range(30):
        bench.lead(b"value %d" % number, b"ab"[: number % 2 + 1])
    bench.commit()
    if durable:
        bench.directory.write_checkpoints()
    lasts = [(segment, list(segment.walk())[-1]) for segment in bench.log.segments[:-1]]
    segment, last = next((segment, last) for segment, last in lasts if last.length & 1)
    before = bench.contents()
    bench.disk.kill()
    whole = get(bench, segment.path)
    bench.disk.flip_bit(segment.path, last.position + 11, 0)
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert damage.first_offset <= last.last_offset
    assert damage.end_offset == last.last_offset + 1
    assert bench.disk.size(segment.path) == len(whole)
    bench.disk.flip_bit(segment.path, last.position + 11, 0)
    bench.kill()
    assert (bench.contents(), bench.log.damage) == (before, None), "after a repair nothing is missing"


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("byte", range(23, 27))
def test_a_damaged_batch_does_not_affect_the_offsets_after_it(byte: int, bit: int) -> None:
    """Its last offset is corrupt: the log keeps its end, and no later segment is set aside."""
    bench = filled(12, replace(SMALL, segment_bytes=500))
    bench.commit()
    files = [segment.path for segment in bench.log.segments]
    assert len(files) > 1
    bench.disk.kill()
    bench.disk.flip_bit(files[0], byte, bit)
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, bench.log.log_end_offset) == (0, 12)
    assert [segment.path for segment in bench.log.segments] == files


def test_an_idle_log_needs_no_sync_after_a_kill() -> None:
    bench = durable_offset()
    bench.directory.write_checkpoints()
    bench.disk.kill()
    syncs = bench.disk.syncs
    bench.reopen()
    assert bench.disk.syncs == syncs
    assert (bench.log.durable_offset, bench.log.recovery_point, bench.log.log_end_offset) == (30, 30, 30)


def test_a_log_that_was_never_flushed_syncs_its_names_first() -> None:
    """Scenario 14 for names: the first fsyncs failed, the restarted process keeps the records, power fails."""
    for seed in range(10):
        executor = Deferred()
        bench = Bench(executor=executor)
        for i in range(5):
            bench.lead(b"value %d" % i)
        fault = bench.disk.fail("sync", "partition.metadata")
        executor.run_all()
        assert fault.times == 0
        assert bench.log.durable_offset == 0
        bench.executor = None
        bench.kill()
        before = bench.contents()
        assert bench.log.durable_offset == 5
        bench.crash(seed)
        assert (bench.log.damage, bench.log.durable_offset, bench.contents()) == (None, 5, before)


# --- power failures -------------------------------------------------------------------------------------------------


def test_only_records_above_the_durable_offset_may_be_lost() -> None:
    """Scenario 1, as one replica sees it: it restarts with log end 80 and reports no more as durable."""
    ends = set()
    for seed in range(30):
        bench = filled(20)
        bench.commit()
        contents = bench.contents()
        for i in range(20, 26):
            bench.lead(b"value %d" % i)
        contents += bench.contents()[20:]
        bench.crash(seed)
        assert bench.log.damage is None
        assert bench.log.log_end_offset >= 20
        assert bench.contents() == contents[: len(bench.contents())]
        assert bench.log.durable_offset == bench.log.log_end_offset
        ends.add(int(bench.log.log_end_offset))
    assert {20, 26} <= ends


def test_recovery_rewrites_the_bytes_that_it_keeps_before_they_count_as_durable() -> None:
    """Scenario 14: fsync fails, the pages are marked clean; a restarted process syncs without error; power fails.

    Without the rewrite the bytes would be lost, although they were reported as durable after the restart."""
    for seed in range(10):
        bench = filled(20)
        bench.disk.fail("sync", ".log")
        bench.commit()
        assert bench.directory.offline is not None
        assert bench.log.durable_offset == 0
        bench.kill()
        assert bench.log.durable_offset == 20
        before = bench.contents()
        bench.crash(seed)
        assert bench.log.damage is None
        assert bench.contents() == before
        assert bench.log.durable_offset == 20


def test_power_fails_at_any_call_of_recovery() -> None:
    for call in range(1, 400):
        bench = filled(40)
        bench.commit()
        contents = bench.contents()
        for i in range(10):
            bench.lead(b"more %d" % i)
        bench.disk.crash(random.Random(call))
        bench.disk.crash_at_call(bench.disk.calls + call)
        try:
            bench.reopen()
            bench.disk.heal()
            done = True
        except SimulatedCrash:
            done = False
            bench.disk.crash(random.Random(call))
            bench.reopen()
        assert bench.log.damage is None
        assert bench.contents()[:40] == contents
        assert bench.log.durable_offset == bench.log.log_end_offset
        if done:
            assert call > 30
            return
    raise AssertionError("recovery never ended")


def test_a_disk_that_fails_during_recovery_takes_the_directory_offline() -> None:
    bench = filled(10)
    bench.disk.kill()
    bench.disk.fail("read", ".log")
    directory = bench.open_directory()
    with pytest.raises(KafkaStorageError, match="offline"):
        directory.load_logs(lambda _tp, _id: SMALL)
    assert directory.offline is not None


def test_a_hole_that_no_segment_can_span_is_no_loss() -> None:
    """A follower of a compacted log may have such a hole. It was treated as a loss once it lay below the recovery
    point."""
    bench = Bench()
    bench.follow(stamped(0, b"a"), stamped(2**31, b"b"))
    stored = bench.contents()
    for stop in (bench.crash, bench.restart_clean, bench.crash, bench.kill):
        bench.commit()
        stop()
        assert bench.log.damage is None
        assert bench.contents() == stored


def test_a_closed_segment_without_its_last_batch_ends_the_log() -> None:
    """The file ends after a whole batch and the next segment exists: treated as a hole, the log would continue after
    records that this replica never had."""
    bench = Bench(replace(SMALL, segment_bytes=400), executor=Deferred())
    while len(bench.log.segments) < 3:
        bench.lead(b"value", timestamp=NOW)
    closed = bench.log.segments[1]
    last = list(closed.walk())[-1]
    bench.disk.kill()
    bench.disk.open(closed.path).truncate(last.position)
    log = bench.reopen()
    assert log.log_end_offset == last.base_offset
    assert log.damage is None
    assert "are lost" in " ".join(bench.directory.notes)
