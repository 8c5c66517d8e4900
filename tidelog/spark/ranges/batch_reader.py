"""The reader of a batch query, as Spark calls it: plans on the driver, reads in tasks.

It is pickled to the executors: it carries options and columns only, and opens its connections there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from tidelog.spark.options.batch_options import BatchOptions
from tidelog.spark.ranges.planning import TaskRanges
from tidelog.spark.ranges.range_batches import range_batches
from tidelog.spark.ranges.range_filter import RangeFilter, push_filters
from tidelog.spark.ranges.resolving import resolve

_PUSHES_FILTERS: Final = "data_source_pushdown_filters"
"""The module of PySpark that asks a reader which filters it takes."""


def batch_reader(options: BatchOptions, columns: tuple[str, ...]) -> DataSourceReader:
    """The reader for this session. Spark pushes filters only where `spark.sql.python.filterPushdown.enabled` is true,
    and then asks a process of its own for the reader; in any other session, one that takes filters fails the query."""
    kind = FilteringReader if any(_PUSHES_FILTERS in argument for argument in sys.argv[:2]) else TidelogReader
    return kind(options, columns)


class TidelogReader(DataSourceReader):
    """Plans the tasks on the driver; reads their ranges on the executors."""

    def __init__(self, options: BatchOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        self._filter = RangeFilter()

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads. Spark calls it once, on the driver."""
        return asyncio.run(resolve(self._options, self._filter))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The records of a task as Arrow batches. A query without tasks is read once, with None: nothing."""
        if not isinstance(partition, TaskRanges):
            return
        query = self._options.query
        yield from range_batches(query.connection, self._columns, partition.ranges, fetch_bytes=query.fetch_bytes)


class FilteringReader(TidelogReader):
    """A reader whose ranges are narrowed by the conditions of the query."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what narrows the ranges; returns the conditions that Spark must still evaluate. Spark calls it once,
        before `partitions`."""
        self._filter, remaining = push_filters(filters)
        return remaining
