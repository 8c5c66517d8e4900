"""Ends and leaders that a stream asks for at the same time, while the leader changes in between.

Spark itself is not needed: the session of a query runs against a cluster in memory.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tests.spark.filled_partitions import fill
from tidelog.errors import OffsetOutOfRange
from tidelog.protocol.v1.admin_pb2 import GetMetadataRequest
from tidelog.spark.options.query_options import parse_stream_options
from tidelog.spark.streaming.stream_cluster import StreamAdmin
from tidelog.spark.streaming.stream_offsets import PartitionPosition
from tidelog.spark.streaming.stream_session import StreamSession
from tidelog.types import LeaderEpoch, Offset


def change_leader(cluster: MemoryCluster) -> None:
    """Elect the other node, which has only the first 6 records, and append one to its log."""
    del cluster.topics["orders"].partitions[0].batches[6:]
    cluster.lead("orders", 0, 1)
    fill(cluster, "x")


def change_between_answers(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the metadata is answered after the ends that are asked for beside it. The leader changes in between,
    once."""
    snapshot, end_positions = StreamAdmin.snapshot, StreamAdmin.end_positions
    reported, changed = asyncio.Event(), asyncio.Event()

    async def ends(self: StreamAdmin, *given: Any, **rest: Any) -> Any:
        answer = await end_positions(self, *given, **rest)
        reported.set()
        return answer

    async def metadata(self: StreamAdmin, *given: Any, **rest: Any) -> Any:
        await reported.wait()
        if not changed.is_set():
            change_leader(cluster)
            changed.set()
        return await snapshot(self, *given, **rest)

    monkeypatch.setattr(StreamAdmin, "end_positions", ends)
    monkeypatch.setattr(StreamAdmin, "snapshot", metadata)


async def test_ends_that_an_earlier_leader_reported_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a batch ends where the log of the present leader ends. Method: the query has read 6 records, and the leader
    reports 9; the metadata names the next leader, whose log has 7."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        fill(cluster, *"abcdef")
        options = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}
        session = StreamSession(parse_stream_options({**options, "startingOffsets": "earliest"}))
        try:
            await session.start()
            read = await session.advance(await session.initial(), None, may_wait=False)
            fill(cluster, *"ghi")
            change_between_answers(cluster, monkeypatch)
            end = await session.advance(read, None, may_wait=False)
        finally:
            await session.close()
        positions = [position for offset in (read, end) for _, _, position in offset]
        assert positions == [
            PartitionPosition(Offset(6), LeaderEpoch(0)),
            PartitionPosition(Offset(7), LeaderEpoch(1)),
        ]


async def test_a_topic_that_the_metadata_lacked_when_the_query_began_is_read_to_its_end_at_the_first_look() -> None:
    """With the trigger availableNow. The node that is asked first has not applied the topic's creation yet. Before, the
    query ended well and had read nothing of the topic."""
    async with memory_cluster(1) as cluster:
        lagging = cluster.metadata(GetMetadataRequest(topics=["orders"]))
        cluster.create("orders")
        fill(cluster, *"abc")
        options = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}
        session = StreamSession(parse_stream_options({**options, "startingOffsets": "earliest"}))
        try:
            await session.start()
            cluster.nodes[0].on_get_metadata = lambda request: lagging
            await session.freeze()
            cluster.nodes[0].on_get_metadata = cluster.metadata
            end = await session.advance(await session.initial(), None, may_wait=False)
            assert [position.next_offset for _, _, position in end] == [3]
            fill(cluster, "d")
            assert await session.advance(end, None, may_wait=False) == end
        finally:
            await session.close()


async def test_a_query_without_a_start_leaves_nothing_on_the_cluster() -> None:
    """It may be started again and again. Before, each attempt left a transactional id of its own."""
    async with memory_cluster(1) as cluster:
        cluster.create("orders")
        options = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}
        session = StreamSession(parse_stream_options({**options, "startingOffsets": '{"orders": {"0": 7}}'}))
        try:
            await session.start()
            start = await session.initial()
            with pytest.raises(OffsetOutOfRange, match="is to start at 7"):
                await session.advance(start, None, may_wait=False)
        finally:
            await session.close()
        assert not cluster.transactions.ids
