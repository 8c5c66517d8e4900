"""What members of a classic group read, as far as its coordinator can tell from their bytes (consumer_protocol.py)."""

from __future__ import annotations

from replication.coordination.groups.assignments import AssignedTopics
from replication.coordination.groups.classic_group import ClassicGroup, ClassicMember
from replication.coordination.groups.classic_protocols import metadata_of
from replication.coordination.groups.consumer_protocol import (
    CONSUMER_PROTOCOL,
    assignment_in,
    existing,
    subscription_in,
)
from replication.coordination.groups.topic_catalog import TopicCatalog


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that the members subscribe to; None if that is unknown: they have no protocol in common yet, it is
    another one, or one of them has metadata that is not of it."""
    topics: set[str] = set()
    for member in group.members.values():
        names = topics_of(group, member)
        if names is None:
            return None
        topics.update(names)
    return frozenset(topics)


def topics_of(group: ClassicGroup, member: ClassicMember) -> tuple[str, ...] | None:
    """The topics that a member subscribes to; None: unknown."""
    if group.protocol_type != CONSUMER_PROTOCOL:
        return None
    subscription = subscription_in(metadata_of(member.protocols, group.protocol))
    return None if subscription is None else tuple(sorted(set(subscription.topics)))


def partitions_of(group: ClassicGroup, member: ClassicMember, catalog: TopicCatalog) -> AssignedTopics:
    """The partitions that a member is assigned, of those that exist; none if that is unknown."""
    assignment = assignment_in(member.assignment) if group.protocol_type == CONSUMER_PROTOCOL else None
    return () if assignment is None else existing(assignment.assigned_partitions, catalog)
