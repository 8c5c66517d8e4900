"""The streaming queries: from a topic to Parquet, to another topic, and to tables that the console shows.

Windows are of event time. In the topic each window is written once, when it is closed (append mode, exactly once): a
JSON object, with window, level and component as key. A line may come `LATE` behind the newest one; Spark drops later
ones there and says how many. The tables of the console have all lines, in open windows too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.streaming.query import StreamingQuery

from examples.analytics.log_lines import log_lines

LATE: Final = "1 minute"
COUNTS: Final = "log_counts"
TALKERS: Final = "log_talkers"
TO_TOPIC: Final = "log_topic"


@dataclass(frozen=True, slots=True)
class Places:
    """Where lines come from and results go: nodes, topic of the lines, topic of the counts, directory of Parquet files
    and checkpoints; window: length of the windows of time, as `10 seconds`."""

    bootstrap: str
    lines: str
    counts: str
    directory: Path
    window: str = "10 seconds"
    offsets_per_batch: int = 20_000

    @property
    def parquet(self) -> str:
        return str(self.directory / "lines.parquet")

    def checkpoint(self, query: str) -> str:
        return str(self.directory / "checkpoints" / query)


def start_queries(spark: SparkSession, places: Places, *, continuous: bool = False) -> list[StreamingQuery]:
    """Start all queries. They end when they have read what was there when they began; continuous: not at all."""
    return [
        _to_parquet(spark, places, continuous=continuous),
        _to_topic(spark, places, continuous=continuous),
        _to_table(_counts(spark, places, COUNTS), COUNTS, continuous=continuous),
        _to_table(_talkers(spark, places), TALKERS, continuous=continuous),
    ]


def late_lines(queries: Sequence[StreamingQuery]) -> int:
    """Lines that came too late for their window in the topic."""
    found = 0
    for query in queries:
        if query.name == TO_TOPIC:
            found += sum(
                int(operator.numRowsDroppedByWatermark)
                for progress in query.recentProgress
                for operator in progress.stateOperators
            )
    return found


def _lines(spark: SparkSession, places: Places, query: str) -> DataFrame:
    """A stream of the topic's lines. Each query has a group of its own, with which `tidelog group lag` shows it."""
    records = (
        spark.readStream.format("tidelog")
        .option("tidelog.bootstrap.servers", places.bootstrap)
        .option("tidelog.group.id", f"analytics-{places.lines}-{query}")
        .option("subscribe", places.lines)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(places.offsets_per_batch))
        .load()
    )
    return log_lines(records)


def _counts(spark: SparkSession, places: Places, query: str) -> DataFrame:
    window = F.window("event_time", places.window)
    counted = (
        _lines(spark, places, query)
        .withWatermark("event_time", LATE)
        .groupBy(window, "level", "component")
        .agg(F.count("*").alias("lines"), F.sum("bytes").alias("bytes"))
    )
    return counted.select(F.col("window.start").alias("from"), "level", "component", "lines", "bytes")


def _talkers(spark: SparkSession, places: Places) -> DataFrame:
    lines = _lines(spark, places, TALKERS)
    return lines.groupBy("component").agg(F.count("*").alias("lines"), F.sum("bytes").alias("bytes"))


def _to_parquet(spark: SparkSession, places: Places, *, continuous: bool) -> StreamingQuery:
    lines = _lines(spark, places, "parquet").withColumn("date", F.to_date("event_time"))
    writer = lines.writeStream.format("parquet").option("path", places.parquet).partitionBy("date", "level")
    writer = writer.queryName("log_parquet").option("checkpointLocation", places.checkpoint("parquet"))
    return (writer if continuous else writer.trigger(availableNow=True)).start()


def _to_topic(spark: SparkSession, places: Places, *, continuous: bool) -> StreamingQuery:
    counted = _counts(spark, places, "topic")
    records = counted.select(
        F.concat_ws("|", F.date_format("from", "yyyy-MM-dd'T'HH:mm:ss"), "level", "component").alias("key"),
        F.to_json(F.struct("from", "level", "component", "lines", "bytes")).alias("value"),
    )
    writer = (
        records.writeStream.format("tidelog")
        .option("tidelog.bootstrap.servers", places.bootstrap)
        .option("topic", places.counts)
        .option("checkpointLocation", places.checkpoint("topic"))
        .queryName(TO_TOPIC)
    )
    return (writer if continuous else writer.trigger(availableNow=True)).start()


def _to_table(rows: DataFrame, name: str, *, continuous: bool) -> StreamingQuery:
    """A table in memory of all windows, open ones too, for the console and the picture."""
    writer = rows.writeStream.format("memory").queryName(name).outputMode("complete")
    return (writer if continuous else writer.trigger(availableNow=True)).start()
