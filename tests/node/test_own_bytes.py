"""A node's look at its own bytes, after a follower has refused them."""

from __future__ import annotations

import pytest

from node.own_bytes import damage_at
from tests.storage.workbench import Bench
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


@pytest.mark.parametrize("byte", [EPOCH_AT + 3, CRC_AT, DELTA_AT + 3, HEADER_BYTES + 2])
def test_a_flipped_bit_is_found_whether_a_checksum_covers_it_or_not(byte: int) -> None:
    bench = of_two_epochs()
    third = len(bench.contents()[0]) * 2
    bench.disk.flip_bit(bench.segment_path, third + byte, 1)
    damage = damage_at(bench.log, Offset(2), 1 << 20)
    assert damage is not None
    assert (damage.first_offset, damage.position) == (2, third)
