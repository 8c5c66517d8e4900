"""What a batch reads, row by row as a plain consumer does: compacted and empty partitions, large records, nulls,
headers, two million rows, and executors that are processes of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

import tidelog
from node.process.local_cluster import LocalCluster
from tests.spark.spark_processes import ExecutorJobRun
from tidelog import sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]

ROOT = Path(__file__).resolve().parents[2]
MOMENT = 1_700_000_000_000
MIB = 1 << 20
ROWS = 2_000_000
OFTEN = {"log.cleaner.backoff.ms": 200, "log.retention.check.interval.ms": 200}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("rows"), settings=OFTEN) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("large", 3, retention_ms="-1")
        asyncio.run(produce_numbers(cluster.bootstrap))
        yield cluster


async def produce_numbers(bootstrap: str) -> None:
    """Topic `large`: the numbers from 0 as 8 bytes and a padding, record n one millisecond after the one before, in
    runs of 10,000 that change the partition."""
    run = 10_000
    async with tidelog.Producer(bootstrap, compression="lz4") as producer:
        for first in range(0, ROWS, run):
            table = pa.table(
                {
                    "value": pa.array([b"%08d" % number + b"." * 12 for number in range(first, first + run)]),
                    "timestamp": pa.array(range(MOMENT + first, MOMENT + first + run), pa.timestamp("ms", "UTC")),
                }
            )
            await producer.enqueue_arrow("large", table, partition=first // run % 3)
        await producer.flush()


def read(spark: SparkSession, cluster: LocalCluster, topic: str, **options: str) -> DataFrame:
    source = spark.read.format("tidelog").option("tidelog.bootstrap.servers", cluster.bootstrap)
    return source.option("subscribe", topic).options(**options).load()


def consumed(cluster: LocalCluster, topic: str) -> list[tuple[Any, ...]]:
    """The topic's committed records, as a plain consumer reads them, by partition and offset."""
    found = []
    with sync.Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        places = consumer.partitions(topic)
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        while any(consumer.position(place) < ends[place] for place in places):
            found += consumer.poll(timeout=0.5)
    rows = [(one.partition, one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in found]
    return sorted(rows, key=lambda row: row[:2])


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The same of a frame."""
    millis = (f.unix_micros("timestamp") / 1000).cast("long").alias("millis")
    found = [
        (
            row.partition,
            row.offset,
            row.millis,
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            tuple((header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ()),
        )
        for row in frame.select("partition", "offset", millis, "key", "value", "headers").collect()
    ]
    return sorted(found, key=lambda row: row[:2])


def test_every_row_is_that_of_a_plain_consumer(spark: SparkSession, cluster: LocalCluster) -> None:
    """Nulls, empty values, headers, aborted transactions, values of 1 MiB, and partitions without records."""
    cluster.create_topic("mixed", 4, retention_ms="-1", max_message_bytes=str(3 * MIB))

    async def write() -> None:
        async with tidelog.Producer(cluster.bootstrap, transactional_id="mixed", record_bytes_max=2 * MIB) as producer:
            for number in range(60):
                async with producer.transaction() as txn:
                    await txn.enqueue(
                        "mixed",
                        value=(None, b"", b"v%d" % number, bytes([number]) * (MIB if number % 20 == 3 else 100))[
                            number % 4
                        ],
                        key=None if number % 3 else b"k%d" % number,
                        headers=[("n", b"%d" % number), ("n", None), ("", b"")] if number % 5 == 0 else (),
                        partition=number % 3,
                        timestamp=MOMENT + 1000 * (number * 7 % 60),
                    )
                    if number % 6 == 5:
                        await txn.flush()
                        await txn.abort()

    asyncio.run(write())
    expected = consumed(cluster, "mixed")
    assert len(expected) == 50
    assert max(len(row[4] or b"") for row in expected) == MIB
    for options in ({}, {"minPartitions": "9"}, {"maxRecordsPerPartition": "7"}, {"fetchBytes": "1"}):
        assert rows_of(read(spark, cluster, "mixed", includeHeaders="true", **options)) == expected, options


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, cluster: LocalCluster) -> None:
    cluster.create_topic("empty", 2)
    frame = read(spark, cluster, "empty", includeHeaders="true")
    assert (frame.count(), frame.rdd.getNumPartitions()) == (0, 1)
    assert read(spark, cluster, "empty", startingOffsets='{"empty": {"0": 0, "1": -2}}').collect() == []


def test_a_compacted_topic_is_read_as_a_consumer_reads_it(spark: SparkSession, cluster: LocalCluster) -> None:
    """Twenty keys, over and over: the holes of compaction, also at the borders of tasks, are no missing rows."""
    cluster.create_topic(
        "table",
        cleanup_policy="compact",
        segment_bytes="20000",
        segment_index_bytes="16384",
        min_cleanable_dirty_ratio="0.01",
    )
    with sync.Producer(cluster.bootstrap) as producer:
        for turn in range(40):
            producer.send_many("table", [b"%d" % turn * 300] * 20, keys=[b"k%d" % number for number in range(20)])
    cluster.wait_until(
        lambda: len(consumed(cluster, "table")) < 400, within_s=60, what="half of the records are compacted away"
    )
    with sync.Admin(cluster.bootstrap) as admin:
        # what follows compares two readings: neither the cleaner nor retention changes the log
        admin.alter_topic("table", {"cleanup.policy": "delete", "retention.ms": "-1"})
    options = {"minPartitions": "16", "includeHeaders": "true"}
    found, expected = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for _ in range(5):  # a round of the cleaner that was under way may end between the two readings
        expected = consumed(cluster, "table")
        found = rows_of(read(spark, cluster, "table", **options))
        if found == expected:
            break
    assert found == expected
    assert {row[3]: row[4] for row in found} == {b"k%d" % number: b"39" * 300 for number in range(20)}


@pytest.mark.deep
def test_two_million_rows_are_read_once_each(spark: SparkSession, cluster: LocalCluster) -> None:
    number = f.substring(f.col("value").cast("string"), 1, 8).cast("long")
    frame = read(spark, cluster, "large")
    assert frame.rdd.getNumPartitions() == 6, "ranges of about 667,000 offsets are split"
    found = frame.agg(
        f.count("*"), f.sum(number), f.sum(number * number), f.countDistinct(f.pmod(number, f.lit(99_991)))
    ).first()
    assert found is not None
    squares = (ROWS - 1) * ROWS * (2 * ROWS - 1) // 6
    assert tuple(found) == (ROWS, ROWS * (ROWS - 1) // 2, squares, 99_991)
    millis = (f.unix_micros("timestamp") / 1000).cast("long")
    assert frame.where(millis != number + MOMENT).count() == 0, "each value is in the row of its record"


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_executors_that_are_processes_of_their_own_read_a_batch(cluster: LocalCluster, tmp_path: Path) -> None:
    """`local-cluster[2,1,1024]`: they need PYSPARK_PYTHON, Java and an installed tidelog, nothing from the driver."""
    with ExecutorJobRun(cluster, tmp_path, "count", source="large") as run:
        found = run.result(840)
    lengths = [670_000, 670_000, 660_000]
    offsets = sum(length * (length - 1) // 2 for length in lengths)
    assert found == {"executors": 2, "rows": ROWS, "offsets": offsets, "bytes": 20 * ROWS, "tasks": 9}
