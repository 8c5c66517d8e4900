"""A record and its v2 encoding: the pure-Python reference that the compiled code is tested against.

    length: varint | attributes: int8 | timestamp delta: varlong | offset delta: varint
    | key length: varint, -1 is null | key | value length: varint, -1 is null | value
    | header count: varint | per header: key length, key (UTF-8), value length (-1 is null), value

Invariants: a record decodes to the fields that it was encoded from; invalid bytes raise only CorruptRecord.
Not here: compression and the batch header (batch.py, builder.py), rules about content (producible.py).
Source: KIP-98 and KIP-82; Kafka's DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tidelog.errors import CorruptRecord, InvalidRecord, RecordTooLarge
from tidelog.records.v2.varint import UNFOLDED, encode_varint, read_varint, read_varlong
from tidelog.types import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    Buffer,
    LeaderEpoch,
    Millis,
    Offset,
    TimestampType,
    timestamp_or_none,
)

Header: TypeAlias = tuple[str, bytes | None]
Located = TypeVar("Located", bound=tuple[Any, ...])
"""A NamedTuple with the fields topic, partition, offset, timestamp (None if the record has none), key, value, headers,
timestamp_type and leader_epoch."""


class Record(NamedTuple):
    """One decoded record.

    `timestamp` is in milliseconds since 1970, -1 for none. Header keys that are not UTF-8 keep their bytes as surrogate
    escapes (PEP 383), so that encoding the record again gives the same bytes.
    """

    offset: Offset
    timestamp: Millis
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Iterable[Header] = ()
) -> bytes:
    """Return the encoded record, including its length. Deltas are relative to the batch's base offset and timestamp.

    Raises InvalidRecord for a header key that cannot be encoded as UTF-8, RecordTooLarge beyond 2 GiB.
    """
    parts = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    _add_bytes(parts, key)
    _add_bytes(parts, value)
    if headers:
        _add_headers(parts, tuple(headers))
    else:
        parts.append(b"\x00")
    body = b"".join(parts)
    if len(body) > INT32_MAX:
        raise RecordTooLarge(f"a record of {len(body)} bytes exceeds the format's limit of 2 GiB: split it")
    return encode_varint(len(body)) + body


def _add_bytes(parts: list[bytes], data: bytes | None) -> None:
    if data is None:
        parts.append(b"\x01")
    else:
        parts.append(encode_varint(len(data)))
        parts.append(data)


def _add_headers(parts: list[bytes], headers: tuple[Header, ...]) -> None:
    parts.append(encode_varint(len(headers)))
    for name, value in headers:
        _add_bytes(parts, header_key(name))
        _add_bytes(parts, value)


def header_key(name: str) -> bytes:
    """Return the encoded header name. Raises InvalidRecord if it cannot be encoded as UTF-8."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidRecord(f"the header key {name!r} cannot be encoded as UTF-8: use another key") from error


def decode_records(
    data: Buffer, count: int, base_offset: int, base_timestamp: int, append_time: Millis | None = None
) -> Iterator[Record]:
    """Yield the records in the uncompressed `data` of a batch, in order.

    count: number of records in the batch header. append_time: timestamp of all records with log append time. Raises
    CorruptRecord, possibly after some records, if the bytes are not exactly that number of records.
    """
    data = bytes(data)  # key and value are slices of it
    position, size = 0, len(data)
    for index in range(count):
        try:
            record, position = record_at(data, position, base_offset, base_timestamp, append_time)
        except (CorruptRecord, IndexError) as error:
            raise unreadable(index, count, base_offset, error) from error
        yield record
    if position != size:
        raise left_over(size - position, count, base_offset)


def record_list(
    data: Buffer, count: int, base_offset: int, base_timestamp: int, append_time: Millis | None = None
) -> list[Record]:
    """Return the records as a list. Arguments and errors are those of `decode_records`."""
    return list(decode_records(data, count, base_offset, base_timestamp, append_time))


def located_records(
    data: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: Millis | None,
    first: int,
    kind: type[Located],
    topic: str,
    partition: int,
    timestamp_type: TimestampType,
    leader_epoch: LeaderEpoch,
) -> list[Located]:
    """Return the records from offset `first` on as instances of `kind`. Other arguments and errors are those of
    `decode_records`."""
    records = decode_records(data, count, base_offset, base_timestamp, append_time)
    return [
        located(kind, topic, partition, record, timestamp_type, leader_epoch)
        for record in records
        if record.offset >= first
    ]


