"""`tidelog job archive`: topics to Parquet (or Delta, Iceberg), by topic and date, exactly once, resumable.

A streaming query of Spark: its checkpoint keeps the position, and the file sink's log, or the table's transaction log,
says which files count. A batch run is the same query that ends at the present end, so both modes continue each other.
Not here: the rows and the manifest (archive_layout.py), which files count (archive_files.py), checks
(archive_verifier.py).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
from tidelog.jobs.archive_verifier import ensure_local_archive, verify_archive
from tidelog.jobs.hadoop_files import HadoopDirectory
from tidelog.jobs.job_arguments import WrongArguments, interval, name_pattern, start_place, whole_number
from tidelog.jobs.job_frame import (
    StopRequest,
    add_spark_arguments,
    connection_of,
    is_of_spark,
    job_parser,
    print_report,
    run_as_program,
    run_job,
    spark_options,
)
from tidelog.jobs.job_session import ensure_spark, silence, spark_session
from tidelog.jobs.json_values import ObjectParser, schema_of
from tidelog.standard_streams import say
from tidelog.sync import Admin

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
"""The formats, each with what Spark needs for it beyond itself."""
CODECS: Final = ("zstd", "snappy", "gzip", "lz4", "none")
WRITE_CHECKSUMS: Final = "parquet.page.write-checksum.enabled"
"""The option of Parquet's writer by which `--verify` and `restore` notice altered values."""
TRIGGER: Final = "10 seconds"
OFFSETS_PER_BATCH: Final = 5_000_000
_HAS_ANOTHER_JOB: Final = re.compile(
    r"\bProducerFenced: |\bCONCURRENT_STREAM_LOG_UPDATE\b|\bRace while writing batch \d"
)
"""What ends a query after another one with the same checkpoint has started: the coordinator, Spark's log of offsets,
or its file sink; whichever the two meet at first."""
WHEN_INTERRUPTED: Final = (
    "batches that were complete are in the archive; the same command continues after them, and writes each record once"
)


@dataclass(slots=True)
class ArchiveProgress:
    """What this run has done. position: the next offset of each partition of each topic."""

    batches: int = 0
    records: int = 0
    last_batch: int = -1
    position: dict[str, dict[str, int]] = field(default_factory=dict)

    def note(self, query: StreamingQuery) -> bool:
        """Take in the batches that have ended. Returns whether there was a new one with records."""
        before = self.records
        for progress in query.recentProgress:
            number, rows = int(progress["batchId"]), int(progress["numInputRows"])
            if number > self.last_batch and rows:
                self.last_batch = number
                self.batches += 1
                self.records += rows
                self.position = _position(progress["sources"][0]["endOffset"])
        return self.records > before


def _parser(defaults: ClusterConnection | None) -> argparse.ArgumentParser:
    parser = job_parser("archive", DESCRIPTION, defaults)
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument(
        "--pattern", type=name_pattern, help="a regular expression (RE2) over whole names, instead of topics"
    )
    parser.add_argument("--to", required=True, metavar="TARGET", help="a directory of Spark; for iceberg a table")
    parser.add_argument("--format", choices=list(FORMATS), default="parquet", dest="file_format")
    parser.add_argument("--schema", metavar="FILE|DDL", help="parse values as JSON with this schema, into column data")
    parser.add_argument("--keep-values", action="store_true", help="with --schema: the bytes of each value as well")
    parser.add_argument("--continuous", action="store_true", help="go on until interrupted; else to the present end")
    parser.add_argument(
        "--trigger", type=interval, metavar="TIME", help=f"with --continuous: between batches (default: {TRIGGER})"
    )
    parser.add_argument(
        "--start", type=start_place, default="earliest", help="of a new archive: earliest, latest or ms since 1970"
    )
    parser.add_argument("--offsets-per-batch", type=whole_number(1), default=OFFSETS_PER_BATCH, metavar="N")
    parser.add_argument("--compression", choices=CODECS, default="zstd", help="of Parquet")
    parser.add_argument("--state", metavar="DIR", help=f"checkpoint and manifest; default: TARGET/{STATE}")
    parser.add_argument("--verify", action="store_true", help="check an archive instead; 1: something is wrong")
    parser.add_argument("--files", action="store_true", help="print the files that count instead, one a line")
    add_spark_arguments(parser)
    return parser


def main(arguments: Sequence[str] | None = None, defaults: ClusterConnection | None = None) -> int:
    """Run the job. arguments: None for those of the process. Returns the exit code."""
    return run_job(_parser(defaults), _work, arguments, when_interrupted=WHEN_INTERRUPTED)


def _work(arguments: argparse.Namespace) -> int:
    _ensure_arguments(arguments)
    if arguments.verify or arguments.files:
        ensure_local_archive(arguments, "--to", arguments.to)
    ensure_spark()
    if arguments.verify or arguments.files:
        with spark_session(arguments, "archive") as spark:
            return _files(spark, arguments) if arguments.files else verify_archive(spark, arguments)
    options = _source_options(arguments)
    schema = None if arguments.schema is None else text_of_schema(arguments.schema)
    _ask_cluster(connection_of(arguments), arguments.topics)
    with spark_session(arguments, "archive") as spark:
        _ensure_format(spark, arguments.file_format)
        state = HadoopDirectory(spark, arguments.state or f"{arguments.to}/{STATE}")
        manifest = _manifest(state, arguments, schema)
        query = _start(spark, arguments, manifest, state, options)
        progress = ArchiveProgress()
        was_stopped = _watch(spark, query, progress, arguments)
        return _report(arguments, manifest, progress, was_stopped=was_stopped)


