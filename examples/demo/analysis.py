"""A small analysis of what was committed, each record once: what the input says, not how it travelled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

ROWS_MAX: Final = 8
WORD_LETTERS_MIN: Final = 4
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


def of_lines(records: DataFrame) -> Iterator[Result]:
    """How fast lines came in, and which words are the most frequent in them."""
    window = F.window("timestamp", "10 seconds")
    pace = records.groupBy(window.start.alias("from")).agg(
        F.count("*").alias("lines"), F.sum(F.length("value")).alias("characters")
    )
    yield _result(
        "Ingestion, each ten seconds (UTC)",
        ("from", ">lines", ">characters"),
        pace.orderBy("from").limit(4 * ROWS_MAX).select(F.date_format("from", "HH:mm:ss"), "lines", "characters"),
    )
    words = records.select(F.explode(F.split(F.lower("value"), r"[^\p{L}\p{N}_]+")).alias("word"))
    frequent = (
        words.where(F.length("word") >= WORD_LETTERS_MIN).groupBy("word").agg(F.count("*").alias("times"))
    ).orderBy(F.desc("times"), "word")
    yield _result(
        f"Most frequent words of {WORD_LETTERS_MIN} letters or more", ("word", ">times"), frequent.limit(ROWS_MAX)
    )


def _result(title: str, columns: tuple[str, ...], rows: DataFrame) -> Result:
    return Result(title, columns, tuple(tuple(row) for row in rows.collect()))
