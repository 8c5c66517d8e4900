"""Decisions on heartbeats of members of consumer groups (KIP-848).

A heartbeat without changes of a member that has its target assignment costs the same in every group: a few look-ups.
Differences to Kafka 4.1: a member that joins again under its own id gives up what it had, instead of being fenced; an
answer also carries the assignment if the member's epoch or the partitions that it reports are not the current ones, and
after a push, which may have been lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from replication.coordination.coordinator_machine import Decision, Instant
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    GroupMetadataKey,
    GroupRecord,
)
from replication.coordination.group_requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    MemberHeartbeat,
    MemberNudged,
    NudgeMembers,
)
from replication.coordination.groups.assignments import NOTHING, AssignedTopics, Assignment, as_sets, is_within
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.group_config import GroupConfig
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
    remove_members,
    target_record,
    unused_pattern_records,
    waiting_members,
)
from replication.coordination.groups.pushes import Pushes
from replication.coordination.groups.reconciliation import next_assignment
from replication.coordination.groups.states import MemberState
from replication.coordination.groups.target_assignment import TargetAssignments
from replication.coordination.groups.topic_patterns import TopicPatterns
from tidelog.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    NonEmptyGroup,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from tidelog.types import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH

HeartbeatDecision = Decision[ConsumerGroupHeartbeatAnswer | None]


@dataclass(slots=True)
class _Step:
    """A heartbeat on its way to a decision."""

    group: ConsumerGroup
    request: ConsumerGroupHeartbeat
    stored: Member | None
    """The member as it is recorded; None: it is new."""
    replaced: Member | None
    """The static member whose place it takes."""
    base: CurrentAssignment
    """The assignment before this heartbeat."""
    metadata: MemberMetadata
    """The member's subscription after this heartbeat."""
    records: list[GroupRecord] = field(default_factory=list)
    nudged: set[str] = field(default_factory=set)
    """Members that can continue because of this heartbeat."""

    @property
    def joins(self) -> bool:
        return self.request.member_epoch == JOIN_EPOCH


