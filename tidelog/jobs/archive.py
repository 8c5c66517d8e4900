"""`tidelog job archive`: topics to Parquet (or Delta, Iceberg), by topic and date, exactly once, resumable.

A streaming query of Spark: its checkpoint keeps the position, and the file sink's log, or the table's transaction log,
names the committed files. A batch run is the same query that ends at the present end, so each mode continues the other.
Not here: the rows and the manifest (archive_layout.py), which files are committed (archive_files.py), checks
(archive_verifier.py).
"""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.declared import Argument, Option
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import InvalidConfig, UnsupportedVersion
from tidelog.jobs.archive_files import SINK_LOG, ensure_no_pattern, whole_files
from tidelog.jobs.archive_layout import (
    CHECKPOINT,
    STATE,
    Manifest,
    archive_rows,
    find_manifest,
    new_manifest,
    write_manifest,
)
from tidelog.jobs.archive_verifier import ArchiveJobArguments, ensure_local_archive, verify_archive
from tidelog.jobs.hadoop_files import HadoopDirectory
from tidelog.jobs.job_arguments import interval, name_pattern, one_of, start_place, whole_number
from tidelog.jobs.job_frame import (
    Job,
    RemoteStorage,
    StopRequest,
    is_of_spark,
    print_report,
    run_as_program,
    spark_options,
)
from tidelog.jobs.job_session import ensure_spark, silence, spark_session
from tidelog.jobs.json_values import ObjectParser, schema_of
from tidelog.standard_streams import say
from tidelog.sync import Admin
from tidelog.tiering.store_option import REMOTE_STORAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DESCRIPTION: Final = """\
Write topics to files, by topic and date, each record exactly once. The same command again continues where it ended,
also after a failure.

  tidelog job archive orders payments --to /data/archive
  tidelog job archive --pattern 'logs-.*' --to s3a://bucket/logs --schema 'level STRING, message STRING' --continuous
  tidelog job archive --to /data/archive --verify
"""
FORMATS: Final = {
    "parquet": "",
    "delta": "start Spark with --conf spark.jars.packages=io.delta:delta-spark_2.13:VERSION and the settings of "
    "Delta Lake's manual (spark.sql.extensions, spark.sql.catalog.spark_catalog)",
    "iceberg": "start Spark with --conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13:"
    "VERSION and the settings of a catalog",
}
"""The formats, each with the package that Spark needs for it."""
CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
WRITE_CHECKSUMS: Final = "parquet.page.write-checksum.enabled"
"""The option of Parquet's writer that adds checksums, by which `--verify` and `restore` notice altered values."""
TRIGGER: Final = "10 seconds"
OFFSETS_PER_BATCH: Final = 5_000_000
_HAS_ANOTHER_JOB: Final = re.compile(
    r"\bProducerFenced: |\bCONCURRENT_STREAM_LOG_UPDATE\b|\bRace while writing batch \d"
)
"""Errors that end a query after another one with the same checkpoint has started: of the coordinator, of Spark's log of
offsets, or of its file sink. Chance decides which one comes first."""
WHEN_INTERRUPTED: Final = (
    "batches that were complete are in the archive; the same command continues after them, and writes each record once"
)


