"""Magic and leader epoch, which no checksum covers, rot: a batch that is sound otherwise stays (vectors' README)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from storage.files import read_file
from tests.storage.workbench import SMALL, Bench, stamped
from tidelog.errors import CorruptLog
from tidelog.records.header import LEADER_EPOCH_AT, MAGIC_AT, walk_headers
from tidelog.types import Durability

ONE_SEGMENT = replace(SMALL, segment_bytes=1 << 20)
PAGE_CACHE = replace(ONE_SEGMENT, durability=Durability.PAGE_CACHE)


def killed(epochs: Sequence[int], config: object = ONE_SEGMENT) -> tuple[Bench, list[bytes], list[int]]:
    """A log with one batch of each of these epochs, whose process has died. Returns its batches, and where each
    begins."""
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
    return [(entry.epoch, entry.start_offset) for entry in bench.log.epoch_entries()]


@pytest.mark.parametrize("config", [ONE_SEGMENT, PAGE_CACHE], ids=["held", "only in the page cache"])
@pytest.mark.parametrize("magic", [0, 1, 3, 9, 0x82, 0xFF])
def test_a_magic_that_rotted_is_put_right_in_any_batch(magic: int, config: object) -> None:
    bench, contents, positions = killed([0] * 6, config)
    for position in positions:
        overwrite(bench, position + MAGIC_AT, bytes([magic]))
        bench.reopen()
        assert (bench.contents(), bench.log.damage) == (contents, None)
        assert f"had magic {magic - 256 if magic > 127 else magic} for 2" in bench.log.notes[0]
        assert read_file(bench.disk, bench.segment_path) == b"".join(contents), "the byte itself is right again"
        bench.disk.kill()


def test_a_magic_is_not_put_right_where_the_checksum_says_nothing_for_it() -> None:
    bench, contents, positions = killed([0] * 6, PAGE_CACHE)
    overwrite(bench, positions[4] + MAGIC_AT, b"\x09")
    overwrite(bench, positions[4] + 70, b"\xff")
    bench.reopen()
    assert bench.contents() == contents[:4], "that batch is torn"


@pytest.mark.parametrize("wrong", [0, 1, 2, 4, 6, 99, -1])
def test_an_epoch_that_the_file_does_not_know_is_put_right(wrong: int) -> None:
    """Everything was held, so the epoch file is complete: 3 and 5 are all the epochs there are."""
    bench, contents, positions = killed([3, 3, 3, 5, 5, 5])
    for position in positions:
        set_epoch(bench, position, wrong)
        bench.reopen()
        assert (bench.contents(), bench.log.damage) == (contents, None)
        assert epochs_of(bench) == [(3, 0), (5, 3)]
        assert bench.log.last_epoch == 5
        bench.disk.kill()


@pytest.mark.parametrize(("at", "wrong"), [(0, 1), (0, 3), (1, 1), (1, 3), (2, 3), (3, 3), (4, 3)])
def test_an_epoch_of_later_offsets_is_put_right_and_no_sound_batch_is_given_it(at: int, wrong: int) -> None:
    """The file names it, but not there, and the batch behind goes back from it."""
    bench, contents, positions = killed([0, 0, 0, 1, 1, 1, 3, 3, 3])
    set_epoch(bench, positions[at], wrong)
    bench.reopen()
    assert (bench.contents(), bench.log.damage) == (contents, None)
    assert epochs_of(bench) == [(0, 0), (1, 3), (3, 6)]


def test_where_batches_and_epoch_file_disagree_no_batch_is_changed() -> None:
    """No batch goes back from another: it may be the file that is wrong."""
    bench, contents, _ = killed([0, 0, 0, 1, 1, 1])
    path = "/data/orders-0/leader-epoch-checkpoint"
    at = (read_file(bench.disk, path) or b"").index(b"1 3") + 2
    bench.disk.flip_bit(path, at, 2)  # from offset 7 on
    bench.reopen()
    assert bench.contents() == contents


def test_an_epoch_that_was_not_held_yet_is_believed() -> None:
    """A leader's first batches are in the page cache when its process dies, the epoch file does not know of it."""
    bench, contents, _ = killed([3, 3, 3, 5, 5], PAGE_CACHE)
    assert read_file(bench.disk, "/data/orders-0/leader-epoch-checkpoint") == b"0\n0\n"
    bench.reopen()
    assert bench.contents() == contents
    assert epochs_of(bench) == [(3, 0), (5, 3)]


