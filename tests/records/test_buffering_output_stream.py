"""The stream of linked segments. Seed document: "Kafka消息存储之MessageWriter" (message-writer.txt)."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelog.records.legacy.buffering_output_stream import BufferingOutputStream, ReservedOutput


@pytest.mark.parametrize("segment_bytes", [1, 2, 3, 5, 64])
def test_bytes_come_out_in_order_with_any_segment_size(segment_bytes: int) -> None:
    stream = BufferingOutputStream(segment_bytes)
    for piece in (b"", b"a", b"bcd", bytearray(b"efghijk"), memoryview(b"lmnopqrstuvw")):
        stream.write(piece)
    assert stream.to_bytes() == b"abcdefghijklmnopqrstuvw"
    assert stream.size == 23


def test_a_full_segment_is_followed_by_a_new_one_of_the_same_size() -> None:
    """message-writer.txt: a full segment is followed by another at once."""
    stream = BufferingOutputStream(4)
    stream.write(b"123456789")
    assert [bytes(piece) for piece in stream.pieces()] == [b"1234", b"5678", b"9"]
    stream.write(b"0ab")
    assert [bytes(piece) for piece in stream.pieces()] == [b"1234", b"5678", b"90ab"]


def test_a_part_of_a_buffer_is_written() -> None:
    """message-writer.txt, write(b, off, len)."""
    stream = BufferingOutputStream(3)
    stream.write(b"0123456789", 2, 5)
    stream.write(b"0123456789", 8)
    stream.write(b"0123456789", 10, 0)
    assert stream.to_bytes() == b"2345689"


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (4, 1), (0, 4), (2, 2), (1, -1), (5, None)])
def test_a_part_outside_the_buffer_is_an_index_error_and_writes_nothing(start: int, length: int | None) -> None:
    """message-writer.txt: IndexOutOfBoundsException unless 0 <= off, 0 <= len and off + len <= b.length."""
    stream = BufferingOutputStream(3)
    with pytest.raises(IndexError):
        stream.write(b"abc", start, length)
    assert stream.size == 0


@pytest.mark.parametrize("segment_bytes", [1, 3, 1024])
def test_a_stream_is_read_to_its_end(segment_bytes: int) -> None:
    """message-writer.txt: input comes as bytes, as numbers and as streams."""
    stream = BufferingOutputStream(segment_bytes)
    stream.write(b"<")
    assert stream.write_from(io.BytesIO(b"0123456789")) == 10
    assert stream.write_from(io.BytesIO(b"")) == 0
    stream.write(b">")
    assert stream.to_bytes() == b"<0123456789>"


def test_a_stream_that_gives_little_at_a_time_is_read_to_its_end_too() -> None:
    class Dripping(io.RawIOBase):
        left = b"drop by drop"

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            if not self.left:
                return 0
            buffer[:1], self.left = self.left[:1], self.left[1:]
            return 1

    stream = BufferingOutputStream(5)
    stream.write_from(Dripping())
    assert stream.to_bytes() == b"drop by drop"


# --- reserved places ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("segment_bytes", [1, 2, 3, 4, 5, 7, 100])
@pytest.mark.parametrize("before", [0, 1, 2, 3, 4, 5])
def test_a_reserved_place_is_filled_across_the_border_of_segments(segment_bytes: int, before: int) -> None:
    """message-writer.txt, ReservedOutput: it continues in the next segment."""
    stream = BufferingOutputStream(segment_bytes)
    stream.write(b"x" * before)
    place = stream.reserve(4)
    stream.write(b"after")
    assert stream.size == before + 9
    place.write(b"1")
    place.write(b"234")
    assert stream.to_bytes() == b"x" * before + b"1234after"


def test_more_than_was_reserved_is_an_index_error_and_writes_nothing() -> None:
    """message-writer.txt: IndexOutOfBoundsException once the reserved length is used up."""
    stream = BufferingOutputStream(3)
    place = stream.reserve(4)
    stream.write(b"next")
    with pytest.raises(IndexError):
        place.write(b"12345")
    place.write(b"12")
    with pytest.raises(IndexError):
        place.write(b"345")
    place.write(b"34")
    place.write(b"")
    with pytest.raises(IndexError):
        place.write(b"5")
    assert stream.to_bytes() == b"1234next"


def test_skipped_bytes_count_and_are_zeros() -> None:
    """message-writer.txt, skip: the bytes are left out, segment by segment."""
    stream = BufferingOutputStream(4)
    stream.write(b"ab")
    stream.skip(7)
    stream.skip(0)
    stream.write(b"c")
    assert stream.to_bytes() == b"ab" + bytes(7) + b"c"
    assert stream.size == 10


def test_nothing_can_be_skipped_or_reserved_backwards() -> None:
    """message-writer.txt: IndexOutOfBoundsException below 0."""
    stream = BufferingOutputStream(4)
    for call in (stream.skip, stream.reserve):
        with pytest.raises(IndexError):
            call(-1)
    assert stream.size == 0


def test_a_segment_holds_at_least_one_byte() -> None:
    with pytest.raises(ValueError, match="use at least 1"):
        BufferingOutputStream(0)


def test_the_bytes_after_a_mark_are_returned_separately() -> None:
    stream = BufferingOutputStream(4)
    stream.write(b"1234")
    mark = stream.mark()
    assert list(stream.pieces(mark)) == []
    stream.write(b"56789")
    assert b"".join(stream.pieces(mark)) == b"56789"


def test_a_stream_is_written_to_another_one_without_joining() -> None:
    source, target = BufferingOutputStream(3), BufferingOutputStream(5)
    source.write(b"0123456789")
    source.write_to(target)
    assert target.to_bytes() == b"0123456789"


class StreamAgainstBytearray(RuleBasedStateMachine):
    """Any order of writes, skips, reservations and late fillings gives the same bytes as a flat array."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = BufferingOutputStream(7)
        self.flat = bytearray()
        self.places: list[tuple[ReservedOutput, int, int]] = []

    @rule(data=st.binary(max_size=20))
    def write(self, data: bytes) -> None:
        self.stream.write(data)
        self.flat += data

    @rule(data=st.binary(max_size=20))
    def write_from(self, data: bytes) -> None:
        assert self.stream.write_from(io.BytesIO(data)) == len(data)
        self.flat += data

    @rule(length=st.integers(0, 20))
    def skip(self, length: int) -> None:
        self.stream.skip(length)
        self.flat += bytes(length)

    @rule(length=st.integers(0, 20))
    def reserve(self, length: int) -> None:
        self.places.append((self.stream.reserve(length), len(self.flat), length))
        self.flat += bytes(length)

    @precondition(lambda self: self.places)
    @rule(data=st.data(), fill=st.binary(max_size=25))
    def fill(self, data: st.DataObject, fill: bytes) -> None:
        index = data.draw(st.integers(0, len(self.places) - 1))
        place, start, left = self.places[index]
        if len(fill) > left:
            with pytest.raises(IndexError):
                place.write(fill)
            return
        place.write(fill)
        self.flat[start : start + len(fill)] = fill
        self.places[index] = (place, start + len(fill), left - len(fill))

    @invariant()
    def same(self) -> None:
        assert self.stream.to_bytes() == self.flat
        assert self.stream.size == len(self.flat)


TestStreamAgainstBytearray = StreamAgainstBytearray.TestCase


@given(st.integers(1, 9), st.lists(st.binary(max_size=12)))
def test_no_segment_but_the_last_has_space_left(segment_bytes: int, pieces: list[bytes]) -> None:
    stream = BufferingOutputStream(segment_bytes)
    for piece in pieces:
        stream.write(piece)
    assert all(len(piece) == segment_bytes for piece in list(stream.pieces())[:-1])
