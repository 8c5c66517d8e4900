"""An outer message of format v0 or v1 as a batch: plain, one record; a wrapper, the records compressed in its value.

Messages of a set that lie bare one behind the other are each a batch of their own: that is the shallow iteration
(batches.py). The deep one is `records`: a wrapper's value is decompressed and read as a message set again, once; no
deeper wrapper is allowed. Inner offsets are absolute under v0. Under v1 they count relative to each other, and the
wrapper's own offset, which is the last one's, says where they lie (KIP-31); a wrapper at offset 0 comes from a producer
that did not count, and its inner offsets stand as they are.
Kept true: bytes that are no such message raise CorruptRecord and nothing else; nesting ends at one level.
Left to others: what a producer may send (assignment.py), writing new ones (message_builder.py).
Source: KIP-31, KIP-32; the seed document on message format and validation; Kafka's AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Literal

from tidelog.errors import CorruptRecord, InvalidTimestamp, UnsupportedForMessageFormat
from tidelog.records.legacy.message import (
    ATTRIBUTES_AT,
    CODEC_BITS,
    CRC_AT,
    MAGIC_AT,
    OFFSET_AT,
    TIMESTAMP_AT,
    TIMESTAMP_TYPE_BIT,
    InnerMessage,
    message_crc,
    payload_bounds,
    read_payload,
    walk_set,
)
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.compression import DECOMPRESSED_BYTES_MAX, checked_codec, decompress
from tidelog.records.v2.header import ByteBuffer, header_problem, read_header
from tidelog.records.v2.record import Record
from tidelog.records.v2.varint import INT64_MAX
from tidelog.types import Codec, Millis, Offset, TimestampType

MAGICS: Final = frozenset({0, 1})
InnerTail = Literal["stop", "raise"]


class LegacyRecordBatch(RecordBatch):
    """One outer message within a buffer. It keeps a reference to the buffer, as `RecordBatch`.

    `last_offset` is always that of the message. `base_offset` and `count` of a wrapper take decompression, once, and
    raise as `records`.
    """

    __slots__ = ("_first_and_count",)

    _magics = MAGICS

    _first_and_count: tuple[Offset, int]

    def __repr__(self) -> str:
        kind = "wrapper" if self.is_wrapper else "message"
        return f"LegacyRecordBatch(v{self.magic} {kind}, last offset {self.last_offset}, {self.size} bytes)"

    @property
    def is_wrapper(self) -> bool:
        """Whether the value is a compressed message set."""
        return bool(self.header.attributes & CODEC_BITS)

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record."""
        return self._deep_facts()[0] if self.is_wrapper else self.header.base_offset

    @property
    def last_offset_delta(self) -> int:
        return self.header.last_offset - self.base_offset

    @property
    def count(self) -> int:
        return self._deep_facts()[1] if self.is_wrapper else 1

    @property
    def codec(self) -> Codec:
        return checked_codec(super().codec, self.header.magic)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.header.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType((self.header.attributes & TIMESTAMP_TYPE_BIT) >> 3)

    @property
    def is_transactional(self) -> bool:
        return False

    @property
    def is_control(self) -> bool:
        return False

    @property
    def delete_horizon_ms(self) -> Millis | None:
        return None

    @property
    def key(self) -> bytes | None:
        """The outer message's own key; a wrapper has none. Raises CorruptRecord."""
        key, _ = self._payload()
        return None if key is None else bytes(key)

    @property
    def value(self) -> bytes | None:
        """The outer message's own value, compressed where it is a wrapper. Raises CorruptRecord."""
        _, value = self._payload()
        return None if value is None else bytes(value)

    def computed_crc(self) -> int:
        """CRC-32 of the bytes as they are."""
        return message_crc(self._data, self.header.position, self.header.end)

    def ensure_valid(self) -> None:
        """Check the outer message: its checksum, then that its fields fill it and its codec is one of the format's.

        Raises CorruptRecord, or UnsupportedCompressionType for a codec that the format does not have, under a right
        checksum. Source: Kafka's LegacyRecord.ensureValid.
        """
        computed = self.computed_crc()
        if computed != self.header.crc:
            raise CorruptRecord(
                f"{self._name()} has checksum {computed:#010x}, its header says {self.header.crc:#010x}: "
                "its bytes were damaged on the way or on disk; fetch or send it again"
            )
        problem = header_problem(self.header)
        if problem is not None:
            raise CorruptRecord(f"{self._name()} {problem}: its writer is faulty")
        try:
            _, _, value_at = payload_bounds(self._data, self.header.position, self.header.end, self.header.magic)
        except CorruptRecord as error:
            raise self._unreadable(error) from error
        if self.is_wrapper and self.codec is not Codec.NONE and value_at < 0:
            raise CorruptRecord(f"{self._name()} is a wrapper around nothing: its writer is faulty")

    def records(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """The records in order, offsets absolute. Checks no CRC of the outer message: that is `ensure_valid`.

        A last inner message that the set cuts short is left out (the seed document on message format: the deep
        iterator ends there as the shallow one does). Raises CorruptRecord, RecordTooLarge beyond max_bytes,
        UnsupportedCompressionType.
        """
        if not self.is_wrapper:
            header = self.header
            try:
                key, value = read_payload(self._data, header.position, header.end, header.magic)
            except CorruptRecord as error:
                raise self._unreadable(error) from error
            return iter((tuple.__new__(Record, (header.base_offset, header.max_timestamp, key, value, ())),))
        data, found = self.inner_messages(max_bytes=max_bytes)
        return self.records_of(data, found)

    def record_list(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
        return list(self.records(max_bytes=max_bytes))

    def payload(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes | memoryview:  # noqa: ARG002
        """Refused: a message has no records behind a header. Raises UnsupportedForMessageFormat."""
        raise UnsupportedForMessageFormat(f"{self._name()} has no payload of records: use records or inner_messages")

    def inner_messages(
        self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX, tail: InnerTail = "stop"
    ) -> tuple[bytes, list[InnerMessage]]:
        """The decompressed message set of a wrapper, and its messages with offsets as stored.

        tail: a last message that the set cuts short is left out ("stop") or CorruptRecord ("raise").
        Raises as `records`; CorruptRecord too where there is no message or one is compressed again.
        """
        _, compressed = self._payload()
        if compressed is None:
            raise CorruptRecord(f"{self._name()} is a wrapper around nothing: its writer is faulty")
        data = decompress(self.codec, compressed, max_bytes, magic=self.header.magic)
        try:
            found = walk_set(data, partial_tail_ends=tail == "stop")
        except CorruptRecord as error:
            raise self._unreadable(error) from error
        if not found:
            raise CorruptRecord(f"{self._name()} is a wrapper without a message in it: its writer is faulty")
        for index, message in enumerate(found):
            if message.attributes & CODEC_BITS:
                raise CorruptRecord(
                    f"message {index + 1} inside {self._name()} is compressed again: wrappers do not nest; "
                    "the producer's library is at fault"
                )
        return data, found

    def offset_shift(self, found: list[InnerMessage]) -> int:
        """What is added to the stored offsets of inner messages to make them absolute.

        Raises CorruptRecord where the wrapper's offset lies below its last message's.
        """
        if self.header.magic == 0 or self.header.last_offset == 0:
            return 0
        shift = self.header.last_offset - found[-1].offset
        if shift < 0:
            raise CorruptRecord(
                f"{self._name()} is a wrapper whose last message has the larger offset {found[-1].offset}: "
                "its writer is faulty"
            )
        return shift

    def records_of(self, data: bytes, found: list[InnerMessage]) -> Iterator[Record]:
        """The records of what `inner_messages` returned. Raises CorruptRecord."""
        shift = self.offset_shift(found)
        header = self.header
        stamped = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
        for index, message in enumerate(found):
            offset, timestamp = message.offset + shift, message.timestamp
            try:
                key, value = read_payload(data, message.at, message.end, message.magic)
            except CorruptRecord as error:
                raise CorruptRecord(
                    f"message {index + 1} inside {self._name()} cannot be read: {error.message}; "
                    "it was damaged or written by a faulty producer"
                ) from error
            if offset > INT64_MAX:
                raise CorruptRecord(f"message {index + 1} inside {self._name()} has an offset beyond 64 bits")
            if stamped is not None and message.magic == 1:
                timestamp = stamped
            yield tuple.__new__(Record, (offset, timestamp, key, value, ()))

    def _deep_facts(self) -> tuple[Offset, int]:
        try:
            return self._first_and_count
        except AttributeError:
            _, found = self.inner_messages()
            self._first_and_count = Offset(found[0].offset + self.offset_shift(found)), len(found)
            return self._first_and_count

    def _payload(self) -> tuple[memoryview | None, memoryview | None]:
        """Key and value of the outer message, no copy."""
        header, view = self.header, memoryview(self._data)
        try:
            start, behind, value_at = payload_bounds(view, header.position, header.end, header.magic)
        except CorruptRecord as error:
            raise self._unreadable(error) from error
        return (None if behind < 0 else view[start:behind]), (None if value_at < 0 else view[value_at : header.end])

    def _name(self) -> str:
        return f"the v{self.header.magic} message at offset {self.header.last_offset}"

    def _unreadable(self, error: CorruptRecord) -> CorruptRecord:
        return CorruptRecord(
            f"{self._name()} cannot be read: {error.message}; it was damaged or written by a faulty producer"
        )


def stamp_message(buffer: bytearray | memoryview, position: int, *, offset: int) -> None:
    """Give the v0 or v1 message at `position` its offset, in place: the checksum leaves it out. offset: of its last
    record where it is a wrapper. Raises UnsupportedForMessageFormat, with nothing changed, for a v2 batch."""
    _ensure_magic(buffer, position, MAGICS)
    struct.pack_into(">q", buffer, position + OFFSET_AT, offset)


def set_message_timestamp(
    buffer: bytearray | memoryview, position: int, timestamp_type: TimestampType, timestamp: int
) -> None:
    """Set type and timestamp of the v1 message at `position`, in place; inner messages follow a wrapper's log append
    time (KIP-32). Only where that changes something is the checksum computed anew.

    Raises UnsupportedForMessageFormat for another format, InvalidTimestamp for no type: v1 has one.
    """
    _ensure_magic(buffer, position, frozenset({1}))
    if timestamp_type is TimestampType.NO_TIMESTAMP_TYPE:
        raise InvalidTimestamp("a v1 message has a timestamp type: create time or log append time")
    header = read_header(buffer, position)
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT | timestamp_type << 3
    if (attributes, timestamp) == (header.attributes, header.max_timestamp):
        return
    buffer[position + ATTRIBUTES_AT] = attributes
    struct.pack_into(">q", buffer, position + TIMESTAMP_AT, timestamp)
    struct.pack_into(">I", buffer, position + CRC_AT, message_crc(buffer, position, header.end))


def _ensure_magic(buffer: ByteBuffer, position: int, magics: frozenset[int]) -> None:
    magic = buffer[position + MAGIC_AT]
    if magic not in magics:
        raise UnsupportedForMessageFormat(
            f"the batch at byte {position} is of format v{magic}: this cannot be set there"
        )
