"""Converts batches to Arrow columns and back; with the compiled code no Python object is created per record.

Invariants: each record with an offset in the range appears once, in order. Control records never appear.
Not here: the columns (columns.py, _columns.pyx), aborted transactions (client/read_committed.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import InvalidRecord, InvalidRequest, InvalidTimestamp
from tidelog.records.batches import view
from tidelog.records.v2 import columns as reference
from tidelog.records.v2.batch import TIMESTAMP_TYPE_BIT, RecordBatch
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.records.v2.fast_paths import is_pure_python_requested
from tidelog.records.v2.header import walk_headers
from tidelog.types import INT64_MAX, NO_TIMESTAMP, Buffer

if TYPE_CHECKING:
    from tidelog.records.v2.columns import ColumnsBuffer

    list_column: Any
else:
    try:
        if is_pure_python_requested():
            raise ImportError
        from tidelog.records.v2._columns import ColumnsBuffer
        from tidelog.records.v2._writer import list_column
    except ImportError:
        from tidelog.records.v2.columns import ColumnsBuffer

        list_column = None


TABLE_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns of a table of records: those of Spark's Kafka source."""
TIMESTAMP_MS: Final = "timestampMs"
"""A further column, which a caller has to name: the timestamp as it is in the log, in milliseconds. -1: none."""
TIMESTAMP_BELOW_MS: Final = 253_402_214_400_000
"""9999-12-31. Times from here on are null in the column `timestamp`: Python's datetime has none from the year 10000 on
in any time zone, and microseconds of 64 bits end in the year 294247."""
TIMESTAMP_FROM_MS: Final = -62_135_510_400_000
"""0001-01-02: the same for times before it."""


@cache
def table_type(name: str) -> Any:
    """Return the Arrow type of a column of a table: as in columns.py, but timestamps in microseconds, as in Spark."""
    import pyarrow as pa

    match name:
        case "topic":
            return pa.string()
        case "partition":
            return pa.int32()
        case "timestamp":
            return pa.timestamp("us", tz="UTC")
        case "timestampMs":
            return pa.int64()
        case _:
            return reference.arrow_type(name)