def _ensure_arguments(arguments: argparse.Namespace) -> None:
    """Raises WrongArguments for arguments that exclude each other, or that lack another one."""
    if arguments.files and arguments.file_format != "parquet":
        raise WrongArguments(f"--files is for Parquet; {arguments.file_format} keeps its own list of files")
    if arguments.state is None and arguments.file_format == "iceberg":
        raise WrongArguments("--format iceberg writes to a table: name a directory for the checkpoint with --state")
    if arguments.verify or arguments.files:
        return
    if bool(arguments.topics) == bool(arguments.pattern):
        raise WrongArguments("name topics or --pattern, one of the two: what is to be archived")
    if arguments.trigger and not arguments.continuous:
        raise WrongArguments("--trigger belongs to --continuous: without it the job ends at the present end")
    if arguments.keep_values and arguments.schema is None:
        raise WrongArguments("--keep-values belongs to --schema: without it all values are kept as they are")
    if arguments.file_format != "iceberg":
        ensure_no_pattern("--to", arguments.to)


def _ask_cluster(connection: ClusterConnection, topics: Sequence[str]) -> None:
    """Ask before Spark starts and an archive begins. Raises ConnectionFailed if no node answers,
    UnknownTopicOrPartition, and TopicAuthorizationFailed if the records of a topic may not be read."""
    with Admin(connection.bootstrap, **connection.of_client) as admin:
        admin.describe_cluster()
        for topic in topics:
            admin.describe_topic(topic)
        if topics:
            admin.describe_producers([(topic, 0) for topic in topics])  # needs READ, as the query will


def _source_options(arguments: argparse.Namespace) -> dict[str, str]:
    options = {
        **spark_options(connection_of(arguments)),
        "includeHeaders": "true",
        "includeTimestampMs": "true",
        "maxOffsetsPerTrigger": str(arguments.offsets_per_batch),
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


def _manifest(state: HadoopDirectory, arguments: argparse.Namespace, text: str | None) -> Manifest:
    """That of the archive, or a new one. text: of the schema.

    Raises InvalidConfig if the archive was begun with other arguments.
    """
    schema = None if text is None else json.dumps(ObjectParser(schema_of(text)).schema.jsonValue())
    wanted = new_manifest(arguments.file_format, schema, keeps_values=arguments.keep_values)
    found = find_manifest(state)
    if found is None:
        if state.exists(CHECKPOINT):
            raise InvalidConfig(f"{state.uri} has a checkpoint and no manifest: restore it, or use another --to")
        write_manifest(state, wanted)
        return wanted
    differs = [
        option
        for option, before, now in (
            ("--format", found.format, wanted.format),
            ("--schema", found.schema, wanted.schema),
            ("--keep-values", found.keeps_values, wanted.keeps_values),
        )
        if before != now
    ]
    if differs:
        raise InvalidConfig(
            f"the archive {arguments.to} was begun with another {' and '.join(differs)}: use the same, or another --to"
        )
    return found


def text_of_schema(schema: str) -> str:
    """The schema: the text of a file of that name, or the argument itself. Raises InvalidConfig for what can only be
    the name of a file, and is not there or cannot be read."""
    try:
        path = Path(schema)
        if path.is_file():
            return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"--schema {schema}: the file cannot be read: {error}") from error
    if not re.search(r"[\s:{]", schema):  # in a schema, something is between a column and its type
        raise InvalidConfig(
            f"--schema {schema}: there is no file {path.absolute()}; name one that is there, or write the schema as "
            "DDL, for example 'level STRING, status INT'"
        )
    return schema


def _start(
    spark: SparkSession,
    arguments: argparse.Namespace,
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


def _watch(
    spark: SparkSession, query: StreamingQuery, progress: ArchiveProgress, arguments: argparse.Namespace
) -> bool:
    """Wait for the end of the query. Returns whether it was asked to stop, which is how a continuous one ends. Raises
    KeyboardInterrupt if another one was interrupted before its end, InvalidConfig if another job writes to the target,
    and what else the query raised.

    A signal to the whole process group, as systemd sends it, ends the JVM as well: what Spark raises once the job was
    asked to stop is the stop.
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
            if not stop.is_asked or not (is_of_spark(error) or isinstance(error, ConnectionError)):
                raise
        finally:
            silence(spark)
            with suppress(Exception):  # its JVM may have ended
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


def _report(arguments: argparse.Namespace, manifest: Manifest, progress: ArchiveProgress, *, was_stopped: bool) -> int:
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


def _files(spark: SparkSession, arguments: argparse.Namespace) -> int:
    target = HadoopDirectory(spark, arguments.to)
    names = [target.child(name) for name in whole_files(target)]
    print_report({"files": names}, names, as_json=arguments.as_json)
    return 0


if __name__ == "__main__":
    sys.exit(run_as_program(main, __file__))
