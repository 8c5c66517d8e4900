"""Reads a .log file of any format batch by batch, continues after damage where possible, and yields what it finds.

Invariants:
  1. One batch is in memory at a time. No length is used before it was compared with the file's size.
  2. After bytes that are no batch, reading continues at the next complete batch with a correct checksum, if there is
     one.
Not here: the rules between batches (chain.py), indexes (segment_files.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from storage.dump.events import BatchFound, RecordFound
from storage.files.file_system import File
from tidelog.errors import CorruptRecord, TidelogError, UnsupportedCompressionType
from tidelog.records.batches import batch_at
from tidelog.records.v2.batch import CODEC_BITS, RecordBatch
from tidelog.records.v2.control import ControlType, EndTxnMarker, decode_control
from tidelog.records.v2.header import HEADER_BYTES, LOG_OVERHEAD, MAGIC_AT
from tidelog.records.v2.record import Record
from tidelog.records.v2.varint import INT32_MAX
from tidelog.types import NO_SEQUENCE, Codec, TimestampType

_SMALLEST: Final = MAGIC_AT + 1
_SEARCH_CHUNK_BYTES: Final = 1 << 20
_CANDIDATE: Final = re.compile(rb"(?=\x00\x00.{6}(?!\x00\x00\x00[\x00-\x0d])[\x00-\x7f].{7}[\x00-\x02])", re.DOTALL)
"""A possible start of a batch: an offset below 2**48, a length of at least 14, a known magic."""
_READ_AHEAD_BYTES: Final = 1 << 20
_TIMESTAMP_TYPES: Final = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


@dataclass(frozen=True, slots=True)
class Read:
    """A batch that could be read. problem: why it is invalid, or None. records: the requested, readable ones."""

    batch: BatchFound
    problem: str | None
    records: tuple[RecordFound, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """The bytes from `position` to `end` hold no batch. zeros: all are zero. to_the_end: no batch follows."""

    position: int
    end: int
    reason: str
    zeros: bool
    to_the_end: bool


Step: TypeAlias = Read | Gap


class LogReader:
    """The batches of one open file, read with few system calls."""

    def __init__(self, file: File, path: str, *, records: bool) -> None:
        """records: also read the records, with decompression."""
        self._file = file
        self._path = path
        self._records = records
        self._chunk = b""
        self._chunk_at = 0
        self.size = file.size()

    def walk(self) -> Iterator[Step]:
        """All batches and gaps in file order. Raises OSError."""
        position = 0
        while position < self.size:
            found = self._read_at(position)
            if isinstance(found, RecordBatch):
                yield describe(found, self._path, position, records=self._records)
                position += found.size
                continue
            following = self._next_batch(position + 1)
            end = self.size if following is None else following
            yield Gap(position, end, found, self._only_zeros(position, end), following is None)
            position = end

    def _bytes(self, position: int, size: int) -> bytes:
        """Exactly `size` bytes, fewer at the end of the file."""
        at = position - self._chunk_at
        if at < 0 or at + size > len(self._chunk):
            self._chunk = self._file.pread(max(size, _READ_AHEAD_BYTES), position)
            self._chunk_at, at = position, 0
        return self._chunk[at : at + size]

    def _read_at(self, position: int) -> RecordBatch | str:
        """The batch at a byte, or the reason why there is none. Its contents are not checked."""
        head = self._bytes(position, _SMALLEST)
        left = self.size - position
        if len(head) < _SMALLEST:
            return f"{left} bytes are left, less than the smallest batch"
        length = int.from_bytes(head[8:12], signed=True)
        if length + LOG_OVERHEAD > left and head[MAGIC_AT] <= 2:
            return f"the batch claims {length + LOG_OVERHEAD} bytes, but {left} are left in the file"
        size = min(max(length + LOG_OVERHEAD, HEADER_BYTES), left)
        try:
            return batch_at(self._bytes(position, size))
        except CorruptRecord as error:
            return error.message.partition(", claims ")[2] or error.message

    def _next_batch(self, position: int) -> int | None:
        """Start of the next batch with a correct checksum, at or after a byte."""
        while position < self.size:
            chunk = self._file.pread(_SEARCH_CHUNK_BYTES + MAGIC_AT, position)
            for candidate in _CANDIDATE.finditer(chunk):
                at = position + candidate.start()
                if self._is_batch(at):
                    return at
            position += _SEARCH_CHUNK_BYTES
        return None

    def _is_batch(self, position: int) -> bool:
        found = self._read_at(position)
        if not isinstance(found, RecordBatch):
            return False
        try:
            found.ensure_valid()
        except TidelogError:
            return False
        return True

    def _only_zeros(self, position: int, end: int) -> bool:
        while position < end:
            chunk = self._file.pread(min(_SEARCH_CHUNK_BYTES, end - position), position)
            if not chunk or chunk.count(0) != len(chunk):
                return False
            position += len(chunk)
        return True


def describe(batch: RecordBatch, path: str, position: int, *, records: bool) -> Read:
    """The facts of a batch, and whether it is valid. position: of the batch in its file."""
    problem = None
    computed = batch.computed_crc()
    crc_ok = computed == batch.crc
    try:
        batch.ensure_valid()
    except TidelogError as error:
        problem = error.message
    if not crc_ok:
        problem = f"the bytes of the batch have checksum {computed:#010x}, but its header has {batch.crc:#010x}"
    base_offset, count = _deep_facts(batch)
    if base_offset is None and problem is None:
        problem = "its wrapped messages cannot be read"
    read: list[Record] = []
    if crc_ok and (records or batch.is_control):
        try:
            read = batch.record_list()
        except TidelogError as error:
            problem = problem or error.message
    found = [_record(batch, path, record) for record in read]
    seen = _facts(batch, path, position, base_offset, count, crc_ok=crc_ok, control=_names(found))
    return Read(seen, problem, tuple(found) if records else ())


def _facts(
    batch: RecordBatch,
    path: str,
    position: int,
    base_offset: int | None,
    count: int | None,
    *,
    crc_ok: bool,
    control: tuple[str, ...],
) -> BatchFound:
    v2 = batch.magic == 2
    return BatchFound(
        path=path,
        position=position,
        size=batch.size,
        magic=batch.magic,
        base_offset=base_offset,
        last_offset=batch.header.last_offset,
        count=count,
        leader_epoch=batch.partition_leader_epoch if v2 else None,
        codec=_codec(batch),
        timestamp_type=_TIMESTAMP_TYPES[batch.timestamp_type],
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id if v2 else None,
        producer_epoch=batch.producer_epoch if v2 else None,
        base_sequence=batch.base_sequence if v2 else None,
        last_sequence=batch.last_sequence if v2 else None,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        control=control,
        delete_horizon_ms=batch.delete_horizon_ms,
        crc=batch.crc,
        crc_ok=crc_ok,
    )


def _deep_facts(batch: RecordBatch) -> tuple[int | None, int | None]:
    """First offset and number of records. For a wrapper, this needs decompression."""
    try:
        return batch.base_offset, batch.count
    except TidelogError:
        return None, None


def _codec(batch: RecordBatch) -> str:
    try:
        return batch.codec.name.lower()
    except UnsupportedCompressionType:
        number = batch.attributes & CODEC_BITS
        return Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown ({number})"


def _names(records: list[RecordFound]) -> tuple[str, ...]:
    return tuple(record.control for record in records if record.control is not None)


def _record(batch: RecordBatch, path: str, record: Record) -> RecordFound:
    control, coordinator_epoch = _control(record) if batch.is_control else (None, None)
    base = batch.base_sequence
    sequence = NO_SEQUENCE if base == NO_SEQUENCE else (base + record.offset - batch.base_offset) & INT32_MAX
    return RecordFound(
        path, record.offset, record.timestamp, sequence, record.key, record.value, record.headers, control,
        coordinator_epoch,
    )  # fmt: skip


def _control(record: Record) -> tuple[str, int | None]:
    """The name of a control record's type, and the coordinator epoch if it is a transaction marker."""
    try:
        said = decode_control(record)
    except TidelogError:
        return "unreadable", None
    if isinstance(said, EndTxnMarker):
        return ("COMMIT" if said.committed else "ABORT"), said.coordinator_epoch
    number = int.from_bytes((record.key or b"")[2:4])
    return (ControlType(number).name if said is not None else f"unknown ({number})"), None