@dataclass(slots=True)
class ArchiveProgress:
    """The batches that this run has completed."""

    batches: int = 0
    records: int = 0
    last_batch: int = -1
    position: dict[str, dict[str, int]] = field(default_factory=dict)
    """The next offset of each partition of each topic."""

    def note(self, query: StreamingQuery) -> bool:
        """Add the batches that have ended since the last call. Returns True if one of them had records."""
        before = self.records
        for progress in query.recentProgress:
            number, rows = int(progress["batchId"]), int(progress["numInputRows"])
            # Spark reports the last batches again each time, and batches without records as well.
            if number > self.last_batch and rows:
                self.last_batch = number
                self.batches += 1
                self.records += rows
                self.position = _position(progress["sources"][0]["endOffset"])
        return self.records > before


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveArguments(ArchiveJobArguments):
    """The arguments of the job."""

    topics: Annotated[list[str], Argument(metavar="TOPIC")] = field(default_factory=list)
    pattern: Annotated[
        str | None,
        Option(parser=name_pattern, help="A regular expression (RE2) over whole names, instead of topics."),
    ] = None
    to: Annotated[str, Option("--to", metavar="TARGET", help="A directory of Spark; for iceberg a table.")]
    file_format: Annotated[str, one_of("--format", FORMATS)] = "parquet"
    schema: Annotated[
        str | None, Option(metavar="FILE|DDL", help="Parse values as JSON with this schema, into column data.")
    ] = None
    keep_values: Annotated[bool, Option("--keep-values", help="With --schema: the bytes of each value as well.")] = (
        False
    )
    continuous: Annotated[bool, Option("--continuous", help="Go on until interrupted; else to the present end.")] = (
        False
    )
    trigger: Annotated[
        str | None,
        Option(parser=interval, metavar="TIME", help=f"With --continuous: between batches (default: {TRIGGER})."),
    ] = None
    start: Annotated[
        str,
        Option(parser=start_place, metavar="PLACE", help="Of a new archive: earliest, latest or ms since 1970."),
    ] = "earliest"
    offsets_per_batch: Annotated[int, whole_number("--offsets-per-batch", least=1)] = OFFSETS_PER_BATCH
    remote_storage: RemoteStorage = "off"
    compression: Annotated[str, one_of("--compression", CODECS, "Of Parquet.")] = "zstd"
    verify: Annotated[bool, Option("--verify", help="Check an archive instead; 1: something is wrong.")] = False
    files: Annotated[bool, Option("--files", help="Print the files that count instead, one a line.")] = False


def _work(arguments: ArchiveArguments) -> int:
    _ensure_arguments(arguments)
    if arguments.verify or arguments.files:
        ensure_local_archive(arguments, "--to", arguments.to)
    ensure_spark()
    if arguments.verify or arguments.files:
        with spark_session(arguments, "archive") as spark:
            return _files(spark, arguments) if arguments.files else verify_archive(spark, arguments, arguments.to)
    options = _source_options(arguments)
    schema = None if arguments.schema is None else text_of_schema(arguments.schema)
    ask_cluster(arguments.connection, arguments.topics)
    with spark_session(arguments, "archive") as spark:
        _ensure_format(spark, arguments.file_format)
        state = HadoopDirectory(spark, arguments.state or f"{arguments.to}/{STATE}")
        manifest = _manifest(state, arguments, schema)
        query = _start(spark, arguments, manifest, state, options)
        progress = ArchiveProgress()
        was_stopped = _watch(spark, query, progress, arguments)
        return _report(arguments, manifest, progress, was_stopped=was_stopped)


def _ensure_arguments(arguments: ArchiveArguments) -> None:
    """Raises WrongUsage for arguments that exclude each other, or that need another one."""
    if arguments.files and arguments.file_format != "parquet":
        raise WrongUsage(f"--files is for Parquet; {arguments.file_format} keeps its own list of files")
    if arguments.state is None and arguments.file_format == "iceberg":
        raise WrongUsage("--format iceberg writes to a table: name a directory for the checkpoint with --state")
    if arguments.verify or arguments.files:
        return
    if bool(arguments.topics) == bool(arguments.pattern):
        raise WrongUsage("name topics or --pattern, one of the two: what is to be archived")
    if arguments.trigger and not arguments.continuous:
        raise WrongUsage("--trigger belongs to --continuous: without it the job ends at the present end")
    if arguments.keep_values and arguments.schema is None:
        raise WrongUsage("--keep-values belongs to --schema: without it all values are kept as they are")
    if arguments.file_format != "iceberg":
        ensure_no_pattern("--to", arguments.to)


