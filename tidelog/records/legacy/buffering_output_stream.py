"""An output that grows by linked segments of one size, with places that can be reserved and filled in later.

What is written is never moved: when a segment is full, another is linked behind it. A place reserved for a number
that only later bytes decide (a length, a checksum) may lie across the border of two segments.
Kept true: bytes come out in the order written; `size` counts what was written, skipped and reserved; a reserved place
takes exactly its bytes and no more.
Left to others: what the bytes mean (message_writer.py). One stream serves one sequence of writes and is then dropped.
Source: the seed document on Kafka's MessageWriter (kafka.message.BufferingOutputStream).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

Bytes = bytes | bytearray | memoryview

SEGMENT_BYTES_DEFAULT: Final = 16 * 1024
"""Of some hundred messages; small enough that an almost empty last segment costs little."""


class Sink(Protocol):
    """Anything that takes bytes: a stream of ours, a file, a compressor."""

    def write(self, data: bytes | memoryview, /) -> object: ...


class Source(Protocol):
    """Anything that fills a buffer, 0 at its end: files, `io.BytesIO`."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Segment:
    """A piece of the output: the first `written` of its bytes are taken."""

    __slots__ = ("data", "next", "written")

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.written = 0
        self.next: Segment | None = None

    @property
    def free(self) -> int:
        return len(self.data) - self.written


class ReservedOutput:
    """A place of `length` bytes in the middle of a stream, to be written once, in one piece or several."""

    __slots__ = ("_left", "_offset", "_segment")

    def __init__(self, segment: Segment, offset: int, length: int) -> None:
        self._segment, self._offset, self._left = segment, offset, length

    def write(self, data: bytes | memoryview, /) -> None:
        """Fill the next bytes of the place, into the next segment where it crosses a border.

        Raises IndexError, with nothing written, where they exceed what is left of it.
        """
        if len(data) > self._left:
            raise IndexError(f"{len(data)} bytes do not fit the {self._left} that are left of the reserved place")
        self._left -= len(data)
        while data:
            if self._offset == len(self._segment.data):
                following = self._segment.next
                assert following is not None, "what was reserved has its segments"
                self._segment, self._offset = following, 0
            amount = min(len(data), len(self._segment.data) - self._offset)
            self._segment.data[self._offset : self._offset + amount] = data[:amount]
            self._offset += amount
            data = data[amount:]


class BufferingOutputStream:
    """The stream. segment_bytes: size of each segment, at least 1."""

    def __init__(self, segment_bytes: int = SEGMENT_BYTES_DEFAULT) -> None:
        if segment_bytes < 1:
            raise ValueError(f"a segment of {segment_bytes} bytes holds nothing")
        self._segment_bytes = segment_bytes
        self._head = self._current = Segment(segment_bytes)
        self._full = 0  # bytes in the segments before the current one

    @property
    def size(self) -> int:
        """Bytes written, skipped and reserved so far."""
        return self._full + self._current.written

    def write(self, data: Bytes, start: int = 0, length: int | None = None) -> None:
        """Append bytes. start, length: which part of them, all from `start` on where None.

        Raises IndexError, with nothing written, for a part that is not within them.
        """
        if start or length is not None:
            data = memoryview(data)[start : self._checked_end(data, start, length)]
        current, size = self._current, len(data)
        if size <= len(current.data) - current.written:
            current.data[current.written : current.written + size] = data
            current.written += size
            return
        data = memoryview(data)
        while data:
            current = self._with_space()
            amount = min(len(data), current.free)
            current.data[current.written : current.written + amount] = data[:amount]
            current.written += amount
            data = data[amount:]

    @staticmethod
    def _checked_end(data: Bytes, start: int, length: int | None) -> int:
        end = len(data) if length is None else start + length
        if not 0 <= start <= end <= len(data):
            raise IndexError(f"{length} bytes from {start} on are not within the {len(data)} that were given")
        return end

    def write_from(self, source: Source) -> int:
        """Append all that a stream still holds, read straight into the segments; returns how many bytes."""
        before = self.size
        while True:
            current = self._with_space()
            amount = source.readinto(memoryview(current.data)[current.written :])
            if not amount:
                return self.size - before
            current.written += amount

    def skip(self, length: int) -> None:
        """Leave bytes out: they are zeros until a reserved place over them is written. Raises IndexError below 0."""
        if length < 0:
            raise IndexError(f"{length} bytes cannot be skipped")
        while length > 0:
            current = self._with_space()
            amount = min(length, current.free)
            current.written += amount
            length -= amount

    def reserve(self, length: int) -> ReservedOutput:
        """Skip bytes, and return what fills them in later. Raises IndexError below 0."""
        place = ReservedOutput(self._current, self._current.written, length)
        self.skip(length)
        return place

    def pieces(self, start: tuple[Segment, int] | None = None) -> Iterator[memoryview]:
        """What was written, segment by segment, no copy: all, or from a `mark` on."""
        segment, offset = (self._head, 0) if start is None else start
        following: Segment | None = segment
        while following is not None:
            if offset < following.written:
                yield memoryview(following.data)[offset : following.written]
            following, offset = following.next, 0

    def mark(self) -> tuple[Segment, int]:
        """The place behind the last byte so far, for `pieces`."""
        return self._current, self._current.written

    def write_to(self, sink: Sink) -> None:
        """Write all to `sink`."""
        for piece in self.pieces():
            sink.write(piece)

    def to_bytes(self) -> bytes:
        """All in one piece."""
        return b"".join(self.pieces())

    def _with_space(self) -> Segment:
        """The current segment, a new one if that is full."""
        current = self._current
        if current.written == len(current.data):
            self._full += current.written
            current.next = self._current = current = Segment(self._segment_bytes)
        return current
