"""A small analysis of what was committed, each record once: what the input says, not how it travelled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from examples.analytics.findings import find
from examples.analytics.picture import draw
from examples.analytics.streams import Places, late_lines, start_queries

ROWS_MAX: Final = 8
TELEMETRY: Final = "kind string, at long, name string, busy_seconds double, rss_bytes long, threads int"


@dataclass(frozen=True, slots=True)
class Result:
    """A small table; columns whose name starts with ">" are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def of_telemetry(records: DataFrame) -> Iterator[Result]:
    """The busiest cores and processes: what each used between its first and its last record."""
    measured = records.select("key", F.from_json("value", TELEMETRY).alias("measured")).select("key", "measured.*")
    used, span = F.max("busy_seconds") - F.min("busy_seconds"), (F.max("at") - F.min("at")) / 1000
    busy = (
        measured.groupBy("kind", "key")
        .agg(
            F.last("name").alias("name"),
            F.count("*").alias("records"),
            F.try_divide(100 * used, span).alias("percent"),  # nothing can be said of what was seen once
            (F.max("rss_bytes") / (1 << 20)).alias("mib"),
            F.max("threads").alias("threads"),
        )
        .where("percent IS NOT NULL")
        .cache()
    )
    percent = F.format_number("percent", 1)
    cores = busy.where("kind = 'core'").orderBy("key").limit(2 * ROWS_MAX).select("key", percent, "records")
    yield _result("Processor cores", ("core", ">busy %", ">records"), cores)
    processes = busy.where("kind = 'process'").orderBy(F.desc("percent")).limit(ROWS_MAX)
    yield _result(
        "Busiest processes while the demo ran",
        ("process", "name", ">busy %", ">largest MiB", ">threads", ">records"),
        processes.select("key", "name", percent, F.format_number("mib", 1), "threads", "records"),
    )
    busy.unpersist()


def of_streams(spark: SparkSession, places: Places, picture: Path) -> Iterator[Result]:
    """What streaming queries find in the records as log lines (`examples/analytics`), with a picture."""
    queries = start_queries(spark, places)
    for query in queries:
        query.awaitTermination()
    found = find(spark, late_lines(queries))
    draw(found, picture)
    for title, columns, rows in found.tables():
        yield Result(title, columns, tuple(rows[-ROWS_MAX * 2 :]))


def _result(title: str, columns: tuple[str, ...], rows: DataFrame) -> Result:
    return Result(title, columns, tuple(tuple(row) for row in rows.collect()))
