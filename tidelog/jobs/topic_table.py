"""`tidelog job table`: an Iceberg table of a topic, kept up to date exactly once.

The table alone says how far it is (table_position.py): there is no checkpoint that could say something else. A batch is
planned from the table's position by the rules of a streaming query, and its rows and the position behind them are one
commit. A batch that was not committed leaves files that no table names (docs/decisions/0033).
Not here: rows and quarantine (table_rows.py), evolution (table_schema.py), commits (iceberg_table.py).
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.declared import Argument, Option
from tidelog.client.machine import LoopThread
from tidelog.clock import MachineClock
from tidelog.errors import (
    InconsistentTopicId,
    InvalidConfig,
    LogTruncated,
    OffsetOutOfRange,
    ProducerFenced,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.jobs.archive import CODECS, OFFSETS_PER_BATCH, TRIGGER, ask_cluster, text_of_schema
from tidelog.jobs.job_arguments import interval, interval_ms, one_of, start_place, whole_number
from tidelog.jobs.job_frame import (
    Job,
    RemoteStorage,
    SparkJobArguments,
    StopRequest,
    is_of_spark,
    print_report,
    run_as_program,
    spark_options,
)
from tidelog.jobs.job_session import ensure_spark, map_arrow, spark_session
from tidelog.jobs.json_values import schema_of
from tidelog.jobs.table_position import ensure_continues
from tidelog.standard_streams import say
from tidelog.tiering.store_option import REMOTE_STORAGE
from tidelog.types import INT32_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tidelog.jobs.iceberg_table import IcebergTable
    from tidelog.jobs.table_rows import ValueFormat
    from tidelog.spark.options.query_options import StreamOptions
    from tidelog.spark.ranges.planning import TaskRanges
    from tidelog.spark.streaming.stream_offsets import StreamOffset
    from tidelog.spark.streaming.stream_session import StreamSession

DESCRIPTION: Final = """\
Keep an Iceberg table of a topic up to date, each record exactly once, until SIGTERM or Ctrl-C. The same command again
continues where the table ends, also after a failure. Spark needs Iceberg and a catalog (--conf).

  tidelog job table orders --to lake.shop.orders --schema 'id BIGINT, amount DECIMAL(9,2)'
  tidelog job table orders --to lake.shop.orders_raw --once
