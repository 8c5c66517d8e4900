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

from tidelog.errors import InvalidConfig
from tidelog.jobs.archive_layout import PARSED, RECORD_SCHEMA, STATE, Manifest, schema_of
from tidelog.jobs.hadoop_files import HadoopDirectory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SINK_LOG: Final = "_spark_metadata"
CHECK_PAGES: Final = "parquet.page.verify-checksum.enabled"
"""The option of Parquet's reader to compare each page with the CRC-32 in its header, if there is one."""
_ENTRY: Final = re.compile(r"(\d+)(\.compact)?")
_BELOW: Final = re.compile(r"(?:^|/)(topic=.*)")


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file that is there and is not what was written."""

    file: str
    cause: str


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """The files of an archive by their path below it. counted: those that are logged; missing and damaged (of another
    size) ones are among them. uncommitted: they are there, and must not be read. size: of the counted ones."""

    counted: tuple[str, ...]
    missing: tuple[str, ...]
    damaged: tuple[DamagedFile, ...]
    uncommitted: tuple[str, ...]
    size: int

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


def _logged(target: HadoopDirectory) -> dict[str, int]:
    """The logged files with their sizes."""
    entries = {int(match[1]): name for name in target.names(SINK_LOG) if (match := _ENTRY.fullmatch(name))}
    compact = max((number for number, name in entries.items() if name.endswith(".compact")), default=-1)
    numbers = sorted(number for number in entries if number >= compact)
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
                path = _below(entry["path"])
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
    return _below(path) if below.startswith("topic=") else below


def _below(path: str) -> str:
    """The path below the archive, as the file system has it. The log has URIs, which escape some characters."""
    match = _BELOW.search(unquote(path) if "%" in path else path)
    if match is None:
        raise ValueError(f"{path} is not below a directory of a topic")
    return match[1]


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
    return frame.where(f.col("topic").isin(wanted)) if wanted else frame


def _whole_frame(spark: SparkSession, target: HadoopDirectory, topics: list[str]) -> DataFrame:
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
    names = [
        name for name in files.counted if not topics or name.startswith(tuple(f"topic={each}/" for each in topics))
    ]
    return parquet_frame(spark, target, names)


def parquet_frame(
    spark: SparkSession, target: HadoopDirectory, names: Iterable[str], parsed: str | None = None
) -> DataFrame:
    """The rows of these files. parsed: the schema of parsed values, for a frame that has them, too."""
    schema = _schema(parsed)
    paths = [target.child(name) for name in names]
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).options(**{"basePath": target.uri, CHECK_PAGES: "true"}).parquet(*paths)


def _schema(parsed: str | None) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(f"{RECORD_SCHEMA}, topic string, date date")
    assert isinstance(schema, StructType), "a schema has columns"
    return schema if parsed is None else schema.add(PARSED, schema_of(parsed))
