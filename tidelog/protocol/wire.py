"""The two messages that carry records, encoded with one copy of the records and decoded with none.

`ProduceRequest` and `FetchResponse` have the fields, names and wire format of the protobuf classes in
`tidelog/protocol/v1/data_pb2`. They exist because protobuf copies a `bytes` field when it is set, serialized, parsed
and read; at 1 MiB these copies are most of the cost of a message (docs/performance.md). Here an entry is protobuf's
message without its records, and the records beside it. They are copied once on encoding, behind the encoded header.
When a large message is decoded, `records` is a `memoryview` of the received bytes.

Invariants: the encoded bytes equal protobuf's. Everything that protobuf accepts is decoded to the same values, and what
it rejects raises its DecodeError: small messages and unusual bytes (groups, fixed-size numbers, fields with large
numbers, truncation) are passed to protobuf as a whole. tests/client/test_wire.py checks all three.
Not here: the content of the records.
"""

# ruff: noqa: N802 (the methods are named as protobuf names them)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from tidelog.protocol.v1 import common_pb2, data_pb2
from tidelog.types import Buffer

_LARGE: Final = 32 * 1024
"""Message size (bytes) from which decoding without copies is faster than protobuf, despite Python's overhead."""

_PRODUCE_ENTRY: Final = 0x1A
"""Tag of `partitions`, field 3 of ProduceRequest."""
_FETCH_ENTRY: Final = 0x0A
"""Tag of `partitions`, field 1 of FetchResponse."""
_RECORDS: Final = 0x7A
"""Tag of `records`, field 15 of both entries: the highest number, so that the records come last."""
_THROTTLE_TIME: Final = b"\x60"
"""Tag of `throttle_time_ms`, field 12 of both responses. A decoder accepts fields in any order."""

_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


class _Entry:
    """An entry of a message. header: protobuf's message without its records; its fields are also those of the entry."""

    __slots__ = ("header", "records")
    _MESSAGE: ClassVar[type[Any]]

    def __init__(self, *, records: Buffer = b"", **fields: Any) -> None:
        self.header = self._MESSAGE(**fields)
        self.records = records

    @classmethod
    def of(cls, header: Any, records: Buffer) -> Self:
        """The entry with this header, which has no records of its own."""
        entry = cls.__new__(cls)
        entry.header, entry.records = header, records
        return entry

    @classmethod
    def copied(cls, message: Any) -> Self:
        """The entry of protobuf's message, which loses its records."""
        records = message.records
        message.ClearField("records")  # otherwise they would be encoded twice
        return cls.of(message, records)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.header, name)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self.header, self.records) == (other.header, other.records)

    __hash__ = None  # type: ignore[assignment]  # as protobuf's messages

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.header!r}, {len(self.records)} bytes of records)"


class PartitionProduce(_Entry):
    """One batch of a ProduceRequest; fields as in data.proto."""

    __slots__ = ()
    _MESSAGE = data_pb2.PartitionProduce


class PartitionFetched(_Entry):
    """The answer to one fetch; fields as in data.proto. `error` and `diverging` are None if absent."""

    __slots__ = ()
    _MESSAGE = data_pb2.PartitionFetched

    @property
    def error(self) -> common_pb2.Error | None:
        return self.header.error if self.header.HasField("error") else None

    @property
    def diverging(self) -> common_pb2.EpochEnd | None:
        return self.header.diverging if self.header.HasField("diverging") else None


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
            _put_entry(pieces, _PRODUCE_ENTRY, entry.header.SerializeToString(), entry.records)
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
        message, entries = _decoded(data, data_pb2.ProduceRequest, _PRODUCE_ENTRY, PartitionProduce)
        return cls(
            acks=message.acks,
            timeout_ms=message.timeout_ms,
            partitions=entries,
            transactional_id=message.transactional_id,
            transaction_version=message.transaction_version,
            receipts=message.receipts,
        )


@dataclass(slots=True, kw_only=True)
class FetchResponse:
    """Answers to fetches; fields as in data.proto."""

    partitions: list[PartitionFetched] = field(default_factory=list)
    throttle_time_ms: int = 0

    def SerializeToString(self) -> bytes:
        """Return the encoded message; copies each `records` once."""
        entries = ((entry.header.SerializeToString(), entry.records) for entry in self.partitions)
        return encode_fetched(entries, self.throttle_time_ms)

    @classmethod
    def FromString(cls, data: bytes, /) -> FetchResponse:
        """Decode. In a large message `records` of the entries are views of `data`. Raises protobuf's DecodeError."""
        message, entries = _decoded(data, data_pb2.FetchResponse, _FETCH_ENTRY, PartitionFetched)
        return cls(partitions=entries, throttle_time_ms=message.throttle_time_ms)


# --- writing ----------------------------------------------------------------------------------------------------


def encode_fetched(entries: Iterable[tuple[bytes, Buffer]], throttle_time_ms: int) -> bytes:
    """Encode a FetchResponse. entries: each as an encoded PartitionFetched without records, and its records."""
    pieces: list[Buffer] = []
    for header, records in entries:
        _put_entry(pieces, _FETCH_ENTRY, header, records)
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


def _put_entry(pieces: list[Buffer], tag: int, header: bytes, records: Buffer) -> None:
    """Append an entry: its header, then `records`."""
    size = len(records)
    if not size:
        pieces.append(_ONE_BYTE[tag] + _varint(len(header)) + header)
        return
    length = _varint(size)
    whole = len(header) + 1 + len(length) + size
    pieces.append(_ONE_BYTE[tag] + _varint(whole) + header + _ONE_BYTE[_RECORDS] + length)
    pieces.append(records)


# --- reading ----------------------------------------------------------------------------------------------------


class _Unusual(Exception):
    """The bytes have an unusual form: protobuf must decode them."""


def _decoded(data: bytes, kind: type[Any], tag: int, entry_kind: type[_Entry]) -> tuple[Any, list[Any]]:
    """The message without its entries, and the entries. tag: of the field that has them."""
    if len(data) >= _LARGE:
        try:
            rest, contents = _cut(memoryview(data), tag)
            parts = [_cut(content, _RECORDS) for content in contents]
        except (_Unusual, IndexError):
            pass
        else:
            headers = (entry_kind._MESSAGE.FromString(header) for header, _ in parts)
            found = [records[-1] if records else b"" for _, records in parts]  # of a repeated field the last one counts
            return kind.FromString(rest), list(map(entry_kind.of, headers, found))
    message = kind.FromString(data)
    return message, [entry_kind.copied(entry) for entry in message.partitions]


def _cut(data: memoryview, tag: int) -> tuple[bytes, list[memoryview]]:
    """Take the fields with this tag out of an encoded message. Returns the other fields, and the contents of these.
    Raises _Unusual or IndexError if protobuf must decode the message."""
    rest, contents = [], []
    position, end = 0, len(data)
    while position < end:
        start, key = position, data[position]
        number, position = _read_varint(data, position + 1)
        if key & 7 == 2:
            content, position = position, position + number
        elif key & 7:
            raise _Unusual
        if key >= 0x80 or position > end:
            raise _Unusual
        if key == tag:
            contents.append(data[content:position])
        else:
            rest.append(data[start:position])
    return b"".join(rest), contents


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise _Unusual
