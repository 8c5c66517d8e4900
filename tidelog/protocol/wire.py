"""Encoding of messages: protobuf's, and that of the two messages that carry records, without copies of these.

The values of `tidelog/record_exchange.py` are written and read in the wire format of `ProduceRequest` and
`FetchResponse` in `tidelog/protocol/v1/data_pb2`. Not by these classes, because protobuf copies a `bytes` field when it
is set, serialized, parsed and read; at 1 MiB these copies are most of the cost of a message (docs/performance.md). Here
protobuf encodes an entry without its records, and these are copied once, behind it. When entries are large, `records`
of the decoded ones are views of the received bytes.

Invariants: the encoded bytes equal protobuf's. Everything that protobuf accepts is decoded to the same values, and what
it rejects raises its DecodeError: small entries and unusual bytes (groups, fixed-size numbers, fields with large
numbers, truncation) are passed to protobuf as a whole. tests/client/test_wire.py checks all three.
Not here: the content of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError

from tidelog.protocol import status
from tidelog.protocol.v1 import common_pb2, data_pb2
from tidelog.record_exchange import AbortedStart, FetchAnswer, FetchedPartition, ProduceBatch, ProduceRequest
from tidelog.types import Buffer, EpochEnd, EpochStart

Message = TypeVar("Message")

_LARGE: Final = 32 * 1024
"""Message size (bytes) from which decoding without copies is faster than protobuf, despite Python's overhead."""
_LARGE_ENTRY: Final = 8 * 1024
"""The same for the average entry of a message."""

_PRODUCE_ENTRY: Final = 0x1A
"""Tag of `partitions`, field 3 of ProduceRequest."""
_FETCH_ENTRY: Final = 0x0A
"""Tag of `partitions`, field 1 of FetchResponse."""
_RECORDS: Final = b"\x7a"
"""Tag of `records`, field 15 of both entries: the highest number, so that the records come last."""
_HEADER_MOST: Final = 512
"""Bytes of an entry before its records that are looked at. An entry with more is decoded by protobuf."""
_THROTTLE_TIME: Final = b"\x60"
"""Tag of `throttle_time_ms`, field 12 of both responses. A decoder accepts fields in any order."""

_NONE: Final[Mapping[int, memoryview]] = {}
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


def writer(kind: type[Message]) -> Callable[[Message], bytes]:
    """How messages of this type are encoded: a protobuf class, or a value of this module."""
    other: Any = kind
    return _WRITERS.get(kind) or other.SerializeToString


def reader(kind: type[Message]) -> Callable[[bytes], Message]:
    """How messages of this type are decoded. What it returns raises protobuf's DecodeError."""
    other: Any = kind
    return _READERS.get(kind) or other.FromString


def name_of(kind: type[Any]) -> str:
    """The name of a message in the proto files."""
    return "FetchResponse" if kind is FetchAnswer else kind.__name__


# --- writing ----------------------------------------------------------------------------------------------------


def _write_produce(request: ProduceRequest) -> bytes:
    acks, timeout_ms, batches, transactional_id, transaction_version, receipts = request
    pieces: list[Buffer] = [data_pb2.ProduceRequest(acks=acks, timeout_ms=timeout_ms).SerializeToString()]
    entries: Any = batches  # clients name topics by their ids
    for topic_id, partition, records, leader_epoch, correlation_id in entries:
        header = data_pb2.PartitionProduce(
            batch_id=correlation_id, topic_id=topic_id, partition=partition, leader_epoch=leader_epoch
        )
        _put_entry(pieces, _PRODUCE_ENTRY, header.SerializeToString(), records)
    if transactional_id or transaction_version or receipts:
        tail = data_pb2.ProduceRequest(
            transactional_id=transactional_id, transaction_version=transaction_version, receipts=receipts
        )
        pieces.append(tail.SerializeToString())
    return b"".join(pieces)


def _write_fetched(answer: FetchAnswer) -> bytes:
    pieces: list[Buffer] = []
    for fetched in answer.partitions:
        _put_entry(pieces, _FETCH_ENTRY, _fetched_header(fetched), fetched.records)
    if answer.throttle_time_ms:
        pieces += (_THROTTLE_TIME, _varint(answer.throttle_time_ms))
    return b"".join(pieces)


