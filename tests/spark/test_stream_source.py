"""Real Spark streams from a real cluster of three nodes: each committed record once, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tests.spark.stream_runs import OFTEN, ReaderRun, StreamRun, consumed, produce
from tidelog import sync
from tidelog.cli import main
from tidelog.errors import RequestTimedOut
from tidelog.spark.options.query_options import parse_stream_options
from tidelog.spark.ranges import range_batches
from tidelog.spark.ranges.reading import RangeReader
from tidelog.spark.streaming.query_identity import group_of
from tidelog.spark.streaming.source_progress import offsets_behind_latest
from tidelog.spark.streaming.stream_offsets import parse_offset
from tidelog.types import PartitionIndex, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {**OFTEN, "broker.session.timeout.ms": 2_000, "broker.heartbeat.interval.ms": 300}
    with LocalCluster(tmp_path_factory.mktemp("stream"), settings=settings) as cluster:
        cluster.wait_healthy()
        yield cluster


def values(first: int, count: int) -> list[str]:
    return [f"value {number}" for number in range(first, first + count)]


def wait_rows(cluster: LocalCluster, run: StreamRun, query: StreamingQuery, count: int, within_s: float = 40) -> None:
    def reached() -> bool:
        if query.exception() is not None:
            raise AssertionError(query.exception())
        return len(run.rows) >= count

    cluster.wait_until(reached, within_s=within_s, what=f"{count} rows")


def group_id(run: StreamRun, query: StreamingQuery) -> str:
    (lineage,) = {json.loads(each.sources[0].endOffset)["lineage"] for each in query.recentProgress if each.sources}
    return group_of(parse_stream_options(run.options), lineage)


def test_micro_batches_read_each_record_once_also_after_a_restart(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: nothing is lost or repeated between batches and runs; the group shows how far the query is."""
    cluster.create_topic("orders", 3, min_insync_replicas="2")
    produce(cluster, "orders", values(0, 60), partitions=3)
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribe="orders", maxOffsetsPerTrigger="20")
    query = run.start()
    query.processAllAvailable()
    assert [len(rows) for rows in run.batches.values()] == [18, 18, 18, 6], (
        "20 shared by three partitions, rounded down"
    )
    assert offsets_behind_latest(query.recentProgress[0]["sources"][0]) == {
        f"orders-{number}": 14 for number in range(3)
    }
    produce(cluster, "orders", values(60, 6), partitions=3)
    query.processAllAvailable()
    query.stop()
    produce(cluster, "orders", values(66, 30), partitions=3)
    query = run.start()
    query.processAllAvailable()
    assert run.rows == consumed(cluster, ("orders", 0), ("orders", 1), ("orders", 2))
    assert len(run.rows) == 96

    def lag() -> list[int]:
        capsys.readouterr()
        code = main(["group", "lag", group_id(run, query), "--bootstrap", cluster.bootstrap, "--json"])
        said = capsys.readouterr().out
        return [each["lag"] for each in json.loads(said)[0]["partitions"]] if code == 0 else []

    cluster.wait_until(lambda: lag() == [0, 0, 0], within_s=40, what="the group has read all")
    for _ in range(3):
        began = time.perf_counter()
        produce(cluster, "orders", values(96, 1))
        query.processAllAvailable()
        print(f"one record, from before it is produced: {(time.perf_counter() - began) * 1e3:.0f} ms")
    print("small batches, ms:", [each.durationMs for each in query.recentProgress][-4:])
    query.stop()


def test_available_now_ends_with_what_was_there_when_it_began(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("now-1", 1)
    produce(cluster, "now-1", values(0, 25))
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribePattern="now-.*", maxOffsetsPerTrigger="10")

    def more(number: int) -> None:
        if number == 0:
            produce(cluster, "now-1", values(25, 10))
            cluster.create_topic("now-2", 1)
            produce(cluster, "now-2", values(0, 5))

    run.before = more
    run.run()
    assert [len(rows) for rows in run.batches.values()] == [10, 10, 5]
    run.before = lambda _: None
    run.run()
    assert run.rows == consumed(cluster, ("now-1", 0), ("now-2", 0))
    assert len(run.rows) == 40
    run.run()
    assert len(run.rows) == 40


