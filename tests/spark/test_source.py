"""Real Spark on a real cluster of three nodes: all committed records are read, with their columns."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tests.spark.job_runs import NO_RETENTION
from tidelog import sync
from tidelog.clock import MachineClock
from tidelog.spark.ranges import schema as columns
from tidelog.types import Isolation, PartitionIndex, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]

MOMENT = 1_700_000_000_000
RECORDS = 300
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Topic `orders`: record n has partition n % 3 and offset n // 3, and is one second later than the one before."""
    with LocalCluster(tmp_path_factory.mktemp("spark"), settings=NO_RETENTION) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("orders", PARTITIONS, min_insync_replicas="2")
        asyncio.run(produce(cluster.bootstrap))
        yield cluster


async def produce(bootstrap: str) -> None:
    async with tidelog.Producer(bootstrap, compression="zstd") as producer:
        for number in range(RECORDS):
            await producer.enqueue(
                "orders",
                value=None if number % 10 == 9 else f"value {number}".encode(),
                key=None if number % 7 == 6 else f"key {number % 5}".encode(),
                headers=[("n", str(number).encode()), ("empty", None)] if number % 2 else (),
                partition=number % PARTITIONS,
                timestamp=MOMENT + number * 1000,
            )
        await producer.flush()


def read(spark: SparkSession, cluster: LocalCluster, **options: str) -> DataFrame:
    given = {"subscribe": "orders", **options}
    if {"assign", "subscribePattern"} & set(options):
        del given["subscribe"]
    return spark.read.format("tidelog").option("tidelog.bootstrap.servers", cluster.bootstrap).options(**given).load()


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in frame.select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return {partition: sorted(numbers) for partition, numbers in sorted(found.items())}


def test_every_committed_record_is_read_with_all_its_columns(spark: SparkSession, cluster: LocalCluster) -> None:
    frame = read(spark, cluster, includeHeaders="true", includeTimestampMs="true")
    assert frame.columns == list(columns.TYPES)
    rows = {row.partition + PARTITIONS * row.offset: row for row in frame.collect()}
    assert sorted(rows) == list(range(RECORDS))
    for number, row in rows.items():
        assert row.topic == "orders"
        assert row.key == (None if number % 7 == 6 else f"key {number % 5}".encode())
        assert row.value == (None if number % 10 == 9 else f"value {number}".encode())
        assert row.timestamp.timestamp() * 1000 == row.timestampMs == MOMENT + number * 1000
        assert row.timestampType == 0
        headers = [(header.key, header.value) for header in row.headers or ()]
        assert headers == ([("n", str(number).encode()), ("empty", None)] if number % 2 else [])


def test_one_frame_may_be_used_in_every_way(spark: SparkSession, cluster: LocalCluster) -> None:
    """Spark plans a loaded frame once and shares that plan among all that is made of the frame: conditions of one use
    must not narrow another one, also where the session hands conditions to Python sources. Some ten queries take 10 s
    and more: Spark starts Python processes for each."""
    frame = read(spark, cluster)
    frame.createOrReplaceTempView("orders_frame")
    spark.conf.set(PUSHDOWN, "true")
    try:
        first, last = frame.where("partition = 1"), frame.where("partition = 2 and offset >= 90")
        assert (first.count(), last.count(), frame.count()) == (100, 10, RECORDS)
        assert offsets(first.union(last)) == {1: list(range(100)), 2: list(range(90, 100))}
        assert first.alias("a").join(frame.alias("b"), "offset").count() == 300
        kept = last.cache()
        assert (kept.count(), frame.count()) == (10, RECORDS)
        kept.unpersist()
        where = "offset > (select max(offset) - 10 from orders_frame where partition = 1)"
        assert spark.sql(f"select * from orders_frame where {where}").count() == 30
    finally:
        spark.conf.unset(PUSHDOWN)
    assert frame.count() == RECORDS, "also in a session without the setting"


def test_a_subset_of_the_columns_may_be_named_in_any_order(spark: SparkSession, cluster: LocalCluster) -> None:
    frame = (
        spark.read.format("tidelog")
        .schema("offset long, value binary")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("subscribe", "orders")
        .load()
    )
    assert frame.columns == ["offset", "value"]
    assert frame.count() == RECORDS


