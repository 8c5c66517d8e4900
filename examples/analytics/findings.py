"""What the tables of the queries say: levels over time, bursts of errors, top talkers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

from examples.analytics.log_lines import is_error
from examples.analytics.streams import COUNTS, TALKERS

BURST_ERRORS_MIN: Final = 5
BURST_FACTOR: Final = 3.0
BURST_BEFORE: Final = 10
BURST_BEFORE_MIN: Final = 3
"""A burst is a window with at least so many errors, and so many times the mean of the windows before it: of 10, and of
no fewer than 3."""
TALKERS_MAX: Final = 8
WINDOWS_MAX: Final = 30


@dataclass(frozen=True, slots=True)
class Burst:
    """A window with far more errors than those before it; mean: errors per window before it."""

    begins: datetime
    errors: int
    mean: float


@dataclass(frozen=True, slots=True)
class LogFindings:
    """windows: begin, level and lines of every window and level, in order of time. talkers: component, lines, bytes,
    most lines first. late: lines that came too late for their window in the topic."""

    windows: tuple[tuple[datetime, str, int], ...]
    bursts: tuple[Burst, ...]
    talkers: tuple[tuple[str, int, int], ...]
    late: int

    @property
    def lines(self) -> int:
        """All lines."""
        return sum(lines for _, _, lines in self.windows)

    def tables(self) -> list[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]]:
        """Title, columns (">" before a name: numbers) and rows for the console."""
        levels: dict[tuple[datetime, str], int] = {}
        for begins, level, lines in self.windows[-WINDOWS_MAX:]:
            levels[begins, level] = lines
        return [
            (
                f"Lines by window and level (UTC; {self.late:,} came too late for the topic)",
                ("from", "level", ">lines"),
                [(f"{begins:%Y-%m-%d %H:%M:%S}", level, f"{lines:,}") for (begins, level), lines in levels.items()],
            ),
            (
                f"Bursts: {BURST_ERRORS_MIN} errors or more, {BURST_FACTOR:g} times the mean before",
                ("from", ">errors", ">mean before"),
                [(f"{one.begins:%Y-%m-%d %H:%M:%S}", f"{one.errors:,}", f"{one.mean:,.1f}") for one in self.bursts],
            ),
            (
                "Top talkers",
                ("component", ">lines", ">bytes"),
                [(component, f"{lines:,}", f"{size:,}") for component, lines, size in self.talkers],
            ),
        ]


def find(spark: SparkSession, late: int) -> LogFindings:
    """Read the tables of the queries. late: what `late_lines` says."""
    counts = spark.table(COUNTS)
    by_level = counts.groupBy("from", "level").agg(F.sum("lines").alias("lines")).orderBy("from", "level").collect()
    errors = counts.groupBy("from").agg(F.sum(F.when(is_error(F.col("level")), F.col("lines")).otherwise(0)).alias("n"))
    before = Window.orderBy("from").rowsBetween(-BURST_BEFORE, -1)
    judged = errors.withColumn("mean", F.avg("n").over(before)).withColumn("before", F.count("*").over(before))
    is_burst = (F.col("n") >= BURST_ERRORS_MIN) & (F.col("n") >= BURST_FACTOR * F.col("mean"))
    bursts = judged.where(is_burst & (F.col("before") >= BURST_BEFORE_MIN))
    talkers = spark.table(TALKERS).orderBy(F.desc("lines"), "component").limit(TALKERS_MAX).collect()
    return LogFindings(
        tuple((row["from"], row["level"], row["lines"]) for row in by_level),
        tuple(Burst(row["from"], row["n"], row["mean"]) for row in bursts.orderBy("from").collect()),
        tuple((row["component"], row["lines"], row["bytes"] or 0) for row in talkers),
        late,
    )
