"""A part of a log is missing: the loss is reported, and everything else can be read (cases of Kafka's LogLoader).

Kafka does not notice a lost segment, and accepts every hole and every file that it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storage.checkpoints.checkpoint_file import CLEANER_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, encode_offsets
from storage.directory.load_progress import LoadProgress
from storage.files.file_system import read_file, remove_files, write_file
from storage.log_config import LogConfig
from storage.segment.segment import SUFFIXES, segment_path
from tests.fakes.log_start import delete_old_segments, delete_records
from tests.storage.workbench import NOW, SMALL, TP, Bench, stamped
from tidelog.errors import CorruptLog
from tidelog.types import Durability, LeaderEpoch, Offset

EPOCHS = "/data/orders-0/leader-epoch-checkpoint"
LOG_STARTS = "/data/log-start-offset-checkpoint"
SHORT = replace(SMALL, segment_bytes=1_000)
"""Six or more segments of a dozen batches."""
LEADER_EPOCH_AT = 12
"""The first byte of the leader epoch in a batch."""
PAGE_CACHE = replace(SHORT, durability=Durability.PAGE_CACHE)


def filled(config: LogConfig = SHORT, *, count: int = 80) -> tuple[Bench, list[Offset], list[bytes]]:
    """A log of several segments whose process has died, all of it durable. Returns the base offsets and the durable
    offset."""
    bench = Bench(config)
    for i in range(count):
        bench.lead(b"value %d" % i, timestamp=NOW + i)
    bench.log.flush()
    bench.directory.write_checkpoints()
    bases, contents = [segment.base_offset for segment in bench.log.segments], bench.contents()
    assert len(bases) > 4
    bench.disk.kill()
    return bench, bases, contents


def lose(bench: Bench, base: int) -> None:
    assert remove_files(bench.disk, [segment_path("/data/orders-0", base, suffix) for suffix in SUFFIXES])


def readable(bench: Bench) -> list[int]:
    """The readable offsets, by reading each of them."""
    log, found = bench.log, []
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            read = log.read(Offset(offset), 1, up_to=log.log_end_offset)
        except CorruptLog:
            continue
        if len(read.records) and read.next_offset == offset + 1:
            found.append(offset)
    return found


# --- segments -------------------------------------------------------------------------------------------------------


def test_a_lost_segment_is_reported_and_later_segments_stay() -> None:
    bench, bases, _ = filled()
    lose(bench, bases[1])
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset) == (bases[1], bases[2])
    assert damage.path.endswith(f"{bases[0]:020d}.log")
    assert readable(bench) == [*range(bases[1]), *range(bases[2], 80)]
    assert bench.log.log_end_offset == 80
    with pytest.raises(CorruptLog, match="lost offsets"):
        bench.lead(b"refused")


def test_a_segment_lost_after_a_clean_stop_is_noticed() -> None:
    """Closed segments are not read after a clean stop, but there is a producer snapshot at the base offset of each."""
    bench, bases, _ = filled()
    bench.reopen()
    bench.directory.close_clean()
    lose(bench, bases[1])
    bench.reopen()
    assert bench.directory.identity.was_clean
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.end_offset) == (bases[1], bases[2])


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_lost_first_segment_is_not_taken_for_a_deletion(*, clean: bool) -> None:
    """A deletion records the log start before it removes a file; here no start is recorded."""
    bench, bases, _ = filled()
    if clean:
        bench.reopen()
        bench.directory.close_clean()
    lose(bench, bases[0])
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset) == (0, bases[1])
    assert readable(bench) == [*range(bases[1], 80)]
    assert bench.log.log_start_offset == 0, "the lost offsets are missing, not deleted"


def test_deleted_segments_are_not_reported() -> None:
    bench, bases, _ = filled()
    bench.reopen()
    bench.log.advance_high_watermark(Offset(80))
    delete_records(bench.log, bases[2])
    assert delete_old_segments(bench.log, bench.clock.wall_ms()) == 2
    bench.kill()
    assert (bench.log.damage, bench.log.log_start_offset) == (None, bases[2])
    bench.restart_clean()
    assert (bench.log.damage, bench.log.log_start_offset) == (None, bases[2])


def test_segments_between_two_lost_ones_can_be_read() -> None:
    bench, bases, _ = filled()
    lose(bench, bases[1])
    lose(bench, bases[3])
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset) == (bases[1], bases[4])
    assert "and 1 more" in str(damage)
    assert [(part.first_offset, part.end_offset) for part in damage.parts] == [
        (bases[1], bases[2]),
        (bases[3], bases[4]),
    ]
    assert readable(bench) == [*range(bases[1]), *range(bases[2], bases[3]), *range(bases[4], 80)]


def test_a_lost_end_of_a_closed_segment_is_reported() -> None:
    bench, bases, _ = filled()
    path = segment_path("/data/orders-0", bases[2], ".log")
    data = read_file(bench.disk, path)
    assert data is not None
    write_file(bench.disk, path, data[:-10])
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.path, damage.first_offset, damage.end_offset) == (path, bases[3] - 1, bases[3])
    assert readable(bench) == [*range(bases[3] - 1), *range(bases[3], 80)]


def test_a_hole_of_compaction_is_no_damage() -> None:
    bench, bases, _ = filled(replace(SHORT, compact=True, delete=False))
    lose(bench, bases[1])
    write_file(bench.disk, f"/data/{CLEANER_CHECKPOINT}", encode_offsets({TP: bases[2]}))
    bench.reopen()
    assert bench.log.damage is None
    assert readable(bench)[0] == 0
    bench.lead(b"goes on")


def test_a_hole_above_the_cleaned_offset_is_damage() -> None:
    bench, bases, _ = filled(replace(SHORT, compact=True, delete=False))
    lose(bench, bases[3])
    write_file(bench.disk, f"/data/{CLEANER_CHECKPOINT}", encode_offsets({TP: bases[2]}))
    bench.reopen()
    assert bench.log.damage is not None


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_compacted_log_from_kafka_is_accepted_without_a_cleaned_offset(*, clean: bool) -> None:
    """A directory from Kafka has no durable-offset marks. A follower in Kafka begins a segment at a batch of its
    leader, after a hole that the leader's cleaner made. If that counted as lost batches, all later segments would be
    set aside."""
    bench, bases, _ = filled(replace(PAGE_CACHE, compact=True, delete=False))
    lose(bench, bases[1])
    bench.disk.remove(segment_path("/data/orders-0", bases[1], ".snapshot"))
    if clean:
        bench.reopen()
        bench.directory.close_clean()
    else:
        bench.disk.remove(f"/data/{RECOVERY_POINT_CHECKPOINT}")
    bench.disk.remove("/data/held-offset-marks")
    for _ in range(3):  # and later starts accept it too
        bench.reopen()
        assert (bench.log.damage, bench.log.log_end_offset) == (None, 80)
        bench.disk.kill()


def test_a_lost_active_segment_ends_the_log_at_the_end_of_the_last_segment() -> None:
    bench, bases, _ = filled(PAGE_CACHE)
    lose(bench, bases[-1])
    write_file(bench.disk, f"/data/{RECOVERY_POINT_CHECKPOINT}", encode_offsets({TP: bases[-1]}))
    bench.reopen()
    assert (bench.log.log_end_offset, bench.log.damage) == (bases[-1], None)
    bench.lead(b"goes on")


def test_a_log_that_ends_below_its_start_is_set_aside_and_starts_there() -> None:
    """Records up to 70 were deleted durably, and then a power loss removed the end of the log: all remaining records
    are deleted ones."""
    bench, bases, _ = filled(PAGE_CACHE)
    write_file(bench.disk, "/data/log-start-offset-checkpoint", encode_offsets({TP: 79}))
    write_file(bench.disk, f"/data/{RECOVERY_POINT_CHECKPOINT}", encode_offsets({TP: 20}))
    lose(bench, bases[-1])
    bench.reopen()
    log = bench.log
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (79, 79, None)
    assert bench.disk.size(segment_path("/data/orders-0", bases[0], ".log.stray"))
    bench.lead(b"goes on")
    assert bench.contents()


# --- indexes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_an_index_entry_after_the_end_does_not_move_the_log_end(*, clean: bool) -> None:
    bench, bases, contents = filled()
    if clean:
        bench.reopen()
        bench.directory.close_clean()
    path = segment_path("/data/orders-0", bases[-1], ".index")
    entry = (5).to_bytes(4, "big") + (1 << 20).to_bytes(4, "big")
    write_file(bench.disk, path, entry)
    bench.reopen()
    assert bench.log.log_end_offset == 80
    assert bench.contents() == contents


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("which", [0, 2, -1])
@pytest.mark.usefixtures("indexes_in_files")
def test_a_missing_or_empty_index_is_rebuilt(suffix: str, which: int) -> None:
    bench, bases, contents = filled()
    path = segment_path("/data/orders-0", bases[which], suffix)
    spoils: list[Callable[[], None]] = [
        lambda: bench.disk.remove(path),
        lambda: write_file(bench.disk, path, b"\1" * 7),
    ]
    for spoil in spoils:
        spoil()
        bench.reopen()
        assert bench.contents() == contents
        found = bench.log.offset_for_timestamp(NOW + 40, up_to=Offset(80))
        assert found is not None
        assert found.offset == 40
        bench.disk.kill()


# --- epochs ---------------------------------------------------------------------------------------------------------


def old_format(bench: Bench, config: LogConfig) -> Bench:
    """A log of format v1 with a few records of one epoch, all durable."""
    for i in range(5):
        bench.lead(b"value %d" % i, epoch=4)
    bench.log.flush()
    bench.directory.write_checkpoints()
    assert bench.log.config is config
    return bench


@pytest.mark.parametrize("spoil", [None, b"0\n1\n4 x\n"], ids=["missing", "damaged"])
def test_a_v1_log_that_lost_its_epochs_is_damaged_and_readable(spoil: bytes | None) -> None:
    config = replace(SMALL, magic=1)
    bench = old_format(Bench(config), config)
    contents = bench.contents()
    bench.directory.close_clean()
    bench.disk.remove(EPOCHS) if spoil is None else write_file(bench.disk, EPOCHS, spoil)
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.path, damage.first_offset, damage.end_offset) == (EPOCHS, 0, 5)
    assert "epochs" in damage.reason
    assert bench.contents() == contents, "the records exist"
    assert bench.log.epochs.entries == (), "and no epoch is invented"
    with pytest.raises(CorruptLog):
        bench.lead(b"refused", epoch=4)


@pytest.mark.parametrize("spoil", [None, b"0\n1\n\xb0 0\n"], ids=["gone", "rotten"])
def test_the_next_start_also_finds_the_lost_epochs(spoil: bytes | None) -> None:
    """A flush between the two starts does not write an empty epoch file."""
    config = replace(SMALL, magic=1)
    bench = old_format(Bench(config), config)
    bench.log.flush()
    bench.disk.kill()
    bench.disk.remove(EPOCHS) if spoil is None else write_file(bench.disk, EPOCHS, spoil)
    for _ in range(3):
        bench.reopen()
        assert bench.log.damage is not None
        assert "epochs" in bench.log.damage.reason
        bench.log.flush()
        bench.disk.kill()


@pytest.mark.parametrize("rotten", [b"0\n1\norder\xf3 0 3\n", b"0\n1\norders 0 s\n"], ids=["name", "offset"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_v1_log_whose_start_is_lost_does_not_know_its_epochs(rotten: bytes, *, clean: bool) -> None:
    """It begins at its first segment again, and the messages below the lost start have no epoch: a replica that ends
    among them would find none in common, and restart below what it had committed. The loss outlasts the next start."""
    config = replace(SMALL, magic=1)
    bench = old_format(Bench(config), config)
    contents = bench.contents()
    bench.log.high_watermark = Offset(5)
    delete_records(bench.log, Offset(3))
    assert [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries] == [(4, 3)]
    bench.log.flush()
    bench.directory.write_checkpoints()
    bench.directory.close_clean() if clean else bench.disk.kill()
    write_file(bench.disk, LOG_STARTS, rotten)
    for _ in range(3):
        bench.reopen()
        damage = bench.log.damage
        assert damage is not None, "followers would restart below what they have committed"
        assert (damage.path, damage.first_offset, damage.end_offset) == (EPOCHS, 0, 5)
        assert bench.contents() == contents, "the records exist"
        assert bench.log.epochs.entries == (), "and no epoch is invented"
        bench.directory.write_checkpoints()
        assert read_file(bench.disk, LOG_STARTS) == b"0\n0\n", "the damaged file is replaced"
        bench.disk.kill()


def test_a_loss_of_epochs_that_was_accepted_is_not_found_again() -> None:
    config = replace(SMALL, magic=1)
    bench = old_format(Bench(config), config)
    bench.log.high_watermark = Offset(5)
    delete_records(bench.log, Offset(3))
    bench.log.flush()
    bench.directory.write_checkpoints()
    bench.disk.kill()
    write_file(bench.disk, LOG_STARTS, b"0\n1\norders 0 s\n")
    bench.reopen()
    assert str(bench.log.damage).startswith("offsets 0..4")
    bench.log.lost.takes_appends = True  # an unclean election
    bench.lead(b"later", epoch=10)
    bench.log.flush()
    bench.directory.write_checkpoints()
    for _ in range(2):
        bench.disk.kill()
        bench.reopen()
        entries = [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries]
        assert (bench.log.damage, entries) == (None, [(10, 5)])


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_v1_log_from_kafka_has_no_epochs_to_lose(*, clean: bool) -> None:
    config = replace(SMALL, magic=1, durability=Durability.PAGE_CACHE)
    bench = old_format(Bench(config), config)
    contents = bench.contents()
    bench.directory.close_clean() if clean else bench.disk.kill()
    bench.disk.remove(EPOCHS)
    bench.disk.remove("/data/held-offset-marks")
    for _ in range(2):  # the second start finds the empty file that the first one wrote
        bench.reopen()
        assert (bench.contents(), bench.log.epochs.entries, bench.log.damage) == (contents, (), None)
        assert read_file(bench.disk, EPOCHS) == b"0\n0\n"
        bench.disk.kill()


def test_epoch_file_entries_stay_unless_a_batch_contradicts_them() -> None:
    """The first records of epoch 3 were cleaned, and the log start moved into epoch 2: from the batches alone both
    would begin later."""
    bench = Bench(PAGE_CACHE)
    for offset, epoch in ((8, 2), (9, 2), (30, 3)):
        bench.follow(stamped(offset, epoch=epoch))
    bench.disk.kill()
    write_file(bench.disk, EPOCHS, b"0\n2\n2 9\n3 20\n")
    write_file(bench.disk, LOG_STARTS, b"0\n1\norders 0 9\n")
    bench.reopen()
    assert [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries] == [(2, 9), (3, 20)]


@pytest.mark.parametrize("spoil", [None, b"0\n1\norder\xf3 0 9\n"], ids=["gone", "rotten"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_log_whose_start_is_lost_has_the_epochs_of_all_its_batches(spoil: bytes | None, *, clean: bool) -> None:
    """The log begins at its first segment again. Entries from the lost start on would leave the batches below without
    an epoch: a replica that ends among them would find none in common, and restart below what it had committed."""
    bench = Bench(replace(PAGE_CACHE, segment_bytes=200))
    for offset in range(12):
        bench.follow(stamped(offset, epoch=1 + offset // 5))
    bench.log.high_watermark = Offset(12)
    assert len(bench.log.segments) > 3, "most of them lie below what recovery reads"
    delete_records(bench.log, Offset(9))
    assert [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries] == [(2, 9), (3, 10)]
    bench.log.flush()
    bench.directory.write_checkpoints()
    bench.directory.close_clean() if clean else bench.disk.kill()
    bench.disk.remove(LOG_STARTS) if spoil is None else write_file(bench.disk, LOG_STARTS, spoil)
    bench.reopen()
    assert (bench.log.log_start_offset, bench.log.damage) == (0, None)
    assert [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries] == [(1, 0), (2, 5), (3, 10)]


def test_a_damaged_epoch_below_the_first_entry_is_reported() -> None:
    bench = Bench(replace(PAGE_CACHE, segment_bytes=200))
    for offset in range(12):
        bench.follow(stamped(offset, epoch=1 + offset // 5))
    bench.log.high_watermark = Offset(12)
    delete_records(bench.log, Offset(9))
    bench.log.flush()
    bench.directory.write_checkpoints()
    bench.disk.kill()
    bench.disk.remove(LOG_STARTS)
    path = bench.log.segments[1].path
    bench.disk.flip_bit(path, LEADER_EPOCH_AT)
    bench.reopen()
    assert bench.log.damage is not None
    assert bench.log.damage.path == path
    assert "leader epoch" in bench.log.damage.reason


def test_epoch_file_entries_that_batches_contradict_are_removed() -> None:
    bench = Bench(PAGE_CACHE)
    for offset, epoch in ((0, 2), (1, 5), (2, 5)):
        bench.follow(stamped(offset, epoch=epoch))
    bench.disk.kill()
    write_file(bench.disk, EPOCHS, b"0\n2\n2 0\n4 1\n")
    bench.reopen()
    assert [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries] == [(2, 0), (5, 1)]
    assert bench.log.last_epoch == LeaderEpoch(5)


# --- the marker of a clean stop ---------------------------------------------------------------------------------------


Spoil = Callable[[bytes], bytes]
SPOILED: dict[str, Spoil] = {
    "zeros behind the end": lambda data: data + b"\0" * 400,
    "garbage behind the end": lambda data: data + b"garbage " * 20,
    "a few zeros": lambda data: data + b"\0" * 5,
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_false_clean_marker_only_costs_a_recovery(name: str) -> None:
    """Kafka stops if such a log ends in zeros, and appends after garbage."""
    bench, bases, contents = filled()
    bench.reopen()
    bench.directory.close_clean()
    path = segment_path("/data/orders-0", bases[-1], ".log")
    data = read_file(bench.disk, path)
    assert data is not None
    write_file(bench.disk, path, SPOILED[name](data))
    bench.reopen()
    assert bench.directory.identity.was_clean
    assert (bench.contents(), bench.log.damage) == (contents, None)
    assert read_file(bench.disk, path) == data
    bench.lead(b"goes on")


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_reported_segment_by_segment() -> None:
    bench, bases, _ = filled()
    bench.disk.heal()
    write_file(bench.disk, f"/data/{RECOVERY_POINT_CHECKPOINT}", encode_offsets({TP: bases[2]}))
    directory = bench.open_directory()
    reported: list[LoadProgress] = []
    directory.load_logs(lambda _tp, _id: SHORT, progress=reported.append)
    size = directory.logs[TP].size
    assert [(progress.segment, progress.segments) for progress in reported] == [
        *((done, len(bases)) for done in range(1, len(bases) + 1)),
        (0, 0),
    ]
    assert all((progress.log, progress.done, progress.total) == ("orders-0", 0, 1) for progress in reported[:-1])
    assert reported[0].bytes == 0, "closed segments below the recovery point are not read"
    assert 0 < reported[-2].bytes < size
    assert (reported[-1].done, reported[-1].bytes) == (1, size)
    assert "segment 3 of" in str(reported[2])
