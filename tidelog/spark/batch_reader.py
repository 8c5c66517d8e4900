"""The reader of a batch query, as Spark calls it: plans on the driver, reads in tasks.

It is pickled to the executors: it carries options and columns only, and opens its connections there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidelog.spark.options.batch_options import BatchOptions
from tidelog.spark.planning import OffsetRange
from tidelog.spark.range_batches import range_batches
from tidelog.spark.resolving import resolve


class TidelogReader(DataSourceReader):
    """Plans the ranges on the driver; reads one range per task on the executors."""

    def __init__(self, options: BatchOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """One range per task. Spark calls it once, on the driver."""
        return asyncio.run(resolve(self._options))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The range's records as Arrow batches. A query without ranges is called once, with None, and reads nothing."""
        if not isinstance(partition, OffsetRange):
            return
        query = self._options.query
        yield from range_batches(query.connection, self._columns, partition, fetch_bytes=query.fetch_bytes)
