"""The codecs: round trips, framings of other writers, corruption, and bombs."""

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
from tidelog.records.legacy.compressor import compressed
from tidelog.records.v2 import compression
from tidelog.records.v2.compression import LEVELS, compress, decompress
from tidelog.types import Codec

COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1024 * 1024
TEXT = b"".join(b"line %d of some text that repeats\n" % number for number in range(5000))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, bytes(100_000)], ids=["empty", "one", "text", "zeros"])
def test_compressed_bytes_are_decompressed(codec: Codec, data: bytes) -> None:
    compressed = compress(codec, data)
    assert decompress(codec, compressed) == data
    assert decompress(codec, memoryview(bytearray(compressed)), max_bytes=len(data)) == data
    if codec is not Codec.NONE and len(data) > 1000:
        assert len(compressed) < len(data) / 2


@given(st.sampled_from(COMPRESSED), st.binary(max_size=2000))
def test_any_bytes_are_compressed_and_decompressed(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_within_the_bounds_work_and_others_are_rejected(codec: Codec) -> None:
    low, high, default = LEVELS[codec]
    for level in (max(low, -7), default, min(high, 12)):
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT
    assert len(compress(codec, TEXT, min(high, 12))) < len(compress(codec, TEXT, max(low, -7)))
    for level in (low - 1, high + 1):
        with pytest.raises(InvalidConfig, match=f"levels {low} to {high}"):
            compress(codec, TEXT, level)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_a_level_for_a_codec_without_levels_is_rejected(codec: Codec) -> None:
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
def test_the_output_of_other_writers_is_read(codec: Codec, data: bytes) -> None:
    assert decompress(codec, data) == TEXT


def test_zstd_is_not_part_of_v0_and_v1() -> None:
    """KIP-110."""
    for magic in (0, 1):
        for call in (compress, decompress):
            with pytest.raises(UnsupportedCompressionType, match="no codec zstd"):
                call(Codec.ZSTD, TEXT, magic=magic)


def test_the_largest_window_of_kafka_is_accepted_and_a_larger_one_is_rejected() -> None:
    """Level 22 has a window of 128 MiB. A frame may claim far more, and a decoder would allocate it."""
    for window_log, error in ((27, None), (28, RecordTooLarge), (31, RecordTooLarge)):
        parameters = zstandard.ZstdCompressionParameters(window_log=window_log, write_content_size=False)
        compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        frame = compressor.compress(TEXT) + compressor.flush()
        assert zstandard.get_frame_parameters(frame).window_size == 1 << window_log
        if error is None:
            assert decompress(Codec.ZSTD, frame, max_bytes=len(TEXT)) == TEXT
        else:
            with pytest.raises(error, match="window"):
                decompress(Codec.ZSTD, frame)


def test_a_zstd_frame_that_claims_too_much_is_rejected_by_its_header() -> None:
    header = zstandard.ZstdCompressor().compress(bytes(10_000))[:12]
    with pytest.raises(RecordTooLarge, match="9999"):
        decompress(Codec.ZSTD, header, max_bytes=9999)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("pieces", [[], [b""], [TEXT], [TEXT[:5], b"", TEXT[5:70_000], TEXT[70_000:]]])
def test_pieces_are_compressed_and_decompressed(codec: Codec, magic: int, pieces: list[bytes]) -> None:
    data = b"".join(compressed(codec, map(memoryview, pieces), magic=magic))
    assert decompress(codec, data, magic=magic) == b"".join(pieces)


@given(st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4]), st.lists(st.binary(max_size=3000)), st.integers(0, 2))
def test_any_pieces_are_compressed_and_decompressed(codec: Codec, pieces: list[bytes], magic: int) -> None:
    pieces = [piece * 30 for piece in pieces]
    data = b"".join(compressed(codec, pieces, magic=magic))
    assert decompress(codec, data, magic=magic) == b"".join(pieces)


def test_levels_and_codecs_of_a_compressor_are_checked() -> None:
    with pytest.raises(InvalidConfig, match="levels 1 to 9"):
        compressed(Codec.GZIP, [], 10, magic=2)
    for codec, magic in ((Codec.ZSTD, 1), (Codec.ZSTD, 2), (Codec.NONE, 2)):
        with pytest.raises(UnsupportedCompressionType):
            compressed(codec, [], magic=magic)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_many_empty_members_cost_no_more_than_their_length(codec: Codec) -> None:
    """A hundred thousand members of about 20 bytes: copying the rest for each member would copy 100 GB."""
    assert decompress(codec, compress(codec, b"") * 100_000 + compress(codec, TEXT)) == TEXT


@pytest.mark.parametrize("codec", COMPRESSED)
def test_truncated_anywhere_is_corrupt(codec: Codec) -> None:
    """A xerial stream has no end mark: truncated between blocks it is complete, and the record parser then finds it too
    short."""
    compressed = compress(codec, TEXT[:2000])
    ends_of_blocks = {16} if codec is Codec.SNAPPY else set()
    for length in range(1, len(compressed)):
        if length not in ends_of_blocks:
            with pytest.raises(CorruptRecord):
                decompress(codec, compressed[:length])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_bytes_after_the_end_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptRecord):
        decompress(codec, compress(codec, TEXT[:2000]) + b"more")


@given(st.sampled_from(COMPRESSED), st.binary(max_size=200))
def test_any_garbage_gives_bytes_or_the_documented_errors(codec: Codec, data: bytes) -> None:
    with suppress(CorruptRecord, RecordTooLarge):
        assert len(decompress(codec, data, max_bytes=10_000)) <= 10_000


@given(st.sampled_from(COMPRESSED), st.integers(0, 10_000), st.integers(0, 255))
def test_a_corrupt_stream_gives_bytes_or_the_documented_errors(codec: Codec, position: int, byte: int) -> None:
    data = bytearray(compress(codec, TEXT[:5000]))
    data[position % len(data)] = byte
    with suppress(CorruptRecord, RecordTooLarge):
        decompress(codec, data, max_bytes=10_000)


@pytest.mark.parametrize("codec", Codec)
def test_one_byte_over_the_limit_is_rejected(codec: Codec) -> None:
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
def test_a_bomb_is_rejected_without_expanding_it(codec: Codec) -> None:
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