def test_a_first_batch_that_fails_at_latest_skips_nothing(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Method: the first batch fails twice, with records written before, between and after. Spark only knows where the
    batch ends; its start is pinned on the cluster."""
    cluster.create_topic("latest", 2)
    produce(cluster, "latest", values(0, 6), partitions=2)
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribe="latest", startingOffsets="latest")

    def fail(_: int) -> None:
        raise RuntimeError("the sink is down")

    run.before = fail
    assert "the sink is down" in run.failure()
    produce(cluster, "latest", values(6, 4), partitions=2)
    assert "the sink is down" in run.failure()
    produce(cluster, "latest", values(10, 4), partitions=2)
    run.before = lambda _: None
    run.run()
    assert run.rows == [row for row in consumed(cluster, ("latest", 0), ("latest", 1)) if row[2] >= 3]
    assert len(run.rows) == 8


def test_a_batch_that_failed_is_repeated_with_the_same_records(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("again", 1)
    produce(cluster, "again", values(0, 10))
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribe="again", maxOffsetsPerTrigger="4")

    def fail(number: int) -> None:
        if number == 1:
            raise RuntimeError("the sink is down")

    run.before = fail
    assert "the sink is down" in run.failure()
    produce(cluster, "again", values(10, 10))
    run.before = lambda _: None
    run.run()
    assert [row[2] for row in run.batches[1]] == [4, 5, 6, 7]
    assert run.rows == consumed(cluster, ("again", 0))


def test_the_rows_of_a_small_batch_come_with_its_plan(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """They are those that a batch query reads, and are there as often as the batch is used: also after its records were
    deleted, which would fail a task that reads them itself."""
    cluster.create_topic("ahead", 2)
    with sync.Producer(cluster.bootstrap) as producer:
        for number in range(6):
            headers = [("n", b"%d" % number)] if number % 2 else ()
            producer.send("ahead", b"v%d" % number, key=b"k" if number else None, partition=number % 2, headers=headers)
    options = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "ahead", "includeHeaders": "true"}

    def in_order(frame: DataFrame) -> list[Row]:
        return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))

    expected = in_order(spark.read.format("tidelog").options(**options).load())
    assert len(expected) == 6
    found: list[list[Row]] = []

    def use(frame: DataFrame, _: int) -> None:
        with sync.Admin(cluster.bootstrap) as admin:
            ends = admin.list_offsets([TopicPartition("ahead", PartitionIndex(index)) for index in range(2)], "latest")
            admin.delete_records(dict(ends.items()))
        found.extend(in_order(frame) for _ in range(2))

    frame = spark.readStream.format("tidelog").options(**options, startingOffsets="earliest").load()
    writer = frame.writeStream.foreachBatch(use).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()
    assert found == [expected, expected]
    assert [each.numInputRows for each in query.recentProgress] == [12]


def test_new_partitions_and_topics_are_read_from_their_start(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("grow-1", 1)
    produce(cluster, "grow-1", values(0, 3))
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribePattern="grow-[0-9]", startingOffsets="latest")
    query = run.start()
    try:
        query.processAllAvailable()

        async def add() -> None:
            async with tidelog.Admin(cluster.bootstrap) as admin:
                await admin.create_partitions("grow-1", 3)
                await admin.create_topic("grow-2", partitions=2, replication_factor=3)
                await admin.create_topic("grown", partitions=1, replication_factor=3)

        asyncio.run(add())
        produce(cluster, "grow-1", values(3, 9), partitions=3)
        produce(cluster, "grow-2", values(0, 8), partitions=2)
        produce(cluster, "grown", values(0, 8))
        wait_rows(cluster, run, query, 17)
        query.processAllAvailable()
    finally:
        query.stop()
    expected = consumed(cluster, *[("grow-1", index) for index in range(3)], ("grow-2", 0), ("grow-2", 1))
    assert run.rows == [row for row in expected if row[:2] != ("grow-1", 0) or row[2] >= 3]


def test_a_batch_that_ends_above_an_open_transaction_waits_for_it(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is chosen under read_uncommitted and repeated under read_committed: its end lies above the last stable
    offset. The records of the transaction are not skipped: the task fails, and reads them once they are committed."""
    cluster.create_topic("decided", 1)
    produce(cluster, "decided", ["a", "b"])
    run = ReaderRun(cluster, subscribe="decided", **{"tidelog.group.id": "decided"})
    run.options["tidelog.isolation.level"] = "read_uncommitted"
    monkeypatch.setattr(range_batches, "RangeReader", partial(RangeReader, patience_ms=6_000))
    with sync.Producer(cluster.bootstrap, transactional_id="decider") as producer, producer.transaction() as open_one:
        for value in (b"c", b"d", b"e"):
            open_one.send("decided", value)
        producer.flush()
        run.run(fails=True)
        assert [each.next_offset for _, _, each in run.position] == [5]
        run.options["tidelog.isolation.level"] = "read_committed"
        with pytest.raises(RequestTimedOut, match=r"from offset 2 on .* not decided yet.*who-holds-lso decided-0"):
            run.run()
    monkeypatch.undo()
    run.rows.clear()
    run.run()
    assert [value for _, value in run.rows] == [b"a", b"b", b"c", b"d", b"e"]


def test_holes_neither_hang_nor_skip_nor_repeat(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    """SPARK-25005: batches that end at a marker, that are a marker or an aborted transaction only, or that end before
    an open transaction."""
    cluster.create_topic("holes", 1)
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribe="holes", maxOffsetsPerTrigger="1")
    query = run.start()
    query.processAllAvailable()  # batch 0 is empty

    async def seen(*offsets: int) -> None:
        """Markers are written a moment after the commit returns: until then there is less."""
        await asyncio.to_thread(wait_rows, cluster, run, query, len(offsets))
        await asyncio.to_thread(query.processAllAvailable)
        assert run.offsets == list(offsets)

    async def story() -> None:
        async with (
            tidelog.Producer(cluster.bootstrap, transactional_id="holes", transaction_timeout_ms=600_000) as producer,
            tidelog.Producer(cluster.bootstrap) as plain,
        ):
            async with producer.transaction() as txn:
                await txn.send("holes", b"committed 1", partition=0)
            with suppress(KeyError):
                async with producer.transaction() as txn:
                    await txn.send("holes", b"aborted 1", partition=0)
                    await txn.send("holes", b"aborted 2", partition=0)
                    raise KeyError
            await seen(0)  # the log ends with a marker at offset 4; each offset was a batch
            async with producer.transaction() as txn:
                await txn.send("holes", b"committed 2", partition=0)
                await plain.send("holes", b"behind an open transaction", partition=0)
                await seen(0)
            await seen(0, 5, 6)

    try:
        asyncio.run(story())
        cluster.wait_until(lambda: len(run.batches) == 9, within_s=40, what="an empty batch, then one an offset")
    finally:
        query.stop()
    assert [value for *_, value in run.rows] == [b"committed 1", b"committed 2", b"behind an open transaction"]
    assert run.rows == consumed(cluster, ("holes", 0))
    everything = StreamRun(
        spark, cluster, tmp_path / "all", subscribe="holes", **{"kafka.isolation.level": "read_uncommitted"}
    )
    everything.run()
    assert len(everything.rows) == 5


@pytest.mark.deep
def test_a_compacted_topic_is_read_in_small_batches(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    small = {"segment_bytes": "20000", "segment_index_bytes": "16384"}
    cluster.create_topic("table", 1, 3, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", **small)

    async def fill() -> None:
        async with tidelog.Producer(cluster.bootstrap) as producer:
            for number in range(400):
                await producer.send("table", b"x" * 500 + str(number).encode(), b"%d" % (number % 7), partition=0)

    asyncio.run(fill())
    cluster.wait_until(lambda: len(consumed(cluster, ("table", 0))) < 100, within_s=30, what="the log is compacted")
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribe="table", maxOffsetsPerTrigger="150")
    run.run()
    assert len(run.batches) == 3
    last = {row[3] for row in run.rows}
    assert {b"x" * 500 + str(number).encode() for number in range(393, 400)} <= last
    assert len(set(run.offsets)) == len(run.rows) < 400


def test_a_batch_waits_for_enough_records_or_for_the_delay(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("least", 1)
    produce(cluster, "least", values(0, 1))
    limits = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribe="least", **limits)
    query = run.start()
    try:
        wait_rows(cluster, run, query, 1)
        produce(cluster, "least", values(1, 9))
        query.processAllAvailable()
        assert len(run.rows) == 1
        produce(cluster, "least", values(10, 1))
        wait_rows(cluster, run, query, 11)
        assert len(run.batches) == 2
        produce(cluster, "least", values(11, 1))
    finally:
        query.stop()
    run.run()
    assert len(run.rows) == 12, "availableNow waits for nothing"
    run.options["maxTriggerDelay"] = "2s"
    query = run.start()
    try:
        query.processAllAvailable()
        produce(cluster, "least", values(12, 1))
        wait_rows(cluster, run, query, 13)
        produce(cluster, "least", values(13, 1))
        wait_rows(cluster, run, query, 14)
    finally:
        query.stop()
    assert run.rows == consumed(cluster, ("least", 0))


@pytest.mark.deep
def test_a_start_at_a_time_is_pinned_and_one_outside_the_log_is_refused(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("timed", 1)
    begun = time.time_ns() // 1_000_000 - 60_000

    async def fill() -> None:
        async with tidelog.Producer(cluster.bootstrap) as producer:
            for second in range(10):
                await producer.send("timed", str(second).encode(), partition=0, timestamp=begun + second * 1000)

    asyncio.run(fill())
    run = StreamRun(spark, cluster, tmp_path / "time", subscribe="timed", startingTimestamp=str(begun + 4000))
    run.run()
    assert run.offsets == [4, 5, 6, 7, 8, 9]
    asked = json.dumps({"timed": {"0": 99}})
    outside = StreamRun(spark, cluster, tmp_path / "outside", subscribe="timed", startingOffsets=asked)
    assert "the query is to start at 99" in outside.failure()
    outside.options["failOnDataLoss"] = "false"
    outside.run()
    assert outside.rows == []
    missing = StreamRun(spark, cluster, tmp_path / "missing", subscribe="no-such-topic")
    assert "UnknownTopicOrPartition" in missing.failure()


@pytest.mark.deep
def test_a_leader_that_dies_in_mid_query_costs_no_record(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("failover", 2, min_insync_replicas="2")
    produce(cluster, "failover", values(0, 20), partitions=2)
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribe="failover", maxOffsetsPerTrigger="6")
    query = run.start()
    dead = int(cluster.metadata(0, "failover").topics[0].partitions[0].leader)
    try:
        wait_rows(cluster, run, query, 6)
        cluster.kill(dead)
        produce(cluster, "failover", values(20, 20), partitions=2)
        wait_rows(cluster, run, query, 40)
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
        cluster.start_node(dead)
        cluster.wait_healthy()
    assert run.rows == consumed(cluster, ("failover", 0), ("failover", 1))
    offsets = tmp_path / "checkpoint" / "offsets"
    text = max(offsets.glob("[0-9]*"), key=lambda file: int(file.name)).read_text()
    assert [position.next_offset for _, _, position in parse_offset(json.loads(text.splitlines()[2]))] == [20, 20]
