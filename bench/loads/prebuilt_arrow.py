"""A Python data source that yields Arrow batches which exist already: the raw limit of any Python source in Spark.

Each task builds one batch of the columns that the query names, with values of the size of the topic's, and yields it
again and again. What it takes is what Spark takes for these rows, with nothing read and nothing decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

ROWS_PER_BATCH: Final = 10_000
"""As many as Tidelog's source puts into one."""
COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
)
"""Those of Spark's Kafka source."""


class PrebuiltDataSource(DataSource):
    """Options: `rows`, `partitions` (tasks), `valueBytes`."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "prebuilt"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        options: Any = self.options  # upper and lower case do not count in it
        return PrebuiltReader(
            schema.fieldNames(), *(int(options[name]) for name in ("rows", "partitions", "valueBytes"))
        )


class PrebuiltReader(DataSourceReader):
    def __init__(self, columns: list[str], rows: int, partitions: int, value_bytes: int) -> None:
        self._columns, self._rows, self._partitions, self._value_bytes = columns, rows, partitions, value_bytes

    def partitions(self) -> list[InputPartition]:
        """As many tasks with equal numbers of rows."""
        ends = [self._rows * number // self._partitions for number in range(self._partitions + 1)]
        return [InputPartition(end - start) for start, end in pairwise(ends)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        batch = batch_of(self._columns, self._value_bytes)
        for _ in range(partition.value // ROWS_PER_BATCH):
            yield batch
        if rest := partition.value % ROWS_PER_BATCH:
            yield batch.slice(0, rest)


def batch_of(columns: list[str], value_bytes: int) -> pa.RecordBatch:
    """ROWS_PER_BATCH rows of these columns, without keys."""
    numbers = range(ROWS_PER_BATCH)
    made: dict[str, Callable[[], Any]] = {
        "key": lambda: pa.nulls(ROWS_PER_BATCH, pa.binary()),
        "value": lambda: pa.array([b"%0*d" % (value_bytes, number) for number in numbers], pa.binary()),
        "topic": lambda: pa.array(["prebuilt"] * ROWS_PER_BATCH, pa.string()),
        "partition": lambda: pa.array([0] * ROWS_PER_BATCH, pa.int32()),
        "offset": lambda: pa.array(numbers, pa.int64()),
        "timestamp": lambda: pa.array([1_700_000_000_000_000] * ROWS_PER_BATCH, pa.timestamp("us", tz="UTC")),
        "timestampType": lambda: pa.array([0] * ROWS_PER_BATCH, pa.int32()),
    }
    return pa.record_batch([made[name]() for name in columns], names=columns)
