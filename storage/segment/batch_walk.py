"""Iteration over the batch headers of a .log file, without reading the payloads.

A file may contain formats v0, v1 and v2. A v0 or v1 message has one offset, for a wrapper that of its last inner
record, and no leader epoch.

Invariants: a length is used only after a comparison with the file's size. At the first invalid batch the walk reports
its byte position and the reason; the batches before it are valid. A v2 batch with a corrupt magic byte is not accepted
as an older message, even without a checksum.
Not here: checksums (verifier.py), whether an invalid batch is a torn tail or damage (recovery.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from storage.files.file_system import File
from tidelog.records.legacy.message import ATTRIBUTES_AT, CODEC_BITS
from tidelog.records.v2.chain import Place
from tidelog.records.v2.header import HEADER_BYTES, LENGTHS_MIN, LOG_OVERHEAD, BatchHeader, header_problem, peek_header
from tidelog.types import Buffer, Codec

_HEADER_CHUNK_BYTES: Final = 16 << 10
"""For small batches, one read returns many headers. For large batches, the unused bytes are cheap."""
_MAGIC_MAX: Final = 2
_KEY_AT: Final = (18, 26)
"""Position of the key length in a message, by magic."""
_LENGTH: Final = Struct(">i")


class BrokenChain(Exception):
    """There is no valid batch at byte `position`, where offset `next_offset` or a later one is expected."""

    def __init__(self, position: int, next_offset: int, reason: str) -> None:
        super().__init__(f"byte {position}, offset {next_offset}: {reason}")
        self.position, self.next_offset, self.reason = position, next_offset, reason


class Hole(BrokenChain):
    """Offsets from `next_offset` to below `end` are missing at byte `position`, although nothing removed them."""

    def __init__(self, position: int, next_offset: int, end: int) -> None:
        super().__init__(position, next_offset, f"offsets {next_offset} to {end - 1} are in no batch")
        self.end = end


class Link(NamedTuple):
    """Position in a chain of batches."""

    position: int
    """The next batch begins at this byte of the file."""
    end: int
    """End of the file."""
    next_offset: int
    """The next batch begins with this offset or a later one."""
    epoch: int = -1
    """Leader epoch of the batch before. It is not checked here: no checksum covers it, and a wrong epoch does not make
    records unreadable."""

    def behind(self, header: BatchHeader) -> Link:
        return Link(
            self.position + LOG_OVERHEAD + header.length,
            self.end,
            header.base_offset + header.last_offset_delta + 1,
            header.leader_epoch if header.magic == _MAGIC_MAX else self.epoch,
        )

    def at(self, place: Place) -> Link:
        """The position in the chain for a place in a buffer that begins at the current position (`follow_chain`)."""
        return Link(self.position + place.position, self.end, place.next_offset, place.epoch)

    def broken(self, reason: str) -> BrokenChain:
        """The error for a chain that ends here."""
        return BrokenChain(self.position, self.next_offset, reason)

    def read(self, data: Buffer, at: int) -> BatchHeader | None:
        """The header of the next batch, which begins at `at` in `data` (its `position` is that in the file). None if
        the data end within the header. Raises BrokenChain if the header does not continue the chain."""
        header = self.peek(data, at)
        if header is not None and (problem := self.problem(header, data, at)) is not None:
            raise self.broken(problem)
        return header

    def peek(self, data: Buffer, at: int) -> BatchHeader | None:
        """As `read`, but a header with a possible magic and length is returned whatever its other fields are."""
        header = peek_header(data, at, position=self.position)
        if header is None:
            return None
        magic, length = header.magic, header.length
        if magic > _MAGIC_MAX or magic < 0:
            raise self.broken(f"the batch has unknown magic {magic}")
        if length < LENGTHS_MIN[magic]:
            raise self.broken(f"the batch claims a length of {length} bytes, below the minimum of format v{magic}")
        if self.position + LOG_OVERHEAD + length > self.end:  # a corrupt length must not lead to a read beyond the end
            left = self.end - self.position
            raise self.broken(f"the batch claims {LOG_OVERHEAD + length} bytes, but {left} are left in the file")
        return header

    def problem(self, header: BatchHeader, data: Buffer, at: int) -> str | None:
        """Why a header from `peek` does not continue the chain, None if it does."""
        if header.base_offset < self.next_offset:
            return f"the batch starts at offset {header.base_offset}, expected {self.next_offset} or larger"
        if (problem := header_problem(header)) is not None:
            return f"the batch {problem}"
        return _message_problem(data, at, header) if header.magic < _MAGIC_MAX else None


def _message_problem(data: Buffer, at: int, header: BatchHeader) -> str | None:
    """What is wrong with the fields of a v0 or v1 message, None if nothing is. The checksum is not computed."""
    # The checksum of a v2 batch does not cover its magic byte: a flipped bit could make it look like an older message.
    # Its other bytes then do not form valid fields.
    magic = header.magic
    codec = data[at + ATTRIBUTES_AT] & CODEC_BITS
    if codec > Codec.LZ4:
        return f"the message of format v{magic} has codec {codec}, which the format does not define"
    end = at + LOG_OVERHEAD + header.length
    position = at + _KEY_AT[magic]
    for what in ("key", "value"):
        if position + _LENGTH.size > min(len(data), end):
            return None if end > len(data) else f"the message of format v{magic} is too short for its {what}"
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size + max(length, 0)
        if length < -1 or position > end:
            return f"the message of format v{magic} claims an impossible {what} length of {length} bytes"
    return None if position == end else f"{end - position} bytes follow the value of the message of format v{magic}"


class Window:
    """The part of a file that was read last."""

    __slots__ = ("_chunk", "_data", "_end", "_read", "_start")

    def __init__(self, file: File, end: int, chunk: int, *, now: bool = False) -> None:
        """end: no byte from here on is read. chunk: bytes per read. now: do not wait for the disk."""
        self._end, self._chunk = end, chunk
        self._read: Callable[[int, int], Buffer] = file.pread_now if now else file.pread
        self._data, self._start = memoryview(b""), 0

    def at(self, position: int, size: int) -> tuple[memoryview, int]:
        """A buffer with `size` bytes from `position` on, if the file has that many, and their start in the buffer."""
        at = position - self._start
        if at + size > len(self._data) and self._start + len(self._data) < self._end:
            chunk = min(max(size, self._chunk), self._end - position)
            self._data, self._start, at = memoryview(self._read(chunk, position)), position, 0
        return self._data, at


def next_header(window: Window, link: Link) -> tuple[BatchHeader, str | None]:
    """The header of the next batch, and why it does not continue the chain. Raises BrokenChain if there is no batch."""
    data, at = window.at(link.position, HEADER_BYTES)
    header = link.peek(data, at)
    if header is None:
        raise link.broken(f"only {len(data) - at} bytes are left, less than a batch header")
    return header, link.problem(header, data, at)


def walk_file(file: File, position: int, end: int, next_offset: int, *, now: bool = False) -> Iterator[BatchHeader]:
    """Headers of the batches between the bytes `position` and `end`; their positions are those in the file. Payloads
    are not read. now: do not wait for the disk. Raises BrokenChain, and WouldBlock with `now`."""
    window, link = Window(file, end, _HEADER_CHUNK_BYTES, now=now), Link(position, end, next_offset)
    while link.position < end:
        header, problem = next_header(window, link)
        if problem is not None:
            raise link.broken(problem)
        yield header
        link = link.behind(header)