def located(
    kind: type[Located],
    topic: str,
    partition: int,
    record: Record,
    timestamp_type: TimestampType,
    leader_epoch: LeaderEpoch,
) -> Located:
    """Return a record as an instance of `kind`; see `located_records`."""
    offset, timestamp, key, value, headers = record
    time = timestamp_or_none(timestamp)
    return tuple.__new__(kind, (topic, partition, offset, time, key, value, headers, timestamp_type, leader_epoch))


def record_at(
    data: bytes, position: int, base_offset: int, base_timestamp: int, append_time: Millis | None
) -> tuple[Record, int]:
    """Return the record whose length is at `position`: (record, end position). Raises CorruptRecord, or IndexError if
    the data ends within it."""
    length, start = read_varint(data, position)
    end = start + length
    if length < 0 or end > len(data):
        raise CorruptRecord(f"it claims {length} bytes, {len(data) - start} are left")
    record, at = _read_record(data, start, base_offset, base_timestamp, append_time)
    if at != end:
        raise CorruptRecord("its fields do not fill its length")
    return record, end


def unreadable(index: int, count: int, base_offset: int, error: CorruptRecord | IndexError) -> CorruptRecord:
    """Return the error for an invalid record: its index in the batch, and the reason."""
    reason = str(error) if isinstance(error, CorruptRecord) else "the data ends within it"
    return CorruptRecord(
        f"record {index + 1} of {count} in the batch at offset {base_offset} cannot be read: {reason}; "
        "it is corrupt or was written by a faulty producer"
    )


def left_over(size: int, count: int, base_offset: int) -> CorruptRecord:
    """Return the error for bytes after the last record."""
    return CorruptRecord(
        f"the batch at offset {base_offset} declares {count} records, but {size} bytes follow the last: "
        "it is corrupt or was written by a faulty producer"
    )


def _read_record(
    data: bytes, at: int, base_offset: int, base_timestamp: int, append_time: Millis | None
) -> tuple[Record, int]:
    """Read the record whose attributes byte is at `at` (Kafka defines no bit of it): (record, end position).

    Numbers of one byte, the most frequent, are decoded inline: a call for each would double the time.
    """
    timestamp_delta, at = read_varlong(data, at + 1) if data[at + 1] > 0x7F else (UNFOLDED[data[at + 1]], at + 2)
    offset_delta, at = read_varint(data, at) if data[at] > 0x7F else (UNFOLDED[data[at]], at + 1)
    key_length, at = read_varint(data, at) if data[at] > 0x7F else (UNFOLDED[data[at]], at + 1)
    key = _null(key_length) if key_length < 0 else data[at : at + key_length]
    if key_length > 0:
        at += key_length
    value_length, at = read_varint(data, at) if data[at] > 0x7F else (UNFOLDED[data[at]], at + 1)
    value = _null(value_length) if value_length < 0 else data[at : at + value_length]
    if value_length > 0:
        at += value_length
    headers: tuple[Header, ...] = ()
    if data[at] == 0:
        at += 1
    else:
        headers, at = _read_headers(data, at)
    timestamp = append_time if append_time is not None else base_timestamp + timestamp_delta
    offset = base_offset + offset_delta
    if not (INT64_MIN <= timestamp <= INT64_MAX and INT64_MIN <= offset <= INT64_MAX):
        raise CorruptRecord("its offset or timestamp exceeds 64 bits")
    return tuple.__new__(Record, (offset, timestamp, key, value, headers)), at


def _null(length: int) -> bytes | None:
    """Return None for the length -1 (null). Raises CorruptRecord for other negative lengths."""
    if length != -1:
        raise CorruptRecord(f"the length {length} is invalid")
    return None


def _read_headers(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    count, position = read_varint(data, position)
    if count < 0:
        raise CorruptRecord(f"it claims {count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(data, position)
        if name is None:
            raise CorruptRecord("a header key is null")
        value, position = _read_bytes(data, position)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """Read a length and that number of bytes. A slice beyond the data's end is detected by the record's end check."""
    length, position = read_varint(data, position)
    if length < 0:
        return _null(length), position
    end = position + length
    return data[position:end], end