def test_only_the_requested_offsets_are_read(spark: SparkSession, cluster: LocalCluster) -> None:
    frame = read(
        spark,
        cluster,
        startingOffsets=json.dumps({"orders": {"0": 10, "1": -2, "2": 99}}),
        endingOffsets=json.dumps({"orders": {"0": 12, "1": 3, "2": -1}}),
    )
    assert offsets(frame) == {0: [10, 11], 1: [0, 1, 2], 2: [99]}


def test_times_choose_offsets(spark: SparkSession, cluster: LocalCluster) -> None:
    half = MOMENT + RECORDS // 2 * 1000
    frame = read(spark, cluster, startingTimestamp=str(half), endingTimestamp=str(half + 9_000))
    assert {row.timestamp.replace(tzinfo=UTC) for row in frame.select("timestamp").collect()} == {
        datetime.fromtimestamp(half / 1000 + second, UTC) for second in range(9)
    }
    with pytest.raises(Exception, match="no record at or after"):
        read(spark, cluster, startingTimestamp=str(MOMENT + 10**9)).collect()


def test_partitions_are_chosen_by_list_or_by_pattern(spark: SparkSession, cluster: LocalCluster) -> None:
    assert set(offsets(read(spark, cluster, assign='{"orders": [1]}'))) == {1}
    assert set(offsets(read(spark, cluster, subscribePattern="ord.*"))) == {0, 1, 2}
    assert offsets(read(spark, cluster, subscribePattern="ord")) == {}


