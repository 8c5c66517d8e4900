"""Data loss of a stream on a real cluster: told by kind with what is missing, skipped exactly where that is allowed.

One test runs Spark; the others make the calls that Spark makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tests.spark.stream_runs import OFTEN, ReaderRun, StreamRun, consumed, produce
from tidelog.errors import (
    InconsistentClusterId,
    InconsistentTopicId,
    LogTruncated,
    NoCommittedOffset,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("loss"), settings=OFTEN) as cluster:
        cluster.wait_healthy()
        yield cluster


async def earliest(cluster: LocalCluster, topic: str) -> int:
    async with tidelog.Admin(cluster.bootstrap) as admin:
        return next(iter((await admin.list_offsets([(topic, 0)], "earliest")).values()))


def rows(cluster: LocalCluster, topic: str) -> list[tuple[int, bytes | None]]:
    return [(offset, value) for _, _, offset, value in consumed(cluster, (topic, 0))]


def test_records_that_aged_out_are_named_or_skipped_and_counted(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """One query, of Spark, has read 10 records; another has failed in its first batch, which is repeated; a third one
    failed as well, and its checkpoint is given up."""
    small = {"segment_bytes": "20000", "segment_index_bytes": "16384", "retention_bytes": "1"}
    cluster.create_topic("aging", 1, 3, **small)
    produce(cluster, "aging", (f"{number}" for number in range(10)))
    run = StreamRun(spark, cluster, tmp_path / "checkpoint", subscribe="aging")
    run.run()
    again = ReaderRun(cluster, subscribe="aging", **{"tidelog.group.id": "again"})
    again.run(fails=True)
    pinned = {"subscribe": "aging", "startingOffsets": "latest", "tidelog.group.id": "pinned"}
    ReaderRun(cluster, **pinned).run(fails=True)
    for number in range(10):
        produce(cluster, "aging", ["x" * 15_000 + f"{number}"])  # fills a segment
    start = 19
    cluster.wait_until(lambda: asyncio.run(earliest(cluster, "aging")) == start, within_s=30, what="records aged out")
    said = run.failure()
    assert "OffsetOutOfRange" in said
    assert f"aging-0: aged out: offsets 10 to {start - 1}, at most {start - 10} records" in said
    with pytest.raises(OffsetOutOfRange, match="offsets 0 to 9, at most 10 records"):
        again.run()
    run.options["failOnDataLoss"] = again.options["failOnDataLoss"] = "false"
    run.run()
    again.run()
    assert run.rows[10:] == consumed(cluster, ("aging", 0))
    assert again.rows == rows(cluster, "aging")
    assert again.skipped == start
    again.options["failOnDataLoss"] = "true"
    again.run()
    fresh = StreamRun(spark, cluster, tmp_path / "fresh", **pinned)
    fresh.run()
    assert fresh.rows == [], "it begins at the latest record, not at a pin that is gone"
    produce(cluster, "aging", ["last"])
    fresh.run()
    assert [value for *_, value in fresh.rows] == [b"last"]


def test_a_topic_that_was_created_again_is_told_from_the_one_before(cluster: LocalCluster) -> None:
    async def change(*, create: bool) -> None:
        async with tidelog.Admin(cluster.bootstrap) as admin:
            await admin.delete_topic("twin")
            if create:
                await admin.create_topic("twin", partitions=1, replication_factor=3)

    cluster.create_topic("twin", 1)
    produce(cluster, "twin", [f"old {number}" for number in range(5)])
    run = ReaderRun(cluster, subscribePattern="twin")
    run.run()
    old = list(run.rows)
    asyncio.run(change(create=True))
    produce(cluster, "twin", [f"new {number}" for number in range(8)])
    with pytest.raises(InconsistentTopicId, match="twin-0: topic recreated: offsets from 5 on, an unknown number"):
        run.run()
    run.options["failOnDataLoss"] = "false"
    run.run()
    assert len(old) == 5
    assert run.rows == old + rows(cluster, "twin")
    assert len(run.rows) == 13
    asyncio.run(change(create=False))
    run.options["failOnDataLoss"] = "true"
    with pytest.raises(UnknownTopicOrPartition, match="twin-0: topic or partition deleted: offsets from 8 on"):
        run.run()
    run.options["failOnDataLoss"] = "false"
    run.run()
    assert run.position.topics == {}
    assert len(run.rows) == 13


def test_a_topic_that_is_created_again_while_a_batch_is_planned_fails_the_task(cluster: LocalCluster) -> None:
    """The batch is not compared with the log a second time in the moment between its choice and its plan."""

    async def again() -> None:
        async with tidelog.Admin(cluster.bootstrap) as admin:
            await admin.delete_topic("swapped")
            await admin.create_topic("swapped", partitions=1, replication_factor=3)

    def change() -> None:
        asyncio.run(again())
        produce(cluster, "swapped", [f"new {number}" for number in range(8)])
        run.chosen = lambda: None

    cluster.create_topic("swapped", 1)
    produce(cluster, "swapped", [f"old {number}" for number in range(5)])
    run = ReaderRun(cluster, subscribe="swapped", failOnDataLoss="false")
    run.chosen = change
    with pytest.raises(InconsistentTopicId, match="created again, after the query was planned"):
        run.run()
    assert run.rows == [], "records of another topic were read"
    run.run()
    assert run.rows == rows(cluster, "swapped")
    assert [value for _, value in run.rows] == [b"new %d" % number for number in range(8)]


def test_a_checkpoint_of_another_cluster_is_refused(cluster: LocalCluster) -> None:
    cluster.create_topic("home", 1)
    produce(cluster, "home", ["a"])
    run = ReaderRun(cluster, subscribe="home")
    run.run()
    run.log[-1]["cluster"] = "elsewhere"
    with pytest.raises(InconsistentClusterId, match="the checkpoint belongs to cluster elsewhere"):
        run.run()


def test_a_start_that_another_checkpoint_has_used_up_is_not_guessed(cluster: LocalCluster) -> None:
    """Two checkpoints of one named query, whose first batches both failed at the same pin; the second one continues."""
    named = {"tidelog.group.id": "used-up"}
    cluster.create_topic("pinned", 1)
    produce(cluster, "pinned", ["before"])
    first = ReaderRun(cluster, subscribe="pinned", startingOffsets="latest", **named)
    first.run(fails=True)
    produce(cluster, "pinned", ["a", "b"])
    second = ReaderRun(cluster, subscribe="pinned", startingOffsets="latest", **named)
    second.run()
    assert [value for _, value in second.rows] == [b"a", b"b"]
    with pytest.raises(NoCommittedOffset, match="not pinned"):
        first.run()
    third = ReaderRun(cluster, subscribe="pinned", startingOffsets="latest", **named)
    third.run()
    produce(cluster, "pinned", ["c"])
    third.run()
    assert [value for _, value in third.rows] == [b"c"], "progress of another checkpoint is no start"


def test_records_that_an_unclean_election_replaced_are_named_and_read_again_from_there(cluster: LocalCluster) -> None:
    """One of two replicas has 10 records, the other 15, which were read; then the first one leads."""

    async def elect(wanted: int) -> bool:
        async with tidelog.Admin(cluster.bootstrap) as admin:
            await admin.elect_leaders([("torn", 0)], unclean=True)
        return leader_at(wanted) == wanted

    def leader_at(node: int) -> int:
        """Who leads, as this node knows it; -2 if it does not know the topic yet."""
        topics = cluster.metadata(node, "torn").topics
        return int(topics[0].partitions[0].leader) if topics and topics[0].partitions else -2

    cluster.create_topic("torn", 1, replicas=2, min_insync_replicas="1")
    produce(cluster, "torn", [f"both {number}" for number in range(10)])
    cluster.wait_healthy()
    partition = cluster.metadata(0, "torn").topics[0].partitions[0]
    ahead = int(partition.leader)
    behind = next(int(each) for each in partition.replicas if each != ahead)
    run = ReaderRun(cluster, subscribe="torn")
    repeated = ReaderRun(cluster, subscribe="torn", **{"tidelog.group.id": "repeated"})
    run.run()
    try:
        cluster.kill(behind)
        produce(cluster, "torn", [f"one {number}" for number in range(5)])
        run.run()
        repeated.run(fails=True)
        assert len(run.rows) == 15
        cluster.kill(ahead)
        cluster.start_node(behind)
        cluster.wait_until(lambda: leader_at(behind) == -1, within_s=40, what="nobody leads")
        cluster.wait_until(lambda: asyncio.run(elect(behind)), within_s=40, what="the other replica leads")
        produce(cluster, "torn", [f"other {number}" for number in range(8)])
        for each in (run, repeated):
            with pytest.raises(LogTruncated, match="torn-0: truncated: offsets 10 to 14, at most 5 records"):
                each.run()
            each.options["failOnDataLoss"] = "false"
            each.run()
            assert each.rows[-8:] == [(10 + number, f"other {number}".encode()) for number in range(8)]
        assert repeated.rows == rows(cluster, "torn")
        assert len(run.rows) == 23
    finally:
        for node in cluster.nodes:
            if not node.running:
                cluster.start_node(node.node_id)
