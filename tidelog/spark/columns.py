"""Committed bytes to Arrow: only the columns that the query asks for are built, without an object per record.

Kept true: every record with an offset in the range appears once, in order, control records never; each Arrow batch has
exactly the schema's types. Left to others: fetching (reading.py), what is committed (the node), the bytes of a batch
(tidelog/records/arrow_columns.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from tidelog.errors import InvalidTimestamp
from tidelog.protocol.wire import Buffer
from tidelog.records import iter_batches
from tidelog.records.arrow_columns import ColumnDecoder
from tidelog.spark.planning import OffsetRange
from tidelog.spark.schema import arrow_schema

ROWS_PER_BATCH: Final = 10_000
"""Rows of one Arrow batch: 2,000 to 50,000 cost Spark the least per row."""
ROWS_PER_BATCH_MAX: Final = 50_000
"""Where one record batch alone holds more, its rows are cut into pieces of so many."""
BYTES_PER_BATCH: Final = 32 << 20
"""Bytes of keys and values after which an Arrow batch is closed early, so that large records keep memory bounded."""


class ColumnBuilder:
    """Gathers records of one range until they fill an Arrow batch."""

    def __init__(self, within: OffsetRange, columns: tuple[str, ...]) -> None:
        self._range = within
        self._schema = arrow_schema(columns)
        # The offset says how many rows there are where only topic and partition are asked for.
        decoded = {name for name in columns if name not in ("topic", "partition")} | {"offset"}
        self._decoder = ColumnDecoder(sorted(decoded), start=within.start, end=within.end)

    def add(self, records: Buffer) -> Iterator[pa.RecordBatch]:
        """Take a buffer of whole batches; yields Arrow batches as they fill.

        Raises CorruptRecord where a batch fails its checksum or structure.
        """
        for batch in iter_batches(records):
            self._decoder.add_batch(batch)
            if self._decoder.rows >= ROWS_PER_BATCH or self._decoder.size >= BYTES_PER_BATCH:
                yield from self._take()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """What is left."""
        if self._decoder.rows:
            yield from self._take()

    def _take(self) -> Iterator[pa.RecordBatch]:
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
                        f"{self._range.topic_partition}: a timestamp lies too far away for microseconds: {error}"
                    ) from error
            case _:
                return found[name]
