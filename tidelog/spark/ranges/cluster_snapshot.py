"""The topics that a query selects, as a node knows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from tidelog.errors import UnknownTopicOrPartition
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import admin_pb2
from tidelog.spark.options.topic_selection import TopicSelection, ensure_present
from tidelog.types import INTERNAL_TOPICS, LeaderEpoch, PartitionIndex, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class QueriedTopic:
    """A topic as a node knows it."""

    topic_id: TopicId
    leader_epochs: tuple[LeaderEpoch, ...]
    """The leader epoch of each partition, in order."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The topics of a query, as one node reported them."""

    cluster_id: str
    metadata_offset: int
    """The node has applied the metadata log up to here."""
    topics: Mapping[str, QueriedTopic]

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
        """As `partitions`. Raises UnknownTopicOrPartition if a topic or partition that the options name is missing."""
        ensure_present(selection, {name: len(topic.leader_epochs) for name, topic in self.topics.items()})
        return self.partitions(selection)


def selects(selection: TopicSelection, key: TopicPartition) -> bool:
    """Whether the options select the partition, whether it exists or not."""
    if selection.assigned is not None:
        return key in selection.assigned
    if selection.topics is not None:
        return key.topic in selection.topics
    return selection.matches(key.topic)


def metadata_request(selection: TopicSelection, also: Iterable[str]) -> admin_pb2.GetMetadataRequest:
    """The request for the topics of the selection, and for those named in `also`."""
    if selection.pattern is not None:
        return admin_pb2.GetMetadataRequest(all_topics=True)
    names = selection.topics or tuple(key.topic for key in selection.assigned or ())
    return admin_pb2.GetMetadataRequest(topics=dict.fromkeys([*names, *also]))


def snapshot_of(
    answer: admin_pb2.GetMetadataResponse, selection: TopicSelection, also: Iterable[str]
) -> ClusterSnapshot:
    """Read the answer to `metadata_request`. A topic that does not exist is left out; any other error is raised."""
    also_names = set(also)
    topics = {}
    for topic in answer.topics:
        if topic.HasField("error"):
            error = from_proto(topic.error)
            if isinstance(error, UnknownTopicOrPartition):
                continue
            raise error  # a topic that this user may not see must not look like a deleted one
        if not topic.topic_id:
            continue
        is_selected = selection.pattern is None or (topic.name not in INTERNAL_TOPICS and selection.matches(topic.name))
        if is_selected or topic.name in also_names:
            in_order = sorted(topic.partitions, key=lambda partition: partition.partition)
            epochs = tuple(LeaderEpoch(partition.leader_epoch) for partition in in_order)
            topics[topic.name] = QueriedTopic(TopicId(UUID(bytes=topic.topic_id)), epochs)
    return ClusterSnapshot(answer.cluster_id, answer.metadata_offset, topics)
