"""The data source, as Spark calls it: it makes the readers and writers of queries from their options."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidelog.spark.options.catalog_table import created_table, ensure_written_by_name, query_of_table, with_options
from tidelog.spark.options.query_options import optional_columns, parse_batch_options, parse_stream_options
from tidelog.spark.ranges.batch_reader import TidelogReader
from tidelog.spark.ranges.schema import full_schema, wanted_columns
from tidelog.spark.sink.sink_options import parse_sink_options
from tidelog.spark.sink.sink_topic import ensure_topic_exists
from tidelog.spark.sink.writers import TidelogBatchWriter, TidelogStreamWriter
from tidelog.spark.streaming.stream_reader import TidelogStreamReader


class TidelogDataSource(DataSource):
    """`spark.read.format("tidelog")`: the committed records of topics, with the columns of Spark's Kafka source. Frames
    are written with the columns of its sink.

    The options are those of Spark's Kafka source and sink (options/, sink/sink_options.py); `tidelog.bootstrap.servers`
    names the cluster.
    Offsets are resolved when the query is planned, so a task that runs again reads the same records.
    """

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "tidelog"

    def schema(self) -> StructType:
        """All columns; of the optional ones those that the options ask for. A table that is being created has its
        options in them."""
        table = created_table(self.options)
        columns = full_schema(optional_columns(self.options if table is None else table))
        return columns if table is None else with_options(columns, table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader for these columns: the full schema, or the caller's subset of it."""
        return TidelogReader(parse_batch_options(query_of_table(self.options, schema)), wanted_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """A streaming reader for these columns: the full schema, or the caller's subset of it."""
        return TidelogStreamReader(parse_stream_options(query_of_table(self.options, schema)), wanted_columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of frames with these columns."""
        ensure_written_by_name(self.options)
        options = parse_sink_options(self.options)
        writer = TidelogBatchWriter(options, schema, overwrite=overwrite)
        ensure_topic_exists(options)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """A writer of micro-batches with these columns."""
        options = parse_sink_options(self.options)
        writer = TidelogStreamWriter(options, schema, overwrite=overwrite)
        ensure_topic_exists(options)
        return writer