class Heartbeats:
    """Decides on heartbeats, and on pushes to members."""

    def __init__(
        self,
        state: GroupsState,
        config: GroupConfig,
        timers: MemberTimers,
        pushes: Pushes,
        patterns: TopicPatterns,
        views: MemberViews,
        assignments: TargetAssignments,
    ) -> None:
        self._state, self._config, self._timers, self._pushes = state, config, timers, pushes
        self._patterns, self._views, self._assignments = patterns, views, assignments

    def decide(self, heartbeat: MemberHeartbeat, now: Instant) -> HeartbeatDecision:
        """Raises a TidelogError that refuses the heartbeat."""
        request, assignors = heartbeat.request, self._config.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise UnsupportedAssignor(f"unknown assignor {request.server_assignor!r}; known: {', '.join(assignors)}")
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request)
        step = self._begin(heartbeat)
        reported = None if request.topic_partitions is None else as_sets(request.topic_partitions)
        key = request.group_id, request.member_id
        owned: Assignment | None = NOTHING
        pushed = self._pushes.is_unconfirmed(*key)  # before `owned`, which may confirm it: the answer repeats it
        if step.joins:
            self._pushes.forget(*key)
        else:
            self._check_epoch(step)
            owned = self._pushes.owned(*key, request.member_epoch, reported)
        if step.base.state == MemberState.UNKNOWN and owned != NOTHING:
            # The recorded assignment cannot be interpreted: partitions that the member still reads could get a second
            # owner.
            raise FencedMemberEpoch(
                f"the assignment of member {request.member_id!r} of group {request.group_id!r} was recorded by a newer "
                "version: give up all partitions and join again"
            )
        self._timers.expect_heartbeat(*key)  # only now: a refused heartbeat must not keep a member alive
        subscription_changed = self._record_metadata(step, now)
        if step.metadata.subscribed_topic_regex:
            subscription_changed |= self._views.note(*key, heartbeat.view)
        else:
            self._views.forget_member(*key)
        target, target_epoch = self._assign(step, subscription_changed)
        current = next_assignment(
            step.base, target, target_epoch, owned, lambda topic, index: self._is_free(step, topic, index)
        )
        self._record_current(step, current)
        return Decision(
            self._answer(request, current, pushed or self._needs_assignment(step, current)),
            tuple(step.records),
            effects=nudge(request.group_id, step.nudged - {request.member_id}),
        )

    # --- the member ---

    def _begin(self, heartbeat: MemberHeartbeat) -> _Step:
        request = heartbeat.request
        group_id, member_id = request.group_id, request.member_id
        joins = request.member_epoch == JOIN_EPOCH
        records: list[GroupRecord] = []
        group = self._state.consumer.get(group_id)
        if group is None:
            if not joins:
                raise UnknownMemberId(f"group {group_id!r} has no members; member {member_id!r} has to join again")
            group = ConsumerGroup(group_id, {})
            records = self._replace_classic(group_id)
        replaced = self._replaced(group, request)
        stored = group.members.get(member_id)
        if stored is None and not joins:
            raise UnknownMemberId(f"group {group_id!r} has no member {member_id!r}; it has to join again")
        if stored is None and replaced is None and len(group.members) >= self._config.consumer_max_size:
            raise GroupMaxSizeReached(
                f"group {group_id!r} has {len(group.members)} members, as many as group.consumer.max.size allows"
            )
        if not joins:
            assert stored is not None
            base = stored.assignment
        else:
            # Who joins has given everything up, but others see it as the owner until this decision: it starts from
            # these partitions, so that the ones that it loses are released by the same records.
            had = (replaced or stored or Member(member_id)).assignment.assigned_partitions
            base = CurrentAssignment(JOIN_EPOCH, JOIN_EPOCH, MemberState.STABLE, had, ()) if had else JOINING
        metadata = _metadata(None if joins or stored is None else stored.metadata, heartbeat)
        return _Step(group, request, stored, replaced, base, metadata, records)

    def _replace_classic(self, group_id: str) -> list[GroupRecord]:
        """An empty classic group gives way to a consumer group."""
        classic = self._state.classic.get(group_id)
        if classic is None:
            return []
        if classic.members:
            raise NonEmptyGroup(
                f"group {group_id!r} is a classic group with {len(classic.members)} members: stop them first, or "
                "use another group id"
            )
        return [CoordinatorRecord(GroupMetadataKey(group_id), None)]

    def _replaced(self, group: ConsumerGroup, request: ConsumerGroupHeartbeat) -> Member | None:
        """The static member whose place the caller takes, after all checks on its instance id."""
        if request.instance_id is None:
            return None
        owner = group.instances.get(request.instance_id)
        if request.member_epoch != JOIN_EPOCH:
            check_instance(group, request.instance_id, request.member_id)
            return None
        if owner is None or owner == request.member_id:
            return None
        member = group.members[owner]
        if not member.is_away:
            raise UnreleasedInstanceId(
                f"instance id {request.instance_id!r} of group {group.group_id!r} belongs to member {owner!r}, which "
                "has not left: stop it, or wait until its session has timed out"
            )
        return member

    def _check_epoch(self, step: _Step) -> None:
        """Only the current epoch is accepted, or the one before if the answer with the current one was lost."""
        request, current = step.request, step.base
        received, expected = request.member_epoch, current.member_epoch
        if received == expected:
            return
        owned = request.topic_partitions
        if 0 <= received < expected:
            # Without proof that the member owns nothing more than its current assignment, an old epoch may be that of
            # a member which was fenced and still reads.
            if self._pushes.knows_epoch(request.group_id, request.member_id, received):
                if owned is None or _has_all(current, owned):
                    return
            elif received == current.previous_member_epoch and owned is not None and _has_all(current, owned):
                return
        raise FencedMemberEpoch(
            f"member {request.member_id!r} of group {request.group_id!r} is in epoch {expected}, not {received}: give "
            "up all partitions and join again"
        )

    # --- subscription ---

    def _record_metadata(self, step: _Step, now: Instant) -> bool:
        """Record what has changed. Returns whether the group needs another target assignment because of it."""
        request, group, metadata = step.request, step.group, step.metadata
        known = step.replaced or step.stored
        before = None if known is None else known.metadata
        pattern = metadata.subscribed_topic_regex
        resolved = self._resolve(step, now) if pattern and pattern not in group.patterns else None
        if step.replaced is not None:
            step.records += removal_records(group.group_id, step.replaced.member_id)
        if metadata != before or step.replaced is not None:
            step.records.append(metadata_record(group.group_id, request.member_id, metadata))
        changed = before is None or (
            (metadata.subscribed_topic_names, pattern) != (before.subscribed_topic_names, before.subscribed_topic_regex)
        )
        if resolved is not None:
            step.records.append(resolved)
        if changed:
            step.records += unused_pattern_records(group, self._changes(step))
        return changed

    def _resolve(self, step: _Step, now: Instant) -> GroupRecord:
        pattern = step.metadata.subscribed_topic_regex
        assert pattern is not None
        catalog = self._state.catalog
        names = tuple(sorted(self._patterns.matching(pattern, catalog.ids)))
        resolved = ConsumerGroupRegularExpressionValue(names, catalog.image.offset, now.wall_ms)
        return pattern_record(step.group.group_id, pattern, resolved)

    def _changes(self, step: _Step) -> dict[str, MemberMetadata | None]:
        changes: dict[str, MemberMetadata | None] = {step.request.member_id: step.metadata}
        if step.replaced is not None:
            changes[step.replaced.member_id] = None
        return changes

    # --- target assignment ---

    def _assign(self, step: _Step, subscription_changed: bool) -> tuple[AssignedTopics, int]:
        """Returns the target assignment of the member, and the epoch of that."""
        group, member_id = step.group, step.request.member_id
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
        step: _Step,
        epoch: int,
        targets: dict[str, AssignedTopics],
        resolved: dict[str, tuple[str, ...]],
    ) -> None:
        """Compute the target assignment with the change that is not applied yet, into `targets`."""
        members = step.group.subscriptions()
        if step.replaced is not None:
            members.pop(step.replaced.member_id, None)
        members[step.request.member_id] = step.metadata
        assignment = self._assignments.compute(step.group, epoch, members, targets, resolved)
        step.records += assignment.records
        step.nudged.update(assignment.changed)
        targets.update(assignment.targets)

    # --- current assignment ---

    def _is_free(self, step: _Step, topic_id: UUID, partition: int) -> bool:
        owner = step.group.owner(topic_id, partition)
        return (
            owner is None
            or owner == step.request.member_id
            or (step.replaced is not None and owner == step.replaced.member_id)
        )

    def _record_current(self, step: _Step, current: CurrentAssignment) -> None:
        """Record the current assignment, if it is new, and find the members that wait for what was given up."""
        group, member_id = step.group, step.request.member_id
        before = None if step.stored is None else step.stored.current
        if current != before:
            step.records.append(current_record(group.group_id, member_id, current))
            step.nudged |= _waiting_for_released(group, (step.stored, step.replaced), current)

    def _needs_assignment(self, step: _Step, current: CurrentAssignment) -> bool:
        request = step.request
        if step.joins or request.member_epoch != step.base.member_epoch:
            return True
        if current.assigned_partitions != step.base.assigned_partitions:
            return True
        reported = request.topic_partitions
        return reported is not None and as_sets(reported) != as_sets(current.assigned_partitions)

    def _answer(
        self,
        request: ConsumerGroupHeartbeat | MemberNudged,
        current: CurrentAssignment,
        with_assignment: bool,
    ) -> ConsumerGroupHeartbeatAnswer:
        return ConsumerGroupHeartbeatAnswer(
            None,
            request.member_id,
            current.member_epoch,
            self._config.consumer_heartbeat_interval_ms,
            current.assigned_partitions if with_assignment else None,
        )

    # --- leaving, pushing ---

    def _leave(self, request: ConsumerGroupHeartbeat) -> HeartbeatDecision:
        group = self._state.consumer.get(request.group_id)
        member = None if group is None else group.members.get(request.member_id)
        if group is not None and request.instance_id is not None:
            check_instance(group, request.instance_id, request.member_id)
        if group is None or member is None:
            raise UnknownMemberId(f"group {request.group_id!r} has no member {request.member_id!r}")
        answer = ConsumerGroupHeartbeatAnswer(
            None, request.member_id, request.member_epoch, self._config.consumer_heartbeat_interval_ms
        )
        if request.member_epoch == LEAVE_EPOCH:
            records = remove_members(group, (request.member_id,), self._state.catalog)
            return Decision(
                answer, tuple(records), effects=nudge(group.group_id, waiting_members(group, (request.member_id,)))
            )
        had = member.assignment
        away = CurrentAssignment(
            LEAVE_STATIC_EPOCH, had.previous_member_epoch, MemberState.STABLE, had.assigned_partitions, ()
        )
        return Decision(
            answer,
            (current_record(group.group_id, member.member_id, away),),
            effects=nudge(group.group_id, _waiting_for_released(group, (member, None), away) - {member.member_id}),
        )

    def push(self, nudged: MemberNudged) -> HeartbeatDecision:
        """The message for a member with an open stream that has not asked, if there is one. Raises UnknownMemberId if
        the member was removed."""
        group = self._state.consumer.get(nudged.group_id)
        member = None if group is None else group.members.get(nudged.member_id)
        if group is None or member is None:
            raise UnknownMemberId(
                f"member {nudged.member_id!r} of group {nudged.group_id!r} was removed: give up all partitions and "
                "join again"
            )
        before = member.assignment
        if member.is_away or before.state == MemberState.UNKNOWN or before.member_epoch == JOIN_EPOCH:
            return Decision(None)  # only a heartbeat can take it out of these states
        current = next_assignment(
            before,
            group.target_of(nudged.member_id),
            group.assignment_epoch,
            None,  # it reports nothing now: until its next heartbeat it may own all that it had
            lambda topic_id, index: group.owner(topic_id, index) in (None, nudged.member_id),
        )
        if current is before:
            return Decision(None)
        self._pushes.note(nudged.group_id, nudged.member_id, before, current)
        assigned_changed = current.assigned_partitions != before.assigned_partitions
        return Decision(
            self._answer(nudged, current, assigned_changed),
            (current_record(nudged.group_id, nudged.member_id, current),),
        )


