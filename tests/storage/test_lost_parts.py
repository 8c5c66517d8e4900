"""A part of a log is gone: what was there is reported, and everything else is read on (LogLoader's stories, told anew).

Kafka does not notice a lost segment, and believes every hole and every file that it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storage.checkpoints.checkpoint_file import CLEANER_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, encode_offsets
from storage.config import LogConfig
from storage.directory.load_progress import LoadProgress
from storage.files.file_system import read_file, write_file
from storage.segment.segment import segment_path
from tests.fakes.log_start import delete_old_segments, delete_records
from tests.storage.workbench import NOW, SMALL, TP, Bench, stamped
from tidelog.errors import CorruptLog
from tidelog.types import Durability, LeaderEpoch, Offset

EPOCHS = "/data/orders-0/leader-epoch-checkpoint"
SHORT = replace(SMALL, segment_bytes=1_000)
"""Six or more segments of a dozen batches."""
PAGE_CACHE = replace(SHORT, durability=Durability.PAGE_CACHE)


def filled(config: LogConfig = SHORT, *, count: int = 80) -> tuple[Bench, list[Offset], list[bytes]]:
    """A log of several segments whose process has died, all of it durable. Returns where segments begin, and what it
    held."""
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
    for suffix in (".log", ".index", ".timeindex"):
        bench.disk.remove(segment_path("/data/orders-0", base, suffix))


def readable(bench: Bench) -> list[int]:
    """Offsets that can be read, by asking for each of them."""
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


def test_a_lost_segment_is_reported_and_nothing_behind_it_is_lost() -> None:
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


def test_a_segment_lost_behind_a_clean_stop_is_missed() -> None:
    """Nothing of the closed segments is read after a clean stop, but a producer snapshot stands where one began."""
    bench, bases, _ = filled()
    bench.reopen()
    bench.directory.close_clean()
    lose(bench, bases[1])
    bench.reopen()
    assert bench.directory.identity.was_clean
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.end_offset) == (bases[1], bases[2])


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_lost_first_segment_is_no_deletion(*, clean: bool) -> None:
    """Deletion says where the log starts before it takes a file; here nothing has said so."""
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
    assert bench.log.log_start_offset == 0, "what is lost is missed, not deleted"


def test_a_deleted_front_is_not_missed() -> None:
    bench, bases, _ = filled()
    bench.reopen()
    bench.log.advance_high_watermark(Offset(80))
    delete_records(bench.log, bases[2])
    assert delete_old_segments(bench.log, bench.clock.wall_ms()) == 2
    bench.kill()
    assert (bench.log.damage, bench.log.log_start_offset) == (None, bases[2])
    bench.restart_clean()
    assert (bench.log.damage, bench.log.log_start_offset) == (None, bases[2])


def test_what_lies_between_two_lost_segments_is_read() -> None:
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


def test_a_hole_that_the_cleaner_left_is_none() -> None:
    bench, bases, _ = filled(replace(SHORT, compact=True, delete=False))
    lose(bench, bases[1])
    write_file(bench.disk, f"/data/{CLEANER_CHECKPOINT}", encode_offsets({TP: bases[2]}))
    bench.reopen()
    assert bench.log.damage is None
    assert readable(bench)[0] == 0
    bench.lead(b"goes on")


def test_a_hole_above_where_the_cleaner_came_is_damage() -> None:
    bench, bases, _ = filled(replace(SHORT, compact=True, delete=False))
    lose(bench, bases[3])
    write_file(bench.disk, f"/data/{CLEANER_CHECKPOINT}", encode_offsets({TP: bases[2]}))
    bench.reopen()
    assert bench.log.damage is not None


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_kafkas_compacted_log_is_believed_where_nothing_says_how_far_it_was_cleaned(*, clean: bool) -> None:
    """A directory that comes from Kafka: no marks of ours. A follower there begins a segment where its leader has a
    batch, behind a hole that the leader's cleaner made. Were that taken for lost batches, all behind it would be set
    aside."""
    bench, bases, _ = filled(replace(PAGE_CACHE, compact=True, delete=False))
    lose(bench, bases[1])
    bench.disk.remove(segment_path("/data/orders-0", bases[1], ".snapshot"))
    if clean:
        bench.reopen()
        bench.directory.close_clean()
    else:
        bench.disk.remove(f"/data/{RECOVERY_POINT_CHECKPOINT}")
    bench.disk.remove("/data/held-offset-marks")
    for _ in range(3):  # and that it was so is known later on
        bench.reopen()
        assert (bench.log.damage, bench.log.log_end_offset) == (None, 80)
        bench.disk.kill()


def test_the_lost_active_segment_ends_the_log_where_the_last_one_ends() -> None:
    bench, bases, _ = filled(PAGE_CACHE)
    lose(bench, bases[-1])
    write_file(bench.disk, f"/data/{RECOVERY_POINT_CHECKPOINT}", encode_offsets({TP: bases[-1]}))
    bench.reopen()
    assert (bench.log.log_end_offset, bench.log.damage) == (bases[-1], None)
    bench.lead(b"goes on")


def test_a_log_that_ends_below_its_start_is_set_aside_and_starts_anew() -> None:
    """Records were deleted up to 70, durably, and then power took the end of the log: what is left is all deleted."""
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
def test_an_index_entry_past_the_end_does_not_move_the_log_end(*, clean: bool) -> None:
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
def test_an_index_that_is_gone_or_empty_is_made_again(suffix: str, which: int) -> None:
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
def test_a_log_of_v1_that_lost_its_epochs_is_damaged_and_can_be_read(spoil: bytes | None) -> None:
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
    assert bench.contents() == contents, "the records are there"
    assert bench.log.epoch_entries() == (), "and no epoch is made up"
    with pytest.raises(CorruptLog):
        bench.lead(b"refused", epoch=4)


@pytest.mark.parametrize("spoil", [None, b"0\n1\n\xb0 0\n"], ids=["gone", "rotten"])
def test_the_next_start_finds_that_epochs_are_lost_too(spoil: bytes | None) -> None:
    """A flush between the two starts does not write a file that says that there have been none."""
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


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_log_of_v1_that_kafka_wrote_had_no_epochs_to_lose(*, clean: bool) -> None:
    config = replace(SMALL, magic=1, durability=Durability.PAGE_CACHE)
    bench = old_format(Bench(config), config)
    contents = bench.contents()
    bench.directory.close_clean() if clean else bench.disk.kill()
    bench.disk.remove(EPOCHS)
    bench.disk.remove("/data/held-offset-marks")
    for _ in range(2):  # the second start finds the empty file that the first one made
        bench.reopen()
        assert (bench.contents(), bench.log.epoch_entries(), bench.log.damage) == (contents, (), None)
        assert read_file(bench.disk, EPOCHS) == b"0\n0\n"
        bench.disk.kill()


def test_epochs_of_a_file_stay_where_no_batch_contradicts_them() -> None:
    """The first records of epoch 3 were cleaned away, and the log was trimmed into epoch 2: the batches alone would
    let both begin later."""
    bench = Bench(PAGE_CACHE)
    for offset, epoch in ((8, 2), (9, 2), (30, 3)):
        bench.follow(stamped(offset, epoch=epoch))
    bench.disk.kill()
    write_file(bench.disk, EPOCHS, b"0\n2\n2 9\n3 20\n")
    bench.reopen()
    assert [(entry.epoch, entry.start_offset) for entry in bench.log.epoch_entries()] == [(2, 9), (3, 20)]


def test_epochs_of_a_file_that_batches_contradict_go() -> None:
    bench = Bench(PAGE_CACHE)
    for offset, epoch in ((0, 2), (1, 5), (2, 5)):
        bench.follow(stamped(offset, epoch=epoch))
    bench.disk.kill()
    write_file(bench.disk, EPOCHS, b"0\n2\n2 0\n4 1\n")
    bench.reopen()
    assert [(entry.epoch, entry.start_offset) for entry in bench.log.epoch_entries()] == [(2, 0), (5, 1)]
    assert bench.log.last_epoch == LeaderEpoch(5)


# --- the marker of a clean stop ---------------------------------------------------------------------------------------


Spoil = Callable[[bytes], bytes]
SPOILED: dict[str, Spoil] = {
    "zeros behind the end": lambda data: data + b"\0" * 400,
    "garbage behind the end": lambda data: data + b"garbage " * 20,
    "a few zeros": lambda data: data + b"\0" * 5,
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_false_clean_marker_costs_nothing_but_a_recovery(name: str) -> None:
    """Kafka stops where such a log ends in zeros, and appends behind garbage."""
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


def test_progress_is_told_segment_by_segment() -> None:
    bench, bases, _ = filled()
    bench.disk.heal()
    write_file(bench.disk, f"/data/{RECOVERY_POINT_CHECKPOINT}", encode_offsets({TP: bases[2]}))
    directory = bench.open_directory()
    told: list[LoadProgress] = []
    directory.load_logs(lambda _tp, _id: SHORT, progress=told.append)
    size = directory.logs[TP].size
    assert [(progress.segment, progress.segments) for progress in told] == [
        *((done, len(bases)) for done in range(1, len(bases) + 1)),
        (0, 0),
    ]
    assert all((progress.log, progress.done, progress.total) == ("orders-0", 0, 1) for progress in told[:-1])
    assert told[0].bytes == 0, "closed segments below the recovery point are not read"
    assert 0 < told[-2].bytes < size
    assert (told[-1].done, told[-1].bytes) == (1, size)
    assert "segment 3 of" in str(told[2])
