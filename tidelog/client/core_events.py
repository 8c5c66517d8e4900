"""The events and the effect that the cores of producer and consumer share: leaders, and monotonic time."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import TidelogError
from tidelog.types import LeaderEpoch, Millis, NodeId, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class LeaderKnown:
    """The answer to FindLeader, or a change of the metadata."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    """None if the topic is unknown."""
    node: NodeId
    """NO_NODE if the partition has no leader, or if the leader is unknown."""
    leader_epoch: LeaderEpoch
    at: Millis
    cause: TidelogError | None = None
    """Why there is no leader, or why no node answered."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time has passed, records were queued or partitions were assigned."""

    at: Millis


@dataclass(frozen=True, slots=True)
class FindLeader:
    """Look up the leader; answer with LeaderKnown."""

    topic_partition: TopicPartition
    is_outdated: bool = False
    """The last answer was older than what the reader knows: query another node."""
