"""`tidelog job archive --verify`: are all files there, and is each record in the archive once?"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.errors import InvalidConfig
from tidelog.jobs.archive_files import ArchiveFiles, archive_frame, find_files
from tidelog.jobs.archive_layout import STATE, Manifest, find_manifest
from tidelog.jobs.hadoop_files import HadoopDirectory, local_path
from tidelog.jobs.job_frame import print_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES: int = 5


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """What an archive has of a partition. repeated: rows beyond the first one of an offset. absent_offsets: between the
    first and the last offset; markers of transactions, compaction and aborted records leave such holes as well."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    repeated: int

    @property
    def absent_offsets(self) -> int:
        """Offsets without a row."""
        return self.last_offset - self.first_offset + 1 - (self.records - self.repeated)


def ensure_local_archive(arguments: argparse.Namespace, option: str, target: str) -> None:
    """Raises InvalidConfig if the archive must be in a directory of this machine that does not exist: before Spark
    starts. Other file systems are asked by Spark (`require_manifest`). option: that named the target, which may be a
    table if `--state` names a directory."""
    option, place = ("--state", arguments.state) if arguments.state else (option, target)
    path = local_path(place, arguments.conf)
    if path is not None and not path.is_dir():
        raise InvalidConfig(
            f"{option} {place}: there is no directory {path.absolute()}; name the one to which `tidelog job archive` "
            f"wrote ({'its --state' if option == '--state' else 'its --to'})"
        )


def require_manifest(spark: SparkSession, arguments: argparse.Namespace, target: str) -> Manifest:
    """The manifest of an archive. Raises InvalidConfig if there is none."""
    state = HadoopDirectory(spark, arguments.state or f"{target}/{STATE}")
    found = find_manifest(state)
    if found is None:
        raise InvalidConfig(f"{target} is no archive: {state.uri} has no manifest; check the path, or name --state")
    return found


def verify_archive(spark: SparkSession, arguments: argparse.Namespace) -> int:
    """Check an archive and report. Returns 1 if files are missing or records are there twice."""
    manifest = require_manifest(spark, arguments, arguments.to)
    files = find_files(HadoopDirectory(spark, arguments.to)) if manifest.format == "parquet" else None
    is_readable = files is None or not files.missing
    partitions = archived_partitions(archive_frame(spark, arguments.to, manifest)) if is_readable else []
    is_good = is_readable and not any(each.repeated for each in partitions)
    document = {
        "job": "archive --verify",
        "target": arguments.to,
        "good": is_good,
        "records": sum(each.records for each in partitions),
        "files": None if files is None else len(files.counted),
        "bytes": None if files is None else files.size,
        "missing": [] if files is None else files.missing,
        "uncommitted": [] if files is None else files.uncommitted,
        "partitions": partitions,
    }
    print_report(document, _lines(arguments.to, files, partitions, is_good=is_good), as_json=arguments.as_json)
    return 0 if is_good else 1


def archived_partitions(frame: DataFrame) -> list[ArchivedPartition]:
    """Count the rows of each partition."""
    from pyspark.sql import functions as f

    once = frame.groupBy("topic", "partition", "offset").count()
    rows = once.groupBy("topic", "partition").agg(
        f.sum("count").alias("records"),
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.sum(f.col("count") - 1).alias("repeated"),
    )
    found = [ArchivedPartition(*row) for row in rows.collect()]
    return sorted(found, key=lambda each: (each.topic, each.partition))


def _lines(target: str, files: ArchiveFiles | None, partitions: list[ArchivedPartition], *, is_good: bool) -> list[str]:
    lines = []
    if files is not None:
        lines.append(f"{target}: {len(files.counted)} files, {files.size} bytes")
        for what, names in (("MISSING", files.missing), ("not part of the archive", files.uncommitted)):
            lines += [f"  {what}: {name}" for name in names[:EXAMPLES]]
            if len(names) > EXAMPLES:
                lines.append(f"  {what}: {len(names) - EXAMPLES} more")
    for each in partitions:
        lines.append(
            f"  {each.topic}-{each.partition}: {each.records} records, offsets {each.first_offset} to "
            f"{each.last_offset}, {each.absent_offsets} offsets without a record"
            + (f", {each.repeated} REPEATED" if each.repeated else "")
        )
    lines.append("all is well" if is_good else "the archive is damaged")
    return lines
