"""An outer message of format v0 or v1 as a batch: a bare message is one record, a wrapper's value contains compressed
records.

Each bare message of a set is a batch of its own: this is the shallow iteration (batches.py). `records` is the deep one:
a wrapper's value is decompressed once and decoded as a message set; nested wrappers are not allowed. Inner offsets are
absolute in v0. In v1 they are relative to each other, and the wrapper's own offset, which is that of its last record,
gives the absolute position (KIP-31).
Invariants: invalid bytes raise only CorruptRecord. Nesting ends at one level.
Not here: what a producer may send (assignment.py), building new messages (message_builder.py).
Source: KIP-31, KIP-32; Kafka's AbstractLegacyRecordBatch.
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
from tidelog.records.v2.header import header_problem, read_header
from tidelog.records.v2.record import Located, Record, located
from tidelog.types import INT64_MAX, Buffer, Codec, LeaderEpoch, Offset, TimestampType

MAGICS: Final = frozenset({0, 1})
InnerTail = Literal["stop", "raise"]


class LegacyRecordBatch(RecordBatch):
    """One outer message within a buffer. It keeps a reference to the buffer, like `RecordBatch`.

    The header has no attributes but codec and timestamp type. `last_offset` is always the offset of the message.
    `base_offset` and `count` of a wrapper need decompression, once, and raise as `records`.
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
        return self._first_offset_and_count()[0] if self.is_wrapper else self.header.base_offset

    @property
    def last_offset_delta(self) -> int:
        return self.header.last_offset - self.base_offset

    @property
    def count(self) -> int:
        return self._first_offset_and_count()[1] if self.is_wrapper else 1

    @property
    def codec(self) -> Codec:
        return checked_codec(super().codec, self.header.magic)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.header.magic == 0:
            return TimestampType.NO_TIMESTAMP_TYPE
        return TimestampType((self.header.attributes & TIMESTAMP_TYPE_BIT) >> 3)

    @property
    def key(self) -> bytes | None:
        """Key of the outer message; a wrapper has none. Raises CorruptRecord."""
        key, _ = self._payload()
        return None if key is None else bytes(key)

    @property
    def value(self) -> bytes | None:
        """Value of the outer message; compressed if it is a wrapper. Raises CorruptRecord."""
        _, value = self._payload()
        return None if value is None else bytes(value)

    def computed_crc(self) -> int:
        """CRC-32 computed from the bytes."""
        return message_crc(self._data, self.header.position, self.header.end)

    def ensure_valid(self) -> None:
        """Verify the outer message: its checksum, then that its fields fill it and its codec exists in the format.

        Raises CorruptRecord, or UnsupportedCompressionType for an unknown codec with a correct checksum. Source:
        Kafka's LegacyRecord.ensureValid.
        """
        computed = self.computed_crc()
        if computed != self.header.crc:
            raise CorruptRecord(
                f"{self._name()} has checksum {computed:#010x}, but its header has {self.header.crc:#010x}: "
                "its bytes are corrupt; fetch or send it again"
            )
        problem = header_problem(self.header)
        if problem is not None:
            raise CorruptRecord(f"{self._name()} {problem}: its writer is faulty")
        try:
            _, _, value_at = payload_bounds(self._data, self.header.position, self.header.end, self.header.magic)
        except CorruptRecord as error:
            raise self._unreadable(error) from error
        # Reading `codec` raises for a codec that the format does not have.
        if self.is_wrapper and self.codec is not Codec.NONE and value_at < 0:
            raise CorruptRecord(f"{self._name()} is a wrapper without a value: its writer is faulty")

    def records(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Yield the records in order, with absolute offsets. Does not verify the CRC of the outer message (see
        `ensure_valid`).

        A partial last inner message is ignored, as in the shallow iteration. Raises CorruptRecord, RecordTooLarge
        beyond max_bytes, UnsupportedCompressionType.
        """
        if not self.is_wrapper:
            header = self.header
            try:
                key, value = read_payload(self._data, header.position, header.end, header.magic)
            except CorruptRecord as error:
                raise self._unreadable(error) from error
            return iter((tuple.__new__(Record, (header.base_offset, header.max_timestamp, key, value, ())),))
        data, messages = self.inner_messages(max_bytes=max_bytes)
        return self.records_of(data, messages)

    def record_list(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
        return list(self.records(max_bytes=max_bytes))

    def located_records(
        self,
        kind: type[Located],
        topic: str,
        partition: int,
        first: int,
        leader_epoch: LeaderEpoch,
        *,
        max_bytes: int = DECOMPRESSED_BYTES_MAX,
    ) -> list[Located]:
        records, timestamp_type = self.records(max_bytes=max_bytes), self.timestamp_type
        return [
            located(kind, topic, partition, record, timestamp_type, leader_epoch)
            for record in records
            if record.offset >= first
        ]

    def payload(self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes | memoryview:  # noqa: ARG002
        """Not supported: a message has no payload after a header. Raises UnsupportedForMessageFormat."""
        raise UnsupportedForMessageFormat(f"{self._name()} has no payload of records: use records or inner_messages")

    def inner_messages(
        self, *, max_bytes: int = DECOMPRESSED_BYTES_MAX, tail: InnerTail = "stop"
    ) -> tuple[bytes, list[InnerMessage]]:
        """Return the decompressed message set of a wrapper, and its messages with offsets as stored.

        tail: ignore a partial last message ("stop") or raise CorruptRecord ("raise"). Raises as `records`, and
        CorruptRecord if there is no message or a message is itself compressed.
        """
        _, compressed = self._payload()
        if compressed is None:
            raise CorruptRecord(f"{self._name()} is a wrapper without a value: its writer is faulty")
        data = decompress(self.codec, compressed, max_bytes, magic=self.header.magic)
        try:
            messages = walk_set(data, partial_tail_ends=tail == "stop")
        except CorruptRecord as error:
            raise self._unreadable(error) from error
        if not messages:
            raise CorruptRecord(f"{self._name()} is a wrapper without messages: its writer is faulty")
        for index, message in enumerate(messages):
            if message.attributes & CODEC_BITS:
                raise CorruptRecord(
                    f"message {index + 1} inside {self._name()} is compressed itself: wrappers must not be nested; "
                    "this is a defect of the producer's library"
                )
        return data, messages

    def offset_shift(self, messages: list[InnerMessage]) -> int:
        """Return the number to add to the stored offsets of inner messages to make them absolute.

        Raises CorruptRecord if the wrapper's offset is below its last message's.
        """
        # Some producers send v1 wrappers with offset 0. Kafka takes their inner offsets as stored, and so do we.
        if self.header.magic == 0 or self.header.last_offset == 0:
            return 0
        shift = self.header.last_offset - messages[-1].offset
        if shift < 0:
            raise CorruptRecord(
                f"{self._name()} is a wrapper whose last message has the larger offset {messages[-1].offset}: "
                "its writer is faulty"
            )
        return shift

    def records_of(self, data: bytes, messages: list[InnerMessage]) -> Iterator[Record]:
        """Yield the records of the result of `inner_messages`. Raises CorruptRecord."""
        shift = self.offset_shift(messages)
        header = self.header
        append_time = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
        for index, message in enumerate(messages):
            offset, timestamp = message.offset + shift, message.timestamp
            try:
                key, value = read_payload(data, message.at, message.end, message.magic)
            except CorruptRecord as error:
                raise CorruptRecord(
                    f"message {index + 1} inside {self._name()} cannot be read: {error.message}; "
                    "it is corrupt or was written by a faulty producer"
                ) from error
            if offset > INT64_MAX:
                raise CorruptRecord(f"message {index + 1} inside {self._name()} has an offset beyond 64 bits")
            # The leader stamps only the wrapper: its log append time is that of all records in it (KIP-32).
            if append_time is not None and message.magic == 1:
                timestamp = append_time
            yield tuple.__new__(Record, (offset, timestamp, key, value, ()))

    def _first_offset_and_count(self) -> tuple[Offset, int]:
        """Offset of a wrapper's first record, and the number of its records. Kept: they cost a decompression."""
        try:
            return self._first_and_count
        except AttributeError:
            _, messages = self.inner_messages()
            self._first_and_count = Offset(messages[0].offset + self.offset_shift(messages)), len(messages)
            return self._first_and_count

    def _payload(self) -> tuple[memoryview | None, memoryview | None]:
        """Return key and value of the outer message, without a copy."""
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
            f"{self._name()} cannot be read: {error.message}; it is corrupt or was written by a faulty producer"
        )


