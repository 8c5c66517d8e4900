"""A leader that was deposed and does not know it yet: what it lacks is neither out of range nor truncated (KIP-320).

Spark itself is not needed: the driver's side of the source runs against a cluster in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tidelog.errors import LogTruncated, OffsetOutOfRange, UnknownLeaderEpoch, UnknownTopicOrPartition
from tidelog.protocol.v1.admin_pb2 import GetMetadataRequest
from tidelog.records import RecordBatch, build_batch
from tidelog.records.v2.record import Record
from tidelog.spark.options.query_options import parse_batch_options, parse_stream_options
from tidelog.spark.ranges.planning import OffsetRange
from tidelog.spark.ranges.read_admin import ReadAdmin
from tidelog.spark.ranges.reading import RangeReader
from tidelog.spark.ranges.resolving import resolve
from tidelog.spark.streaming.stream_offsets import PartitionPosition, StreamOffset, stream_offset
from tidelog.spark.streaming.stream_session import StreamSession
from tidelog.types import LeaderEpoch, Millis, Offset, PartitionIndex, TopicId, TopicPartition

ORDERS = TopicPartition("orders", PartitionIndex(0))
OLD_END, END = 3, 9


@asynccontextmanager
async def deposed(*, both_lag: bool = False) -> AsyncIterator[MemoryCluster]:
    """Topic `orders`: node 0 led in epoch 0 and has 3 records, node 1 leads in epoch 1 and has 9. Node 0 answers as if
    nothing had happened, and clients know only its address. both_lag: node 1 has the old metadata too."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        partition = cluster.topics["orders"].partitions[0]
        old, new = cluster.nodes
        requests = [GetMetadataRequest(topics=["orders"]), GetMetadataRequest(all_topics=True)]
        known = {request.all_topics: cluster.metadata(request) for request in requests}
        for node in (old, new) if both_lag else (old,):
            node.on_get_metadata = lambda request: known[request.all_topics]
        append(partition, OLD_END, 0)
        former = replace(partition, batches=list(partition.batches))
        cluster.lead("orders", 0, new.node_id)
        append(partition, END - OLD_END, OLD_END)
        led = cluster.led

        def as_each_believes(node: Any, entry: Any) -> Any:
            return former if node is old and entry.current_leader_epoch == 0 else led(node, entry)

        cluster.led = as_each_believes  # type: ignore[method-assign]
        yield cluster


def append(partition: Any, count: int, first: int) -> None:
    for number in range(first, first + count):
        partition.append(build_batch([Record(Offset(0), Millis(1_000 + number), None, b"x")]))


def given(cluster: MemoryCluster, **options: str) -> dict[str, str]:
    """Only the address of the deposed leader."""
    return {"tidelog.bootstrap.servers": str(cluster.nodes[0].endpoint), "subscribe": "orders", **options}


@pytest.mark.parametrize(
    "start", [{"startingOffsets": '{"orders": {"0": 7}}'}, {"startingTimestamp": "1007"}], ids=["offset", "time"]
)
@pytest.mark.parametrize("fails", ["true", "false"])
async def test_a_batch_starts_at_offsets_that_only_the_new_leader_has(start: dict[str, str], fails: str) -> None:
    async with deposed() as cluster:
        (task,) = await resolve(parse_batch_options(given(cluster, failOnDataLoss=fails, **start)))
        assert [(one.start, one.end) for one in task.ranges] == [(7, END)]
        beyond = given(cluster, startingOffsets='{"orders": {"0": 70}}')
        with pytest.raises(OffsetOutOfRange, match=f"holds offsets 0 to {END}"):
            await resolve(parse_batch_options(beyond))


@pytest.mark.parametrize("selection", [{}, {"subscribe": "", "subscribePattern": "or.*"}], ids=["name", "pattern"])
async def test_a_batch_ends_where_the_new_leader_does(selection: dict[str, str]) -> None:
    """At the latest offset, which nobody calls out of range. Before, the query ended well without the records that only
    the new leader has."""
    async with deposed() as cluster:
        options = {name: value for name, value in given(cluster, **selection).items() if value}
        (task,) = await resolve(parse_batch_options(options))
        assert [(one.start, one.end) for one in task.ranges] == [(0, END)]


def position(cluster: MemoryCluster, offset: int, epoch: int) -> StreamOffset:
    topic_id = TopicId(cluster.topics["orders"].topic_id)
    at = PartitionPosition(Offset(offset), LeaderEpoch(epoch))
    return stream_offset(cluster.cluster_id, "abc", {ORDERS: (topic_id, at)})


