"""The events and the effect that the cores of producer and consumer share: leaders, and monotonic time."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import TidelogError
from tidelog.types import LeaderEpoch, Millis, NodeId, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderKnown:
    """The answer to FindLeader, or a change of the metadata. node: NO_NODE if the partition has no leader, or if the
    leader is unknown; `cause` is the reason. topic_id: None if the topic is unknown."""

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
    """Look up the leader; answer with LeaderKnown. is_outdated: the last answer was older than what is known: ask
    another node."""

    topic_partition: TopicPartition
    is_outdated: bool = False
