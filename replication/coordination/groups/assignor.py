"""The input of an assignor, members and their topics, and its result, the partitions of each member."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias
from uuid import UUID

from replication.coordination.groups.assignments import Assignment
from replication.coordination.groups.topic_catalog import Topic
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member."""

    instance_id: str | None
    rack: str | None
    topics: frozenset[UUID]
    """The ids of the existing topics that it subscribes to."""
    target: Assignment
    """Its target assignment so far."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group."""

    members: Mapping[str, MemberSpec]
    """At least one, by member id in ascending order."""
    topics: Mapping[UUID, Topic]
    """Every topic that a member subscribes to, by id in the order of names."""

    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        members = iter(self.members.values())
        topics = next(members).topics
        return all(member.topics is topics or member.topics == topics for member in members)


GroupAssignment: TypeAlias = Mapping[str, Mapping[UUID, AbstractSet[int]]]
"""The partitions of each member. A member without partitions may be absent. A member whose assignment is the object
`MemberSpec.target` itself keeps exactly what it had."""

Assignor: TypeAlias = Callable[[GroupSpec], GroupAssignment]
"""Deterministic: equal specs give equal assignments. Each partition of a subscribed topic goes to one subscriber."""
