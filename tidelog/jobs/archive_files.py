"""Which files of a Parquet archive count: those that Spark's file sink has logged.

A batch that failed leaves files in the directories that no log names, and its repetition writes the same rows to other
files: a program that reads all files of a directory would get rows twice. The log is a directory with one file for each
batch; every tenth one, `N.compact`, contains all before it.
Facts (Spark 4.3, ManifestFileCommitProtocol, FileStreamSinkLog): a line "v1", then one JSON object for each file with
its absolute URI. Here the part below the archive counts, so that an archive can be moved.
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
"""The part of a path below the archive. It is found from the end: the directories that contain the archive may be named
like partitions as well."""
_PATTERN_CHARACTERS: Final = re.compile(r"[\[\]{}*?\\]")
"""What Spark takes in the path of a reader for a pattern of paths, unless a backslash is before it."""


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file that is there and is not what was written."""

    file: str
    cause: str


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """The files of an archive by their path below it."""

    counted: tuple[str, ...]
    """Those that are logged, missing and damaged ones among them."""
    missing: tuple[str, ...]
    damaged: tuple[DamagedFile, ...]
    """Those of another size than logged."""
    uncommitted: tuple[str, ...]
    """Present, and not logged: they must not be read."""
    size: int
    """Bytes of the counted ones."""

    @property
    def whole(self) -> list[str]:
        """The counted files that are there in their size."""
        lost = {*self.missing, *(each.file for each in self.damaged)}
        return [name for name in self.counted if name not in lost]


def find_files(target: HadoopDirectory) -> ArchiveFiles:
    """The files of a Parquet archive. Raises InvalidConfig for a damaged log."""
    logged = _logged(target)
    present = {name: file.size for file in target.walk() if (name := _data_name(target, file.path)) is not None}
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
    """The logged files with their sizes."""
    entries = {int(match[1]): name for name in target.names(SINK_LOG) if (match := _ENTRY.fullmatch(name))}
    compact = max((number for number, name in entries.items() if name.endswith(".compact")), default=-1)
    numbers = sorted(number for number in entries if number >= compact)
    # A lost entry would hide files of its batch: a reader would miss rows without an error.
    if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise InvalidConfig(f"{target.child(SINK_LOG)} lacks entries among {numbers}: restore the directory")
    found: dict[str, int] = {}
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
                    found[path] = int(entry["size"])
                else:
                    found.pop(path, None)
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidConfig(f"{target.child(name)} cannot be read: {error}; restore the file") from error
    return found


def _data_name(target: HadoopDirectory, path: str) -> str | None:
    """What a file is called below the archive; None: it is no data. A foreign file may lie outside the topics."""
    name = path.rpartition("/")[2]
    below = path.removeprefix(target.uri).lstrip("/")
    if below.startswith((SINK_LOG, STATE)) or name.startswith((".", "_")):
        return None
    return below


def path_below(uri: str) -> str:
    """The path below the archive, as the file system has it. uri: of the log, which escapes some characters. Raises
    ValueError for one that no archive has."""
    match = _BELOW.search(unquote(uri))
    if match is None:
        raise ValueError(f"{uri} is not below the directories of a topic and a date")
    return match[1]


def ensure_no_pattern(option: str, path: str) -> None:
    """Raises WrongUsage for a path that Spark would write, but read as a pattern of other paths."""
    if found := sorted(set(_PATTERN_CHARACTERS.findall(path))):
        raise WrongUsage(
            f"{option} {path}: Spark reads {' '.join(found)} in a path as a pattern, and would not find the archive "
            "again: use a name without it"
        )


def archive_frame(spark: SparkSession, target: str, manifest: Manifest, *, topics: Iterable[str] = ()) -> DataFrame:
    """The rows of an archive, each once, with the columns of records that it has, and `topic`. topics: only of these;
    none: of all. Values of Parquet that differ from their checksum fail the query.

    Raises InvalidConfig if files are missing or have another size.
    """
    from pyspark.sql import functions as f

    wanted = list(topics)
    if manifest.format == "parquet":
        frame = _whole_frame(spark, HadoopDirectory(spark, target), wanted)
    elif manifest.format == "delta":
        frame = spark.read.format("delta").load(target)
    else:
        frame = spark.read.table(target)
    # Earlier versions archived `timestamp` alone, with -1 ms for none: it says all there.
    frame = frame.withColumn("timestampMs", f.coalesce("timestampMs", f.unix_millis("timestamp")))
    return frame.where(f.col("topic").isin(wanted)) if wanted else frame


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
    """The rows of these files. parsed: the schema of parsed values, for a frame that has them, too."""
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
