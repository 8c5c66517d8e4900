"""Walks along the batches of a .log file: by headers alone, or reading and checking every byte.

Kept true: a walk believes no length before it has compared it with the file's size; where the chain of batches breaks
it says at which byte and why, and what came before stands.
Left to others: whether a break is a torn tail or damage (recovery.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.files import File
from tidelog.errors import CorruptRecord, TidelogError
from tidelog.records.batch import RecordBatch
from tidelog.records.header import HEADER, HEADER_BYTES, LENGTH_MIN, LOG_OVERHEAD, BatchHeader
from tidelog.types import Offset

_HEADER_CHUNK_BYTES: Final = 16 << 10
"""Small batches: many headers per read. Large ones: what is read in vain is still cheap."""
_SCAN_CHUNK_BYTES: Final = 1 << 20
_MAGIC: Final = 2


class BrokenChain(Exception):
    """From byte `position` on, where offset `next_offset` or a later one should follow, there is no batch that can be
    believed; `reason` says why. `header` is the header found there, if it can be read and leads on to a plausible
    end."""

    def __init__(self, position: int, next_offset: int, reason: str, header: BatchHeader | None = None) -> None:
        super().__init__(f"byte {position}, offset {next_offset}: {reason}")
        self.position, self.next_offset, self.reason, self.header = position, next_offset, reason, header


class ScannedBatch(NamedTuple):
    """A whole, checked batch and where it starts in the file."""

    batch: RecordBatch
    position: int


def check_link(header: BatchHeader, position: int, end: int, next_offset: int, epoch: int) -> str | None:
    """What is wrong with a batch header as the next link of a chain, None where nothing is.

    end: where the file ends. next_offset: one past the last offset before it. epoch: the largest leader epoch before
    it.
    """
    if header.magic != _MAGIC:
        return f"the batch has magic {header.magic}, expected {_MAGIC}"
    if header.length < LENGTH_MIN:
        return f"the batch claims {header.length} bytes, less than a header"
    if position + LOG_OVERHEAD + header.length > end:
        return f"the batch claims to end at byte {position + LOG_OVERHEAD + header.length}, the file ends at {end}"
    if header.base_offset < next_offset:
        return f"the batch starts at offset {header.base_offset}, expected {next_offset} or larger"
    if header.last_offset_delta < 0:
        return f"the batch has a last offset delta of {header.last_offset_delta}"
    if header.leader_epoch < epoch:
        return f"the batch has leader epoch {header.leader_epoch}, but epoch {epoch} came before it"
    return None


def walk_file(file: File, position: int, end: int, next_offset: int) -> Iterator[BatchHeader]:
    """Headers of the batches between the bytes `position` and `end`, positions being those in the file; payloads
    are not read. Raises BrokenChain."""
    epoch = -1
    chunk, chunk_at = b"", position
    while position < end:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_at, at = file.pread(min(_HEADER_CHUNK_BYTES, end - position), position), position, 0
            if len(chunk) < HEADER_BYTES:
                raise BrokenChain(position, next_offset, f"{len(chunk)} bytes are left, less than a batch header")
        header = BatchHeader(position, *HEADER.unpack_from(chunk, at))
        problem = check_link(header, position, end, next_offset, epoch)
        if problem is not None:
            raise BrokenChain(position, next_offset, problem)
        yield header
        position += LOG_OVERHEAD + header.length
        next_offset = header.base_offset + header.last_offset_delta + 1
        epoch = header.leader_epoch


def scan_file(file: File, position: int, end: int, next_offset: int, epoch: int = -1) -> Iterator[ScannedBatch]:
    """The batches between the bytes `position` and `end`, each read whole and its checksum checked.

    The views live until the next step. Raises BrokenChain; where only a batch's contents are damaged, with its header.
    """
    chunk, chunk_at = memoryview(b""), position
    while position < end:
        at = position - chunk_at
        if len(chunk) - at < HEADER_BYTES:
            chunk, chunk_at, at = memoryview(file.pread(min(_SCAN_CHUNK_BYTES, end - position), position)), position, 0
            if len(chunk) < HEADER_BYTES:
                raise BrokenChain(position, next_offset, f"{len(chunk)} bytes are left, less than a batch header")
        header = BatchHeader(at, *HEADER.unpack_from(chunk, at))
        problem = check_link(header, position, end, next_offset, epoch)
        if problem is not None:
            raise BrokenChain(position, next_offset, problem)
        size = LOG_OVERHEAD + header.length
        if at + size > len(chunk):
            wanted = min(max(size, _SCAN_CHUNK_BYTES), end - position)
            chunk, chunk_at, at = memoryview(file.pread(wanted, position)), position, 0
            header = header._replace(position=0)
            if len(chunk) < size:
                raise BrokenChain(position, next_offset, f"the file ended at {position + len(chunk)} while it was read")
        batch = RecordBatch(chunk, header=header)
        try:
            batch.ensure_valid()
        except TidelogError as error:
            whole = header._replace(position=position) if isinstance(error, CorruptRecord) else None
            raise BrokenChain(position, next_offset, error.message, whole) from error
        yield ScannedBatch(batch, position)
        position += size
        next_offset = Offset(header.base_offset + header.last_offset_delta + 1)
        epoch = header.leader_epoch
