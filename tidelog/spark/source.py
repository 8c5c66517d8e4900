"""The data source and its batch reader, as Spark calls them.

The reader is pickled to the executors: it carries options and columns only, and opens its connections there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from tidelog.errors import UnsupportedVersion
from tidelog.spark.column_builder import ColumnBuilder
from tidelog.spark.planning import OffsetRange
from tidelog.spark.reading import RangeReader
from tidelog.spark.resolving import resolve
from tidelog.spark.schema import full_schema, wanted_columns
from tidelog.spark.source_options import SourceOptions, parse_options


class TidelogDataSource(DataSource):
    """`spark.read.format("tidelog")`: the committed records of topics, with the columns of Spark's Kafka source.

    The options are those of Spark's Kafka source (source_options.py); `tidelog.bootstrap.servers` names the cluster.
    Offsets are resolved when the query is planned, so a task that runs again reads the same records.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "tidelog"

    def schema(self) -> StructType:
        """All columns; `headers` only with `includeHeaders`."""
        return full_schema(include_headers=parse_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader for these columns: the full schema, or the caller's subset of it."""
        return TidelogReader(parse_options(self.options), wanted_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """Raises UnsupportedVersion: this version reads batches only."""
        _refuse("streaming source", "read batches with spark.read, from startingOffsets to endingOffsets")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - Spark's signature
        """Raises UnsupportedVersion: this version has no sink."""
        _refuse("batch sink", "write with tidelog.Producer inside foreachPartition")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802 - Spark's signature
        """Raises UnsupportedVersion: this version has no sink."""
        _refuse("streaming sink", "write with tidelog.Producer inside foreachBatch")


class TidelogReader(DataSourceReader):
    """Plans the ranges on the driver; reads one range per task on the executors."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """One range per task. Spark calls it once, on the driver."""
        return asyncio.run(resolve(self._options))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The range's records as Arrow batches. A query without ranges is called once, with None, and reads nothing."""
        if not isinstance(partition, OffsetRange):
            return
        batches = self._batches(partition)
        with asyncio.Runner() as runner:
            loop = runner.get_loop()  # `runner.run` would set up a signal handler for each batch
            try:
                while (batch := loop.run_until_complete(_next(batches))) is not None:
                    yield batch
            finally:
                loop.run_until_complete(batches.aclose())

    async def _batches(self, wanted: OffsetRange) -> AsyncGenerator[pa.RecordBatch, None]:
        builder = ColumnBuilder(wanted, self._columns)
        options = self._options
        async with (
            RangeReader(
                options.bootstrap,
                fetch_bytes=options.fetch_bytes,
                isolation=options.isolation,
                rack=options.rack,
                tls=options.tls,
                sasl=options.sasl,
                client_id=options.client_id,
            ) as reader,
            aclosing(reader.read(wanted, builder.add)) as decoded,
        ):
            async for _ in decoded:
                for batch in builder.take():
                    yield batch
        for batch in builder.take():
            yield batch


async def _next(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(batches, None)


def _refuse(what: str, instead: str) -> NoReturn:
    raise UnsupportedVersion(f"this version of the tidelog data source has no {what}; {instead}")
