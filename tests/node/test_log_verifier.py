"""A node verifies its own log after a follower has rejected bytes of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from node.replicas.own_log_check import damage_at, ensure_sound, read_again
from storage.checkpoints.checkpoint_file import LEADER_EPOCH_CHECKPOINT
from storage.log_config import LogConfig
from tests.fakes.log_start import latest_epoch
from tests.storage.workbench import SMALL, Bench
from tidelog.errors import CorruptLog
from tidelog.records import iter_batches
from tidelog.records.v2.header import HEADER_BYTES
from tidelog.types import LeaderEpoch, Offset

EPOCH_AT, CRC_AT, DELTA_AT = 12, 17, 23
ONE_EACH = replace(SMALL, segment_bytes=100)
"""No two batches in one segment."""


def of_two_epochs(config: LogConfig = SMALL) -> Bench:
    bench = Bench(config)
    for number in range(4):
        if number == 2:
            bench.log.begin_epoch(LeaderEpoch(5))
        bench.lead(b"%d" % number, epoch=0 if number < 2 else 5)
    return bench


def test_sound_bytes_are_no_damage() -> None:
    assert damage_at(of_two_epochs().log, Offset(0), 1 << 20) is None


@pytest.mark.parametrize("byte", [CRC_AT, DELTA_AT + 3, HEADER_BYTES + 2])
def test_a_flipped_bit_is_found(byte: int) -> None:
    bench = of_two_epochs()
    third = len(bench.contents()[0]) * 2
    bench.disk.flip_bit(bench.segment_path, third + byte, 1)
    damage = damage_at(bench.log, Offset(2), 1 << 20)
    assert damage is not None
    assert (damage.first_offset, damage.position) == (2, third)


def test_damage_is_reported_when_the_headers_before_it_are_damaged_too() -> None:
    """The place of the batch cannot be found then (world 2914559785: the stream ended by a defect)."""
    bench = of_two_epochs()
    first, second = len(bench.contents()[0]), len(bench.contents()[0]) * 2
    bench.disk.flip_bit(bench.segment_path, first + HEADER_BYTES + 2, 1)
    read = bench.log.read(Offset(1), 1 << 20, up_to=bench.log.log_end_offset)
    bench.disk.flip_bit(bench.segment_path, 16, 1)
    with pytest.raises(CorruptLog, match=r"lost offsets 1\.\.1"):
        ensure_sound(bench.log, Offset(1), read)
    assert bench.log.damage is not None
    assert bench.log.damage.position < second


def rot(bench: Bench, offset: int, bit: int) -> None:
    """Flip a bit in the leader epoch of the batch there."""
    segment = next(segment for segment in reversed(bench.log.segments) if segment.base_offset <= offset)
    batch = segment.find(Offset(offset))
    assert batch is not None
    bench.disk.flip_bit(segment.path, batch.position + EPOCH_AT + 3 - bit // 8, bit % 8)


@pytest.mark.parametrize("config", [SMALL, ONE_EACH], ids=["one segment", "a segment each"])
@pytest.mark.parametrize(
    ("number", "bit"),
    [(0, 0), (0, 1), (0, 3), (1, 3), (2, 1), (2, 3), (3, 0), (3, 1), (3, 3), (1, 30), (2, 30), (1, 0), (1, 1), (2, 0)],
)
def test_a_wrong_leader_epoch_is_damage_that_can_be_read(number: int, bit: int, config: LogConfig) -> None:
    """No checksum covers it. It may be the epoch cache that is wrong: nothing is written."""
    bench = of_two_epochs(config)
    rot(bench, number, bit)
    rotten = bench.contents()
    assert len(rotten) == 4
    damage = damage_at(bench.log, Offset(number), 1 << 20)
    assert damage is not None
    assert (damage.first_offset, damage.end_offset, damage.readable) == (number, number + 1, True)
    assert bench.contents() == rotten


def sent_again(bench: Bench, offset: int, last_epoch: int) -> list[int]:
    """The epochs of the batches that a follower is sent which has refused those from `offset` on."""
    read = bench.log.read(Offset(offset), 1 << 20, up_to=bench.log.log_end_offset)
    again = read_again(bench.log, read, Offset(offset), LeaderEpoch(last_epoch), is_follower=True)
    for batch in iter_batches(again.records):
        batch.ensure_valid()
    return [int(batch.partition_leader_epoch) for batch in iter_batches(again.records)]


@pytest.mark.parametrize(("number", "bit"), [(1, 3), (2, 1), (2, 3), (3, 1), (1, 30), (2, 30), (3, 30)])
def test_a_follower_gets_the_right_epoch_for_a_corrupt_one(number: int, bit: int) -> None:
    """The epoch is below that of the batch before, or above that of the next batch or of the leader: it is wrong
    whatever the epoch cache contains. Nothing is written."""
    bench = of_two_epochs()
    rot(bench, number, bit)
    rotten = bench.contents()
    for first in range(number + 1):
        assert sent_again(bench, first, last_epoch=0) == [0, 0, 5, 5][first:]
    assert bench.contents() == rotten


@pytest.mark.parametrize(("number", "bit", "kept"), [(1, 0, [0, 1, 5, 5]), (2, 0, [0, 0, 4, 5])])
def test_an_epoch_that_may_be_right_is_sent_as_it_is(number: int, bit: int, kept: list[int]) -> None:
    """The epoch cache may be what is wrong."""
    bench = of_two_epochs()
    rot(bench, number, bit)
    assert sent_again(bench, 0, last_epoch=-1) == kept


def epochs_of(bench: Bench) -> list[int]:
    return [next(iter_batches(batch)).partition_leader_epoch for batch in bench.contents()]


def stopped(epochs: tuple[int, ...]) -> Bench:
    """A log of one batch of each of these epochs, after a clean stop."""
    bench = Bench()
    for epoch in epochs:
        bench.log.begin_epoch(LeaderEpoch(epoch))
        bench.lead(b"x", epoch=epoch)
    bench.directory.close_clean()
    return bench


@pytest.mark.parametrize("epochs", [(0, 0, 5), (0, 0, 1), (3, 4, 4), (1, 1, 2, 2, 3)], ids=str)
def test_a_corrupt_epoch_cache_changes_no_batch(epochs: tuple[int, ...]) -> None:
    """Every bit of its file, whatever epoch the node leads in then: the last one again, or one that the file came to
    name."""
    path = f"{stopped(epochs).log.path}/{LEADER_EPOCH_CHECKPOINT}"
    found = 0
    for position, bit, leads in product(range(stopped(epochs).disk.size(path) or 0), range(8), range(3)):
        bench, epoch = stopped(epochs), LeaderEpoch(epochs[-1] + leads)
        bench.disk.flip_bit(path, position, bit)
        bench.reopen()
        if latest_epoch(bench.log) > epoch:
            continue  # it does not come to lead
        bench.log.begin_epoch(epoch)
        bench.lead(b"y", epoch=epoch)
        found += sum(damage_at(bench.log, Offset(offset), 1 << 20) is not None for offset in range(len(epochs) + 1))
        assert epochs_of(bench) == [*epochs, epoch], (position, bit, bench.log.epochs.entries)
    assert found, "no wrong cache was ever compared with the batches"


def test_a_log_whose_records_are_all_there_gives_up_none_of_them() -> None:
    """Of format v1, it has lost its epoch file: no batch contains its leader epoch."""
    bench = Bench(replace(SMALL, magic=1))
    for number in range(6):
        bench.lead(b"%d" % number)
    bench.commit()
    bench.directory.write_checkpoints()
    before = bench.contents()
    bench.disk.kill()
    bench.disk.remove(f"{bench.log.path}/{LEADER_EPOCH_CHECKPOINT}")
    bench.reopen()
    assert bench.log.damage is not None
    assert bench.log.damage.readable
    bench.log.lost.takes_appends = True
    assert bench.contents() == before
    bench.lead(b"6")
    assert bench.log.log_end_offset == 7