def ask_cluster(connection: ClusterConnection, topics: Sequence[str]) -> None:
    """Ask before Spark starts and an archive begins. Raises ConnectionFailed if no node answers,
    UnknownTopicOrPartition, and TopicAuthorizationFailed if the records of a topic may not be read."""
    with Admin(connection.bootstrap, **connection.of_client) as admin:
        admin.describe_cluster()
        for topic in topics:
            admin.describe_topic(topic)
        if topics:
            admin.describe_producers([(topic, 0) for topic in topics])  # needs READ, as the query will


def _source_options(arguments: ArchiveArguments) -> dict[str, str]:
    options = {
        **spark_options(arguments.connection),
        "includeHeaders": "true",
        "includeTimestampMs": "true",
        "maxOffsetsPerTrigger": str(arguments.offsets_per_batch),
        REMOTE_STORAGE: arguments.remote_storage,
    }
    if arguments.pattern:
        options["subscribePattern"] = arguments.pattern
    else:
        options["subscribe"] = ",".join(arguments.topics)
    if arguments.start in ("earliest", "latest"):
        options["startingOffsets"] = arguments.start
    else:
        options |= {"startingTimestamp": arguments.start, "startingOffsetsByTimestampStrategy": "latest"}
    return options


def _ensure_format(spark: SparkSession, file_format: str) -> None:
    """Raises UnsupportedVersion if Spark has no package for the format."""
    if file_format == "parquet":
        return
    lookup: Any = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource  # type: ignore[union-attr]
    try:
        lookup.lookupDataSource(file_format, spark._jsparkSession.sessionState().conf())
    except Exception as error:
        raise UnsupportedVersion(f"this Spark has no package for {file_format}: {FORMATS[file_format]}") from error


def _manifest(state: HadoopDirectory, arguments: ArchiveArguments, text: str | None) -> Manifest:
    """Read the archive's manifest, or write that of a new archive. text: the schema.

    Raises InvalidConfig if the archive was begun with other arguments.
    """
    schema = None if text is None else json.dumps(ObjectParser(schema_of(text)).schema.jsonValue())
    new = new_manifest(arguments.file_format, schema, keeps_values=arguments.keep_values)
    existing = find_manifest(state)
    if existing is None:
        # Only the manifest names the columns of the files: a new one might not fit those that are there.
        if state.exists(CHECKPOINT):
            raise InvalidConfig(f"{state.uri} has a checkpoint and no manifest: restore it, or use another --to")
        write_manifest(state, new)
        return new
    differs = [
        option
        for option, before, now in (
            ("--format", existing.format, new.format),
            ("--schema", existing.schema, new.schema),
            ("--keep-values", existing.keeps_values, new.keeps_values),
        )
        if before != now
    ]
    if differs:
        raise InvalidConfig(
            f"the archive {arguments.to} was begun with another {' and '.join(differs)}: use the same, or another --to"
        )
    return existing


def text_of_schema(schema: str) -> str:
    """The schema: the content of the file with that name if there is one, else the argument itself. Raises
    InvalidConfig for a file that cannot be read, and for an argument that is neither a file nor a schema."""
    try:
        path = Path(schema)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:  # a schema of many columns is no name
            raise InvalidConfig(f"--schema {schema}: the file cannot be read: {error}") from error
    if not re.search(r"[\s:{]", schema):  # in a schema, something is between a column and its type
        raise InvalidConfig(
            f"--schema {schema}: there is no file {path.absolute()}; name one that is there, or write the schema as "
            "DDL, for example 'level STRING, status INT'"
        )
    return schema


