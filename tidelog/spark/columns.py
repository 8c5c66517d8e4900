"""Committed bytes to Arrow: only the columns that the query asks for are built.

Kept true: every record with an offset in the range appears once, in order, control records never; each Arrow batch has
exactly the schema's types. Left to others: fetching (reading.py), what is committed (the node).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from tidelog._wire import Buffer
from tidelog.records import Record, iter_batches
from tidelog.spark.planning import OffsetRange
from tidelog.spark.schema import arrow_schema

ROWS_PER_BATCH: Final = 10_000
"""Rows of one Arrow batch: 2,000 to 50,000 cost Spark the least per row."""
BYTES_PER_BATCH: Final = 32 << 20
"""Bytes of keys and values after which an Arrow batch is closed early, so that large records keep memory bounded."""

_PER_RECORD: Final[dict[str, Callable[[Record], Any]]] = {
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp * 1000,
    "headers": lambda record: [{"key": name, "value": value} for name, value in record.headers] or None,
}


class ColumnBuilder:
    """Gathers records of one range until they fill an Arrow batch."""

    def __init__(self, within: OffsetRange, columns: tuple[str, ...]) -> None:
        self._range = within
        self._schema = arrow_schema(columns)
        self._columns = columns
        self._rows: list[Record] = []
        self._types: list[int] = []
        self._bytes = 0

    def add(self, records: Buffer) -> Iterator[pa.RecordBatch]:
        """Take a buffer of whole batches; yields Arrow batches as they fill.

        Raises CorruptRecord where a batch fails its checksum or structure.
        """
        start, end = self._range.start, self._range.end
        for batch in iter_batches(records):
            batch.ensure_valid()
            if batch.is_control or batch.last_offset < start or batch.base_offset >= end:
                continue
            timestamp_type = int(batch.timestamp_type)
            for record in batch.records():
                if not start <= record.offset < end:
                    continue
                self._rows.append(record)
                self._types.append(timestamp_type)
                self._bytes += len(record.key or b"") + len(record.value or b"")
                if len(self._rows) >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH:
                    yield self._take()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What is left."""
        if self._rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        arrays = [pa.array(self._column(name), type=self._schema.field(name).type) for name in self._columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._rows, self._types, self._bytes = [], [], 0
        return batch

    def _column(self, name: str) -> Iterable[Any]:
        match name:
            case "topic":
                return [self._range.topic_partition.topic] * len(self._rows)
            case "partition":
                return [int(self._range.topic_partition.partition)] * len(self._rows)
            case "timestampType":
                return self._types
            case _:
                return map(_PER_RECORD[name], self._rows)
