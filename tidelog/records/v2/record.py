"""A record, and how v2 writes it: the pure-Python reference that compiled twins are tested against.

    length: varint | attributes: int8 | timestamp delta: varlong | offset delta: varint
    | key length: varint, -1 is null | key | value length: varint, -1 is null | value
    | header count: varint | per header: key length, key (UTF-8), value length (-1 is null), value

Kept true: a record decodes to the fields it was encoded from; bytes that are no record raise CorruptRecord and nothing
else.
Left to others: compression and the batch header (batch.py, builder.py), rules about content (validation).
Source: KIP-98 and KIP-82; Kafka's DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from tidelog.errors import CorruptRecord, InvalidRecord, RecordTooLarge
from tidelog.records.v2.varint import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    UNFOLDED,
    encode_varint,
    read_varint,
    read_varlong,
)
from tidelog.types import Millis, Offset

Header: TypeAlias = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record as a reader gets it.

    `timestamp` is in milliseconds since 1970, -1 where there is none. Header keys that are not UTF-8 keep their bytes
    as surrogate escapes (PEP 383), so that writing the record again gives the same bytes.
    """

    offset: Offset
    timestamp: Millis
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Iterable[Header] = ()
) -> bytes:
    """The bytes of one record, its length included. Deltas are against the batch's base offset and base timestamp.

    Raises InvalidRecord for a header key that UTF-8 cannot write, RecordTooLarge beyond 2 GiB.
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
        raise RecordTooLarge(f"a record of {len(body)} bytes does not fit the format's 2 GiB: send it in pieces")
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
    """The bytes of a header's name. Raises InvalidRecord where UTF-8 cannot write it."""
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InvalidRecord(f"the header key {name!r} cannot be written as UTF-8: give it another name") from error


def decode_records(
    data: bytes, count: int, base_offset: int, base_timestamp: int, append_time: Millis | None = None
) -> Iterator[Record]:
    """The records in the uncompressed `data` of a batch, in order.

    count: how many the batch header declares. append_time: the timestamp of all of them, where the broker's clock
    counts instead of their own. Raises CorruptRecord, possibly after some records, where the bytes are not exactly that
    many records.
    """
    position, size = 0, len(data)
    for index in range(count):
        try:
            record, position = record_at(data, position, base_offset, base_timestamp, append_time)
        except (CorruptRecord, IndexError) as error:
            raise unreadable(index, count, base_offset, error) from error
        yield record
    if position != size:
        raise left_over(size - position, count, base_offset)


def record_at(
    data: bytes, position: int, base_offset: int, base_timestamp: int, append_time: Millis | None
) -> tuple[Record, int]:
    """The record that begins with its length at `position`: (record, position behind it). Raises CorruptRecord, or
    IndexError where the data end inside it."""
    length, start = read_varint(data, position)
    end = start + length
    if length < 0 or end > len(data):
        raise CorruptRecord(f"it claims {length} bytes, {len(data) - start} are left")
    record, at = _read_record(data, start, base_offset, base_timestamp, append_time)
    if at != end:
        raise CorruptRecord("its fields do not fill its length")
    return record, end


def unreadable(index: int, count: int, base_offset: int, error: CorruptRecord | IndexError) -> CorruptRecord:
    """The error for bytes that are no record: which one of the batch, and why."""
    reason = str(error) if isinstance(error, CorruptRecord) else "the data end inside it"
    return CorruptRecord(
        f"record {index + 1} of {count} in the batch at offset {base_offset} cannot be read: {reason}; "
        "it was damaged or written by a faulty producer"
    )


def left_over(size: int, count: int, base_offset: int) -> CorruptRecord:
    """The error for bytes behind the last record."""
    return CorruptRecord(
        f"the batch at offset {base_offset} declares {count} records, but {size} bytes follow the last: "
        "it was damaged or written by a faulty producer"
    )


def _read_record(
    data: bytes, at: int, base_offset: int, base_timestamp: int, append_time: Millis | None
) -> tuple[Record, int]:
    """The record whose attributes byte is at `at` (Kafka defines no bit of it): (record, position behind its fields).

    Numbers of one byte, which most are, are read in place: a call for each would double the time.
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
    """What a negative length stands for: -1 for null, others for damage."""
    if length != -1:
        raise CorruptRecord(f"a length of {length} means nothing")
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
    """A length and that many bytes. A slice that the data's end cuts short is caught by the record's end check."""
    length, position = read_varint(data, position)
    if length < 0:
        return _null(length), position
    end = position + length
    return data[position:end], end
