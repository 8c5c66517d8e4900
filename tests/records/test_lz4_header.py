"""The header checksum of lz4 frames, correct and as old Kafka wrote it (KIP-57)."""

from __future__ import annotations

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptRecord
from tidelog.records.v2.compression import compress, decompress
from tidelog.records.v2.lz4_header import checksum_position, with_old_checksum, with_right_checksum
from tidelog.types import Codec

TEXT = b"some text, " * 5000


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("block_linked", [False, True])
def test_the_correct_checksum_equals_that_of_lz4(store_size: bool, content_checksum: bool, block_linked: bool) -> None:
    frame = lz4.frame.compress(
        TEXT, store_size=store_size, content_checksum=content_checksum, block_linked=block_linked
    )
    assert checksum_position(frame) == (14 if store_size else 6)
    assert with_right_checksum(frame) == frame
    old = with_old_checksum(frame)
    assert [index for index in range(len(frame)) if frame[index] != old[index]] in ([checksum_position(frame)], [])
    assert with_right_checksum(old) == frame


def test_v0_is_written_with_the_old_checksum_and_read_with_either() -> None:
    right, old = compress(Codec.LZ4, TEXT, magic=1), compress(Codec.LZ4, TEXT, magic=0)
    assert old == with_old_checksum(right) != right
    assert decompress(Codec.LZ4, old, magic=0) == decompress(Codec.LZ4, right, magic=0) == TEXT


def test_v1_and_v2_are_read_with_the_correct_checksum_only() -> None:
    for magic in (1, 2):
        with pytest.raises(CorruptRecord):
            decompress(Codec.LZ4, compress(Codec.LZ4, TEXT, magic=0), magic=magic)


@given(st.binary(max_size=30))
def test_any_beginning_of_a_frame_keeps_its_length(data: bytes) -> None:
    assert len(with_right_checksum(data)) == len(data)
