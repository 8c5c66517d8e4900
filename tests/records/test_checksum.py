"""CRC-32C and CRC-32: published values, independent implementations against each other, and the fallback's warning."""

from __future__ import annotations

import sys

import pytest
from crcmod.predefined import mkPredefinedCrcFun
from hypothesis import given
from hypothesis import strategies as st

from tidelog.records.v2.checksum import choose_crc32c, crc32, crc32c, crcmod_crc32c, hardware_crc32c

RFC_3720 = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(reversed(range(32))), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "expected"), RFC_3720)
def test_published_values(data: bytes, expected: int) -> None:
    assert crc32c(data) == hardware_crc32c()(data) == crcmod_crc32c()(data) == expected


@given(st.binary(max_size=300), st.integers(0, 20))
def test_both_implementations_agree_on_any_slice(data: bytes, start: int) -> None:
    view = memoryview(data)[start:]
    assert hardware_crc32c()(view) == crcmod_crc32c()(view)


@pytest.mark.parametrize(("data", "expected"), [(b"", 0), (b"123456789", 0xCBF43926), (b"a", 0xE8B7BE43)])
def test_published_values_of_the_old_checksum(data: bytes, expected: int) -> None:
    assert crc32(data) == mkPredefinedCrcFun("crc-32")(data) == expected


@given(st.binary(max_size=300), st.integers(0, 300))
def test_the_old_checksum_agrees_with_crcmod_piece_by_piece(data: bytes, cut: int) -> None:
    assert crc32(data) == mkPredefinedCrcFun("crc-32")(data) == crc32(data[cut:], crc32(memoryview(data)[:cut]))


def test_without_the_fast_package_the_slow_one_is_used_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crc32c", None)
    with pytest.warns(RuntimeWarning, match="install crc32c"):
        slow = choose_crc32c()
    assert slow(memoryview(b"123456789")) == 0xE3069283
