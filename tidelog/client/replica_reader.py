"""Reads the replicas of a partition one by one: each node answers from its own log, up to its own high watermark.

A follower serves consumers that name the partition's leader epoch (KIP-392). A caller that reads all replicas in turn
can compare them, which an ordinary consumer cannot do.
Not here: the comparison (tidelog/jobs/).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidelog.client.cluster import ClusterView, TopicView
from tidelog.client.connection import Service
from tidelog.client.remote_logs import AskedRange, RemoteSegments, describe_remote_logs
from tidelog.errors import (
    FencedLeaderEpoch,
    NodeNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    TidelogError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import data_pb2
from tidelog.types import Buffer, NodeId, Offset, TopicPartition

FETCH_BYTES: Final = 1024 * 1024
"""Target size of one answer, and so of the memory for one replica, beside the decoded records."""
CALL_TIMEOUT_MS: Final = 10_000
WAIT_MS: Final = 250
"""How long a replica may wait until the requested records are below its high watermark."""

_PASSING: Final = (
    FencedLeaderEpoch,
    NodeNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
"""Errors that pass: the node or this client has older metadata, or a new leader does not know its high watermark
yet."""


@dataclass(frozen=True, slots=True)
class ReplicaRead:
    """The answer of one replica."""

    log_start: Offset
    high_watermark: Offset
    records: Buffer = field(repr=False)
    """Whole batches from the one that contains the offset on; empty if there are none below the high watermark."""
    is_below_start: bool = False
    """The offset was below the log start; there are no records then."""


class ReplicaReader(Service):
    """A client that reads the records of a partition from chosen nodes. Use it inside `async with`."""

    @property
    def view(self) -> ClusterView:
        """The metadata, as they were last read."""
        return self._cluster.view

    async def topic(self, name: str, *, timeout_ms: int) -> TopicView:
        """Read the metadata of the topic now. Raises UnknownTopicOrPartition, ConnectionFailed if no node answers."""
        await self._cluster.wait_topic(name, timeout_ms=timeout_ms)
        return (await self._cluster.refresh(name)).topic(name)

    async def read(
        self,
        node: NodeId,
        topic: TopicView,
        topic_partition: TopicPartition,
        offset: Offset,
        *,
        patience_ms: int,
        wait_ms: int = WAIT_MS,
    ) -> ReplicaRead:
        """Read from the replica of this node.

        Repeats the request while metadata move, for `patience_ms`. Raises UnknownTopicId if the topic is not this
        incarnation any more, OffsetOutOfRange above the log end, CorruptLog, KafkaStorageError, ConnectionFailed,
        TopicAuthorizationFailed, and the last error after the patience.
        """
        retries = self._cluster.retries(patience_ms)
        while True:
            try:
                return await self._read_once(node, topic, topic_partition, offset, wait_ms)
            except _PASSING as error:
                await retries.pause(error)
            await self._cluster.refresh(topic_partition.topic)

    async def stored(
        self, topic: TopicView, topic_partition: TopicPartition, start: Offset, end: Offset, *, timeout_ms: int
    ) -> RemoteSegments:
        """What of a range is in the object store. Raises as `describe_remote_logs`."""
        asked = {topic_partition: AskedRange(topic.topic_id, start, end)}
        return (await describe_remote_logs(self._cluster, asked, timeout_ms=timeout_ms))[topic_partition]

    async def _read_once(
        self, node: NodeId, topic: TopicView, topic_partition: TopicPartition, offset: Offset, wait_ms: int
    ) -> ReplicaRead:
        view = self._cluster.view
        known = view.topic(topic_partition.topic)
        if known.topic_id != topic.topic_id:
            raise UnknownTopicId(f"topic {topic.name!r} was deleted and created again while it was read")
        endpoint = view.nodes.get(node)
        if endpoint is None:
            raise NodeNotAvailable(f"node {node} is not alive, as far as the other nodes know")
        request = data_pb2.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
            partitions=[
                data_pb2.FetchPartition(
                    fetch_id=1,
                    topic_id=topic.topic_id.bytes,
                    partition=topic_partition.partition,
                    current_leader_epoch=known.partitions[topic_partition.partition].leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=-1,
                    durable_offset=-1,
                    log_start_offset=-1,
                    max_bytes=FETCH_BYTES,
                )
            ],
        )
        answer = await self._cluster.transport.call(
            endpoint, methods.DATA_FETCH, request, timeout_ms=CALL_TIMEOUT_MS + wait_ms
        )
        if answer.throttle_time_ms:
            await self._clock.sleep_ms(answer.throttle_time_ms)
        [fetched] = answer.partitions
        if fetched.error is not None:
            return _beside_log(fetched.error, fetched.log_start_offset, fetched.high_watermark, offset)
        return ReplicaRead(Offset(fetched.log_start_offset), Offset(fetched.high_watermark), fetched.records)


def _beside_log(error: TidelogError, log_start: int, high_watermark: int, offset: Offset) -> ReplicaRead:
    """The answer for an offset below the log start. Raises any other error."""
    if isinstance(error, OffsetOutOfRange) and offset < log_start:
        return ReplicaRead(Offset(log_start), Offset(high_watermark), b"", is_below_start=True)
    raise error
