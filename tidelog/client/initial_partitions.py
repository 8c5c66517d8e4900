"""The partitions that existed when a member of a group began: what appears later is new to it."""

from __future__ import annotations

import asyncio
from uuid import UUID

from tidelog.client.cluster import BACKOFF_MS, Cluster
from tidelog.errors import TidelogError
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import PartitionIndex, TopicId


class InitialPartitions:
    """Asks once, when the member begins. topics: its subscription; none: all topics, for a pattern."""

    def __init__(self, cluster: Cluster, topics: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._request = admin_pb2.GetMetadataRequest(topics=topics, all_topics=not topics)
        self._counts: dict[TopicId, int] = {}
        self._is_known = asyncio.Event()

    async def find(self) -> None:
        """Ask until a node answers."""
        while not self._is_known.is_set():
            try:
                answer = await self._cluster.call_any(methods.ADMIN_GET_METADATA, self._request)
            except TidelogError:
                await self._cluster.clock.sleep_ms(BACKOFF_MS)
                continue
            self._counts = {
                TopicId(UUID(bytes=topic.topic_id)): len(topic.partitions) for topic in answer.topics if topic.topic_id
            }
            self._is_known.set()

    async def contain(self, topic_id: TopicId, partition: PartitionIndex) -> bool:
        """Return whether the partition existed, once that is known."""
        await self._is_known.wait()
        return partition < self._counts.get(topic_id, 0)