def _start(
    spark: SparkSession,
    arguments: ArchiveArguments,
    manifest: Manifest,
    state: HadoopDirectory,
    options: dict[str, str],
) -> StreamingQuery:
    group = f"tidelog-archive-{manifest.archive_id}"
    frame = spark.readStream.format("tidelog").options(**options).option("tidelog.group.id", group).load()
    writer = (
        archive_rows(frame, manifest)
        .writeStream.format(manifest.format)
        .queryName(group)
        .outputMode("append")
        .partitionBy(*manifest.partition_columns)
        .option("checkpointLocation", state.child(CHECKPOINT))
    )
    if arguments.continuous:
        writer = writer.trigger(processingTime=arguments.trigger or TRIGGER)
    else:
        writer = writer.trigger(availableNow=True)
    if manifest.format == "iceberg":
        return writer.option("fanout-enabled", "true").toTable(arguments.to)
    if manifest.format == "parquet":
        writer = writer.options(**{"compression": arguments.compression, WRITE_CHECKSUMS: "true"})
    return writer.start(arguments.to)


def _watch(spark: SparkSession, query: StreamingQuery, progress: ArchiveProgress, arguments: ArchiveArguments) -> bool:
    """Wait for the end of the query. Returns whether it was interrupted, the only way in which a continuous one ends.

    Raises KeyboardInterrupt if a run to the present end was interrupted, InvalidConfig if another job writes to the
    target, and any other error of the query.
    """
    with StopRequest() as stop:
        try:
            while not query.awaitTermination(1):
                if progress.note(query) and not arguments.quiet:
                    say(f"{progress.records} records in {progress.batches} batches")
                if stop.is_asked:
                    silence(spark)
                    query.stop()
            progress.note(query)
        except Exception as error:
            if is_of_spark(error) and _HAS_ANOTHER_JOB.search(str(error)):
                raise InvalidConfig(
                    f"another archive job writes to {arguments.to}, and a target takes one at a time: this one has "
                    "ended, and what it had completed is in the archive. Let one of them run (start one again if both "
                    "have ended); for other topics use another --to"
                ) from error
            # systemd signals the whole process group, and so ends the JVM as well: an error of Spark after that is part
            # of the stop.
            if not stop.is_asked or not (is_of_spark(error) or isinstance(error, ConnectionError)):
                raise
        finally:
            silence(spark)
            with suppress(Exception):  # the JVM may have ended
                query.stop()
        if not arguments.continuous:
            stop.raise_if_asked()
        return stop.is_asked


def _position(end_offset: Any) -> dict[str, dict[str, int]]:
    """The next offset of each partition, from the offset of the source (streaming/stream_offsets.py)."""
    document = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
    from tidelog.spark.streaming.stream_offsets import parse_offset

    found: dict[str, dict[str, int]] = {}
    for key, _, position in parse_offset(document):
        found.setdefault(key.topic, {})[str(key.partition)] = position.next_offset
    return found


def _report(arguments: ArchiveArguments, manifest: Manifest, progress: ArchiveProgress, *, was_stopped: bool) -> int:
    document = {
        "job": "archive",
        "target": arguments.to,
        "archive": manifest.archive_id,
        "format": manifest.format,
        "group": f"tidelog-archive-{manifest.archive_id}",
        "records": progress.records,
        "batches": progress.batches,
        "position": progress.position,
        "stopped": was_stopped,
    }
    lines = [f"archived {progress.records} records in {progress.batches} batches to {arguments.to}"]
    for topic, offsets in sorted(progress.position.items()):
        lines.append(f"  {topic}: next offsets {', '.join(f'{p}:{o}' for p, o in offsets.items())}")
    lines.append(f"progress: tidelog group lag {document['group']}")
    if manifest.format == "parquet":
        lines.append(f"readers other than Spark read only the files that {SINK_LOG} names: --files prints them")
    print_report(document, lines, as_json=arguments.as_json)
    return 0


def _files(spark: SparkSession, arguments: ArchiveArguments) -> int:
    target = HadoopDirectory(spark, arguments.to)
    names = [target.child(name) for name in whole_files(target)]
    print_report({"files": names}, names, as_json=arguments.as_json)
    return 0


JOB: Final = Job("archive", DESCRIPTION, ArchiveArguments, _work, WHEN_INTERRUPTED)
main: Final = JOB.main


if __name__ == "__main__":
    sys.exit(run_as_program(main, __file__))