"""
VALUE_FORMATS: Final = ("json", "avro", "protobuf")
WHEN_INTERRUPTED: Final = (
    "batches that were committed are in the table; the same command continues after them, and writes each record once"
)
AS_ICEBERG_READS: Final = {"spark.sql.parquet.writeLegacyFormat": "false"}
"""Lists and decimals as Iceberg reads them from Parquet."""
PARTS_LEAST: Final = 3
"""A catalog, a namespace, a table."""
LOOK_S: Final = 0.2
"""How often a job that waits looks whether it was asked to end."""


@dataclass(slots=True)
class TableProgress:
    """What this run has committed."""

    records: int = 0
    quarantined: int = 0
    batches: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableArguments(SparkJobArguments):
    """The arguments of the job."""

    topic: Annotated[str, Argument(metavar="TOPIC")]
    to: Annotated[str, Option("--to", metavar="CATALOG.NAMESPACE.TABLE", help="The table; made if it is not there.")]
    schema: Annotated[
        str | None, Option(metavar="FILE|DDL", help="Read the fields of values with this schema; else their bytes.")
    ] = None
    value_format: Annotated[str, one_of("--value-format", VALUE_FORMATS, "Of values, with --schema.")] = "json"
    message: Annotated[
        str | None, Option(metavar="NAME", help="With protobuf: the full name of the message in the descriptor set.")
    ] = None
    schema_id: Annotated[
        int | None, whole_number("--schema-id", "That a schema registry has put in front of values.", most=INT32_MAX)
    ] = None
    once: Annotated[bool, Option("--once", help="End at the present end; else go on until interrupted.")] = False
    trigger: Annotated[
        str | None, Option(parser=interval, metavar="TIME", help=f"Between batches (default: {TRIGGER}).")
    ] = None
    start: Annotated[
        str, Option(parser=start_place, metavar="PLACE", help="Of a new table: earliest, latest or ms since 1970.")
    ] = "earliest"
    offsets_per_batch: Annotated[int, whole_number("--offsets-per-batch", least=1)] = OFFSETS_PER_BATCH
    remote_storage: RemoteStorage = "off"
    compression: Annotated[str, one_of("--compression", CODECS, "Of Parquet.")] = "zstd"
    accept_loss: Annotated[
        bool,
        Option("--accept-loss", help="Continue behind records that retention has deleted; the report counts them."),
    ] = False


def _work(arguments: TableArguments) -> int:
    parts = arguments.to.split(".")
    if len(parts) < PARTS_LEAST or not all(parts):
        raise WrongUsage(f"--to {arguments.to}: name a table as CATALOG.NAMESPACE.TABLE, for example lake.shop.orders")
    catalog_name, *namespace, table_name = parts
    if arguments.once and arguments.trigger:
        raise WrongUsage("--trigger is for a job that goes on: --once ends at the present end")
    if (arguments.value_format == "protobuf") != (arguments.message is not None):
        raise WrongUsage("--message NAME belongs to --value-format protobuf: the full name of the message")
    if arguments.schema is None and (arguments.value_format != "json" or arguments.schema_id is not None):
        raise WrongUsage("--value-format and --schema-id belong to --schema: without it values are stored as bytes")
    ensure_spark()
    spark_options(arguments.connection)  # those that tasks cannot use are refused before Spark starts
    schema = _schema_text(arguments)
    ask_cluster(arguments.connection, [arguments.topic])
    with spark_session(arguments, "table", AS_ICEBERG_READS) as spark:
        # What Spark's packages import cannot be loaded before `ensure_spark` has found them.
        from tidelog.jobs.iceberg_table import IcebergCatalog
        from tidelog.jobs.table_rows import ValueFormat, value_reader
        from tidelog.jobs.table_schema import ensure_storable, iceberg_schema, schema_changes, table_columns

        catalog = IcebergCatalog(spark, catalog_name)
        values = None
        if schema is not None:
            text = schema_of(schema).json() if arguments.value_format == "json" else schema
            values = ValueFormat(arguments.value_format, text, arguments.schema_id)
        columns = table_columns(None if values is None else value_reader(values).schema)
        ensure_storable(columns)
        wanted = iceberg_schema(columns)
        table = catalog.load(namespace, table_name) or catalog.create(namespace, table_name, wanted, arguments.topic)
        _ensure_of_job(table, arguments.topic)
        if changes := schema_changes(table.schema, wanted, table.name):
            table.evolve(changes)
            if not arguments.quiet:
                say(f"table {table.name} has a wider schema: {'; '.join(map(str, changes))}")
        table.ensure_mapping()  # before any file is added that is read by it
        keeper = TableKeeper(spark, arguments, table, values, columns)
        with keeper.opened():
            was_stopped = keeper.keep()
        return _report(arguments, keeper, was_stopped=was_stopped)


def _schema_text(arguments: TableArguments) -> str | None:
    """The schema as the reader of the format takes it; for JSON as the user wrote it. Raises InvalidConfig for a file
    that cannot be read."""
    if arguments.schema is None:
        return None
    if arguments.value_format == "json":
        return text_of_schema(arguments.schema)
    try:
        content = Path(arguments.schema).read_bytes()
        if arguments.message is None:
            return content.decode()
    except (OSError, ValueError) as error:
        raise InvalidConfig(
            f"--schema {arguments.schema}: the file cannot be read: {error}; name a file with the schema"
        ) from error
    from tidelog.jobs.encoded_values import protobuf_schema

    return protobuf_schema(content, arguments.message)


def _ensure_of_job(table: IcebergTable, topic: str) -> None:
    """Raises InvalidConfig for a table that this job has not made, or made for another topic."""
    if table.topic is None:
        raise InvalidConfig(
            f"table {table.name} is there, and was not made by `tidelog job table`: name another one with --to"
        )
    if table.topic != topic:
        raise InvalidConfig(f"table {table.name} is one of topic {table.topic!r}, not of {topic!r}: use another --to")
    if table.is_partitioned:
        raise InvalidConfig(
            f"table {table.name} is partitioned, and this job writes files of an unpartitioned one: remove its "
            "partition fields (ALTER TABLE ... DROP PARTITION FIELD). Readers skip files by the bounds of offset and "
            "timestamp that each has"
        )


class TableKeeper:
    """Commits batch after batch to one table."""

    def __init__(
        self,
        spark: SparkSession,
        arguments: TableArguments,
        table: IcebergTable,
        values: ValueFormat | None,
        columns: StructType,
    ) -> None:
        """values: how they are read; None: their bytes are stored. columns: of the table."""
        from tidelog.spark.options.query_options import parse_stream_options
        from tidelog.spark.streaming.stream_session import StreamSession

        self._spark, self._arguments, self._table, self._values = spark, arguments, table, values
        self._columns = columns
        self.group = f"tidelog-table-{table.uuid}"
        self._options: StreamOptions = parse_stream_options(
            {
                **spark_options(arguments.connection),
                **_starting(arguments.start),
                REMOTE_STORAGE: arguments.remote_storage,
                "subscribe": arguments.topic,
                "tidelog.group.id": self.group,
                "failOnDataLoss": str(not arguments.accept_loss).lower(),
            }
        )
        self._thread = LoopThread("tidelog table")
        self._session: StreamSession = StreamSession(self._options)
        self.position: StreamOffset | None = None
        self.progress = TableProgress()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Connect, and take over the table from a job that keeps it; disconnect in the end."""
        try:
            self._thread.run(self._session.start())
            yield
        finally:
            self._thread.run(self._session.close())
            self._thread.stop()

    def keep(self) -> bool:
        """Commit batches until the present end, or until a signal. Returns whether a signal ended it, the only way in
        which a job that goes on ends.

        Raises OffsetOutOfRange, LogTruncated, InconsistentTopicId, UnknownTopicOrPartition on data loss, InvalidConfig
        if another job keeps the table; KeyboardInterrupt if a run to the present end was interrupted.
        """
        arguments, clock = self._arguments, MachineClock()
        pause_ms = interval_ms(arguments.trigger or TRIGGER)
        with StopRequest() as stop:
            self.position = self._first()
            if arguments.once:
                self._thread.run(self._session.freeze())
            has_more = True
            while not stop.is_asked and (has_more or not arguments.once):
                due = clock.monotonic_ms() + pause_ms
                has_more = self._next(stop)
                if not has_more and not arguments.once:  # a backlog is read without pauses
                    _wait(stop, due, clock)
            if arguments.once:
                stop.raise_if_asked()
            return stop.is_asked

    def _next(self, stop: StopRequest) -> bool:
        """As `_batch`; False as well if the signal that asked the job to end has ended the JVM too."""
        try:
            return self._batch()
        except ProducerFenced as error:
            raise InvalidConfig(
                f"another job keeps table {self._table.name}, and a table takes one at a time: this one has ended, and "
                "what it had committed is in the table. Let one of them run"
            ) from error
        except Exception as error:
            # systemd signals the whole process group.
            if not stop.is_asked or not (is_of_spark(error) or isinstance(error, ConnectionError)):
                raise
            return False

    def _first(self) -> StreamOffset:
        """Where this run begins: where the table ends, or for a new one where the arguments say."""
        from tidelog.spark.streaming.stream_offsets import parse_offset

        found = self._table.position()
        if found is None:
            return self._thread.run(self._session.initial())
        return parse_offset(json.loads(found))

    def _batch(self) -> bool:
        """Commit the next batch. Returns False if there was nothing to read."""
        start, topic = self.position, self._arguments.topic
        assert start is not None, "the position is read first"
        try:
            end = self._thread.run(self._session.advance(start, self._arguments.offsets_per_batch, may_wait=False))
            if end == start:
                return False
            before, now = start.topics.get(topic), end.topics.get(topic)
            if before is not None and (now is None or now.topic_id != before.topic_id):
                # Its offsets begin again: rows of both topics would have the same partition and offset.
                raise InconsistentTopicId(f"topic {topic!r} was deleted, and created again, since the last batch")
            tasks = self._thread.run(self._session.plan(start, end))
        except (OffsetOutOfRange, LogTruncated, InconsistentTopicId, UnknownTopicOrPartition) as error:
            raise self._loss(error) from error
        ensure_continues(start, (one for task in tasks for one in task.ranges))
        self._commit(tasks, end)
        self.position = end
        self._thread.run(self._session.processed(end))
        return True

    def _commit(self, tasks: Sequence[TaskRanges], end: StreamOffset) -> None:
        from tidelog.jobs.table_rows import RowTask

        progress = self.progress
        written = None
        if tasks:  # else only the position moves
            numbers = self._spark.range(0, len(tasks), 1, len(tasks))
            task = RowTask(self._options.query, tasks, self._values)
            written = self._table.write(map_arrow(numbers, task, self._columns), self._arguments.compression)
        self._table.commit(written, json.dumps(end.to_json()))
        progress.batches += 1
        if written is not None:
            progress.records += written.records
            progress.quarantined += written.quarantined
            progress.files += len(written.files)
            progress.bytes += written.bytes
        if not self._arguments.quiet:
            say(f"{progress.records} records in {progress.batches} batches")

    def _loss(self, error: TidelogError) -> TidelogError:
        """The error for records that are not in the log any more, with what to do."""
        what = error.message.partition(". To continue without")[0]
        advice = "Records are missing behind its end: --accept-loss continues without them"
        if not isinstance(error, OffsetOutOfRange):
            advice = "It stays as it is: keep the topic that is there now in another table, with --to"
        return type(error)(f"table {self._table.name} cannot continue: {what}. {advice}")


