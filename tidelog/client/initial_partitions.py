"""The partitions that existed when a member of a group started. The member reads later ones from their beginning."""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

from tidelog.client.cluster import Cluster
from tidelog.client.fetch_core import REFUSED_CLIENT_MS
from tidelog.client.retries import backoff_ms
from tidelog.errors import Retry, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import PartitionIndex, TopicId


class InitialPartitions:
    """Queries the partitions once, when the member starts."""

    def __init__(self, cluster: Cluster, topics: tuple[str, ...], rng: Random) -> None:
        """topics: the subscription; empty for a pattern: all topics are queried."""
        self._cluster, self._rng = cluster, rng
        self._request = admin_pb2.GetMetadataRequest(topics=topics, all_topics=not topics)
        self._counts: dict[TopicId, int] = {}
        self._error: TidelogError | None = None
        self._ended = asyncio.Event()

    async def find(self) -> None:
        """Query until a node answers, or until this client has been refused for `REFUSED_CLIENT_MS`."""
        failures, refused_since = 0, None
        while not self._ended.is_set():
            try:
                answer = await self._cluster.call_any(methods.ADMIN_GET_METADATA, self._request)
            except TidelogError as error:
                at = self._cluster.clock.monotonic_ms()
                if error.retry is not Retry.NEVER:
                    refused_since = None
                elif refused_since is None:
                    refused_since = at
                elif at - refused_since >= REFUSED_CLIENT_MS:
                    self.give_up(error)
                    return
                failures += 1
                await self._cluster.clock.sleep_ms(backoff_ms(failures, self._rng))
                continue
            self._counts = {
                TopicId(UUID(bytes=topic.topic_id)): len(topic.partitions) for topic in answer.topics if topic.topic_id
            }
            self._ended.set()

    def give_up(self, error: TidelogError) -> None:
        """End the search: `contain` raises the error, unless the partitions are known already."""
        if not self._ended.is_set():
            self._error = error
            self._ended.set()

    async def contain(self, topic_id: TopicId, partition: PartitionIndex) -> bool:
        """Return whether the partition existed, once that is known. Raises the error that ended the search."""
        await self._ended.wait()
        if self._error is not None:
            raise self._error
        return partition < self._counts.get(topic_id, 0)
