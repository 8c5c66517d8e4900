"""The two messages that carry records, encoded with one copy of the records and decoded with none.

`ProduceRequest` and `FetchResponse` (with their entries) have the fields, names and wire format of the protobuf classes
in `tidelog/protocol/v1/data_pb2`. They exist because protobuf copies a `bytes` field when it is set, serialized, parsed
and read; at 1 MiB these copies are most of the cost of a message (docs/performance.md). Here `records` is copied once
on encoding, joined with a small header. On decoding a large message, `records` is a `memoryview` of the received bytes.

Invariants: the encoded bytes equal protobuf's. Everything that protobuf accepts is decoded to the same values, and what
it rejects raises its DecodeError: small messages and unusual bytes (unknown fields, groups, a message in two parts,
truncation) are passed to protobuf. tests/client/test_wire.py checks all three.
Not here: the content of the records.
"""

# ruff: noqa: N802 (the methods are named as protobuf names them)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tidelog.protocol.v1 import common_pb2, data_pb2

Buffer: TypeAlias = bytes | bytearray | memoryview
"""A buffer; it must not change while a message that refers to it is in flight."""

_LARGE: Final = 32 * 1024
"""Message size (bytes) from which decoding without copies is faster than protobuf, despite Python's overhead."""

_THROTTLE_TIME: Final = b"\x60"
"""Tag of `throttle_time_ms`, field 12 of both responses. A decoder accepts fields in any order."""

_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


@dataclass(slots=True, kw_only=True)
class PartitionProduce:
    """One batch of a ProduceRequest; fields as in data.proto."""

    batch_id: int = 0
    topic_id: bytes = b""
    partition: int = 0
    leader_epoch: int = 0
    records: Buffer = field(default=b"", repr=False)

    def _header(self) -> bytes:
        return data_pb2.PartitionProduce(
            batch_id=self.batch_id, topic_id=self.topic_id, partition=self.partition, leader_epoch=self.leader_epoch
        ).SerializeToString()


@dataclass(slots=True, kw_only=True)
class ProduceRequest:
    """Batches to append; fields as in data.proto."""

    acks: int = 0
    timeout_ms: int = 0
    partitions: list[PartitionProduce] = field(default_factory=list)
    transactional_id: str = ""
    transaction_version: int = 0
    receipts: bool = False

    def SerializeToString(self) -> bytes:
        """Return the encoded message; copies each `records` once."""
        head = data_pb2.ProduceRequest(acks=self.acks, timeout_ms=self.timeout_ms)
        pieces: list[Buffer] = [head.SerializeToString()]
        for entry in self.partitions:
            _put_entry(pieces, b"\x1a", entry._header(), entry.records)
        if self.transactional_id or self.transaction_version or self.receipts:
            tail = data_pb2.ProduceRequest(
                transactional_id=self.transactional_id,
                transaction_version=self.transaction_version,
                receipts=self.receipts,
            )
            pieces.append(tail.SerializeToString())
        return b"".join(pieces)

    @classmethod
    def FromString(cls, data: bytes, /) -> ProduceRequest:
        """Decode. In a large message `records` of the entries are views of `data`. Raises protobuf's DecodeError."""
        if len(data) >= _LARGE and _is_read(message := cls(), data, _PRODUCE_REQUEST):
            return message
        return _produce_request_of(data_pb2.ProduceRequest.FromString(data))


@dataclass(slots=True, kw_only=True)
class PartitionFetched:
    """The answer to one fetch; fields as in data.proto. `error` and `diverging` are None if absent."""

    fetch_id: int = 0
    topic_id: bytes = b""
    partition: int = 0
    leader_epoch: int = 0
    error: common_pb2.Error | None = None
    high_watermark: int = 0
    last_stable_offset: int = 0
    log_start_offset: int = 0
    diverging: common_pb2.EpochEnd | None = None
    epochs: list[common_pb2.EpochStart] = field(default_factory=list)
    aborted: list[data_pb2.AbortedTransaction] = field(default_factory=list)
    preferred_read_replica: int = 0
    waits: bool = False
    held_from: int = 0
    records: Buffer = field(default=b"", repr=False)

    def HasField(self, name: str) -> bool:
        """As in protobuf: whether `error` or `diverging` is set."""
        return getattr(self, name) is not None

    def _header(self) -> bytes:
        return data_pb2.PartitionFetched(
            fetch_id=self.fetch_id,
            topic_id=self.topic_id,
            partition=self.partition,
            leader_epoch=self.leader_epoch,
            error=self.error,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log_start_offset,
            diverging=self.diverging,
            epochs=self.epochs or None,
            aborted=self.aborted or None,
            preferred_read_replica=self.preferred_read_replica,
            waits=self.waits,
            held_from=self.held_from,
        ).SerializeToString()


