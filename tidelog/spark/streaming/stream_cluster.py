"""What a stream asks the cluster: topics, ends and starts of logs, ends of leader epochs.

Not here: decisions (stream_planner.py, data_loss.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from tidelog.client.cluster import BACKOFF_MS, QUERY_TIMEOUT_MS
from tidelog.client.offset_lookup import LATEST, ensure_current, list_positions
from tidelog.errors import Retry, TidelogError, UnknownLeaderEpoch, UnknownTopicOrPartition
from tidelog.protocol import methods
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.spark.options.topic_selection import TopicSelection, ensure_present
from tidelog.spark.ranges.read_admin import ReadAdmin
from tidelog.types import (
    INTERNAL_TOPICS,
    NO_LEADER_EPOCH,
    Endpoint,
    EpochEnd,
    Isolation,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic as a node knows it: its id, and the leader epoch of each partition in order."""

    topic_id: TopicId
    leader_epochs: tuple[LeaderEpoch, ...]


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The topics that a query selects, as a node knows them. metadata_offset: how much the node has applied."""

    cluster_id: str
    metadata_offset: int
    topics: Mapping[str, TopicSnapshot]

    def topic_id(self, key: TopicPartition) -> TopicId | None:
        """The topic's id; None if there is no such partition."""
        topic = self.topics.get(key.topic)
        return topic.topic_id if topic is not None and key.partition < len(topic.leader_epochs) else None

    def leadership(self, key: TopicPartition) -> tuple[TopicId, LeaderEpoch]:
        """The topic's id and the leader epoch of a partition that exists."""
        topic = self.topics[key.topic]
        return topic.topic_id, topic.leader_epochs[key.partition]

    def partitions(self, selection: TopicSelection) -> list[TopicPartition]:
        """The partitions that the selection reads, in order."""
        if selection.assigned is not None:
            return [key for key in selection.assigned if self.topic_id(key) is not None]
        return [
            TopicPartition(name, PartitionIndex(index))
            for name, topic in sorted(self.topics.items())
            for index in range(len(topic.leader_epochs))
            if selects(selection, TopicPartition(name, PartitionIndex(index)))
        ]

    def all_partitions(self, selection: TopicSelection) -> list[TopicPartition]:
        """The same. Raises UnknownTopicOrPartition if a topic or partition that the options name does not exist."""
        ensure_present(selection, {name: len(topic.leader_epochs) for name, topic in self.topics.items()})
        return self.partitions(selection)


def selects(selection: TopicSelection, key: TopicPartition) -> bool:
    """Whether the options select the partition, whether it exists or not."""
    if selection.assigned is not None:
        return key in selection.assigned
    if selection.topics is not None:
        return key.topic in selection.topics
    assert selection.pattern is not None, "a selection has one field"
    return selection.pattern.matches(key.topic)


