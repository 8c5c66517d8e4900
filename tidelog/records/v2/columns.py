"""Records as Arrow columns: their types, and the pure-Python reference that gathers them.

    key, value      binary
    offset          int64
    timestamp       timestamp[ms, UTC]
    timestampType   int32, as `TimestampType`
    headers         list of struct<key: string, value: binary>; null for a record without headers

Invariants: a rejected payload leaves no row behind. Header keys that are not UTF-8 get replacement characters, because
Arrow strings must be UTF-8. pyarrow is imported when the first column is created.
Not here: batches, offsets and aborted transactions (arrow_columns.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

from tidelog.errors import InvalidRequest, RecordTooLarge
from tidelog.records.v2.record import Header, Record, decode_records
from tidelog.types import INT32_MAX, Buffer, Millis, Offset

NAMES: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
COLUMN_BYTES_MAX: Final = INT32_MAX // 3
"""Arrow counts a column's bytes in 32 bits, and a byte of a corrupt header key may become three."""


@cache
def arrow_type(name: str) -> Any:
    """Return the Arrow type of a column."""
    import pyarrow as pa

    match name:
        case "offset":
            return pa.int64()
        case "timestamp":
            return pa.timestamp("ms", tz="UTC")
        case "timestampType":
            return pa.int32()
        case "headers":
            return pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
        case _:
            return pa.binary()


def checked_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names if all are columns. Raises InvalidRequest."""
    names = tuple(names)
    for name in names:
        if name not in NAMES:
            raise InvalidRequest(f"unknown record column {name!r}; valid columns: {', '.join(NAMES)}")
    return names


def too_much(more: int, buffered: int) -> RecordTooLarge:
    """Return the error for bytes beyond a column's capacity."""
    return RecordTooLarge(f"{more} more bytes do not fit into columns that contain {buffered} bytes: take them first")


def headers_of_messages() -> InvalidRequest:
    """Return the error for single records with headers."""
    return InvalidRequest("single records with headers are not supported: messages of v0 and v1 have none")


_Row = tuple[Record, int]


class ColumnsBuffer:
    """Collects the requested columns of records. rows: number of records. size: bytes of the requested keys, values and
    headers."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = checked_names(names)
        self._rows: list[_Row] = []
        self.size = 0

    @property
    def rows(self) -> int:
        return len(self._rows)

    def expect(self, size: int) -> None:
        """Announce records of about `size` bytes: compiled code allocates memory for them at once."""

    def add(
        self,
        data: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: Millis | None,
        timestamp_type: int,
        first: int,
        behind: int,
    ) -> None:
        """Add the records of a v2 batch with offsets from `first` to below `behind`; the other arguments as for
        `decode_records`.

        Raises CorruptRecord if the bytes are not exactly that number of records, RecordTooLarge if the columns are
        full.
        """
        if len(data) > COLUMN_BYTES_MAX - self.size:
            raise too_much(len(data), self.size)
        rows = [
            (record, timestamp_type)
            for record in decode_records(data, count, base_offset, base_timestamp, append_time)
            if first <= record.offset < behind
        ]
        self._rows += rows
        self.size += sum(self._size(record) for record, _ in rows)

    def append(
        self,
        offset: Offset,
        timestamp: Millis,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...],
        timestamp_type: int,
    ) -> None:
        """Add one record of v0 or v1. Raises RecordTooLarge as `add`, InvalidRequest for headers."""
        if headers:
            raise headers_of_messages()
        size = len(key or b"") + len(value or b"")
        if size > COLUMN_BYTES_MAX - self.size:
            raise too_much(size, self.size)
        record = Record(offset, timestamp, key, value)
        self._rows.append((record, timestamp_type))
        self.size += self._size(record)

    def take(self) -> dict[str, Any]:
        """Return the columns by name as Arrow arrays, and start again with empty columns."""
        import pyarrow as pa

        rows, self._rows, self.size = self._rows, [], 0
        return {name: pa.array([_CELL[name](row) for row in rows], type=arrow_type(name)) for name in self.names}

    def _size(self, record: Record) -> int:
        size = 0
        if "key" in self.names:
            size += len(record.key or b"")
        if "value" in self.names:
            size += len(record.value or b"")
        if "headers" in self.names:
            size += sum(len(_text(name).encode()) + len(value or b"") for name, value in record.headers)
        return size


def _text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_CELL: Final[dict[str, Callable[[_Row], Any]]] = {
    "key": lambda row: row[0].key,
    "value": lambda row: row[0].value,
    "offset": lambda row: row[0].offset,
    "timestamp": lambda row: row[0].timestamp,
    "timestampType": lambda row: row[1],
    "headers": lambda row: [{"key": _text(name), "value": value} for name, value in row[0].headers] or None,
}
