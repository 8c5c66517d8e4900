"""Builds a message set of format v0 or v1: a sequence of bare messages, or one wrapper around them.

Every byte goes through `MessageWriter`; a wrapper's value is compressed directly into it.
Invariants: the result passes `LegacyRecordBatch.ensure_valid` and decodes to the appended records, except for what the
format does not support: v0 has no timestamps, neither format has headers (rejected) or producer ids.
Not here: which records of another format are rejected (assignment.py), stamping (message_set.py).
Source: KIP-31 (inner offsets of a v1 wrapper are relative to its first record), KIP-32; Kafka's MemoryRecordsBuilder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.errors import (
    InvalidRequest,
    InvalidTimestamp,
    OffsetsNotMonotonic,
    RecordTooLarge,
    UnsupportedForMessageFormat,
)
from tidelog.records.legacy.compressor import compressed
from tidelog.records.legacy.message import entry_size
from tidelog.records.legacy.message_writer import MessageWriter
from tidelog.records.v2.compression import checked_codec, checked_level
from tidelog.records.v2.record import Header, Record
from tidelog.types import INT32_MAX, NO_TIMESTAMP, Codec, TimestampType

SEGMENT_BYTES_MIN: Final = 1024
SEGMENT_BYTES_MAX: Final = 64 * 1024
"""Bounds of a wrapper's segment size, which is half the size of the uncompressed data: two or three segments
suffice."""


class MessageSetBuilder:
    """A message set under construction. A rejected `append` leaves nothing behind.

    magic: 0 or 1. base_offset: the offset that inner offsets of a v1 wrapper are relative to, and the offset of the
    first record unless `append` gets another. log_append_time: with LOG_APPEND_TIME, the timestamp of every message.
    """

    def __init__(
        self,
        magic: int,
        codec: Codec = Codec.NONE,
        *,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time: int | None = None,
        base_offset: int = 0,
    ) -> None:
        if magic not in (0, 1):
            raise UnsupportedForMessageFormat(f"format v{magic} has no message sets: build a record batch")
        if magic == 1 and timestamp_type is TimestampType.NO_TIMESTAMP_TYPE:
            raise InvalidRequest("a v1 message needs a timestamp type: create time or log append time")
        if (log_append_time is None) == (timestamp_type is TimestampType.LOG_APPEND_TIME):
            raise InvalidRequest("log append time needs both a type and a time")
        checked_level(checked_codec(codec, magic), level)
        self._magic, self._codec, self._level = magic, codec, level
        self._timestamp_type, self._log_append_time = timestamp_type, log_append_time
        self._base_offset = base_offset
        self._last_offset = base_offset - 1
        self._relative = magic == 1 and codec is not Codec.NONE
        self._messages = MessageWriter()
        self._count = 0
        self._max_timestamp: int = NO_TIMESTAMP

    @property
    def count(self) -> int:
        """Number of records appended so far."""
        return self._count

    def append(
        self,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp: int = NO_TIMESTAMP,
        headers: Iterable[Header] = (),
        offset: int | None = None,
    ) -> None:
        """Append one record. timestamp: milliseconds since 1970, -1 for none; not stored by v0. offset: None for the
        next one.

        Raises UnsupportedForMessageFormat for headers, InvalidTimestamp below -1, OffsetsNotMonotonic, RecordTooLarge
        if the set or the message exceeds 2 GiB.
        """
        if tuple(headers):
            raise UnsupportedForMessageFormat(
                f"format v{self._magic} has no headers: leave them out, or use a topic of format v2"
            )
        if timestamp < NO_TIMESTAMP:
            raise InvalidTimestamp(f"timestamp {timestamp} is before 1970: use milliseconds since 1970, or -1 for none")
        if offset is None:
            offset = self._last_offset + 1
        elif offset <= self._last_offset:
            raise OffsetsNotMonotonic(
                f"offset {offset} does not follow {self._last_offset}: offsets must increase within a message set"
            )
        size = entry_size(self._magic, key, value)
        if self._messages.size + size > INT32_MAX:
            raise RecordTooLarge(
                f"a message of {size} bytes does not fit into a set of {self._messages.size} bytes: "
                "build this set and start another"
            )
        if self._magic == 0:
            timestamp = NO_TIMESTAMP
        elif self._log_append_time is not None:
            timestamp = self._log_append_time
        self._messages.write_entry(
            offset - self._base_offset if self._relative else offset,
            self._magic,
            key=key,
            value=value,
            timestamp=timestamp,
            timestamp_type=self._timestamp_type,
        )
        self._last_offset = offset
        self._count += 1
        self._max_timestamp = max(self._max_timestamp, timestamp)

    def build(self) -> bytes:
        """Return the message set: bare messages, or one wrapper. May be called again after more appends.

        Raises InvalidRequest without a record, UnsupportedCompressionType if the codec's library is missing.
        """
        if not self._count:
            raise InvalidRequest("a message set needs at least one record: append one first")
        if self._codec is Codec.NONE:
            return self._messages.to_bytes()
        wrapper = MessageWriter(min(max(self._messages.size // 2, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX))
        wrapper.write_entry(
            self._last_offset,
            self._magic,
            key=None,
            value=self._compress,
            timestamp=self._max_timestamp,
            timestamp_type=self._timestamp_type,
            codec=self._codec,
        )
        return wrapper.to_bytes()

    def _compress(self, writer: MessageWriter) -> None:
        for piece in compressed(self._codec, self._messages.pieces(), self._level, magic=self._magic):
            writer.write(piece)


def build_message_set(
    records: Iterable[Record],
    magic: int,
    codec: Codec = Codec.NONE,
    *,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time: int | None = None,
) -> bytes:
    """Return one message set of these records with their offsets. Raises as `MessageSetBuilder`."""
    records = list(records)
    builder = MessageSetBuilder(
        magic,
        codec,
        level=level,
        timestamp_type=timestamp_type,
        log_append_time=log_append_time,
        base_offset=records[0].offset if records else 0,
    )
    for record in records:
        builder.append(
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=record.headers,
            offset=record.offset,
        )
    return builder.build()
