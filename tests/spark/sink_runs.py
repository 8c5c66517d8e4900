"""Runs of a sink without Spark: tasks and drivers on a real cluster, whose failures a test decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.types import StructType

from node.process.local_cluster import LocalCluster
from tests.spark.decided import wait_decided
from tidelog import sync
from tidelog.client.read_committed import IsolationName
from tidelog.spark.sink.batch_commit import BatchCommit
from tidelog.spark.sink.sink_columns import SinkColumns
from tidelog.spark.sink.sink_options import SinkOptions, parse_sink_options
from tidelog.spark.sink.sink_task import SinkTask, TaskReport
from tidelog.spark.sink.task_writer import TaskWriter

SCHEMA = StructType().add("value", "string")
TOPIC_SCHEMA = StructType().add("value", "string").add("topic", "string")


def options_of(cluster: LocalCluster, **more: str) -> SinkOptions:
    return parse_sink_options({"tidelog.bootstrap.servers": cluster.bootstrap, "topic": "out", **more})


def batch_of(values: Iterable[str]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(list(values), pa.string())], names=["value"])


def batch_by_topic(rows: Iterable[tuple[str, str]]) -> pa.RecordBatch:
    """rows: values and topics."""
    values, topics = zip(*rows, strict=True)
    return pa.record_batch([pa.array(values, pa.string()), pa.array(topics, pa.string())], names=["value", "topic"])


def committed(
    cluster: LocalCluster, topic: str = "out", *, isolation: IsolationName = "read_committed"
) -> Counter[str]:
    """The values that a consumer gets, up to the last stable offset."""
    wait_decided(cluster)
    found: Counter[str] = Counter()
    with sync.Consumer(cluster.bootstrap, isolation=isolation) as consumer:
        places = consumer.partitions(topic)
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        while any(consumer.position(place) < ends[place] for place in places):
            found.update((record.value or b"").decode() for record in consumer.poll(timeout=0.1))
    return found


@dataclass
class SinkRun:
    """One start of a query: its tasks and its driver."""

    options: SinkOptions
    sink_id: str
    run_id: str
    is_streaming: bool = True
    reports: list[TaskReport] = field(default_factory=list)
    """Of the tasks of the present batch that Spark has accepted."""

    def attempt(self, batch_id: int, partition: int, rows: Iterable[str] | Iterator[pa.RecordBatch]) -> TaskReport:
        """Run a task. rows: values, or the Arrow batches themselves."""
        batches = rows if isinstance(rows, Iterator) else iter([batch_of(rows)])
        task = SinkTask(self.sink_id, self.run_id, batch_id, partition, is_streaming=self.is_streaming)
        schema = SCHEMA if self.options.topic else TOPIC_SCHEMA
        return TaskWriter(self.options, SinkColumns(schema, self.options.topic)).write(task, batches)

    def task(self, batch_id: int, partition: int, rows: Iterable[str] | Iterator[pa.RecordBatch]) -> TaskReport:
        """Run a task whose report Spark gets."""
        report = self.attempt(batch_id, partition, rows)
        self.reports = [each for each in self.reports if each.task.partition != partition] + [report]
        return report

    def commit(self, *, aborts: bool = True) -> None:
        """The driver commits the batch; if that fails it aborts, as Spark does, unless it is dead."""
        reports, self.reports = self.reports, []
        try:
            asyncio.run(BatchCommit(self.options.connection, reports).commit())
        except BaseException:
            if aborts:
                self.abort(reports)
            raise

    def abort(self, reports: Sequence[TaskReport], missing: Iterable[int] = ()) -> None:
        asyncio.run(BatchCommit(self.options.connection, reports).abort(missing))

    def batch(self, batch_id: int, divided: Sequence[Sequence[str]]) -> None:
        """Write and commit a batch. divided: the rows of each task."""
        for partition, rows in enumerate(divided):
            self.task(batch_id, partition, rows)
        self.commit()
