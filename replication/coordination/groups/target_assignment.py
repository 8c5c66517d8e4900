"""The target assignment of a group: the partitions of each member in a group epoch (KIP-848)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from replication.coordination.group_records import GroupRecord
from replication.coordination.group_requests import VisibleTopics
from replication.coordination.groups.assignments import NOTHING, AssignedTopics, as_sets, as_topics
from replication.coordination.groups.assignor import Assignor, GroupSpec, MemberSpec
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.group_config import RANGE, UNIFORM
from replication.coordination.groups.member import MemberMetadata
from replication.coordination.groups.member_timers import MemberTimers
from replication.coordination.groups.member_views import MemberViews
from replication.coordination.groups.membership import assignment_epoch_record, target_record
from replication.coordination.groups.range_assignor import assign_range
from replication.coordination.groups.topic_catalog import Topic, TopicCatalog
from replication.coordination.groups.uniform_assignor import assign_uniform
from tidelog.values import dataclass

ASSIGNORS: Final[Mapping[str, Assignor]] = {UNIFORM: assign_uniform, RANGE: assign_range}


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """A target assignment that is not recorded yet."""

    targets: Mapping[str, AssignedTopics]
    """By member."""
    records: tuple[GroupRecord, ...]
    """What is new about it."""
    changed: tuple[str, ...]
    """The members for which it is new."""


def preferred_assignor(members: Iterable[MemberMetadata], assignors: tuple[str, ...]) -> str:
    """The assignor that most members ask for; of those with equal numbers the first of the settings. The first of the
    settings if no member asks for one that the settings have."""
    votes = Counter(member.server_assignor for member in members if member.server_assignor in assignors)
    return max(assignors, key=lambda name: votes[name])


class TargetAssignments:
    """Computes the target assignments of groups."""

    def __init__(
        self, catalog: TopicCatalog, assignors: tuple[str, ...], timers: MemberTimers, views: MemberViews
    ) -> None:
        self._catalog, self._assignors, self._timers, self._views = catalog, assignors, timers, views

    def compute(
        self,
        group: ConsumerGroup,
        epoch: int,
        members: Mapping[str, MemberMetadata],
        targets: Mapping[str, AssignedTopics],
        resolved: Mapping[str, tuple[str, ...]],
    ) -> TargetAssignment:
        """Compute the target assignment of a group epoch.

        members: all of the group in this epoch. targets: the target assignments so far. resolved: the topics of the
        patterns that are not recorded yet.
        """
        group_id = group.group_id
        views = {
            member_id: self._views.of(group_id, member_id)
            for member_id, member in members.items()
            if member.subscribed_topic_regex
        }

        def topics_of(pattern: str) -> tuple[str, ...]:
            known = group.patterns.get(pattern)
            return resolved.get(pattern, () if known is None else known.topics)

        spec = _spec(members, topics_of, views, targets, self._catalog)
        assign = ASSIGNORS[preferred_assignor(members.values(), self._assignors)]
        assigned = assign(spec) if spec.members else {}
        new: dict[str, AssignedTopics] = {}
        records: list[GroupRecord] = []
        changed: list[str] = []
        for member_id, member in spec.members.items():
            known, chosen = targets.get(member_id), assigned.get(member_id, NOTHING)
            # An assignor that returns the very object changed nothing: most members of a large group need no sorting.
            target = new[member_id] = known if known is not None and chosen is member.target else as_topics(chosen)
            if known != target:
                changed.append(member_id)
                records.append(target_record(group_id, member_id, target))
        records.append(assignment_epoch_record(group_id, epoch))
        self._timers.note_assignment(group_id)
        self._views.note_assignment(group_id, (member_id for member_id, view in views.items() if view is None))
        return TargetAssignment(new, tuple(records), tuple(changed))


def _spec(
    members: Mapping[str, MemberMetadata],
    topics_of: Callable[[str], Sequence[str]],
    views: Mapping[str, VisibleTopics | None],
    targets: Mapping[str, AssignedTopics],
    catalog: TopicCatalog,
) -> GroupSpec:
    """Members with the same subscription and view share one set of topics. One with an unknown view has, of those that
    match its pattern, the topics of its target assignment so far."""
    topics: dict[str, Topic] = {}
    subscriptions: dict[tuple[tuple[str, ...], str | None, VisibleTopics | None], frozenset[UUID]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id in sorted(members):
        member, view = members[member_id], views.get(member_id)
        target = as_sets(targets.get(member_id, ()))
        subscription = member.subscribed_topic_names, member.subscribed_topic_regex, view
        ids = subscriptions.get(subscription)
        if ids is None:
            found = [topic for name in member.subscribed_topic_names if (topic := catalog.get(name)) is not None]
            for name in topics_of(member.subscribed_topic_regex or ""):
                topic = catalog.get(name)
                if topic is not None and (topic.topic_id in target if view is None else view.shows(name)):
                    found.append(topic)
            topics.update((topic.name, topic) for topic in found)
            ids = frozenset(topic.topic_id for topic in found)
            if view is not None or not member.subscribed_topic_regex:
                subscriptions[subscription] = ids
        specs[member_id] = MemberSpec(member.instance_id, member.rack_id, ids, target)
    return GroupSpec(specs, {topics[name].topic_id: topics[name] for name in sorted(topics)})