def stamp_message(buffer: bytearray | memoryview, position: int, *, offset: int) -> None:
    """Set the offset of the v0 or v1 message at `position`, in place; the checksum does not cover it. offset: of the
    last record of a wrapper. Raises UnsupportedForMessageFormat, with nothing changed, for a v2 batch."""
    _ensure_magic(buffer, position, MAGICS)
    struct.pack_into(">q", buffer, position + OFFSET_AT, offset)


def set_message_timestamp(
    buffer: bytearray | memoryview, position: int, timestamp_type: TimestampType, timestamp: int
) -> None:
    """Set type and timestamp of the v1 message at `position`, in place; inner messages take over a wrapper's log append
    time (KIP-32). The checksum is recomputed only if something changes.

    Raises UnsupportedForMessageFormat for another format, InvalidTimestamp without a type: v1 needs one.
    """
    _ensure_magic(buffer, position, frozenset({1}))
    if timestamp_type is TimestampType.NO_TIMESTAMP_TYPE:
        raise InvalidTimestamp("a v1 message needs a timestamp type: create time or log append time")
    header = read_header(buffer, position)
    attributes = header.attributes & ~TIMESTAMP_TYPE_BIT | timestamp_type << 3
    if (attributes, timestamp) == (header.attributes, header.max_timestamp):
        return
    buffer[position + ATTRIBUTES_AT] = attributes
    struct.pack_into(">q", buffer, position + TIMESTAMP_AT, timestamp)
    struct.pack_into(">I", buffer, position + CRC_AT, message_crc(buffer, position, header.end))


def _ensure_magic(buffer: Buffer, position: int, magics: frozenset[int]) -> None:
    magic = buffer[position + MAGIC_AT]
    if magic not in magics:
        raise UnsupportedForMessageFormat(
            f"the batch at byte {position} has format v{magic}: it does not support this operation"
        )
