"""`tidelog job archive --verify`: are all files there and readable, and is each record in the archive once?

All columns of all files are read. The header of each page of a Parquet file has a CRC-32 of the page, which the reader
compares: values that can still be decoded, but are not those that were written, are damage as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from tidelog.cli.declared import Option
from tidelog.errors import InvalidConfig
from tidelog.jobs.archive_files import ArchiveFiles, DamagedFile, archive_frame, find_files, parquet_frame
from tidelog.jobs.archive_layout import STATE, Manifest, find_manifest
from tidelog.jobs.hadoop_files import HadoopDirectory, local_path
from tidelog.jobs.job_frame import SparkJobArguments, is_of_spark, print_report, sentence_of
from tidelog.jobs.job_session import SPARK_LOG, silence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXAMPLES: Final = 5
"""Files of each kind that a report names."""
_FAILED_FILE: Final = "FAILED_READ_FILE"
"""What Spark calls an error about a file that it reads, with the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveJobArguments(SparkJobArguments):
    """The arguments of jobs on an archive."""

    state: Annotated[
        str | None, Option("--state", metavar="DIR", help=f"Checkpoint and manifest; default: TARGET/{STATE}.")
    ] = None


@dataclass(frozen=True, slots=True)
class ArchivedPartition:
    """What an archive has of a partition."""

    topic: str
    partition: int
    records: int
    first_offset: int
    last_offset: int
    repeated: int
    """Rows beyond the first one of an offset."""

    @property
    def absent_offsets(self) -> int:
        """Offsets without a row: markers of transactions, compaction and aborted records leave such holes as well."""
        return self.last_offset - self.first_offset + 1 - (self.records - self.repeated)


def ensure_local_archive(arguments: ArchiveJobArguments, option: str, target: str) -> None:
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


def require_manifest(spark: SparkSession, arguments: ArchiveJobArguments, target: str) -> Manifest:
    """The manifest of an archive. Raises InvalidConfig if there is none."""
    state = HadoopDirectory(spark, arguments.state or f"{target}/{STATE}")
    found = find_manifest(state)
    if found is None:
        raise InvalidConfig(f"{target} is no archive: {state.uri} has no manifest; check the path, or name --state")
    return found


def verify_archive(spark: SparkSession, arguments: ArchiveJobArguments, archive: str) -> int:
    """Check an archive and report. Returns 1 if files are missing or damaged, or records are there twice. Records are
    counted in the other files."""
    manifest = require_manifest(spark, arguments, archive)
    silence(spark, SPARK_LOG)
    files, damaged = None, list[DamagedFile]()
    if manifest.format == "parquet":
        target = HadoopDirectory(spark, archive)
        files = find_files(target)
        unreadable = damaged_files(spark, target, files.whole, manifest.schema)
        damaged = sorted([*files.damaged, *unreadable], key=lambda each: each.file)
        lost = {each.file for each in damaged}
        frame = parquet_frame(spark, target, [name for name in files.whole if name not in lost])
    else:
        frame = archive_frame(spark, archive, manifest)
        read_all(frame)
    partitions = archived_partitions(frame)
    is_whole = not damaged and not (files and files.missing)
    is_good = is_whole and not any(each.repeated for each in partitions)
    document = {
        "job": "archive --verify",
        "target": archive,
        "good": is_good,
        "records": sum(each.records for each in partitions),
        "files": None if files is None else len(files.counted),
        "bytes": None if files is None else files.size,
        "missing": [] if files is None else files.missing,
        "damaged": damaged,
        "uncommitted": [] if files is None else files.uncommitted,
        "partitions": partitions,
    }
    lines = _lines(archive, files, damaged, partitions)
    lines.append("all is well" if is_good else "the archive is damaged")
    print_report(document, lines, as_json=arguments.as_json)
    return 0 if is_good else 1


def damaged_files(
    spark: SparkSession, target: HadoopDirectory, names: Sequence[str], parsed: str | None
) -> list[DamagedFile]:
    """Those of the files that cannot be read or differ from their checksums; by halves, as long as a half has some.
    parsed: the schema of parsed values. Raises what Spark raises about anything but a file."""
    if not names:
        return []
    try:
        read_all(parquet_frame(spark, target, names, parsed))
    except Exception as error:
        if not is_of_file(error):
            raise
        if len(names) == 1:
            return [DamagedFile(names[0], sentence_of(error).rpartition("; ")[2])]
        middle = len(names) // 2
        halves = (names[:middle], names[middle:])
        return [each for half in halves for each in damaged_files(spark, target, half, parsed)]
    return []


def read_all(frame: DataFrame) -> None:
    """Read all columns of all rows."""
    from pyspark.sql import functions as f

    frame.agg(f.max(f.xxhash64(*frame.columns))).collect()


def is_of_file(error: Exception) -> bool:
    """Whether Spark could not read a file."""
    return is_of_spark(error) and _FAILED_FILE in str(error)


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


def _lines(
    target: str, files: ArchiveFiles | None, damaged: list[DamagedFile], partitions: list[ArchivedPartition]
) -> list[str]:
    lines = []
    if files is not None:
        lines.append(f"{target}: {len(files.counted)} files, {files.size} bytes")
        for what, names in (
            ("MISSING", files.missing),
            ("DAMAGED", [f"{each.file}: {each.cause}" for each in damaged]),
            ("not part of the archive", files.uncommitted),
        ):
            lines += [f"  {what}: {name}" for name in names[:EXAMPLES]]
            if len(names) > EXAMPLES:
                lines.append(f"  {what}: {len(names) - EXAMPLES} more")
    for each in partitions:
        lines.append(
            f"  {each.topic}-{each.partition}: {each.records} records, offsets {each.first_offset} to "
            f"{each.last_offset}, {each.absent_offsets} offsets without a record"
            + (f", {each.repeated} REPEATED" if each.repeated else "")
        )
    return lines