def test_a_large_partition_is_read_by_several_tasks(spark: SparkSession, cluster: LocalCluster) -> None:
    frame = read(spark, cluster, minPartitions="12")
    assert frame.rdd.getNumPartitions() == 12
    assert offsets(frame) == {partition: list(range(RECORDS // PARTITIONS)) for partition in range(PARTITIONS)}


def test_offsets_that_never_existed_fail_the_query_unless_loss_is_allowed(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    asked = json.dumps({"orders": {"0": 0, "1": 0, "2": 500}})
    with pytest.raises(Exception, match="never committed, has been truncated"):
        read(spark, cluster, startingOffsets=asked).collect()
    assert 2 not in offsets(read(spark, cluster, startingOffsets=asked, failOnDataLoss="false"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "no-such-topic"}, "no-such-topic"),
        (
            {"subscribe": "orders", "startingOffset": "earliest"},
            "unknown option .startingoffset.*did you mean .startingOffsets",
        ),
        ({"assign": '{"orders": [7]}'}, "orders-7"),
    ],
)
def test_an_invalid_option_is_explained(
    spark: SparkSession, cluster: LocalCluster, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        read(spark, cluster, **options).collect()


async def markers_are_written(cluster: LocalCluster, partition: int) -> None:
    """Until all transactions in the partition have ended: their markers come a moment after the commit."""
    wanted = [TopicPartition("payments", PartitionIndex(partition))]
    async with asyncio.timeout(30), tidelog.Admin(cluster.bootstrap) as admin:
        decided = await admin.end_positions(wanted, isolation=Isolation.READ_COMMITTED)
        while decided != await admin.end_positions(wanted, isolation=Isolation.READ_UNCOMMITTED):
            await MachineClock().sleep_ms(20)
            decided = await admin.end_positions(wanted, isolation=Isolation.READ_COMMITTED)


def test_records_of_aborted_and_of_open_transactions_are_not_in_the_frame(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    """Each transaction writes to both partitions; the open one begins between committed records of others."""
    cluster.create_topic("payments", 2)

    def values(**options: str) -> list[str]:
        frame = read(spark, cluster, subscribe="payments", **options)
        return sorted(row.value.decode() for row in frame.select("value").collect())

    async def write() -> None:
        async with (
            tidelog.Producer(cluster.bootstrap, transactional_id="a") as ours,
            tidelog.Producer(cluster.bootstrap, transactional_id="b") as other,
        ):
            for number in range(6):
                async with ours.transaction() as txn:
                    await txn.enqueue_many("payments", [b"ours %d" % number] * 2, partition=0)
                    await txn.enqueue("payments", b"ours %d" % number, partition=1)
                    if number % 2:
                        await txn.flush()
                        await txn.abort()
            async with other.transaction() as txn:
                await txn.send("payments", b"open", partition=0)
                async with ours.transaction() as later:
                    await later.send("payments", b"behind", partition=0)
                    await later.send("payments", b"beside", partition=1)
                await markers_are_written(cluster, 1)
                kept = sorted(f"ours {number}" for number in (0, 2, 4) for _ in range(3))
                assert await asyncio.to_thread(values) == ["beside", *kept]
                everything = await asyncio.to_thread(lambda: values(**{"kafka.isolation.level": "read_uncommitted"}))
                assert len(everything) == 6 * 3 + 3
            await markers_are_written(cluster, 0)
            assert await asyncio.to_thread(values) == sorted(["beside", "behind", "open", *kept])

    asyncio.run(write())


def test_a_loaded_frame_is_planned_once_and_a_recreated_topic_says_so(
    spark: SparkSession, cluster: LocalCluster
) -> None:
    """Spark asks a Python source for the tasks of a loaded frame at its first action only (docs/spark.md)."""
    cluster.create_topic("brief", 1)
    with sync.Producer(cluster.bootstrap) as producer:
        producer.send_many("brief", [b"first life"] * 3)
        frame = read(spark, cluster, subscribe="brief")
        frame.createOrReplaceTempView("brief_frame")
        assert frame.count() == 3
        producer.send_many("brief", [b"first life"] * 2)
        assert (frame.count(), spark.table("brief_frame").count()) == (3, 3), "planned by the first action"
        assert read(spark, cluster, subscribe="brief").count() == 5
    with sync.Admin(cluster.bootstrap) as admin:
        admin.delete_topic("brief")
    cluster.create_topic("brief", 1)
    with pytest.raises(Exception, match=r"created again.*load the frame again \(spark.read\)"):
        frame.collect()
    assert read(spark, cluster, subscribe="brief").count() == 0


def test_tables_of_sql_are_planned_by_each_query(spark: SparkSession, cluster: LocalCluster) -> None:
    """As tables of Spark's Kafka source. Spark keeps the options of a table with columns of its own to itself. Each of
    some ten queries is planned in a Python process of its own, which takes 10 s and more."""
    cluster.create_topic("sold", 2)

    def send(*values: bytes) -> None:
        with sync.Producer(cluster.bootstrap) as producer:
            producer.send_many("sold", list(values), partition=0)

    def count(source: str) -> int:
        row = spark.sql(f"select count(*) from {source}").first()
        assert row is not None
        return int(row[0])

    options = f"'kafka.bootstrap.servers' = '{cluster.bootstrap}', subscribe = 'sold', startingOffsets = 'earliest'"
    spark.sql(f"create table sold using tidelog options ({options}) comment 'of today' tblproperties (owned_by = 'us')")
    spark.sql(f"create table sold_values (offset long, value binary) using tidelog options ({options})")
    try:
        send(b"one", b"two", b"three")
        spark.sql("create temporary view sold_view as select * from sold where partition = 0")
        assert (count("sold"), count("sold_view")) == (3, 3)
        send(b"four", b"five")
        assert (count("sold"), count("sold_view")) == (5, 5), "planned again"
        end = json.dumps({"sold": {"0": 2, "1": -1}})
        assert count(f"sold with (endingOffsets = '{end}')") == 2, "a query may narrow its table"
        with pytest.raises(Exception, match="create it without columns"):
            count("sold_values")
        rows = spark.sql(f"select * from sold_values with ({options}) order by offset").collect()
        assert [(row.offset, bytes(row.value)) for row in rows[:2]] == [(0, b"one"), (1, b"two")]
        with pytest.raises(Exception, match=r"INSERT INTO.*frame.write"):
            spark.sql("insert into sold select * from sold")
        spark.sql(f"create temporary view sold_pairs (offset long, value binary) using tidelog options ({options})")
        assert count("sold_pairs") == 5
    finally:
        spark.sql("drop table sold")
        spark.sql("drop table sold_values")


@pytest.mark.deep
def test_the_leader_may_die_between_planning_and_reading(spark: SparkSession, cluster: LocalCluster) -> None:
    (topic,) = cluster.metadata(0, "orders").topics
    planned = read(spark, cluster).select("partition", "offset").rdd
    victim = next(state.leader for state in topic.partitions if state.leader > 0)
    cluster.kill(victim)
    assert planned.count() == RECORDS
    cluster.start_node(victim)
    cluster.wait_healthy()
