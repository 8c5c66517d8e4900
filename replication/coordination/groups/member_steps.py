"""What a request of a member changes in a consumer group: its subscription, the target assignment of the group, and one
step of the member towards that.

Heartbeats (heartbeats.py), and JoinGroups of members that speak the classic protocol (classic_consumers.py), decide it
in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from uuid import UUID

from replication.coordination.coordinator_machine import Instant
from replication.coordination.group_records import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    GroupRecord,
)
from replication.coordination.group_requests import VisibleTopics
from replication.coordination.groups.assignments import AssignedTopics, Assignment, as_sets
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.groups_state import GroupsState
from replication.coordination.groups.member import JOINING, CurrentAssignment, Member, MemberMetadata
from replication.coordination.groups.member_timers import MemberTimers
from replication.coordination.groups.member_views import MemberViews
from replication.coordination.groups.membership import (
    current_record,
    epoch_record,
    metadata_record,
    pattern_record,
    removal_records,
    target_record,
    unused_pattern_records,
)
from replication.coordination.groups.reconciliation import next_assignment
from replication.coordination.groups.states import MemberState
from replication.coordination.groups.target_assignment import TargetAssignments
from replication.coordination.groups.topic_patterns import TopicPatterns
from tidelog.types import JOIN_EPOCH
from tidelog.values import dataclass


@dataclass(slots=True)
class MemberStep:
    """A request on its way to a decision."""

    group: ConsumerGroup
    member_id: str
    stored: Member | None
    """The member as it is recorded; None: it is new."""
    replaced: Member | None
    """The static member whose place it takes."""
    base: CurrentAssignment
    """The assignment before this request."""
    metadata: MemberMetadata
    """The member's subscription after this request."""
    records: list[GroupRecord] = field(default_factory=list)
    nudged: set[str] = field(default_factory=set)
    """Members that can continue because of this request."""


def joining(member: Member | None) -> CurrentAssignment:
    """The assignment from which a member starts that joins. member: as it is recorded, or the one that it replaces.

    Who joins has given everything up, but others see it as the owner until this decision: it starts from what it had,
    so that the partitions that it loses are released by the same records."""
    had = () if member is None else member.assignment.assigned_partitions
    return CurrentAssignment(JOIN_EPOCH, JOIN_EPOCH, MemberState.STABLE, had, ()) if had else JOINING