@dataclass(slots=True, kw_only=True)
class FetchResponse:
    """Answers to fetches; fields as in data.proto."""

    partitions: list[PartitionFetched] = field(default_factory=list)
    throttle_time_ms: int = 0

    def SerializeToString(self) -> bytes:
        """Return the encoded message; copies each `records` once."""
        return encode_fetched(((entry._header(), entry.records) for entry in self.partitions), self.throttle_time_ms)

    @classmethod
    def FromString(cls, data: bytes, /) -> FetchResponse:
        """Decode. In a large message `records` of the entries are views of `data`. Raises protobuf's DecodeError."""
        if len(data) >= _LARGE and _is_read(message := cls(), data, _FETCH_RESPONSE):
            return message
        return _fetch_response_of(data_pb2.FetchResponse.FromString(data))


# --- writing ----------------------------------------------------------------------------------------------------


def encode_fetched(entries: Iterable[tuple[bytes, Buffer]], throttle_time_ms: int) -> bytes:
    """Encode a FetchResponse. entries: each as an encoded PartitionFetched without records, and its records."""
    pieces: list[Buffer] = []
    for header, records in entries:
        _put_entry(pieces, b"\x0a", header, records)
    if throttle_time_ms:
        pieces += (_THROTTLE_TIME, _varint(throttle_time_ms))
    return b"".join(pieces)


def _varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    if value < 0:
        value += 1 << 64  # int32 and int64: sign-extended to ten bytes
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _put_entry(pieces: list[Buffer], tag: bytes, header: bytes, records: Buffer) -> None:
    """Append an entry: its header, then `records`, which comes last because it has the highest field number."""
    size = len(records)
    if not size:
        pieces.append(tag + _varint(len(header)) + header)
        return
    length = _varint(size)
    pieces.append(tag + _varint(len(header) + 1 + len(length) + size) + header + b"\x7a" + length)
    pieces.append(records)


# --- reading ----------------------------------------------------------------------------------------------------


class _Unusual(Exception):
    """The bytes have an unusual form: protobuf must decode them."""


_INT32: Final = 0
_INT64: Final = 1
_BYTES: Final = 2
_VIEW: Final = 3
_MESSAGE: Final = 4
_MESSAGES: Final = 5
_ENTRIES: Final = 6
_TEXT: Final = 7

_Fields: TypeAlias = dict[int, tuple[str, int, Any]]
"""Per tag byte: field name, wire type, and the decoder of its content (a message class, or class and fields)."""

_PARTITION_PRODUCE: Final[_Fields] = {
    0x08: ("batch_id", _INT64, None),
    0x12: ("topic_id", _BYTES, None),
    0x18: ("partition", _INT32, None),
    0x20: ("leader_epoch", _INT32, None),
    0x7A: ("records", _VIEW, None),
}
_PRODUCE_REQUEST: Final[_Fields] = {
    0x08: ("acks", _INT32, None),
    0x10: ("timeout_ms", _INT32, None),
    0x1A: ("partitions", _ENTRIES, (PartitionProduce, _PARTITION_PRODUCE)),
    0x22: ("transactional_id", _TEXT, None),
    0x28: ("transaction_version", _INT32, None),
    0x30: ("receipts", _INT32, None),
}
_PARTITION_FETCHED: Final[_Fields] = {
    0x08: ("fetch_id", _INT64, None),
    0x12: ("topic_id", _BYTES, None),
    0x18: ("partition", _INT32, None),
    0x20: ("leader_epoch", _INT32, None),
    0x2A: ("error", _MESSAGE, common_pb2.Error),
    0x30: ("high_watermark", _INT64, None),
    0x38: ("last_stable_offset", _INT64, None),
    0x40: ("log_start_offset", _INT64, None),
    0x4A: ("diverging", _MESSAGE, common_pb2.EpochEnd),
    0x52: ("epochs", _MESSAGES, common_pb2.EpochStart),
    0x5A: ("aborted", _MESSAGES, data_pb2.AbortedTransaction),
    0x60: ("preferred_read_replica", _INT32, None),
    0x68: ("waits", _INT32, None),
    0x70: ("held_from", _INT64, None),
    0x7A: ("records", _VIEW, None),
}
_FETCH_RESPONSE: Final[_Fields] = {
    0x0A: ("partitions", _ENTRIES, (PartitionFetched, _PARTITION_FETCHED)),
    0x60: ("throttle_time_ms", _INT32, None),
}


