"""Analysis of headers and checksums before an append."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptRecord, RecordTooLarge, UnsupportedCompressionType
from tidelog.records import Record, analyze, build_batch, build_message_set, iter_batches
from tidelog.records.analysis import Analysis
from tidelog.types import Codec, Millis, Offset

NOW = 1_700_000_000_000


def records(base: int, count: int, timestamp: int = NOW) -> list[Record]:
    return [Record(Offset(base + i), Millis(timestamp + i), b"k", b"value %d" % i) for i in range(count)]


def test_a_v2_batch_gives_its_first_and_last_offset() -> None:
    """append-as-leader.txt: firstOffset from the header, lastOffset from firstOffset + lastOffsetDelta."""
    data = build_batch(records(10, 5), Codec.LZ4, leader_epoch=3)
    (batch,) = iter_batches(data)
    assert analyze(data) == Analysis(
        first_offset=Offset(10),
        first_batch_last_offset=Offset(14),
        last_offset=Offset(14),
        batch_count=1,
        record_count=5,
        max_timestamp=Millis(NOW + 4),
        offset_of_max_timestamp=Offset(14),
        codec=Codec.LZ4,
        offsets_grow=True,
        valid_bytes=len(data),
        magic=2,
        leader_epoch=3,  # type: ignore[arg-type]
        headers=(batch.header,),
    )


def test_a_wrapper_gives_only_its_last_offset() -> None:
    """message-format-and-validation.txt: the offset of a wrapper is that of its last message."""
    facts = analyze(build_message_set(records(10, 5), 1, Codec.GZIP))
    assert (facts.first_offset, facts.first_batch_last_offset, facts.last_offset) == (None, 14, 14)
    assert (facts.batch_count, facts.record_count) == (1, None)
    bare = analyze(build_message_set(records(10, 5), 1))
    assert (bare.first_offset, bare.first_batch_last_offset, bare.last_offset) == (10, 10, 14)
    assert (bare.batch_count, bare.record_count) == (5, 5)


def test_several_batches_are_counted_and_the_largest_timestamp_is_found() -> None:
    """append-as-leader.txt: shallowCount counts batches, validBytes adds their sizes."""
    data = b"".join(build_batch(records(base, 5, NOW + late)) for base, late in ((0, 0), (5, 1000), (20, 500)))
    facts = analyze(data)
    assert (facts.first_offset, facts.last_offset, facts.batch_count, facts.record_count) == (0, 24, 3, 15)
    assert (facts.max_timestamp, facts.offset_of_max_timestamp) == (NOW + 1004, 9)
    assert (facts.valid_bytes, facts.offsets_grow) == (len(data), True)


@pytest.mark.parametrize("bases", [(5, 0), (0, 4), (0, 0), (0, 5, 3)])
def test_offsets_that_do_not_increase_are_reported(bases: tuple[int, ...]) -> None:
    """append-as-leader.txt: offsetsMonotonic. A batch that starts within the one before does not increase either."""
    assert not analyze(b"".join(build_batch(records(base, 5)) for base in bases)).offsets_grow
    assert not analyze(b"".join(build_message_set(records(base, 5), 1, Codec.GZIP) for base in (5, 0))).offsets_grow


def test_the_source_codec_is_that_of_the_last_compressed_message() -> None:
    """message-format-and-validation.txt: with several codecs the last compressed one counts."""
    sets = [
        build_message_set(records(0, 2), 1, Codec.GZIP),
        build_message_set(records(2, 2), 1, Codec.SNAPPY),
        build_message_set(records(4, 2), 1),
    ]
    assert analyze(b"".join(sets)).codec is Codec.SNAPPY
    assert analyze(sets[2]).codec is Codec.NONE


def test_mixed_formats_have_no_common_magic() -> None:
    old, new = build_message_set(records(0, 1), 0), build_message_set(records(1, 1), 1)
    assert analyze(old + new).magic is None
    assert (analyze(old).magic, analyze(new).magic) == (0, 1)


def test_an_empty_buffer_is_not_an_error() -> None:
    """append-as-leader.txt and log-append-roll-flush.txt: shallowCount 0, and append returns."""
    for data in (b"", build_batch(records(0, 5))[:-1], build_message_set(records(0, 1), 0)[:20]):
        facts = analyze(data)
        assert (facts.batch_count, facts.valid_bytes, facts.first_offset, facts.last_offset) == (0, 0, None, -1)
        assert (facts.max_timestamp, facts.magic) == (-1, None)


@pytest.mark.parametrize("tail", [build_batch(records(5, 5)), build_message_set(records(5, 1), 1)])
def test_a_partial_tail_of_any_length_is_not_counted(tail: bytes) -> None:
    """append-as-leader.txt, trimInvalidBytes: the caller keeps validBytes."""
    whole = build_batch(records(0, 5))
    for length in range(len(tail)):
        facts = analyze(whole + tail[:length])
        assert (facts.valid_bytes, facts.last_offset, facts.batch_count) == (len(whole), 4, 1)


def test_the_limit_of_a_batch_includes_its_offset_and_size_fields() -> None:
    """message-format-and-validation.txt: what is checked is entrySize, offset and size included."""
    for data in (build_batch(records(0, 5)), build_message_set(records(0, 5), 1, Codec.GZIP)):
        assert analyze(data, batch_bytes_max=len(data)).batch_count == 1
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
            analyze(data, batch_bytes_max=len(data) - 1)
    bare = build_message_set(records(0, 5), 1)
    assert analyze(bare, batch_bytes_max=max(batch.size for batch in iter_batches(bare))).batch_count == 5


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_corrupt_batch_is_rejected_wherever_a_checksum_covers_the_byte(magic: int, codec: Codec) -> None:
    """append-as-leader.txt: an invalid batch raises, it is not skipped."""
    whole = build_batch(records(0, 5), codec) if magic == 2 else build_message_set(records(0, 1), magic, codec)
    for position in range(17, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        with pytest.raises((CorruptRecord, UnsupportedCompressionType)):
            analyze(damaged)


@given(st.binary(max_size=200), st.sampled_from([None, 50]))
def test_any_bytes_give_facts_or_the_documented_errors(data: bytes, limit: int | None) -> None:
    with suppress(CorruptRecord, RecordTooLarge, UnsupportedCompressionType):
        assert analyze(data, batch_bytes_max=limit).valid_bytes <= len(data)


@given(st.integers(0, 2**63 - 2), st.integers(0, 2**63 - 2))
def test_offsets_are_compared_as_signed_numbers(first: int, second: int) -> None:
    data = bytearray(build_message_set(records(0, 1), 0) * 2)
    struct.pack_into(">q", data, 0, first)
    struct.pack_into(">q", data, len(data) // 2, second)
    assert analyze(data).offsets_grow == (second > first)