class StreamAdmin(ReadAdmin):
    """Asks the cluster for a stream. Calls retry for `patience_ms` as those of Admin."""

    async def snapshot(self, selection: TopicSelection, *, also: Iterable[str] = ()) -> ClusterSnapshot:
        """The selected topics, and those named in `also`, as the node knows them that answers first."""
        request = _metadata_request(selection, also)
        return _snapshot(await self._query(methods.ADMIN_GET_METADATA, request), selection, also)

    async def newest_snapshot(self, selection: TopicSelection, *, also: Iterable[str] = ()) -> ClusterSnapshot:
        """The same, as the node knows it that has applied most of the metadata: of the nodes known before, and those
        that the first answer names. That a topic is new, gone, or another one, is believed only of this one. A pattern
        hides what the caller may not describe: topics in `also` that are not among its matches are asked for by name.
        Raises ConnectionFailed if no node answers, and the error of a topic for any reason but that it does not
        exist."""
        newest = _snapshot(await self._newest_answer(_metadata_request(selection, also)), selection, also)
        hidden = sorted(set(also) - newest.topics.keys())
        if selection.pattern is None or not hidden:
            return newest
        named = _snapshot(await self._newest_answer(admin_pb2.GetMetadataRequest(topics=hidden)), selection, also)
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

    async def epoch_ends(
        self, questions: Mapping[TopicPartition, tuple[TopicId, LeaderEpoch]]
    ) -> dict[TopicPartition, EpochEnd]:
        """The largest leader epoch of each log that is not above the given one, and its end offset; epoch -1 if there
        is none. A leader of an older epoch than the given one is not asked. Looks leaders up again and retries for
        `request_timeout_ms`, then raises the last error.
        """
        found: dict[TopicPartition, EpochEnd] = {}
        start = self._clock.monotonic_ms()
        while True:
            left = {key: each for key, each in questions.items() if key not in found}
            if not left:
                return found
            failures = await self._epoch_round(left, found)
            late = self._clock.monotonic_ms() + BACKOFF_MS - start >= self._timeout_ms
            for error in failures:
                if late or error.retry is Retry.NEVER:
                    raise error
            if any(isinstance(error, UnknownLeaderEpoch) for error in failures):
                self._cluster.distrust_last()
            if failures:
                await self._clock.sleep_ms(BACKOFF_MS)
                for topic in sorted({key.topic for key in left}):
                    await self._cluster.refresh(topic)

    async def _epoch_round(
        self,
        left: Mapping[TopicPartition, tuple[TopicId, LeaderEpoch]],
        found: dict[TopicPartition, EpochEnd],
    ) -> list[TidelogError]:
        """Ask each leader once. Stores answers in `found`, returns errors."""
        failures: list[TidelogError] = []
        by_leader: dict[Endpoint, dict[TopicPartition, data_pb2.EpochQuestion]] = {}
        for key, (topic_id, epoch) in left.items():
            try:
                await self._cluster.wait_topic(key.topic, timeout_ms=self._timeout_ms)
                endpoint, partition = self._cluster.view.leader(key)
                if self._cluster.view.topic(key.topic).topic_id == topic_id:
                    ensure_current(key, partition, epoch)
            except UnknownTopicOrPartition:
                raise  # `wait_topic` has already waited
            except TidelogError as error:
                failures.append(error)
                continue
            by_leader.setdefault(endpoint, {})[key] = data_pb2.EpochQuestion(
                topic_id=topic_id.bytes,
                partition=key.partition,
                current_leader_epoch=partition.leader_epoch,
                leader_epoch=epoch,
            )
        for endpoint, entries in by_leader.items():
            request = data_pb2.OffsetForLeaderEpochRequest(partitions=entries.values())
            try:
                answer = await self._cluster.transport.call(
                    endpoint, methods.DATA_OFFSET_FOR_LEADER_EPOCH, request, timeout_ms=QUERY_TIMEOUT_MS
                )
            except TidelogError as error:
                failures.append(error)
                continue
            for key, result in zip(entries, answer.partitions, strict=True):
                if result.HasField("error"):
                    refusal = from_proto(result.error)
                    self._cluster.note_leader(key, refusal.leader)
                    failures.append(refusal)
                else:
                    found[key] = EpochEnd(LeaderEpoch(result.end.epoch), Offset(result.end.end_offset))
        return failures


def _metadata_request(selection: TopicSelection, also: Iterable[str]) -> admin_pb2.GetMetadataRequest:
    if selection.pattern is not None:
        return admin_pb2.GetMetadataRequest(all_topics=True)
    names = selection.topics or tuple(key.topic for key in selection.assigned or ())
    return admin_pb2.GetMetadataRequest(topics=dict.fromkeys([*names, *also]))


def _snapshot(answer: admin_pb2.GetMetadataResponse, selection: TopicSelection, also: Iterable[str]) -> ClusterSnapshot:
    wanted = set(also)
    topics = {}
    for topic in answer.topics:
        if topic.HasField("error"):
            error = from_proto(topic.error)
            if isinstance(error, UnknownTopicOrPartition):
                continue
            raise error  # a topic that may not be seen is not gone
        if not topic.topic_id:
            continue
        is_selected = selection.pattern is None or (
            topic.name not in INTERNAL_TOPICS and selection.pattern.matches(topic.name)
        )
        if is_selected or topic.name in wanted:
            in_order = sorted(topic.partitions, key=lambda each: each.partition)
            epochs = tuple(LeaderEpoch(each.leader_epoch) for each in in_order)
            topics[topic.name] = TopicSnapshot(TopicId(UUID(bytes=topic.topic_id)), epochs)
    return ClusterSnapshot(answer.cluster_id, answer.metadata_offset, topics)
