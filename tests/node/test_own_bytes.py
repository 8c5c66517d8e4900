"""A node's look at its own bytes, after a follower has refused them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.own_bytes import damage_at, give_up_lost
from tests.storage.workbench import SMALL, Bench
from tidelog.records.header import HEADER_BYTES
from tidelog.types import LeaderEpoch, Offset

EPOCH_AT, CRC_AT, DELTA_AT = 12, 17, 23


def of_two_epochs() -> Bench:
    bench = Bench()
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


@pytest.mark.parametrize("bit", [0, 1, 3])
@pytest.mark.parametrize("number", range(4))
def test_a_leader_epoch_that_alone_is_wrong_is_put_right(number: int, bit: int) -> None:
    """No checksum covers it. Nobody else may be there to fetch the log from."""
    bench = of_two_epochs()
    before = bench.contents()
    bench.disk.flip_bit(bench.segment_path, number * len(before[0]) + EPOCH_AT + 3, bit)
    assert damage_at(bench.log, Offset(number), 1 << 20) is None
    assert bench.contents() == before
    assert not bench.log.damage


@pytest.mark.parametrize("wrong", [(1, 2), (2, 3), (0, 1, 2, 3)])
def test_epochs_that_are_wrong_side_by_side_are_damage(wrong: tuple[int, ...]) -> None:
    """It may be the epoch cache that is wrong: nothing is written."""
    bench = of_two_epochs()
    size = len(bench.contents()[0])
    for number in wrong:
        bench.disk.flip_bit(bench.segment_path, number * size + EPOCH_AT + 3, 3)
    rotten = bench.log.active.file.pread(4 * size, 0)
    assert damage_at(bench.log, Offset(wrong[0]), 1 << 20) is not None
    assert bench.log.active.file.pread(4 * size, 0) == rotten


def test_an_epoch_that_a_batch_beside_it_has_too_is_damage() -> None:
    """The epoch cache may be wrong by one batch where an epoch begins."""
    bench = Bench()
    for epoch in (4, 4, 5, 5):
        bench.log.begin_epoch(LeaderEpoch(epoch))
        bench.lead(b"x", epoch=epoch)
    bench.disk.flip_bit(bench.segment_path, 2 * len(bench.contents()[0]) + EPOCH_AT + 3, 0)
    assert damage_at(bench.log, Offset(2), 1 << 20) is not None


def test_a_lone_batch_with_another_epoch_is_damage() -> None:
    """No batch beside it says that the epoch cache is right."""
    bench = Bench()
    bench.lead(b"a")
    bench.disk.flip_bit(bench.segment_path, EPOCH_AT + 3, 3)
    assert damage_at(bench.log, Offset(0), 1 << 20) is not None


def test_a_log_whose_records_are_all_there_gives_up_none_of_them() -> None:
    """Of format v1, it has lost its epoch file: no batch tells its leader epoch."""
    bench = Bench(replace(SMALL, magic=1))
    for number in range(6):
        bench.lead(b"%d" % number)
    bench.commit()
    bench.folder.write_checkpoints()
    before = bench.contents()
    bench.disk.kill()
    bench.disk.remove(f"{bench.log.path}/leader-epoch-checkpoint")
    bench.reopen()
    assert bench.log.damage is not None
    assert bench.log.damage.readable
    give_up_lost(bench.log)
    assert bench.contents() == before
    bench.lead(b"6")
    assert bench.log.log_end_offset == 7
