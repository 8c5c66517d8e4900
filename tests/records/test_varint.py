"""Varints: the published examples, every length, and invalid input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptRecord
from tidelog.records.v2.varint import (
    encode_unsigned_varint,
    encode_varint,
    read_unsigned_varint,
    read_varint,
    read_varlong,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_32_bit_numbers_are_read_back_from_any_position(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    assert len(encoded) <= 5
    assert read_varint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_64_bit_numbers_are_read_back(value: int) -> None:
    encoded = encode_varint(value)
    assert len(encoded) <= 10
    assert read_varlong(encoded, 0) == (value, len(encoded))


@given(st.integers(0, 2**32 - 1))
def test_unsigned_numbers_are_read_back(value: int) -> None:
    encoded = encode_unsigned_varint(value)
    assert read_unsigned_varint(encoded, 0) == (value, len(encoded))


def test_a_varint_that_is_too_long_or_too_large_is_rejected() -> None:
    """Six bytes never encode 32 bits, and five may encode more than 32: neither is truncated silently."""
    for data in (b"\x80" * 5 + b"\x00", b"\xff" * 4 + b"\x1f"):
        with pytest.raises(CorruptRecord):
            read_varint(data, 0)
    for data in (b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x02"):
        with pytest.raises(CorruptRecord):
            read_varlong(data, 0)


def test_a_truncated_varint_raises_index_error() -> None:
    for length in range(5):
        with pytest.raises(IndexError):
            read_varint(b"\xff" * length, 0)