def _wait(stop: StopRequest, due: int, clock: MachineClock) -> None:
    """Wait until the next batch is due, or the job is asked to end."""
    while not stop.is_asked and clock.monotonic_ms() < due:
        threading.Event().wait(LOOK_S)


def _starting(place: str) -> dict[str, str]:
    """Where a new table begins, as options of the source."""
    if place in ("earliest", "latest"):
        return {"startingOffsets": place}
    return {"startingTimestamp": place, "startingOffsetsByTimestampStrategy": "latest"}


def _report(arguments: TableArguments, keeper: TableKeeper, *, was_stopped: bool) -> int:
    progress, position = keeper.progress, keeper.position
    partitions = [] if position is None else [(key.partition, each) for key, _, each in position]
    skipped = (0 if position is None else position.skipped) + sum(each.skipped for _, each in partitions)
    document = {
        "job": "table",
        "table": arguments.to,
        "topic": arguments.topic,
        "group": keeper.group,
        **asdict(progress),
        "skipped": skipped,
        "position": {str(partition): each.next_offset for partition, each in partitions},
        "stopped": was_stopped,
    }
    lines = [
        f"committed {progress.records} records of {arguments.topic} in {progress.batches} batches to {arguments.to}",
        f"  next offsets {', '.join(f'{partition}:{each.next_offset}' for partition, each in partitions)}",
    ]
    if progress.quarantined:
        lines.append(f"  {progress.quarantined} values do not fit the schema: their bytes are in quarantine.value")
    if skipped:
        lines.append(f"  {skipped} offsets were lost before they were read")
    lines.append(f"progress: tidelog group lag {keeper.group}")
    print_report(document, lines, as_json=arguments.as_json)
    return 0


JOB: Final = Job("table", DESCRIPTION, TableArguments, _work, WHEN_INTERRUPTED)
main: Final = JOB.main


if __name__ == "__main__":
    sys.exit(run_as_program(main, __file__))
