"""Walks along the batches of a .log file: by headers alone, or reading and checking every byte.

Formats v0, v1 and v2 may lie in one file. A v0 or v1 message has one offset, its own or, of a wrapper, that of the last
record inside, and no leader epoch.

Kept true: a walk believes no length before it has compared it with the file's size; where the chain of batches breaks
it says at which byte and why, and what came before stands. A v2 batch whose magic was damaged does not pass for an
older message even where no checksum is computed.
Left to others: whether a break is a torn tail or damage (recovery.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from storage.files.file_system import Buffer, File
from tidelog.errors import CorruptRecord, TidelogError
from tidelog.records.batches import view
from tidelog.records.legacy.message import ATTRIBUTES_AT, CODEC_BITS
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.chain import Place
from tidelog.records.v2.header import (
    HEADER_BYTES,
    LENGTHS_MIN,
    LOG_OVERHEAD,
    BatchHeader,
    ByteBuffer,
    header_problem,
    peek_header,
)
from tidelog.types import Codec

_HEADER_CHUNK_BYTES: Final = 16 << 10
"""Small batches: many headers per read. Large ones: what is read in vain is still cheap."""
_SCAN_CHUNK_BYTES: Final = 1 << 20
_MAGIC_MAX: Final = 2
_KEY_AT: Final = (18, 26)
"""By magic, where a message has the length of its key."""
_LENGTH: Final = Struct(">i")


class BrokenChain(Exception):
    """From byte `position` on, where offset `next_offset` or a later one should follow, there is no batch that can be
    believed; `reason` says why. `header` is the header found there, if it can be read and leads on to a plausible
    end."""

    def __init__(self, position: int, next_offset: int, reason: str, header: BatchHeader | None = None) -> None:
        super().__init__(f"byte {position}, offset {next_offset}: {reason}")
        self.position, self.next_offset, self.reason, self.header = position, next_offset, reason, header


class Hole(BrokenChain):
    """Offsets from `next_offset` to below `end` are in no batch, though nothing has taken them away. `position`: where
    they should have been."""

    def __init__(self, position: int, next_offset: int, end: int) -> None:
        super().__init__(position, next_offset, f"offsets {next_offset} to {end - 1} are in no batch")
        self.end = end


class ScannedBatch(NamedTuple):
    """A whole, checked batch and where it starts in the file."""

    batch: RecordBatch
    position: int


class Link(NamedTuple):
    """What a chain of batches has come to: the next one begins at byte `position` of the file, at offset `next_offset`
    or later. `end`: where the file ends. `epoch`: leader epoch of the batch before it, which is not checked here: no
    checksum covers epochs, and one that is wrong keeps no records from being read."""

    position: int
    end: int
    next_offset: int
    epoch: int = -1

    def behind(self, header: BatchHeader) -> Link:
        """Where the chain is behind that batch."""
        return Link(
            self.position + LOG_OVERHEAD + header.length,
            self.end,
            header.base_offset + header.last_offset_delta + 1,
            header.leader_epoch if header.magic == _MAGIC_MAX else self.epoch,
        )

    def at(self, place: Place) -> Link:
        """Where the chain is at a place in a buffer that begins where it is now (`follow_chain`)."""
        return Link(self.position + place.position, self.end, place.next_offset, place.epoch)

    def broken(self, reason: str, header: BatchHeader | None = None) -> BrokenChain:
        """The error for a chain that ends here."""
        return BrokenChain(self.position, self.next_offset, reason, header)

    def read(self, data: ByteBuffer, at: int) -> BatchHeader | None:
        """The header of the next batch, which begins at `at` in `data` (its `position` is that in the file); None where
        the data end inside it. Raises BrokenChain where it does not continue the chain."""
        header = peek_header(data, at, position=self.position)
        if header is None:
            return None
        problem = self._problem(header) or (_odd_message(data, at, header) if header.magic < _MAGIC_MAX else None)
        if problem is not None:
            raise self.broken(problem)
        return header

    def _problem(self, header: BatchHeader) -> str | None:
        """What is wrong with a header as the next one, None where nothing is."""
        magic, length = header.magic, header.length
        if magic > _MAGIC_MAX or magic < 0:
            return f"the batch has magic {magic}, no format has that"
        if length < LENGTHS_MIN[magic]:
            return f"the batch claims {length} bytes, less than format v{magic} has"
        if self.position + LOG_OVERHEAD + length > self.end:
            return (
                f"the batch claims to end at byte {self.position + LOG_OVERHEAD + length}, the file ends at {self.end}"
            )
        if header.base_offset < self.next_offset:
            return f"the batch starts at offset {header.base_offset}, expected {self.next_offset} or larger"
        if (problem := header_problem(header)) is not None:
            return f"the batch {problem}"
        return None


def _odd_message(data: ByteBuffer, at: int, header: BatchHeader) -> str | None:
    """What is wrong with a v0 or v1 message, as far as its fields show without its checksum; None where nothing is.

    The checksum of a v2 batch leaves its magic out. One bit more or less makes an older message of it, but its other
    bytes do not make the fields of one.
    """
    magic = header.magic
    codec = data[at + ATTRIBUTES_AT] & CODEC_BITS
    if codec > Codec.LZ4:
        return f"the message of format v{magic} names codec {codec}, which the format does not have"
    end = at + LOG_OVERHEAD + header.length
    position = at + _KEY_AT[magic]
    for what in ("key", "value"):
        if position + _LENGTH.size > min(len(data), end):
            return None if end > len(data) else f"the message of format v{magic} has no room for its {what}"
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size + max(length, 0)
        if length < -1 or position > end:
            return f"the message of format v{magic} claims a {what} of {length} bytes"
    return None if position == end else f"{end - position} bytes follow the value of the message of format v{magic}"


class _Window:
    """What of a file was read last."""

    __slots__ = ("_chunk", "_data", "_end", "_read", "_start")

    def __init__(self, file: File, end: int, chunk: int, *, now: bool = False) -> None:
        """end: nothing behind it is read. chunk: how many bytes to read at once. now: without waiting for the disk."""
        self._end, self._chunk = end, chunk
        self._read: Callable[[int, int], Buffer] = file.pread_now if now else file.pread
        self._data, self._start = memoryview(b""), 0

    def at(self, position: int, size: int) -> tuple[memoryview, int]:
        """Bytes that hold `size` from `position` on, if the file has so many, and where in them those begin."""
        at = position - self._start
        if at + size > len(self._data) and self._start + len(self._data) < self._end:
            wanted = min(max(size, self._chunk), self._end - position)
            self._data, self._start, at = memoryview(self._read(wanted, position)), position, 0
        return self._data, at


def _headers(window: _Window, link: Link) -> Iterator[tuple[BatchHeader, Link]]:
    """The batches of a chain by their headers, each with where the chain was before it. Raises BrokenChain."""
    while link.position < link.end:
        data, at = window.at(link.position, HEADER_BYTES)
        header = link.read(data, at)
        if header is None:
            raise link.broken(f"{len(data) - at} bytes are left, less than a batch header")
        yield header, link
        link = link.behind(header)


def walk_file(file: File, position: int, end: int, next_offset: int, *, now: bool = False) -> Iterator[BatchHeader]:
    """Headers of the batches between the bytes `position` and `end`, positions being those in the file; payloads
    are not read. now: without waiting for the disk. Raises BrokenChain, and WouldBlock then."""
    window = _Window(file, end, _HEADER_CHUNK_BYTES, now=now)
    for header, _ in _headers(window, Link(position, end, next_offset)):
        yield header


def scan_file(file: File, position: int, end: int, next_offset: int) -> Iterator[ScannedBatch]:
    """The batches between the bytes `position` and `end`, each read whole and its checksum checked.

    The views live until the next step. Raises BrokenChain; where only a batch's contents are damaged, with its header.
    """
    window = _Window(file, end, _SCAN_CHUNK_BYTES)
    for header, link in _headers(window, Link(position, end, next_offset)):
        data, at = window.at(link.position, header.size)
        if at + header.size > len(data):
            raise link.broken(f"the file ended at {link.position + len(data) - at} while it was read")
        batch = view(data, header._replace(position=at))
        try:
            batch.ensure_valid()
        except TidelogError as error:
            raise link.broken(error.message, header if isinstance(error, CorruptRecord) else None) from error
        yield ScannedBatch(batch, link.position)
