"""The data source, as Spark calls it: it makes the readers and writers of queries from their options."""

from __future__ import annotations

from typing import NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidelog.errors import UnsupportedVersion
from tidelog.spark.batch_reader import TidelogReader
from tidelog.spark.options.batch_options import includes_headers, parse_batch_options
from tidelog.spark.schema import full_schema, wanted_columns


class TidelogDataSource(DataSource):
    """`spark.read.format("tidelog")`: the committed records of topics, with the columns of Spark's Kafka source.

    The options are those of Spark's Kafka source (options/); `tidelog.bootstrap.servers` names the cluster.
    Offsets are resolved when the query is planned, so a task that runs again reads the same records.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "tidelog"

    def schema(self) -> StructType:
        """All columns; `headers` only with `includeHeaders`."""
        return full_schema(include_headers=includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader for these columns: the full schema, or the caller's subset of it."""
        return TidelogReader(parse_batch_options(self.options), wanted_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
        """Raises UnsupportedVersion: this version reads batches only."""
        _refuse("streaming source", "read batches with spark.read, from startingOffsets to endingOffsets")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002 - Spark's signature
        """Raises UnsupportedVersion: this version has no sink."""
        _refuse("batch sink", "write with tidelog.Producer inside foreachPartition")

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802 - Spark's signature
        """Raises UnsupportedVersion: this version has no sink."""
        _refuse("streaming sink", "write with tidelog.Producer inside foreachBatch")


def _refuse(what: str, instead: str) -> NoReturn:
    raise UnsupportedVersion(f"this version of the tidelog data source has no {what}; {instead}")