def table_schema(columns: Iterable[str] = TABLE_COLUMNS) -> Any:
    """Return the Arrow schema of these columns, all nullable, as Spark requires.

    Raises InvalidRequest for an unknown column, or if pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError as cause:
        raise InvalidRequest("Arrow batches need pyarrow: pip install 'tidelog[arrow]'") from cause
    columns = tuple(columns)
    for name in columns:
        if name not in TABLE_COLUMNS and name != TIMESTAMP_MS:
            raise InvalidRequest(f"unknown column {name!r}; valid columns: {', '.join(TABLE_COLUMNS)}, {TIMESTAMP_MS}")
    return pa.schema([pa.field(name, table_type(name)) for name in columns])


class ColumnDecoder:
    """Collects columns of the records with offsets from `start` to below `end`, over any number of batches. Both bounds
    may be changed between two of them.

    columns: names as in columns.py; only these are built. check_crcs: False if the checksums were already verified.
    """

    def __init__(self, columns: Iterable[str] = reference.NAMES, *, check_crcs: bool = True) -> None:
        self._buffer = ColumnsBuffer(columns)
        self.start, self.end = 0, INT64_MAX
        self._check_crcs = check_crcs

    @property
    def rows(self) -> int:
        """Number of collected records."""
        return self._buffer.rows

    @property
    def size(self) -> int:
        """Bytes of their keys, values and headers, as far as these columns are requested."""
        return self._buffer.size

    def expect(self, size: int) -> None:
        """Announce batches of about `size` bytes: memory is allocated for them at once."""
        self._buffer.expect(size)

    def add(self, buffer: Buffer) -> None:
        """Add the batches of any format in the buffer; a partial batch at the end is ignored.

        Raises CorruptRecord, RecordTooLarge, UnsupportedCompressionType; earlier batches stay collected.
        """
        self._buffer.expect(len(buffer))
        for header in walk_headers(buffer):
            self.add_batch(view(buffer, header))

    def add_batch(self, batch: RecordBatch) -> None:
        """Add one batch. Raises as `add`."""
        header = batch.header
        if self._check_crcs:
            batch.ensure_valid()
        if batch.is_control or header.base_offset + header.last_offset_delta < self.start:
            return
        if header.magic == 2:
            if header.base_offset < self.end:
                stamped = header.attributes & TIMESTAMP_TYPE_BIT
                self._buffer.add(
                    batch.payload(),
                    header.record_count,
                    header.base_offset,
                    header.base_timestamp,
                    header.max_timestamp if stamped else None,
                    stamped >> 3,
                    self.start,
                    self.end,
                )
            return
        timestamp_type = int(batch.timestamp_type)
        for offset, timestamp, key, value, headers in list(batch.records()):
            if self.start <= offset < self.end:
                self._buffer.append(offset, timestamp, key, value, headers, timestamp_type)

    def take(self) -> dict[str, Any]:
        """Return the collected columns as Arrow arrays, by name, and start again with empty columns."""
        return self._buffer.take()


_DECODED: Final = {"topic": "", "partition": "", TIMESTAMP_MS: "timestamp"}
"""The decoded column from which that of a table is made, if it has another name; "": none."""


class TableBuilder:
    """Collects records of any number of partitions as rows of one Arrow record batch.

    columns: of TABLE_COLUMNS and TIMESTAMP_MS, in the order of the result; only these are built. check_crcs: as in
    ColumnDecoder. Raises InvalidRequest as `table_schema`.
    """

    def __init__(self, columns: Iterable[str] = TABLE_COLUMNS, *, check_crcs: bool = True) -> None:
        self._schema = table_schema(columns)
        # With only topic and partition in the schema, the offset column still gives the number of rows.
        decoded = {_DECODED.get(name, name) for name in self._schema.names} - {""} | {"offset"}
        self._decoder = ColumnDecoder(sorted(decoded), check_crcs=check_crcs)
        self._runs: list[tuple[str, int, int]] = []
        """Topic, partition and number of rows, in the order of the rows."""
        self._constants: dict[str, tuple[str | int, Any]] = {}
        """By column: the value that it had last, and that value again and again."""

    @property
    def rows(self) -> int:
        """Number of collected records."""
        return self._decoder.rows

    @property
    def size(self) -> int:
        """Bytes of their keys, values and headers, as far as these columns are requested."""
        return self._decoder.size

    def expect(self, size: int) -> None:
        """Announce batches of about `size` bytes: memory is allocated for them at once."""
        self._decoder.expect(size)

    def add(self, topic: str, partition: int, batch: RecordBatch, *, start: int = 0, end: int = INT64_MAX) -> None:
        """Add the records of a batch with offsets from `start` to below `end`; a rejected batch leaves no row behind.

        Raises CorruptRecord, RecordTooLarge, UnsupportedCompressionType.
        """
        before = self._decoder.rows
        self._decoder.start, self._decoder.end = start, end
        self._decoder.add_batch(batch)
        added = self._decoder.rows - before
        if not added:
            return
        if self._runs and self._runs[-1][:2] == (topic, partition):
            added += self._runs.pop()[2]
        self._runs.append((topic, partition, added))

    def take(self) -> Any:
        """Return the collected rows as a pyarrow.RecordBatch, and start again without rows."""
        import pyarrow as pa

        found, runs = self._decoder.take(), self._runs
        self._runs = []
        return pa.RecordBatch.from_arrays(
            [self._column(name, runs, found) for name in self._schema.names], schema=self._schema
        )

    def _column(self, name: str, runs: list[tuple[str, int, int]], found: dict[str, Any]) -> Any:
        match name:
            case "topic":
                return self._repeated(name, [(topic, rows) for topic, _, rows in runs])
            case "partition":
                return self._repeated(name, [(partition, rows) for _, partition, rows in runs])
            case "timestamp":
                return _representable(found[name]).cast(table_type(name))
            case "timestampMs":
                return found["timestamp"].view(table_type(name))
            case _:
                return found[name]

    def _repeated(self, name: str, runs: list[tuple[Any, int]]) -> Any:
        import pyarrow as pa

        parts = [self._constant(name, value, rows) for value, rows in runs]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else pa.array([], table_type(name))

    def _constant(self, name: str, value: str | int, rows: int) -> Any:
        """So many times this value. The next batch mostly has the same one: its column is a slice of this one's."""
        import pyarrow as pa

        kept, column = self._constants.get(name, (None, ()))
        if kept != value or len(column) < rows:
            column = pa.repeat(pa.scalar(value, table_type(name)), 1 << (rows - 1).bit_length())
            self._constants[name] = value, column
        return column[:rows]


def _representable(times: Any) -> Any:
    """The timestamps, null where there is none or where it is outside the years of the column `timestamp`."""
    pc: Any = import_module("pyarrow.compute")
    numbers = times.view(table_type(TIMESTAMP_MS))
    bounds = pc.min_max(numbers)
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    if least is None or (least >= 0 and most < TIMESTAMP_BELOW_MS):
        return times
    is_held = pc.and_(pc.greater_equal(numbers, TIMESTAMP_FROM_MS), pc.less(numbers, TIMESTAMP_BELOW_MS))
    return pc.if_else(pc.and_(is_held, pc.not_equal(numbers, NO_TIMESTAMP)), times, None)


