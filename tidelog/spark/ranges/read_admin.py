"""The client that asks the cluster where a query begins and ends.

A leader that was deposed and does not know it yet has fewer records than its successor: it would report offsets as out
of range, or the log as truncated, that are neither (KIP-320). Such an answer is believed once another node names the
same leader in the same epoch, and never of a leader in an older epoch than that of records that were read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from tidelog.client.admin import Admin
from tidelog.client.cluster import QUERY_TIMEOUT_MS
from tidelog.client.offset_lookup import ensure_current, list_positions
from tidelog.client.remote_logs import AskedRange, describe_remote_logs
from tidelog.errors import TidelogError
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2
from tidelog.spark.options.topic_selection import TopicSelection
from tidelog.spark.ranges.cluster_snapshot import ClusterSnapshot, metadata_request, snapshot_of
from tidelog.spark.ranges.planning import OffsetRange
from tidelog.spark.ranges.remote_history import RemoteHistory, remote_history
from tidelog.types import (
    LATEST,
    NO_LEADER_EPOCH,
    Endpoint,
    EpochEnd,
    Isolation,
    LeaderEpoch,
    NodeId,
    TopicId,
    TopicPartition,
)

Leaders = dict[TopicPartition, tuple[TopicId, NodeId, LeaderEpoch]]
"""Which node leads a partition of which topic, and in which epoch."""
Doubts = Mapping[TopicPartition, tuple[TopicId, LeaderEpoch]]
"""Partitions that lack records, with the topic's id and the leader epoch of a record that was read; NO_LEADER_EPOCH if
there is none."""
Found = TypeVar("Found")


class ReadAdmin(Admin):
    """Asks the cluster for a query. Calls retry for `patience_ms` as those of Admin."""

    async def snapshot(self, selection: TopicSelection, *, also: Iterable[str] = ()) -> ClusterSnapshot:
        """The selected topics, and those named in `also`, as the node knows them that answers first."""
        request = metadata_request(selection, also)
        return snapshot_of(await self._query(methods.ADMIN_GET_METADATA, request), selection, also)

    async def newest_snapshot(self, selection: TopicSelection, *, also: Iterable[str] = ()) -> ClusterSnapshot:
        """The same, as the node knows it that has applied most of the metadata: of the nodes known before, and those
        that the first answer names. That a topic is new, gone, or another one, is believed only of this one. A pattern
        hides what the caller may not describe: topics in `also` that are not among its matches are asked for by name.
        Raises ConnectionFailed if no node answers, and the error of a topic for any reason but that it does not
        exist."""
        newest = snapshot_of(await self._newest_answer(metadata_request(selection, also)), selection, also)
        hidden = sorted(set(also) - newest.topics.keys())
        if selection.pattern is None or not hidden:
            return newest
        named = snapshot_of(await self._newest_answer(admin_pb2.GetMetadataRequest(topics=hidden)), selection, also)
        return replace(newest, topics={**newest.topics, **named.topics})

    async def _newest_answer(self, request: admin_pb2.GetMetadataRequest) -> admin_pb2.GetMetadataResponse:
        newest = await self._query(methods.ADMIN_GET_METADATA, request)  # retries until a node answers
        named = (Endpoint(node.host, node.port) for node in newest.nodes)  # more than the bootstrap addresses at first
        answers = await asyncio.gather(
            *(
                self._cluster.transport.call(endpoint, methods.ADMIN_GET_METADATA, request, timeout_ms=QUERY_TIMEOUT_MS)
                for endpoint in dict.fromkeys([*self._cluster.candidates(), *named])
            ),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, TidelogError):
                continue  # a node that is down knows nothing newer
            if isinstance(answer, BaseException):
                raise answer
            if answer.metadata_offset > newest.metadata_offset:
                newest = answer
        return newest

    async def ends_of_newest(
        self, snapshot: ClusterSnapshot, partitions: Iterable[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, EpochEnd]:
        """As `end_positions`, but a leader is not asked that is older than in the snapshot, which is the newest one: it
        may be deposed, and would report an end that records of its successor are behind."""

        def known(key: TopicPartition) -> LeaderEpoch:
            topic_id, epoch = snapshot.leadership(key)
            topic = self._cluster.view.topics.get(key.topic)
            return epoch if topic is not None and topic.topic_id == topic_id else NO_LEADER_EPOCH

        wanted = dict.fromkeys(partitions, LATEST)
        return await list_positions(
            self._cluster, wanted, timeout_ms=self._timeout_ms, isolation=isolation, known=known
        )

    async def remote_histories(
        self, ranges: Iterable[OffsetRange], store_url: str
    ) -> dict[TopicPartition, RemoteHistory]:
        """What of these ranges is in the object store. store_url: where executors find it; empty: where the nodes say
        that it is. Raises as `describe_remote_logs`."""
        wanted = {
            one.topic_partition: AskedRange(one.topic_id, one.start, one.end, one.planned_epoch) for one in ranges
        }
        found = await describe_remote_logs(self._cluster, wanted, timeout_ms=self._timeout_ms)
        return {key: remote_history(store_url or each.store_url, each.segments) for key, each in found.items()}

    async def until_confirmed(self, look: Callable[[], Awaitable[tuple[Found, Doubts]]]) -> Found:
        """What `look` finds, once another node confirms the leaders of which it lacks records. Raises as
        `confirmed_leaders`."""
        confirmed: Leaders = {}
        while True:
            found, doubtful = await look()
            leaders = await self.confirmed_leaders(doubtful)
            # The same leaders as before the look led all the time: what they lack is lost, and not only theirs.
            if not leaders or leaders == confirmed:
                return found
            confirmed = leaders

    async def confirmed_leaders(self, doubtful: Doubts) -> Leaders:
        """The leaders of partitions in which records are missing, as another node than these leaders names them.

        Raises UnknownLeaderEpoch if the nodes know only a leader of an older epoch, ConnectionFailed if no node but the
        leader answers, UnknownTopicOrPartition if a partition is gone meanwhile.
        """
        topics = {key: self._cluster.view.topic(key.topic, key.partition) for key in doubtful}
        for name, node in sorted({(key.topic, each.partitions[key.partition].leader) for key, each in topics.items()}):
            await self._cluster.refresh_beside(node, name)
        leaders: Leaders = {}
        for key, (topic_id, epoch) in doubtful.items():
            topic = self._cluster.view.topic(key.topic, key.partition)
            partition = topic.partitions[key.partition]
            if topic.topic_id == topic_id:
                ensure_current(key, partition, epoch)
            leaders[key] = topic.topic_id, partition.leader, partition.leader_epoch
        return leaders
