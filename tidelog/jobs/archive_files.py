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
from tidelog.jobs.archive_layout import RECORD_SCHEMA, STATE, Manifest
from tidelog.jobs.hadoop_files import HadoopDirectory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SINK_LOG: Final = "_spark_metadata"
_ENTRY: Final = re.compile(r"(\d+)(\.compact)?")
_BELOW: Final = re.compile(r"(?:^|/)(topic=.*)")


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """The files of an archive by their path below it. missing: logged, but absent or of another size. uncommitted: they
    are there, and must not be read."""

    counted: tuple[str, ...]
    missing: tuple[str, ...]
    uncommitted: tuple[str, ...]
    size: int


def find_files(target: HadoopDirectory) -> ArchiveFiles:
    """The files of a Parquet archive. Raises InvalidConfig for a damaged log."""
    logged = _logged(target)
    present = {name: file.size for file in target.walk() if (name := _data_name(target, file.path)) is not None}
    return ArchiveFiles(
        counted=tuple(sorted(logged)),
        missing=tuple(sorted(name for name, size in logged.items() if present.get(name) != size)),
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
    none: of all.

    Raises InvalidConfig if files are missing.
    """
    from pyspark.sql import functions as f

    wanted = list(topics)
    if manifest.format == "parquet":
        frame = _parquet_frame(spark, HadoopDirectory(spark, target), wanted)
    elif manifest.format == "delta":
        frame = spark.read.format("delta").load(target)
    else:
        frame = spark.read.table(target)
    return frame.where(f.col("topic").isin(wanted)) if wanted else frame


def _parquet_frame(spark: SparkSession, target: HadoopDirectory, topics: list[str]) -> DataFrame:
    files = find_files(target)
    if files.missing:
        raise InvalidConfig(
            f"the archive {target.uri} lacks {len(files.missing)} of {len(files.counted)} files, for example "
            f"{files.missing[0]}: restore them from a copy"
        )
    names = [
        name for name in files.counted if not topics or name.startswith(tuple(f"topic={each}/" for each in topics))
    ]
    schema = f"{RECORD_SCHEMA}, topic string, date date"
    if not names:
        return spark.createDataFrame([], schema)
    paths = [target.child(name) for name in names]
    return spark.read.schema(schema).option("basePath", target.uri).parquet(*paths)
