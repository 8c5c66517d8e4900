"""An output buffer that grows by linked segments of equal size. Bytes can be reserved and filled in later.

Written bytes are never moved: when a segment is full, another is linked to it. A reserved place is for a number that
depends on later bytes (a length, a checksum); it may cross the border of two segments.
Invariants: bytes are output in the order written. `size` counts written, skipped and reserved bytes. A reserved place
takes exactly its bytes.
Not here: the meaning of the bytes (message_writer.py). A stream is used for one sequence of writes.
Source: kafka.message.BufferingOutputStream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

Bytes = bytes | bytearray | memoryview

SEGMENT_BYTES_DEFAULT: Final = 16 * 1024
"""Room for some hundred messages; small enough that an almost empty last segment costs little."""


class Sink(Protocol):
    """Accepts bytes: one of these streams, a file, a compressor."""

    def write(self, data: bytes | memoryview, /) -> object: ...


class Source(Protocol):
    """Fills a buffer and returns 0 at its end: files, `io.BytesIO`."""

    def readinto(self, buffer: memoryview, /) -> int | None: ...


class Segment:
    """A segment of the output: the first `written` of its bytes are used."""

    __slots__ = ("data", "next", "written")

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)
        self.written = 0
        self.next: Segment | None = None

    @property
    def free(self) -> int:
        return len(self.data) - self.written


class ReservedOutput:
    """A place of `length` bytes within a stream, to be written once, in one or several pieces."""

    __slots__ = ("_left", "_offset", "_segment")

    def __init__(self, segment: Segment, offset: int, length: int) -> None:
        self._segment, self._offset, self._left = segment, offset, length

    def write(self, data: bytes | memoryview, /) -> None:
        """Fill the next bytes of the place, across a segment border if necessary.

        Raises IndexError, with nothing written, if they exceed the rest of the place.
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
            raise ValueError(f"segment_bytes={segment_bytes}: use at least 1")
        self._segment_bytes = segment_bytes
        self._head = self._current = Segment(segment_bytes)
        self._full = 0  # bytes in the segments before the current one

    @property
    def size(self) -> int:
        """Bytes written, skipped and reserved so far."""
        return self._full + self._current.written

    def write(self, data: Bytes, start: int = 0, length: int | None = None) -> None:
        """Append bytes. start, length: the part to append; length None: everything from `start` on.

        Raises IndexError, with nothing written, if the part exceeds the data.
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
            raise IndexError(f"{length} bytes from {start} on are not within the {len(data)} bytes given")
        return end

    def write_from(self, source: Source) -> int:
        """Append the rest of a source, read directly into the segments; return the number of bytes."""
        before = self.size
        while True:
            current = self._with_space()
            amount = source.readinto(memoryview(current.data)[current.written :])
            if not amount:
                return self.size - before
            current.written += amount

    def skip(self, length: int) -> None:
        """Skip bytes: they are zeros until a reserved place over them is written. Raises IndexError below 0."""
        if length < 0:
            raise IndexError(f"{length} bytes cannot be skipped")
        while length > 0:
            current = self._with_space()
            amount = min(length, current.free)
            current.written += amount
            length -= amount

    def reserve(self, length: int) -> ReservedOutput:
        """Skip bytes and return the place to fill them in later. Raises IndexError below 0."""
        place = ReservedOutput(self._current, self._current.written, length)
        self.skip(length)
        return place

    def pieces(self, start: tuple[Segment, int] | None = None) -> Iterator[memoryview]:
        """Yield the written bytes by segment, without a copy: all, or from a `mark` on."""
        segment, offset = (self._head, 0) if start is None else start
        following: Segment | None = segment
        while following is not None:
            if offset < following.written:
                yield memoryview(following.data)[offset : following.written]
            following, offset = following.next, 0

    def mark(self) -> tuple[Segment, int]:
        """Return the present end, for `pieces`."""
        return self._current, self._current.written

    def write_to(self, sink: Sink) -> None:
        """Write everything to `sink`."""
        for piece in self.pieces():
            sink.write(piece)

    def to_bytes(self) -> bytes:
        """Return everything in one piece."""
        return b"".join(self.pieces())

    def _with_space(self) -> Segment:
        """Return the current segment, or a new one if it is full."""
        current = self._current
        if current.written == len(current.data):
            self._full += current.written
            current.next = self._current = current = Segment(self._segment_bytes)
        return current
