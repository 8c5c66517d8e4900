"""Committed batches to Arrow: only the columns of the query are built, without an object per record.

Invariants: every record with an offset in the range appears once, in order, control records never; each Arrow batch has
exactly the schema's types.
Not here: fetching (reading.py), the rows and their columns (tidelog/records/arrow_columns.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from tidelog.records import RecordBatch
from tidelog.records.arrow_columns import TableBuilder
from tidelog.spark.ranges.planning import OffsetRange

ROWS_PER_BATCH: Final = 10_000
"""Rows of one Arrow batch: 2,000 to 50,000 cost Spark the least per row."""
ROWS_PER_BATCH_MAX: Final = 50_000
"""Most rows of one Arrow batch: a record batch with more of them is split."""
BYTES_PER_BATCH: Final = 32 << 20
"""Bytes of keys and values after which an Arrow batch is closed early, so that large records keep memory bounded."""


class ColumnBuilder:
    """Gathers records until they fill an Arrow batch."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._table = TableBuilder(columns)

    def add(self, within: OffsetRange, batch: RecordBatch) -> bool:
        """Decode what a batch has of this range; one that is rejected leaves no row behind. Returns whether an Arrow
        batch is full.

        Raises CorruptRecord if it fails its checksum or structure, RecordTooLarge, UnsupportedCompressionType.
        """
        key = within.topic_partition
        self._table.add(key.topic, key.partition, batch, start=within.start, end=within.end)
        return self._table.rows >= ROWS_PER_BATCH or self._table.size >= BYTES_PER_BATCH

    def take(self) -> Iterator[pa.RecordBatch]:
        """The rows gathered so far, as Arrow batches of at most ROWS_PER_BATCH_MAX rows; none if there are no rows."""
        whole = self._table.take()
        for first in range(0, whole.num_rows, ROWS_PER_BATCH_MAX):
            yield whole.slice(first, ROWS_PER_BATCH_MAX)
