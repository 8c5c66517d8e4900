"""The committed files of a Parquet archive: those in the log of Spark's file sink.

A batch that failed leaves files that are not in the log, and its repetition writes the same rows to other files: a
program that reads all files of a directory would get rows twice.
The log is a directory with one file for each batch; every tenth one, `N.compact`, repeats all entries before it. A file
of the log is a line "v1", then one JSON object for each data file, with its absolute URI (Spark 4.3,
ManifestFileCommitProtocol, FileStreamSinkLog). Only the part of the URI below the archive is used, so that an archive
can be moved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from tidelog.cli.argument_values import WrongUsage
from tidelog.errors import InvalidConfig
from tidelog.jobs.archive_layout import PARSED, RECORD_SCHEMA, STATE, Manifest
from tidelog.jobs.hadoop_files import HadoopDirectory
from tidelog.jobs.json_values import schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SINK_LOG: Final = "_spark_metadata"
CHECK_PAGES: Final = "parquet.page.verify-checksum.enabled"
"""The option of Parquet's reader to compare each page with the CRC-32 in its header, if there is one."""
_ENTRY: Final = re.compile(r"(\d+)(\.compact)?")
_BELOW: Final = re.compile(r"(?:^|/)(topic=[^/]*/date=[^/]*(?:/malformed=[^/]*)?/[^/]+)$")
"""The part of a path below the archive. It is matched from the end: directories above the archive may be named like
partitions, too."""
_PATTERN_CHARACTERS: Final = re.compile(r"[\[\]{}*?\\]")
"""Characters that make a reader's path a pattern for Spark, unless a backslash is before them."""


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file whose content is not what was written."""

    file: str
    cause: str


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """The files of an archive, as paths below it."""

    counted: tuple[str, ...]
    """All files in the log, also those that are missing or damaged."""
    missing: tuple[str, ...]
    """Files in the log that do not exist."""
    damaged: tuple[DamagedFile, ...]
    """Files whose size differs from that in the log."""
    uncommitted: tuple[str, ...]
    """Files that exist and are not in the log: they must not be read."""
    size: int
    """Total size of the counted files in bytes, according to the log."""

    @property
    def whole(self) -> list[str]:
        """The counted files that exist with the right size."""
        lost = {*self.missing, *(damaged.file for damaged in self.damaged)}
        return [name for name in self.counted if name not in lost]


def find_files(target: HadoopDirectory) -> ArchiveFiles:
    """The files of a Parquet archive. Raises InvalidConfig for a damaged log."""
    logged = _logged(target)
    present = {name: size for path, size in target.walk() if (name := _data_name(target, path)) is not None}
    return ArchiveFiles(
        counted=tuple(sorted(logged)),
        missing=tuple(sorted(logged.keys() - present.keys())),
        damaged=tuple(
            DamagedFile(name, f"it has {present[name]} bytes instead of {size}")
            for name, size in sorted(logged.items())
            if present.get(name, size) != size
        ),
        uncommitted=tuple(sorted(present.keys() - logged.keys())),
        size=sum(logged.values()),
    )


def whole_files(target: HadoopDirectory) -> tuple[str, ...]:
    """The counted files of an archive. Raises InvalidConfig if one of them is missing or has another size."""
    files = find_files(target)
    if files.missing:
        raise InvalidConfig(
            f"the archive {target.uri} lacks {len(files.missing)} of {len(files.counted)} files, for example "
            f"{files.missing[0]}: restore them from a copy"
        )
    if files.damaged:
        raise InvalidConfig(
            f"{len(files.damaged)} of {len(files.counted)} files of the archive {target.uri} are damaged, for example "
            f"{files.damaged[0].file}: {files.damaged[0].cause}; restore them from a copy"
        )
    return files.counted


def _logged(target: HadoopDirectory) -> dict[str, int]:
    """The files in the log, with their sizes."""
    entries = {int(match[1]): name for name in target.names(SINK_LOG) if (match := _ENTRY.fullmatch(name))}
    compact = max((number for number, name in entries.items() if name.endswith(".compact")), default=-1)
    numbers = sorted(number for number in entries if number >= compact)
    # Without this check, a lost entry would hide the files of its batch, and readers would miss rows without an error.
    if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise InvalidConfig(f"{target.child(SINK_LOG)} lacks entries among {numbers}: restore the directory")
    sizes: dict[str, int] = {}
    for number in numbers:
        name = f"{SINK_LOG}/{entries[number]}"
        try:
            version, *lines = target.read_text(name).splitlines()
            if version != "v1":
                raise ValueError(f"its version is {version!r}, not v1")
            for line in lines:
                entry = json.loads(line)
                path = path_below(entry["path"])
                if entry["action"] == "add":
                    sizes[path] = int(entry["size"])
                else:
                    sizes.pop(path, None)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidConfig(f"{target.child(name)} cannot be read: {error}; restore the file") from error
    return sizes


def _data_name(target: HadoopDirectory, path: str) -> str | None:
    """The path of a file below the archive; None if it has no data: the log, the state, hidden files. The path of a
    foreign file need not begin with a topic."""
    name = path.rpartition("/")[2]
    below = path.removeprefix(target.uri).lstrip("/")
    if below.startswith((SINK_LOG, STATE)) or name.startswith((".", "_")):
        return None
    return below


def path_below(uri: str) -> str:
    """The path below the archive. uri: from the log, in which some characters are escaped. Raises ValueError if it has
    no directories of a topic and a date."""
    match = _BELOW.search(unquote(uri))
    if match is None:
        raise ValueError(f"{uri} is not below the directories of a topic and a date")
    return match[1]


def ensure_no_pattern(option: str, path: str) -> None:
    """Raises WrongUsage for a path to which Spark would write, but which it would read as a pattern of other paths."""
    if found := sorted(set(_PATTERN_CHARACTERS.findall(path))):
        raise WrongUsage(
            f"{option} {path}: Spark reads {' '.join(found)} in a path as a pattern, and would not find the archive "
            "again: use a name without it"
        )


def archive_frame(spark: SparkSession, target: str, manifest: Manifest, *, topics: Iterable[str] = ()) -> DataFrame:
    """The rows of an archive, each once, with the columns of records that it has, and `topic`. topics: those to read;
    none: all. Values of Parquet that differ from their checksum fail the query.

    Raises InvalidConfig if files are missing or have another size.
    """
    from pyspark.sql import functions as f

    names = list(topics)
    if manifest.format == "parquet":
        frame = _whole_frame(spark, HadoopDirectory(spark, target), names)
    elif manifest.format == "delta":
        frame = spark.read.format("delta").load(target)
    else:
        frame = spark.read.table(target)
    # Archives of earlier versions have only `timestamp`, in which -1 ms stands for a record without a timestamp.
    frame = frame.withColumn("timestampMs", f.coalesce("timestampMs", f.unix_millis("timestamp")))
    return frame.where(f.col("topic").isin(names)) if names else frame


def _whole_frame(spark: SparkSession, target: HadoopDirectory, topics: list[str]) -> DataFrame:
    names = [
        name
        for name in whole_files(target)
        if not topics or name.startswith(tuple(f"topic={each}/" for each in topics))
    ]
    return parquet_frame(spark, target, names)


def parquet_frame(
    spark: SparkSession, target: HadoopDirectory, names: Iterable[str], parsed: str | None = None
) -> DataFrame:
    """The rows of these files. parsed: the schema of the column of parsed values, if the frame has it."""
    schema = _schema(parsed)
    paths = [_PATTERN_CHARACTERS.sub(r"\\\g<0>", target.child(name)) for name in names]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).options(**{"basePath": target.uri, CHECK_PAGES: "true"}).parquet(*paths)


def _schema(parsed: str | None) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(f"{RECORD_SCHEMA}, topic string, date date")
    assert isinstance(schema, StructType), "a schema has columns"
    return schema if parsed is None else schema.add(PARSED, schema_of(parsed))
