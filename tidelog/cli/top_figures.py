"""What `tidelog top` computes of two looks at a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelog.client.admin import TopicDescription
from tidelog.cluster_descriptions import ClusterDescription
from tidelog.types import NO_NODE, Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """A group with members, or with committed offsets."""

    group_id: str
    state: str
    members: int
    lag: int
    """Of the partitions whose lag is known."""
    unknown: int
    """How many others there are."""


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """The cluster at one moment."""

    at_ms: int
    """By a clock that does not jump."""
    cluster: ClusterDescription
    topics: Sequence[TopicDescription]
    ends: Mapping[TopicPartition, Offset]
    """Of the partitions that have a leader."""
    groups: Sequence[WatchedGroup]
    open_transactions: int


@dataclass(frozen=True, slots=True)
class TopicFlow:
    """A topic and how fast it grows."""

    topic: str
    partitions: int
    under_replicated: int
    leaderless: int
    records: int | None
    """The sum of its log ends, as far as leaders answered; None: none did."""
    records_per_second: float | None
    """None with the first look."""


@dataclass(frozen=True, slots=True)
class GroupFlow:
    """A group and whether it catches up."""

    group_id: str
    state: str
    members: int
    lag: int
    unknown: int
    lag_per_second: float | None
    """Below zero: it catches up. None with the first look."""


def topic_flows(before: ClusterLook | None, after: ClusterLook) -> list[TopicFlow]:
    """The topics, the fastest first. Only partitions count that had a leader both times: one that returns has not got
    all its records now."""
    flows = []
    for topic in after.topics:
        keys = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
        flows.append(
            TopicFlow(
                topic.name,
                len(keys),
                sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
                sum(each.leader == NO_NODE for each in topic.partitions),
                sum(ends) if (ends := [after.ends[key] for key in keys if key in after.ends]) else None,
                None if before is None else _growth(before, after, keys),
            )
        )
    return sorted(flows, key=lambda each: (-(each.records_per_second or 0), -each.leaderless, each.topic))


def group_flows(before: ClusterLook | None, after: ClusterLook) -> list[GroupFlow]:
    """The groups, the largest lag first."""
    earlier = {} if before is None else {each.group_id: each for each in before.groups}
    flows = []
    for group in after.groups:
        known = earlier.get(group.group_id)
        seconds = 0.0 if before is None else (after.at_ms - before.at_ms) / 1_000
        change = None if known is None or not seconds else (group.lag - known.lag) / seconds
        flows.append(GroupFlow(group.group_id, group.state, group.members, group.lag, group.unknown, change))
    return sorted(flows, key=lambda each: (-each.lag, each.group_id))


def _growth(before: ClusterLook, after: ClusterLook, keys: Sequence[TopicPartition]) -> float | None:
    seconds = (after.at_ms - before.at_ms) / 1_000
    both = [key for key in keys if key in before.ends and key in after.ends]
    # The offsets of a topic that was deleted and created again begin at 0: the rate is 0, not negative.
    return sum(max(0, after.ends[key] - before.ends[key]) for key in both) / seconds if seconds > 0 else None
