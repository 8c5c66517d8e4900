"""Runs of streaming queries, and what a plain consumer reads of the same topics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

import tidelog
from node.process.local_cluster import LocalCluster
from tidelog.spark.options.query_options import parse_stream_options
from tidelog.spark.streaming.stream_offsets import StreamOffset, parse_offset
from tidelog.spark.streaming.stream_reader import TidelogStreamReader
from tidelog.types import PartitionIndex, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OFTEN = {
    "log.cleaner.backoff.ms": 200,
    "log.retention.check.interval.ms": 200,
    "log.segment.delete.delay.ms": 500,
}
"""Settings of nodes that remove old records soon."""

NOT_CONNECTED = "Python worker failed to connect back"

Row = tuple[str, int, int, bytes | None]
"""Topic, partition, offset and value."""


class StreamRun:
    """A query with a checkpoint, run as often as a test likes. rows: of each batch, those of its last attempt."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, checkpoint: Path, **options: str) -> None:
        self.spark, self.checkpoint = spark, checkpoint
        self.options = {"tidelog.bootstrap.servers": cluster.bootstrap, "startingOffsets": "earliest", **options}
        self.batches: dict[int, list[Row]] = {}
        self.before: Callable[[int], object] = lambda _: None
        """Called with the number of each batch before it is stored; may raise."""

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start the query, and wait until its reader runs. On a machine without a free core, Spark may give up on a new
        Python process after 10 s: it is started again."""
        frame = self.spark.readStream.format("tidelog").options(**self.options).load()
        writer = frame.select("topic", "partition", "offset", "value").writeStream.foreachBatch(self._store)
        if trigger:
            writer = writer.trigger(**trigger)
        for _ in range(4):
            query = writer.option("checkpointLocation", str(self.checkpoint)).start()
            while query.isActive and query.status["message"].startswith("Initializing"):
                with suppress(StreamingQueryException):
                    query.awaitTermination(0.05)  # type: ignore[arg-type]  # Spark takes fractions
            if NOT_CONNECTED not in str(query.exception()):
                break
        return query

    def run(self, within_s: int = 60) -> StreamingQuery:
        """Read what is there."""
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(within_s), "the query did not end"
        finally:
            query.stop()
        return query

    def failure(self, within_s: int = 60) -> str:
        """Read what is there; return the words with which the query fails."""
        try:
            self.run(within_s)
        except Exception as error:  # noqa: BLE001 - Spark's errors have one type, the words count
            return str(error)
        raise AssertionError("the query did not fail")

    def _store(self, frame: DataFrame, number: int) -> None:
        rows = [(row.topic, row.partition, row.offset, row.value) for row in frame.collect()]
        self.before(number)
        self.batches[number] = [(name, index, offset, value and bytes(value)) for name, index, offset, value in rows]

    @property
    def rows(self) -> list[Row]:
        """The rows of all batches, sorted: a record that came twice is there twice."""
        return sorted((row for rows in self.batches.values() for row in rows), key=lambda row: row[:3])

    @property
    def offsets(self) -> list[int]:
        return [offset for _, _, offset, _ in self.rows]


class ReaderRun:
    """The calls that Spark makes to the reader of a query, in their order (stream_reader.py), without Spark: a query
    with a checkpoint in memory, run as often as a test likes. log: the ends of batches; committed: how many of them are
    processed."""

    def __init__(self, cluster: LocalCluster, **options: str) -> None:
        self.options = {"tidelog.bootstrap.servers": cluster.bootstrap, "startingOffsets": "earliest", **options}
        self.log: list[dict[str, Any]] = []
        self.committed = 0
        self.rows: list[tuple[int, bytes | None]] = []
        """Offset and value of what was processed."""
        self.chosen: Callable[[], None] = lambda: None
        """Called when a batch is chosen, before it is planned."""

    def run(self, *, fails: bool = False) -> None:
        """Read what is there, as with the trigger availableNow. fails: the first batch is chosen, and not processed."""
        reader = TidelogStreamReader(parse_stream_options(self.options), ("offset", "value"))
        try:
            reader.prepareForTriggerAvailableNow()
            limit = reader.getDefaultReadLimit()
            while True:
                if len(self.log) == self.committed:
                    start = self.log[-1] if self.log else reader.initialOffset()
                    end = json.loads(json.dumps(reader.latestOffset(start, limit)))
                    if self.log and end == start:
                        return
                    self.log.append(end)
                    self.chosen()
                if fails:
                    return
                start = self.log[-2] if len(self.log) > 1 else reader.initialOffset()
                for one in reader.partitions(start, self.log[-1]):
                    for batch in reader.read(one):
                        self.rows += [(row["offset"], row["value"]) for row in batch.to_pylist()]
                self.committed += 1
                reader.commit(self.log[-1])
        finally:
            reader.stop()

    @property
    def position(self) -> StreamOffset:
        return parse_offset(self.log[-1])

    @property
    def skipped(self) -> int:
        return self.position.skipped + sum(each.skipped for _, _, each in self.position)


def produce(cluster: LocalCluster, topic: str, values: Iterable[str], *, partitions: int = 1) -> None:
    async def send() -> None:
        async with tidelog.Producer(cluster.bootstrap) as producer:
            for number, value in enumerate(values):
                await producer.enqueue(topic, value.encode(), partition=number % partitions)
            await producer.flush()

    asyncio.run(send())


def consumed(cluster: LocalCluster, *partitions: tuple[str, int]) -> list[Row]:
    """What a consumer reads up to the last stable offset, sorted."""

    async def consume() -> list[Row]:
        found: list[Row] = []
        async with (
            tidelog.Consumer(cluster.bootstrap, isolation="read_committed") as consumer,
            tidelog.Admin(cluster.bootstrap) as admin,
        ):
            keys = [TopicPartition(name, PartitionIndex(index)) for name, index in partitions]
            ends = await admin.list_offsets(keys, "latest", isolation="read_committed")
            consumer.assign(keys, start="earliest")
            async with asyncio.timeout(30):
                while any([await consumer.position(key) < end for key, end in ends.items()]):
                    found += [
                        (each.topic, each.partition, each.offset, each.value)
                        for each in await consumer.poll(timeout=0.1)
                    ]
        return sorted(found, key=lambda row: row[:3])

    return asyncio.run(consume())
