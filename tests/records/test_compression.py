"""The codecs: round trips, framings of other writers, damage, and bombs."""

from __future__ import annotations

import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptRecord, InvalidConfig, RecordTooLarge, UnsupportedCompressionType
from tidelog.records import compression
from tidelog.records.compression import LEVELS, compress, decompress
from tidelog.types import Codec

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1024 * 1024
TEXT = b"".join(b"line %d of some text that repeats\n" % number for number in range(5000))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(100_000)], ids=["empty", "one", "text", "zeros"])
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)
    assert decompress(codec, compressed) == data
    assert decompress(codec, memoryview(bytearray(compressed)), max_bytes=len(data)) == data
    if codec is not Codec.NONE and len(data) > 1000:
        assert len(compressed) < len(data) / 2


@given(st.sampled_from(COMPRESSED), st.binary(max_size=2000))
def test_any_bytes_come_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_within_the_bounds_work_and_others_are_refused(codec: Codec) -> None:
    low, high, default = LEVELS[codec]
    for level in (max(low, -7), default, min(high, 12)):
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT
    assert len(compress(codec, TEXT, min(high, 12))) < len(compress(codec, TEXT, max(low, -7)))
    for level in (low - 1, high + 1):
        with pytest.raises(InvalidConfig, match=f"levels {low} to {high}"):
            compress(codec, TEXT, level)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_a_level_for_a_codec_without_levels_is_refused(codec: Codec) -> None:
    with pytest.raises(InvalidConfig, match="no compression levels"):
        compress(codec, TEXT, 1)


def test_lz4_is_written_as_java_reads_it() -> None:
    """Version 1, independent blocks, no checksums, no content size (0x60); blocks of 64 KiB (0x40)."""
    assert compress(Codec.LZ4, TEXT)[:6] == bytes.fromhex("04224d186040")


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    compressed = compress(Codec.SNAPPY, TEXT)
    assert compressed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    position, sizes = 16, []
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        block = compressed[position + 4 : position + 4 + size]
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(block))))
        position += 4 + size
    assert set(sizes[:-1]) == {32 * 1024}
    assert sum(sizes) == len(TEXT)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
        (Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True, store_size=True, content_checksum=True)),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(TEXT)),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress(TEXT[:99]) + zstandard.ZstdCompressor().compress(TEXT[99:])),
        (Codec.GZIP, compress(Codec.GZIP, TEXT[:99]) + compress(Codec.GZIP, TEXT[99:])),
    ],
    ids=["snappy without frame", "lz4 with everything", "zstd without size", "two zstd frames", "two gzip members"],
)
def test_what_other_writers_make_is_read(codec: Codec, data: bytes) -> None:
    assert decompress(codec, data) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_short_anywhere_is_corrupt(codec: Codec) -> None:
    """A xerial stream has no end mark: cut between blocks it is whole, which the record parser then finds too short."""
    compressed = compress(codec, TEXT[:2000])
    ends_of_blocks = {16} if codec is Codec.SNAPPY else set()
    for length in range(1, len(compressed)):
        if length not in ends_of_blocks:
            with pytest.raises(CorruptRecord):
                decompress(codec, compressed[:length])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_behind_the_end_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptRecord):
        decompress(codec, compress(codec, TEXT[:2000]) + b"more")


@given(st.sampled_from(COMPRESSED), st.binary(max_size=200))
def test_any_garbage_gives_bytes_or_the_documented_errors(codec: Codec, data: bytes) -> None:
    with suppress(CorruptRecord, RecordTooLarge):
        assert len(decompress(codec, data, max_bytes=10_000)) <= 10_000


@given(st.sampled_from(COMPRESSED), st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_stream_gives_bytes_or_the_documented_errors(codec: Codec, position: int, byte: int) -> None:
    data = bytearray(compress(codec, TEXT[:5000]))
    data[position % len(data)] = byte
    with suppress(CorruptRecord, RecordTooLarge):
        decompress(codec, data, max_bytes=10_000)


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_over_the_limit_is_refused(codec: Codec) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, max_bytes=len(TEXT)) == TEXT
    with pytest.raises(RecordTooLarge, match=str(len(TEXT) - 1)):
        decompress(codec, compressed, max_bytes=len(TEXT) - 1)


def _gzip_bomb() -> bytes:
    gzip = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(gzip.compress(bytes(MIB)) for _ in range(64)) + gzip.flush()


def _snappy_bomb() -> bytes:
    """One bare block that claims 4 GiB less one byte."""
    return b"\xff\xff\xff\xff\x0f" + b"\xfe\x01\x00" * 1000


BOMBS: dict[Codec, Callable[[], bytes]] = {
    Codec.GZIP: _gzip_bomb,
    Codec.SNAPPY: _snappy_bomb,
    Codec.LZ4: lambda: lz4.frame.compress(bytes(64 * MIB), block_linked=False),
    Codec.ZSTD: lambda: zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 * MIB)),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_bomb_is_refused_without_holding_it(codec: Codec) -> None:
    bomb = BOMBS[codec]()
    assert len(bomb) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLarge):
            decompress(codec, bomb, max_bytes=MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB


@pytest.mark.parametrize(("codec", "module"), [("SNAPPY", "cramjam"), ("LZ4", "lz4.frame"), ("ZSTD", "zstandard")])
def test_a_missing_library_is_named(codec: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_libraries", {})
    monkeypatch.setattr(compression, "_per_thread", type(compression._per_thread)())
    monkeypatch.setitem(sys.modules, module, None)
    for call in (compress, decompress):
        with pytest.raises(UnsupportedCompressionType, match=f"install {module.partition('.')[0]}"):
            call(Codec[codec], TEXT)
