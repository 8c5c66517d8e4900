"""Committed batches to Arrow: only the columns of the query are built, without an object per record.

Invariants: every record with an offset in the range appears once, in order, control records never; each Arrow batch has
exactly the schema's types.
Not here: fetching (reading.py), the bytes of a batch (tidelog/records/arrow_columns.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from tidelog.errors import InvalidTimestamp
from tidelog.records import RecordBatch
from tidelog.records.arrow_columns import ColumnDecoder
from tidelog.spark.planning import OffsetRange
from tidelog.spark.schema import arrow_schema

ROWS_PER_BATCH: Final = 10_000
"""Rows of one Arrow batch: 2,000 to 50,000 cost Spark the least per row."""
ROWS_PER_BATCH_MAX: Final = 50_000
"""Most rows of one Arrow batch: a record batch with more of them is split."""
BYTES_PER_BATCH: Final = 32 << 20
"""Bytes of keys and values after which an Arrow batch is closed early, so that large records keep memory bounded."""


class ColumnBuilder:
    """Gathers the records of one range until they fill an Arrow batch."""

    def __init__(self, within: OffsetRange, columns: tuple[str, ...]) -> None:
        self._range = within
        self._schema = arrow_schema(columns)
        # With only topic and partition in the schema, the offset column still gives the number of rows.
        decoded = {name for name in columns if name not in ("topic", "partition")} | {"offset"}
        self._decoder = ColumnDecoder(sorted(decoded), start=within.start, end=within.end)

    def add(self, batch: RecordBatch) -> bool:
        """Decode a batch; one that is rejected leaves no row behind. Returns whether an Arrow batch is full.

        Raises CorruptRecord if it fails its checksum or structure, RecordTooLarge, UnsupportedCompressionType.
        """
        self._decoder.add_batch(batch)
        return self._decoder.rows >= ROWS_PER_BATCH or self._decoder.size >= BYTES_PER_BATCH

    def take(self) -> Iterator[pa.RecordBatch]:
        """The rows gathered so far, as Arrow batches of at most ROWS_PER_BATCH_MAX rows; none if there are no rows.

        Raises InvalidTimestamp if a timestamp does not fit Spark's microseconds.
        """
        found = self._decoder.take()
        rows = len(found["offset"])
        arrays = [self._column(name, rows, found) for name in self._schema.names]
        whole = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        for first in range(0, rows, ROWS_PER_BATCH_MAX):
            yield whole.slice(first, ROWS_PER_BATCH_MAX)

    def _column(self, name: str, rows: int, found: dict[str, Any]) -> Any:
        kind = self._schema.field(name).type
        match name:
            case "topic":
                return pa.repeat(pa.scalar(self._range.topic_partition.topic, kind), rows)
            case "partition":
                return pa.repeat(pa.scalar(int(self._range.topic_partition.partition), kind), rows)
            case "timestamp":
                try:
                    return found[name].cast(kind)
                except pa.ArrowInvalid as error:
                    raise InvalidTimestamp(
                        f"{self._range.topic_partition}: a timestamp is outside the range of Spark's microseconds: "
                        f"{error}. Leave the column timestamp out of the schema to read the other columns"
                    ) from error
            case _:
                return found[name]
