"""Magic, leader epoch and base offset, which no checksum covers, become corrupt: recovery notices it, reports it below
what was durable, and changes no byte of the log (docs/decisions/0013)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from storage.files.file_system import read_file, write_file
from tests.fakes.log_start import delete_records
from tests.storage.workbench import SMALL, Bench, stamped
from tidelog.errors import CorruptLog
from tidelog.records.v2.header import LEADER_EPOCH_AT, MAGIC_AT, walk_headers
from tidelog.types import Durability, LeaderEpoch, Offset

ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 20)
PAGE_CACHE = replace(ONE_SEGMENT, durability=Durability.PAGE_CACHE)


def killed(epochs: Sequence[int], config: object = ONE_SEGMENT) -> tuple[Bench, list[bytes], list[int]]:
    """A log with one batch of each of these epochs, whose process has died. Returns its batches and their positions."""
    bench = Bench(config)  # type: ignore[arg-type]
    for offset, epoch in enumerate(epochs):
        bench.follow(stamped(offset, b"value %d" % offset, epoch=epoch))
    if bench.config.durability is Durability.FSYNC:
        bench.commit()
    contents = bench.contents()
    bench.disk.kill()
    return bench, contents, [header.position for header in walk_headers(b"".join(contents))]


def overwrite(bench: Bench, position: int, data: bytes) -> None:
    file = bench.disk.open(bench.segment_path)
    file.pwritev([data], position)
    file.sync()
    file.close()


def set_epoch(bench: Bench, position: int, epoch: int) -> None:
    overwrite(bench, position + LEADER_EPOCH_AT, epoch.to_bytes(4, "big", signed=True))


def epochs_of(bench: Bench) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in bench.log.epochs.entries]


def on_disk(bench: Bench) -> bytes | None:
    return read_file(bench.disk, bench.segment_path)


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("magic", [0, 1, 3, 9, 0x82, 0xFF])
def test_a_corrupt_magic_of_a_durable_batch_is_damage(magic: int, at: int) -> None:
    bench, contents, positions = killed([0] * 6)
    overwrite(bench, positions[at] + MAGIC_AT, bytes([magic]))
    rotten = on_disk(bench)
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset, damage.position) == (at, 6, positions[at])
    assert on_disk(bench) == rotten, "the bytes stay unchanged"
    for offset in range(at):
        assert bench.log.read(Offset(offset), 1, up_to=Offset(6)).records == contents[offset]
    with pytest.raises(CorruptLog, match=f"lost offsets {at}"):
        bench.log.read(Offset(at), 1, up_to=Offset(6))


@pytest.mark.parametrize("at", range(6))
def test_a_corrupt_magic_above_the_durable_offset_ends_the_log(at: int) -> None:
    bench, contents, positions = killed([0] * 6, PAGE_CACHE)
    overwrite(bench, positions[at] + MAGIC_AT, b"\x09")
    bench.reopen()
    assert (bench.contents(), bench.log.damage) == (contents[:at], None), "like any torn batch"
    bench.lead(b"goes on")


@pytest.mark.parametrize("wrong", [0, 1, 2, 4, 6, 99, -1])
@pytest.mark.parametrize("at", range(6))
def test_an_epoch_that_contradicts_the_epoch_file_is_damage(at: int, wrong: int) -> None:
    """Everything was durable, so the epoch file is complete. The checksum is correct, so readers lose nothing."""
    bench, contents, positions = killed([3, 3, 3, 5, 5, 5])
    set_epoch(bench, positions[at], wrong)
    rotten = on_disk(bench)
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset, damage.readable) == (at, at + 1, True)
    assert on_disk(bench) == rotten, "the bytes stay unchanged"
    assert [data for number, data in enumerate(bench.contents()) if number != at] == contents[:at] + contents[at + 1 :]
    assert epochs_of(bench) == [(3, 0), (5, 3)]


@pytest.mark.parametrize(("at", "wrong"), [(0, 1), (0, 3), (1, 1), (1, 3), (2, 3), (3, 3), (4, 3)])
def test_an_epoch_of_later_offsets_is_damage_of_its_batch_alone(at: int, wrong: int) -> None:
    """The file has that epoch, but not at this offset."""
    bench, contents, positions = killed([0, 0, 0, 1, 1, 1, 3, 3, 3])
    set_epoch(bench, positions[at], wrong)
    bench.reopen()
    damage = bench.log.damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset, damage.readable) == (at, at + 1, True)
    assert [data for number, data in enumerate(bench.contents()) if number != at] == contents[:at] + contents[at + 1 :]
    assert epochs_of(bench) == [(0, 0), (1, 3), (3, 6)]


def test_if_batches_and_epoch_file_disagree_all_records_can_be_read() -> None:
    """The file may be the wrong one."""
    bench, contents, _ = killed([0, 0, 0, 1, 1, 1])
    path = "/data/orders-0/leader-epoch-checkpoint"
    at = (read_file(bench.disk, path) or b"").index(b"1 3") + 2
    bench.disk.flip_bit(path, at, 2)  # from offset 7 on
    bench.reopen()
    assert bench.contents() == contents
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.readable) == (3, True)


def test_an_epoch_above_the_durable_offset_is_accepted() -> None:
    """A leader's first batches are in the page cache when its process dies; the epoch file does not have the epoch
    yet."""
    bench, contents, _ = killed([3, 3, 3, 5, 5], PAGE_CACHE)
    assert read_file(bench.disk, "/data/orders-0/leader-epoch-checkpoint") == b"0\n0\n"
    bench.reopen()
    assert bench.contents() == contents
    assert epochs_of(bench) == [(3, 0), (5, 3)]


@pytest.mark.parametrize("wrong", [0, 4, 99])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_the_log_ends_before_decreasing_epochs_above_the_durable_offset(at: int, wrong: int) -> None:
    """No file shows which of two batches is wrong: neither is kept, and no wrong epoch is recorded."""
    bench, contents, positions = killed([3] * 6, PAGE_CACHE)
    if at == 0 and wrong < 3:
        wrong = 5  # there is nothing before the first batch: a smaller epoch is as good as another
    set_epoch(bench, positions[at], wrong)
    bench.reopen()
    kept = 0 if at == 1 and wrong < 3 else at
    assert (bench.contents(), bench.log.damage) == (contents[:kept], None)
    assert epochs_of(bench) == ([(3, 0)] if kept else [])
    bench.lead(b"goes on", epoch=3)


@pytest.mark.parametrize("odd", [(3,), (3, 4)])
def test_a_log_whose_epochs_decrease_after_a_new_epoch_ends_there(odd: tuple[int, ...]) -> None:
    bench, contents, positions = killed([3, 3, 5, 5, 5, 5], PAGE_CACHE)
    for at in odd:
        set_epoch(bench, positions[at], 1)
    bench.reopen()
    assert bench.contents() == contents[:3]
    assert epochs_of(bench) == [(3, 0), (5, 2)]


@pytest.mark.parametrize("wrong", [0, 3, 4, 7, 100, 1 << 40])
@pytest.mark.parametrize("at", range(5))
def test_a_base_offset_that_contradicts_its_neighbors_is_damage(at: int, wrong: int) -> None:
    if at == wrong:
        return
    bench, contents, positions = killed([0] * 6)
    overwrite(bench, positions[at], wrong.to_bytes(8, "big"))
    rotten = on_disk(bench)
    bench.reopen()
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.end_offset) == (at, 6)
    assert on_disk(bench) == rotten
    for offset in range(bench.log.log_end_offset):
        if offset < at:
            assert bench.log.read(Offset(offset), 1, up_to=Offset(6)).records == contents[offset]
        else:
            with pytest.raises(CorruptLog):
                bench.log.read(Offset(offset), 1, up_to=Offset(6))


@pytest.mark.parametrize("wrong", [0, 3, 4, 7, 100, 1 << 40])
@pytest.mark.parametrize("at", range(5))
def test_the_log_ends_before_a_contradicted_offset_above_the_durable_offset(at: int, wrong: int) -> None:
    """Otherwise its records would be read at other offsets, and those between would be left out."""
    if at == wrong:
        return
    bench, contents, positions = killed([0] * 6, PAGE_CACHE)
    overwrite(bench, positions[at], wrong.to_bytes(8, "big"))
    bench.reopen()
    assert (bench.contents(), bench.log.damage) == (contents[:at], None)
    bench.lead(b"goes on")


def test_the_log_ends_before_a_batch_that_reaches_into_the_next_segment() -> None:
    bench = Bench(replace(SMALL, durability=Durability.PAGE_CACHE))
    for offset in range(40):
        bench.lead(b"value %d" % offset)
    first, second = bench.log.segments[:2]
    last = list(first.walk())[-1]
    before = bench.contents()
    bench.disk.kill()
    bench.disk.flip_bit(first.path, last.position + 6, 0)
    bench.reopen()
    assert bench.log.log_end_offset == last.base_offset < second.base_offset
    assert bench.contents() == before[: last.base_offset]


def test_a_hole_that_nothing_contradicts_is_accepted() -> None:
    """As compaction leaves it, here or on the leader."""
    bench = Bench(ONE_SEGMENT)
    for offset in (0, 1, 7, 8, 20):
        bench.follow(stamped(offset))
    bench.commit()
    contents = bench.contents()
    bench.kill()
    assert (bench.contents(), bench.log.damage) == (contents, None)


def test_an_offset_too_far_from_the_base_offset_is_rejected() -> None:
    bench, contents, positions = killed([0] * 6, PAGE_CACHE)
    overwrite(bench, positions[-1], (1 << 40).to_bytes(8, "big"))
    bench.reopen()
    assert bench.contents() == contents[:-1]
    bench.lead(b"goes on")


def test_below_the_recovery_point_it_is_damage_too() -> None:
    bench, _, positions = killed([0] * 6)
    bench.reopen()
    bench.directory.write_checkpoints()
    bench.disk.kill()
    overwrite(bench, positions[2] + MAGIC_AT, b"\x09")
    bench.reopen()
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.end_offset) == (2, 6)


def test_a_read_rejects_such_a_header() -> None:
    """The read raises, and the damage is reported."""
    bench, _, positions = killed([0] * 6)
    bench.reopen()
    overwrite(bench, positions[2] + MAGIC_AT, b"\x09")
    with pytest.raises(CorruptLog, match="magic 9"):
        bench.contents()
    assert bench.log.damage is not None
    assert bench.log.damage.first_offset == 2


def test_a_batch_below_the_log_start_needs_no_entry_in_the_epoch_file() -> None:
    """Its entry was removed when the log start moved; after a truncation to the start the file has none at all (crash
    point 20261140)."""
    bench = Bench(ONE_SEGMENT)
    for value in (b"a", b"b", b"c"):
        bench.lead(value)
    bench.commit()
    bench.log.advance_high_watermark(Offset(2))
    delete_records(bench.log, Offset(2))
    bench.log.truncate_to(Offset(2))
    assert not bench.log.epochs.entries
    bench.kill()
    assert bench.log.damage is None
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (2, 2)


@pytest.mark.parametrize("damaged", [b"\x80\n1\n0 0\n", b"0\n", b""])
def test_an_unreadable_epoch_file_of_messages_is_damage_although_no_file_says_what_was_durable(damaged: bytes) -> None:
    """The marks of durable offsets lag behind, so they may know of nothing. Without its epochs the log had none in
    common with the others: elected as leader, it made them truncate committed records."""
    bench = Bench(replace(ONE_SEGMENT, magic=0))
    bench.log.begin_epoch(LeaderEpoch(0))
    bench.commit()
    bench.lead(b"a", b"b")
    bench.disk.kill()
    write_file(bench.disk, "/data/orders-0/leader-epoch-checkpoint", damaged)
    damage = bench.reopen().damage
    assert damage is not None
    assert (damage.first_offset, damage.end_offset, damage.readable) == (0, 2, True)
    assert "the leader epochs of records of format v0 or v1 are lost" in damage.reason