def _is_read(message: object, data: bytes, fields: _Fields) -> bool:
    """Decode `data` into `message`. Returns False if protobuf must decode it."""
    try:
        _read(message, memoryview(data), 0, len(data), fields)
    except (_Unusual, IndexError):
        return False
    return True


def _read(message: object, data: memoryview, position: int, end: int, fields: _Fields) -> None:
    while position < end:
        field = fields.get(data[position])
        if field is None:
            raise _Unusual
        name, how, content = field
        value = data[position + 1]
        position += 2
        if value >= 0x80:
            value, position = _rest_of_varint(data, position, value)
        if how <= _INT64:
            setattr(message, name, value if value < 0x80000000 else _signed(value, how))
            continue
        start, position = position, position + value
        if position > end:
            raise _Unusual
        if how == _VIEW:
            setattr(message, name, data[start:position])
        elif how == _BYTES:
            setattr(message, name, bytes(data[start:position]))
        elif how == _TEXT:
            setattr(message, name, _text(data[start:position]))
        elif how == _ENTRIES:
            kind, inner = content
            entry = kind()
            _read(entry, data, start, position, inner)
            getattr(message, name).append(entry)
        else:
            _read_message(message, name, how, content, bytes(data[start:position]))
    if position > end:
        raise _Unusual


def _rest_of_varint(data: memoryview, position: int, first: int) -> tuple[int, int]:
    value, shift = first & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise _Unusual


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise _Unusual from None  # protobuf has the error for it


def _signed(value: int, how: int) -> int:
    bits = 32 if how == _INT32 else 64
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _read_message(message: object, name: str, how: int, content: Any, data: bytes) -> None:
    if how == _MESSAGES:
        getattr(message, name).append(content.FromString(data))
    elif getattr(message, name) is None:
        setattr(message, name, content.FromString(data))
    else:
        raise _Unusual


def _produce_request_of(message: data_pb2.ProduceRequest) -> ProduceRequest:
    entries = [
        PartitionProduce(
            batch_id=entry.batch_id,
            topic_id=entry.topic_id,
            partition=entry.partition,
            leader_epoch=entry.leader_epoch,
            records=entry.records,
        )
        for entry in message.partitions
    ]
    return ProduceRequest(
        acks=message.acks,
        timeout_ms=message.timeout_ms,
        partitions=entries,
        transactional_id=message.transactional_id,
        transaction_version=message.transaction_version,
        receipts=message.receipts,
    )


def _fetch_response_of(message: data_pb2.FetchResponse) -> FetchResponse:
    entries = [
        PartitionFetched(
            fetch_id=entry.fetch_id,
            topic_id=entry.topic_id,
            partition=entry.partition,
            leader_epoch=entry.leader_epoch,
            error=entry.error if entry.HasField("error") else None,
            high_watermark=entry.high_watermark,
            last_stable_offset=entry.last_stable_offset,
            log_start_offset=entry.log_start_offset,
            diverging=entry.diverging if entry.HasField("diverging") else None,
            epochs=list(epochs) if (epochs := entry.epochs) else [],
            aborted=list(aborted) if (aborted := entry.aborted) else [],
            preferred_read_replica=entry.preferred_read_replica,
            waits=entry.waits,
            held_from=entry.held_from,
            records=entry.records,
        )
        for entry in message.partitions
    ]
    return FetchResponse(partitions=entries, throttle_time_ms=message.throttle_time_ms)