def encode_columns(
    builder: RecordBatchBuilder, *, timestamp: Any, key: Any = None, value: Any = None, headers: Any = None
) -> None:
    """Append rows of Arrow columns to a batch. The columns are arrays or chunked arrays of equal length.

    key, value: binary or string of any width, None for all null. timestamp: int64 milliseconds, or a timestamp of any
    unit; null for none. headers: as in columns.py.
    Raises InvalidRecord for wrong types or lengths and for a header without a key, InvalidTimestamp, RecordTooLarge;
    rows before the rejected one stay appended.
    """
    times = _milliseconds(timestamp)
    count = len(times)
    keys, values = _binary(key, count, "key"), _binary(value, count, "value")
    if headers is not None and len(headers) != count:
        raise _uneven("headers", len(headers), count)
    add = getattr(builder.records, "extend_columns", None)
    if add is not None and (headers is None or headers.null_count == count):
        add(count, _buffers(keys), _buffers(values), times.buffers()[1], times.offset)
        return
    rows = [()] * count if headers is None else [_headers(row) for row in headers.to_pylist()]
    nulls = [None] * count
    builder.extend(
        zip(
            nulls if keys is None else keys.to_pylist(),
            nulls if values is None else values.to_pylist(),
            times.to_pylist(),
            rows,
            strict=True,
        )
    )


def binary_list(column: Any, what: str) -> list[bytes | None]:
    """Return the values of a binary column, an array or a chunked array, in order. Raises as `encode_columns`."""
    found: list[bytes | None] = []
    for chunk in _chunks(column):
        binary = _binary(chunk, len(chunk), what)
        found += list_column(len(chunk), _buffers(binary)) if list_column is not None else binary.to_pylist()
    return found


def millisecond_list(column: Any) -> list[int | None]:
    """Return the timestamps of a column, an array or a chunked array, in milliseconds. Raises as `encode_columns`."""
    found: list[int | None] = []
    for chunk in _chunks(column):
        times = _milliseconds(chunk)
        numbers = memoryview(times.buffers()[1] or b"").cast("B").cast("q")[times.offset : times.offset + len(times)]
        if chunk.null_count:
            found += [
                time if valid else None for time, valid in zip(numbers, chunk.is_valid().to_pylist(), strict=True)
            ]
        else:
            found += numbers.tolist()
    return found


def header_list(column: Any) -> list[tuple[tuple[str, bytes | None], ...]]:
    """Return the headers of each row of a column. Raises InvalidRecord for another type and a header without a key."""
    import pyarrow as pa

    try:
        return [_headers(row) for row in column.cast(reference.arrow_type("headers")).to_pylist()]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRecord(f"the column headers is {column.type}: use list<struct<key, value>>") from error


def _chunks(column: Any) -> list[Any]:
    import pyarrow as pa

    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _headers(row: list[dict[str, Any] | None] | None) -> tuple[tuple[str, bytes | None], ...]:
    pairs = []
    for pair in row or ():
        if pair is None or pair["key"] is None:
            raise InvalidRecord("a header has no key: give it a key, or remove it")
        pairs.append((pair["key"], pair["value"]))
    return tuple(pairs)


def _joined(column: Any) -> Any:
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _uneven(what: str, length: int, count: int) -> InvalidRecord:
    return InvalidRecord(f"the column {what} has {length} rows, the column timestamp {count}: use equal lengths")


def _binary(column: Any, count: int, what: str) -> Any:
    import pyarrow as pa

    if column is None:
        return None
    if len(column) != count:
        raise _uneven(what, len(column), count)
    column = _joined(column)
    kind = column.type
    if not pa.types.is_binary(kind):
        if not (
            pa.types.is_string(kind)
            or pa.types.is_large_binary(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_fixed_size_binary(kind)
            or pa.types.is_binary_view(kind)
            or pa.types.is_string_view(kind)
            or pa.types.is_null(kind)
        ):
            raise InvalidRecord(f"the column {what} is {kind}: records contain bytes; cast it to binary")
        try:
            column = column.cast(pa.binary())
        except pa.ArrowInvalid as error:
            raise InvalidRecord(f"the column {what} does not fit one batch: {error}") from error
    return column


def _milliseconds(column: Any) -> Any:
    import pyarrow as pa

    column = _joined(column)
    try:
        if pa.types.is_timestamp(column.type):
            if column.type.unit != "ms":
                column = column.cast(pa.timestamp("ms"), safe=False)
            column = column.view(pa.int64())
        elif not pa.types.is_integer(column.type):
            raise InvalidTimestamp(f"the column timestamp is {column.type}: use int64 milliseconds or timestamp")
        elif not pa.types.is_int64(column.type):
            column = column.cast(pa.int64())
        return column.fill_null(-1) if column.null_count else column
    except pa.ArrowInvalid as error:
        raise InvalidTimestamp(f"the column timestamp cannot be converted to milliseconds: {error}") from error


def _buffers(column: Any) -> tuple[Any, Any, Any, int] | None:
    """Return validity bits, ends and bytes of a binary column, and its first row."""
    if column is None:
        return None
    valid, ends, data = column.buffers()
    return valid, ends, b"" if data is None else data, column.offset