@pytest.mark.parametrize("wrong", [0, 4, 99])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_without_an_epoch_file_the_batches_around_it_tell(at: int, wrong: int) -> None:
    bench, contents, positions = killed([3] * 6, PAGE_CACHE)
    if at == 0 and wrong < 3:
        wrong = 5  # nothing comes before the first batch: a smaller epoch is as good as another
    set_epoch(bench, positions[at], wrong)
    bench.reopen()
    assert bench.contents() == contents
    assert epochs_of(bench) == [(3, 0)]


def test_one_odd_batch_behind_a_new_epoch_does_not_undo_it() -> None:
    bench, contents, positions = killed([3, 3, 5, 5, 5, 5], PAGE_CACHE)
    set_epoch(bench, positions[3], 1)
    bench.reopen()
    assert bench.contents() == contents
    assert epochs_of(bench) == [(3, 0), (5, 2)]


def test_a_log_whose_epochs_really_go_back_is_not_rewritten() -> None:
    """Two odd batches in a row are no slip of one field."""
    bench, contents, positions = killed([3, 3, 5, 5, 5], PAGE_CACHE)
    set_epoch(bench, positions[3], 1)
    set_epoch(bench, positions[4], 1)
    bench.reopen()
    assert bench.contents() == contents[:3]


@pytest.mark.parametrize("wrong", [0, 3, 4, 7, 100, 1 << 40])
def test_an_offset_that_both_neighbours_contradict_is_put_right(wrong: int) -> None:
    bench, contents, positions = killed([0] * 6)
    for position in positions[:-1]:
        overwrite(bench, position, wrong.to_bytes(8, "big"))
        bench.reopen()
        assert (bench.contents(), bench.log.damage) == (contents, None)
        bench.disk.kill()


def test_a_hole_that_nothing_contradicts_is_believed() -> None:
    """As compaction leaves it, here or on the leader."""
    bench = Bench(ONE_SEGMENT)
    for offset in (0, 1, 7, 8, 20):
        bench.follow(stamped(offset))
    bench.commit()
    contents = bench.contents()
    bench.kill()
    assert (bench.contents(), bench.log.damage) == (contents, None)


def test_an_offset_too_far_for_its_segment_is_none() -> None:
    bench, contents, positions = killed([0] * 6, PAGE_CACHE)
    overwrite(bench, positions[-1], (1 << 40).to_bytes(8, "big"))
    bench.reopen()
    assert bench.contents() == contents[:-1]
    bench.lead(b"goes on")


def test_below_the_recovery_point_it_is_put_right_where_recovery_reads_anyway() -> None:
    bench, contents, positions = killed([0] * 6)
    bench.reopen()
    bench.folder.write_checkpoints()
    bench.disk.kill()
    overwrite(bench, positions[2] + MAGIC_AT, b"\x09")
    bench.reopen()
    assert (bench.contents(), bench.log.damage) == (contents, None)


def test_a_read_does_not_believe_such_a_header() -> None:
    """While the log is open nothing is put right: the read is refused, and the damage reported."""
    bench, _, positions = killed([0] * 6)
    bench.reopen()
    overwrite(bench, positions[2] + MAGIC_AT, b"\x09")
    with pytest.raises(CorruptLog, match="magic 9"):
        bench.contents()
    assert bench.log.damage is not None
    assert bench.log.damage.first_offset == 2