def check_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> None:
    """Raises UnknownMemberId if no member has the instance id, FencedInstanceId if another one has it."""
    owner = group.instances.get(instance_id)
    if owner is None:
        raise UnknownMemberId(f"group {group.group_id!r} has no member with instance id {instance_id!r}")
    if owner != member_id:
        raise FencedInstanceId(
            f"instance id {instance_id!r} of group {group.group_id!r} belongs to member {owner!r} now, not to "
            f"{member_id!r}"
        )


def nudge(group_id: str, member_ids: Iterable[str]) -> tuple[NudgeMembers, ...]:
    """The effect, if there are members."""
    ordered = tuple(sorted(member_ids))
    return (NudgeMembers(group_id, ordered),) if ordered else ()


def _metadata(known: MemberMetadata | None, heartbeat: MemberHeartbeat) -> MemberMetadata:
    """The member's subscription. known: what completes omitted fields; None for a member that joins, which omits
    none."""
    request = heartbeat.request
    names = request.subscribed_topic_names
    if names is None:
        names = () if known is None else known.subscribed_topic_names
    elif known is None or names != known.subscribed_topic_names:
        names = tuple(sorted(set(names)))
    pattern = request.subscribed_topic_regex
    if pattern is None and known is not None:
        pattern = known.subscribed_topic_regex
    timeout = request.rebalance_timeout_ms
    if timeout <= 0 and known is not None:
        timeout = known.rebalance_timeout_ms
    return MemberMetadata(
        request.instance_id or (None if known is None else known.instance_id),
        request.rack_id or (None if known is None else known.rack_id),
        heartbeat.client_id,
        heartbeat.client_host,
        names,
        pattern or None,
        timeout,
        request.server_assignor or (None if known is None else known.server_assignor),
    )


def _has_all(current: CurrentAssignment, owned: AssignedTopics) -> bool:
    had = as_sets((*current.assigned_partitions, *current.partitions_pending_revocation))
    return is_within(owned, had)


def _waiting_for_released(
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
