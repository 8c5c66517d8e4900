"""The events and the effect that the producer's core and the fetch core share: leaders and time (monotonic)."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import TidelogError
from tidelog.types import LeaderEpoch, Millis, NodeId, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderKnown:
    """The answer to FindLeader, or a change of the metadata. node: NO_NODE if the partition has no leader or it is
    unknown, for the given cause. topic_id: None if the topic is unknown."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    node: NodeId
    leader_epoch: LeaderEpoch
    at: Millis
    cause: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed, records were queued or partitions were assigned."""

    at: Millis


@dataclass(frozen=True, slots=True)
class FindLeader:
    """Look up the leader; answer with LeaderKnown."""

    topic_partition: TopicPartition