def _fetched_header(fetched: FetchedPartition) -> bytes:
    """The encoded entry of one partition without its records."""
    topic_id: Any = fetched.topic_id  # as in the request, whose message has ids only
    message = data_pb2.PartitionFetched(
        fetch_id=fetched.correlation_id,
        topic_id=topic_id,
        partition=fetched.partition,
        leader_epoch=fetched.leader_epoch,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        preferred_read_replica=fetched.preferred_read_replica,
        waits=fetched.waits,
        held_from=fetched.held_from,
        local_log_start_offset=fetched.local_log_start_offset,
    )
    if fetched.error is not None:
        message.error.CopyFrom(status.to_proto(fetched.error))
    if fetched.diverging is not None:
        end = fetched.diverging
        message.diverging.CopyFrom(common_pb2.EpochEnd(epoch=end.epoch, end_offset=end.end_offset))
    for start in fetched.epochs:
        message.epochs.add(epoch=start.epoch, start_offset=start.start_offset)
    for aborted in fetched.aborted:
        message.aborted.add(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
    return message.SerializeToString()


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
    pieces.append(_ONE_BYTE[tag] + _varint(whole) + header + _RECORDS + length)
    pieces.append(records)


# --- reading ----------------------------------------------------------------------------------------------------


def _read_produce(data: bytes) -> ProduceRequest:
    message, views = _cut(data, data_pb2.ProduceRequest, _PRODUCE_ENTRY) if len(data) >= _LARGE else (None, _NONE)
    if message is None:
        message = data_pb2.ProduceRequest.FromString(data)
    batches = []
    for index, entry in enumerate(message.partitions):
        records = views.get(index) or entry.records
        batches.append(ProduceBatch(entry.topic_id, entry.partition, records, entry.leader_epoch, entry.batch_id))
    return ProduceRequest(
        message.acks,
        message.timeout_ms,
        batches,
        message.transactional_id,
        message.transaction_version,
        message.receipts,
    )


def _read_fetched(data: bytes) -> FetchAnswer:
    message, views = _cut(data, data_pb2.FetchResponse, _FETCH_ENTRY) if len(data) >= _LARGE else (None, _NONE)
    if message is None:
        message = data_pb2.FetchResponse.FromString(data)
    partitions = []
    for index, entry in enumerate(message.partitions):
        diverging, epochs, aborted = entry.diverging, entry.epochs, entry.aborted
        partitions.append(
            FetchedPartition(
                entry.topic_id,
                entry.partition,
                entry.leader_epoch,
                entry.high_watermark,
                entry.last_stable_offset,
                entry.log_start_offset,
                status.from_proto(entry.error) if entry.HasField("error") else None,
                EpochEnd(diverging.epoch, diverging.end_offset) if entry.HasField("diverging") else None,
                tuple(EpochStart(each.epoch, each.start_offset) for each in epochs) if epochs else (),
                tuple(AbortedStart(each.producer_id, each.first_offset) for each in aborted) if aborted else (),
                entry.preferred_read_replica,
                entry.waits,
                entry.held_from,
                views.get(index) or entry.records,
                entry.fetch_id,
                entry.local_log_start_offset,
            )
        )
    return FetchAnswer(partitions, None, message.throttle_time_ms)


def _cut(data: bytes, kind: type[Any], tag: int) -> tuple[Any, Mapping[int, memoryview]]:
    """Protobuf's message without the records of its large entries, and these by the entry's position. None instead of
    the message: protobuf must decode all. tag: of the field that has the entries."""
    view, most = memoryview(data), len(data) // _LARGE_ENTRY
    pieces: list[bytes] = []
    views: dict[int, memoryview] = {}
    position, end, kept, entries = 0, len(data), 0, 0
    try:
        while position < end:
            start, key = position, data[position]
            position += 1
            if key & 7 == 0:
                while data[position] >= 0x80:
                    position += 1
                position += 1
            elif key & 7 == 2:
                size, content = _read_size(data, position)
                position = content + size
            else:
                return None, _NONE
            if key >= 0x80 or position > end or entries > most:
                return None, _NONE
            if key == tag:
                if size >= _LARGE_ENTRY and (records := _records_of(data, content, position)) is not None:
                    header = data[content : records[0]]
                    pieces += (data[kept:start], _ONE_BYTE[tag], _varint(len(header)), header)
                    views[entries], kept = view[records[1] : position], position
                entries += 1
        return kind.FromString(b"".join((*pieces, data[kept:]))), views
    except (DecodeError, IndexError):
        return None, _NONE


def _records_of(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Where the last field of the entry in this range begins, and where its content does, if it is `records`. If the
    field only looks like it, the bytes before it end within a field, and protobuf rejects them."""
    most = min(end, start + _HEADER_MOST)
    at = data.find(_RECORDS, start, most)
    while at >= 0:
        size, begin = _read_size(data, at + 1)
        if begin + size == end:
            return at, begin
        at = data.find(_RECORDS, at + 1, most)
    return None


def _read_size(data: bytes, position: int) -> tuple[int, int]:
    """The size at this position, and where it ends. Raises IndexError if there is none, as for more than five bytes,
    which protobuf rejects."""
    size = shift = 0
    for byte in data[position : position + 5]:
        position += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, position
        shift += 7
    raise IndexError


_WRITERS: Final[dict[type[Any], Callable[[Any], bytes]]] = {ProduceRequest: _write_produce, FetchAnswer: _write_fetched}
_READERS: Final[dict[type[Any], Callable[[bytes], Any]]] = {ProduceRequest: _read_produce, FetchAnswer: _read_fetched}
