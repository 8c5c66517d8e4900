"""The reader of a batch query, as Spark calls it: plans on the driver, reads in tasks.

It is pickled to the executors: it carries options and columns only, and opens its connections there.

Spark 4.2 and 4.3 plan a loaded frame once, at its first action, and use that plan again for all that is made of the
frame: self-joins, unions, caches, views (PythonDataSourceV2.getOrCreateReadInfo). So the reader has no `pushFilters`:
conditions of one use would narrow another one, and Spark does not evaluate again what a reader has taken. Options
narrow what is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark.options.query_options import BatchOptions
from tidelog.spark.ranges.range_batches import range_batches
from tidelog.spark.ranges.resolving import resolve


class TidelogReader(DataSourceReader):
    """Plans the tasks on the driver; reads their ranges on the executors."""

    def __init__(self, options: BatchOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads. Spark calls it on the driver: once for a loaded frame."""
        return asyncio.run(resolve(self._options))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The records of a task as Arrow batches."""
        return range_batches(self._options.query, self._columns, partition)
