"""What an archive contains: the columns of its rows, and the manifest beside them.

    TARGET/topic=orders/date=2024-05-01/part-….parquet     rows; in the mode "json" also …/malformed=true/…
    TARGET/_spark_metadata/                                which files count (Spark's file sink)
    TARGET/_tidelog/archive.json                           the manifest
    TARGET/_tidelog/checkpoint/                            the progress of the query

The date is that of the record's timestamp in UTC. A row keeps everything of its record: key, value, headers, timestamp,
its type, partition and offset. `timestampMs` is the timestamp as it is in the log. `timestamp` and the date are null
where there is none, or where it is no time of the years 1 to 9999.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from tidelog.client.machine import secure_rng
from tidelog.errors import InvalidConfig
from tidelog.jobs.hadoop_files import HadoopDirectory
from tidelog.jobs.json_values import json_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MANIFEST: Final = "archive.json"
CHECKPOINT: Final = "checkpoint"
STATE: Final = "_tidelog"
DAY_MS: Final = 86_400_000
MALFORMED: Final = "malformed"
PARSED: Final = "data"

_VERSION: Final = 1

RECORD_SCHEMA: Final = (
    "key binary, value binary, headers array<struct<key:string,value:binary>>, timestamp timestamp, "
    "timestampMs bigint, timestampType int, partition int, offset bigint"
)
"""The columns of a record, as they are in each file of an archive with values."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was decided when the archive began."""

    archive_id: str
    """Unique id of the archive, from which a restore derives its identity."""
    format: str
    """parquet, delta or iceberg."""
    schema: str | None = None
    """JSON of the Spark type of the parsed values; None: values are not parsed."""
    keeps_values: bool = True
    """True if each row has the bytes of the value."""

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that are directories."""
        return ("topic", "date") if self.schema is None else ("topic", "date", MALFORMED)


def new_manifest(file_format: str, schema: str | None, *, keeps_values: bool) -> Manifest:
    """The manifest of an archive that begins."""
    return Manifest(f"{secure_rng().getrandbits(64):016x}", file_format, schema, keeps_values or schema is None)


def find_manifest(state: HadoopDirectory) -> Manifest | None:
    """The manifest of an archive; None if there is none. state: the directory that contains it.

    Raises InvalidConfig for one of a later version, and for a damaged one.
    """
    if not state.exists(MANIFEST):
        return None
    place = state.child(MANIFEST)
    try:
        fields = json.loads(state.read_text(MANIFEST))
        version = fields.pop("version")
        if version > _VERSION:
            raise InvalidConfig(f"{place} has version {version}, this tidelog reads {_VERSION}: upgrade tidelog")
        return Manifest(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidConfig(f"{place} is not the manifest of an archive ({error}): restore the file") from error


def write_manifest(state: HadoopDirectory, manifest: Manifest) -> None:
    """Write the manifest of an archive that begins."""
    state.write_text(MANIFEST, json.dumps({"version": _VERSION, **asdict(manifest)}, indent=1) + "\n")


def archive_rows(frame: DataFrame, manifest: Manifest) -> DataFrame:
    """The rows of an archive, from those of the source with all columns."""
    from pyspark.sql import functions as f

    day = f.floor(f.unix_millis("timestamp") / f.lit(DAY_MS)).cast("int")
    columns: list[Any] = ["key", "value", "headers", "timestamp", "timestampMs", "timestampType", "partition", "offset"]
    rows = frame.withColumn("date", f.date_from_unix_date(day))
    if manifest.schema is None:
        return rows.select(*columns, "topic", "date")
    found = f.col(PARSED)
    rows = rows.withColumn(PARSED, json_column(f.col("value"), manifest.schema))
    # The fields do not say all of such a value: without its bytes it could not be restored.
    kept = found["malformed"] | found["has_more"]
    value = f.col("value") if manifest.keeps_values else f.when(kept, f.col("value"))
    return rows.select(
        *(value.alias(name) if name == "value" else name for name in columns),
        found["data"].alias(PARSED),
        "topic",
        "date",
        found["malformed"].alias(MALFORMED),
    )
