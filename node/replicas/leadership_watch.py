"""Who follows the leaderships of this node: the coordinators, by the internal topic that they read and write.

Invariants:
  1. Each leadership of a followed topic is reported twice: once it has begun, and before its waiting produce requests
     and fetches are refused. Calls alternate for each partition.
  2. An observer of a leadership sees each append and each advance of the high watermark, in order and at once.
Not here: when a leadership begins and ends (replica.py), what follows from it (node/coordinators/).
"""

from __future__ import annotations

from typing import Protocol

from storage.append_info import LogAppendInfo
from tidelog.types import Buffer, Offset, PartitionIndex, PartitionKey, TopicPartition


class LeadershipFollower(Protocol):
    """Follows the leaderships of one topic."""

    def leadership_began(self, partition: PartitionIndex, key: PartitionKey, /) -> None:
        """This node leads the partition. It must not change the role of the replica."""
        ...

    def leadership_ending(self, partition: PartitionIndex, /) -> None:
        """This node no longer leads the partition, or leads it in another epoch."""
        ...


class LeaderObserver(Protocol):
    """Observes one leadership."""

    def appended(self, records: Buffer, info: LogAppendInfo, /) -> None:
        """The batch is in the log, not yet committed."""
        ...

    def committed(self, high_watermark: Offset, /) -> None:
        """Everything below is committed."""
        ...


class LeadershipWatch:
    """The followers of leaderships, by topic."""

    def __init__(self) -> None:
        self._followers: dict[str, LeadershipFollower] = {}

    def follow(self, topic: str, follower: LeadershipFollower) -> None:
        """Report the leaderships of this topic from now on. One follower for each topic."""
        assert topic not in self._followers, f"{topic} is followed twice"
        self._followers[topic] = follower

    def began(self, name: TopicPartition, key: PartitionKey) -> None:
        """This node leads the partition."""
        follower = self._followers.get(name.topic)
        if follower is not None:
            follower.leadership_began(name.partition, key)

    def ending(self, name: TopicPartition) -> None:
        """This node no longer leads the partition."""
        follower = self._followers.get(name.topic)
        if follower is not None:
            follower.leadership_ending(name.partition)
