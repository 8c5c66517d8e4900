"""Messages field by field, with lengths and checksums before the bytes that they cover. Seed document:
message-writer.txt ("Kafka消息存储之MessageWriter")."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidTimestamp, UnsupportedForMessageFormat
from tidelog.records.legacy.compressor import compressed
from tidelog.records.legacy.message_writer import MessageWriter
from tidelog.records.v2.compression import decompress
from tidelog.types import Codec, TimestampType

NOW = 1_700_000_000_000

every_border = pytest.mark.parametrize("segment_bytes", [1, 2, 3, 5, 8, 13, 4096])


def message(magic: int, attributes: int, timestamp: int | None, key: bytes | None, value: bytes | None) -> bytes:
    """Return the expected message, built the slow and obvious way."""
    body = struct.pack(">bb", magic, attributes)
    if timestamp is not None:
        body += struct.pack(">q", timestamp)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">I", zlib.crc32(body)) + body


@every_border
def test_numbers_are_written_high_byte_first(segment_bytes: int) -> None:
    """message-writer.txt, writeInt: value >>> 24, then 16, 8, 0."""
    writer = MessageWriter(segment_bytes)
    writer.write_int8(-2)
    writer.write_int32(0x01020304)
    writer.write_int64(-5)
    assert writer.to_bytes() == bytes.fromhex("fe 01020304 fffffffffffffffb")


@every_border
def test_a_length_precedes_the_bytes_that_it_counts(segment_bytes: int) -> None:
    """message-writer.txt, withLengthPrefix: reserve, write, then write the difference of the sizes."""
    writer = MessageWriter(segment_bytes)
    with writer.length_prefix():
        writer.write(b"outer")
        with writer.length_prefix():
            pass
        with writer.length_prefix():
            writer.write(b"inner bytes")
    assert writer.to_bytes() == struct.pack(">i", 24) + b"outer" + bytes(4) + struct.pack(">i", 11) + b"inner bytes"


@every_border
def test_a_checksum_precedes_the_bytes_that_it_covers(segment_bytes: int) -> None:
    """message-writer.txt, withCrc32Prefix around withLengthPrefix: filled in from the inside to the outside."""
    writer = MessageWriter(segment_bytes)
    writer.write(b"not covered")
    with writer.crc32_prefix():
        writer.write(b"covered")
        with writer.length_prefix():
            writer.write(b"value")
    writer.write(b"not covered either")
    covered = b"covered" + struct.pack(">i", 5) + b"value"
    expected = b"not covered" + struct.pack(">I", zlib.crc32(covered)) + covered + b"not covered either"
    assert writer.to_bytes() == expected


def test_a_prefix_is_not_filled_in_after_an_error() -> None:
    writer = MessageWriter()
    with pytest.raises(RuntimeError), writer.crc32_prefix(), writer.length_prefix():
        writer.write(b"half")
        raise RuntimeError("no more")
    assert writer.to_bytes() == bytes(8) + b"half"


@every_border
@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("value", [None, b"", b"value"])
def test_a_null_key_is_minus_one_and_an_empty_one_is_not(
    segment_bytes: int, key: bytes | None, value: bytes | None
) -> None:
    """message-writer.txt, write: writeInt(-1) where the key is null."""
    for magic, timestamp in ((0, None), (1, NOW)):
        writer = MessageWriter(segment_bytes)
        writer.write_message(magic, key=key, value=value, timestamp=NOW)
        assert writer.to_bytes() == message(magic, 0, timestamp, key, value)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("timestamp_type", TimestampType)
def test_timestamp_and_its_type_are_written_only_above_v0(codec: Codec, timestamp_type: TimestampType) -> None:
    """message-writer.txt, write: `if (magicValue > MagicValue_V0)` before both."""
    old, new = MessageWriter(), MessageWriter()
    for magic, writer in ((0, old), (1, new)):
        writer.write_message(magic, key=None, value=b"v", timestamp=NOW, timestamp_type=timestamp_type, codec=codec)
    stamped = 8 if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    assert old.to_bytes() == message(0, codec, None, None, b"v")
    assert new.to_bytes() == message(1, codec | stamped, NOW, None, b"v")


@every_border
def test_a_value_may_be_written_by_a_function(segment_bytes: int) -> None:
    """message-writer.txt, write(...)(writePayload): the function's output becomes the value, preceded by its length."""

    def payload(out: MessageWriter) -> None:
        out.write(b"from bytes, ")
        out.write_from(io.BytesIO(b"from a stream, "))
        out.write_int8(ord("!"))

    writer = MessageWriter(segment_bytes)
    writer.write_message(1, key=b"k", value=payload, timestamp=NOW)
    assert writer.to_bytes() == message(1, 0, NOW, b"k", b"from bytes, from a stream, !")


@every_border
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_compressor_writes_straight_into_it(segment_bytes: int, magic: int, codec: Codec) -> None:
    """message-format-and-validation.txt: CompressionFactory(compressionCodec, outputStream) in messageWriter.write."""
    text = b"".join(b"line %d that a codec can shorten\n" % number for number in range(3000))

    def payload(out: MessageWriter) -> None:
        pieces = (text[start : start + 1000] for start in range(0, len(text), 1000))
        for piece in compressed(codec, pieces, magic=magic):
            out.write(piece)

    writer = MessageWriter(segment_bytes)
    writer.write_message(magic, key=None, value=payload, timestamp=NOW, codec=codec)
    written = writer.to_bytes()
    value = written[len(message(magic, 0, NOW if magic else None, None, b"")) :]
    assert written == message(magic, codec, NOW if magic else None, None, value)
    assert decompress(codec, value, magic=magic) == text
    assert len(value) < len(text) / 2


@given(st.integers(1, 40), st.integers(0, 1), st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=50))
def test_an_entry_has_its_offset_and_size_before_it(
    segment_bytes: int, magic: int, key: bytes | None, value: bytes | None
) -> None:
    """message-format-and-validation.txt: `Offset MessageSize Message`, neither covered by the checksum."""
    writer = MessageWriter(segment_bytes)
    for offset in (0, 7, 2**40):
        writer.write_entry(offset, magic, key=key, value=value, timestamp=NOW)
    body = message(magic, 0, NOW if magic else None, key, value)
    assert writer.to_bytes() == b"".join(struct.pack(">qi", offset, len(body)) + body for offset in (0, 7, 2**40))


def test_an_invalid_message_is_rejected_before_a_byte_is_written() -> None:
    writer = MessageWriter()
    with pytest.raises(UnsupportedForMessageFormat):
        writer.write_message(2, key=None, value=None)
    with pytest.raises(InvalidTimestamp):
        writer.write_message(1, key=None, value=None, timestamp=-2)
    assert writer.size == 0