@asynccontextmanager
async def session(cluster: MemoryCluster, **options: str) -> AsyncIterator[StreamSession]:
    opened = StreamSession(parse_stream_options(given(cluster, **options)))
    try:
        await opened.start()
        yield opened
    finally:
        await opened.close()


@pytest.mark.parametrize("epoch", [1, -1])
@pytest.mark.parametrize("fails", ["true", "false"])
async def test_a_stream_continues_at_its_checkpoint(epoch: int, fails: str) -> None:
    """With and without the leader epoch of what was read. Before, the query failed with LogTruncated or, with
    `failOnDataLoss=false`, read records again."""
    async with deposed() as cluster:
        start = position(cluster, 7, epoch)
        async with session(cluster, failOnDataLoss=fails) as first:
            end = await first.advance(start, None, may_wait=False)
            assert [at.next_offset for _, _, at in end] == [END]
        async with session(cluster, failOnDataLoss=fails) as restarted:
            (task,) = await restarted.plan(start, end)
            assert [(one.start, one.end) for one in task.ranges] == [(7, END)]


@pytest.mark.parametrize(("start", "found"), [('{"orders": {"0": 7}}', 7), ("latest", END)], ids=["offset", "latest"])
async def test_a_stream_starts_at_an_offset_that_only_the_new_leader_has(start: str, found: int) -> None:
    async with deposed() as cluster, session(cluster, startingOffsets=start, failOnDataLoss="false") as first:
        assert [at.next_offset for _, _, at in await first.initial()] == [found]


async def test_the_present_end_of_a_query_is_not_that_of_the_deposed_leader() -> None:
    """With the trigger availableNow. Before, the query ended well without the records that only the new leader has."""
    async with deposed() as cluster, session(cluster, startingOffsets="earliest") as bounded:
        await bounded.freeze()
        end = await bounded.advance(await bounded.initial(), None, may_wait=False)
        assert [at.next_offset for _, _, at in end] == [END]


async def test_a_doubtful_partition_that_is_gone_by_then_is_unknown() -> None:
    """The topic is created again with fewer partitions, between the doubt and the answer of the other node."""
    async with memory_cluster(2) as cluster:
        before = cluster.create("orders", 2)
        last = TopicPartition("orders", PartitionIndex(1))
        async with ReadAdmin(cluster.bootstrap) as admin:
            await admin.list_offsets([last], "earliest")
            cluster.delete("orders")
            cluster.create("orders", 1)
            with pytest.raises(UnknownTopicOrPartition, match="partition 1 does not exist"):
                await admin.confirmed_leaders({last: (TopicId(before.topic_id), LeaderEpoch(0))})


@pytest.mark.parametrize("learned", [True, False])
async def test_a_truncation_that_the_new_leader_reports_is_one(*, learned: bool) -> None:
    """Offsets 3 to 6 were read in epoch 0, which ends at 3 in the log of the present leader. The log is compared again
    after its leader is confirmed. learned: the former leader knows of it."""
    async with deposed() as cluster:
        if learned:
            cluster.nodes[0].on_get_metadata = cluster.metadata
        async with session(cluster) as failing:
            with pytest.raises(LogTruncated, match="truncated: offsets 3 to 6"):
                await failing.advance(position(cluster, 7, 0), None, may_wait=False)
        async with session(cluster, failOnDataLoss="false") as skipping:
            end = await skipping.advance(position(cluster, 7, 0), 1, may_wait=False)
            assert [at.next_offset for _, _, at in end] == [OLD_END + 1]


async def test_a_loss_is_not_believed_while_all_nodes_lag_behind_the_checkpoint() -> None:
    async with deposed(both_lag=True) as cluster, session(cluster) as lagging:
        lagging._admin._timeout_ms = 300
        with pytest.raises(UnknownLeaderEpoch, match=r"records of leader epoch 1.*older epoch 0"):
            await lagging.advance(position(cluster, 7, 1), None, may_wait=False)


async def test_a_task_reads_what_only_the_new_leader_has() -> None:
    """The executor knows only the deposed leader, whose log ends below the range."""
    async with deposed() as cluster:
        topic_id = TopicId(cluster.topics["orders"].topic_id)
        wanted = OffsetRange(ORDERS, topic_id, LeaderEpoch(1), Offset(7), Offset(END))
        found: list[int] = []

        def decode(batch: RecordBatch) -> bool:
            found.append(batch.base_offset)
            return False

        bootstrap = given(cluster)["tidelog.bootstrap.servers"]
        async with RangeReader(bootstrap, fetch_bytes=1 << 20, patience_ms=20_000) as reader:
            async for _ in reader.read(wanted, decode):
                pass
        assert found == [7, 8]