class MemberSteps:
    """Carries steps out."""

    def __init__(
        self,
        state: GroupsState,
        timers: MemberTimers,
        patterns: TopicPatterns,
        views: MemberViews,
        assignments: TargetAssignments,
    ) -> None:
        self._state, self._timers, self._patterns = state, timers, patterns
        self._views, self._assignments = views, assignments

    def advance(
        self, step: MemberStep, owned: Assignment | None, view: VisibleTopics, now: Instant
    ) -> CurrentAssignment:
        """Bring the member nearer to its target assignment, and return where it is then. owned: what it still has;
        None: unknown."""
        key = step.group.group_id, step.member_id
        subscription_changed = self._record_metadata(step, now)
        if step.metadata.subscribed_topic_regex:
            subscription_changed |= self._views.note(*key, view)
        else:
            self._views.forget_member(*key)
        target, target_epoch = self._assign(step, subscription_changed)
        current = next_assignment(
            step.base, target, target_epoch, owned, lambda topic, index: self._is_free(step, topic, index)
        )
        self._record_current(step, current)
        return current

    # --- subscription ---

    def _record_metadata(self, step: MemberStep, now: Instant) -> bool:
        """Record what has changed. Returns whether the group needs another target assignment because of it."""
        group, metadata = step.group, step.metadata
        known = step.replaced or step.stored
        before = None if known is None else known.metadata
        pattern = metadata.subscribed_topic_regex
        resolved = self._resolve(step, now) if pattern and pattern not in group.patterns else None
        if step.replaced is not None:
            step.records += removal_records(group.group_id, step.replaced.member_id)
        if metadata != before or step.replaced is not None:
            step.records.append(metadata_record(group.group_id, step.member_id, metadata))
        changed = before is None or (
            (metadata.subscribed_topic_names, pattern) != (before.subscribed_topic_names, before.subscribed_topic_regex)
        )
        if resolved is not None:
            step.records.append(resolved)
        if changed:
            step.records += unused_pattern_records(group, self._changes(step))
        return changed

    def _resolve(self, step: MemberStep, now: Instant) -> GroupRecord:
        pattern = step.metadata.subscribed_topic_regex
        assert pattern is not None
        catalog = self._state.catalog
        names = tuple(sorted(self._patterns.matching(pattern, catalog.ids)))
        resolved = ConsumerGroupRegularExpressionValue(names, catalog.image.offset, now.wall_ms)
        return pattern_record(step.group.group_id, pattern, resolved)

    def _changes(self, step: MemberStep) -> dict[str, MemberMetadata | None]:
        changes: dict[str, MemberMetadata | None] = {step.member_id: step.metadata}
        if step.replaced is not None:
            changes[step.replaced.member_id] = None
        return changes

    # --- target assignment ---

    def _assign(self, step: MemberStep, subscription_changed: bool) -> tuple[AssignedTopics, int]:
        """Returns the target assignment of the member, and the epoch of that."""
        group, member_id = step.group, step.member_id
        targets = dict(group.targets) if step.replaced is not None or subscription_changed else group.targets
        if step.replaced is not None:
            inherited = targets.pop(step.replaced.member_id, ())
            targets[member_id] = inherited
            step.records.append(target_record(group.group_id, member_id, inherited))
        if subscription_changed:
            changes = self._changes(step)
            resolved = {
                record.key.regular_expression: record.value.topics
                for record in step.records
                if isinstance(record.key, ConsumerGroupRegularExpressionKey)
                and isinstance(record.value, ConsumerGroupRegularExpressionValue)
            }
            topics = group.topics_after(changes).union(*resolved.values())
            epoch = group.epoch + 1
            step.records.append(epoch_record(group.group_id, epoch, self._state.catalog.hash_of(topics)))
            if self._timers.may_assign(group):
                self._compute(step, epoch, targets, resolved)
                return targets.get(member_id, ()), epoch
        return targets.get(member_id, ()), group.assignment_epoch

    def _compute(
        self,
        step: MemberStep,
        epoch: int,
        targets: dict[str, AssignedTopics],
        resolved: dict[str, tuple[str, ...]],
    ) -> None:
        """Compute the target assignment with the change that is not applied yet, into `targets`."""
        members = step.group.subscriptions()
        if step.replaced is not None:
            members.pop(step.replaced.member_id, None)
        members[step.member_id] = step.metadata
        assignment = self._assignments.compute(step.group, epoch, members, targets, resolved)
        step.records += assignment.records
        step.nudged.update(assignment.changed)
        targets.update(assignment.targets)

    # --- current assignment ---

    def _is_free(self, step: MemberStep, topic_id: UUID, partition: int) -> bool:
        owner = step.group.owner(topic_id, partition)
        return (
            owner is None or owner == step.member_id or (step.replaced is not None and owner == step.replaced.member_id)
        )

    def _record_current(self, step: MemberStep, current: CurrentAssignment) -> None:
        """Record the current assignment, if it is new, and find the members that wait for what was given up."""
        group, member_id = step.group, step.member_id
        before = None if step.stored is None else step.stored.current
        if current != before:
            step.records.append(current_record(group.group_id, member_id, current))
            step.nudged |= waiting_for_released(group, (step.stored, step.replaced), current)


def waiting_for_released(
    group: ConsumerGroup, members: Iterable[Member | None], current: CurrentAssignment
) -> set[str]:
    """The members that wait for partitions which these members had and `current` lacks."""
    keeps = as_sets((*current.assigned_partitions, *current.partitions_pending_revocation))
    waiting: set[str] = set()
    for member in members:
        if member is None or member.current is None:
            continue
        for topic in (*member.current.assigned_partitions, *member.current.partitions_pending_revocation):
            owners = group.target_owners.get(topic.topic_id, {})
            kept = keeps.get(topic.topic_id, frozenset())
            waiting.update(owners[each] for each in topic.partitions if each not in kept and each in owners)
    return waiting
