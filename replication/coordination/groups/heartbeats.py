"""Decisions on heartbeats of members of consumer groups (KIP-848).

A heartbeat without changes of a member that has its target assignment costs the same in every group: a few look-ups.
Differences to Kafka 4.1: a member that joins again under its own id gives up what it had, instead of being fenced; an
answer also carries the assignment if the member's epoch or the partitions that it reports are not the current ones, and
after a push, which may have been lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from replication.coordination.coordinator_machine import Decision, Instant
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import GroupMetadataKey, GroupRecord
from replication.coordination.group_requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    MemberHeartbeat,
    MemberNudged,
    NudgeMembers,
)
from replication.coordination.groups.assignments import NOTHING, AssignedTopics, Assignment, as_sets, is_within
from replication.coordination.groups.classic_group import ClassicGroup
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.group_times import GroupTimes
from replication.coordination.groups.groups_state import GroupsState
from replication.coordination.groups.member import CurrentAssignment, Member, MemberMetadata
from replication.coordination.groups.member_steps import MemberStep, MemberSteps, joining, waiting_for_released
from replication.coordination.groups.member_timers import MemberTimers, TimerKind
from replication.coordination.groups.membership import current_record, remove_members, waiting_members
from replication.coordination.groups.migration import upgraded, waiting_are_refused
from replication.coordination.groups.pushes import Pushes
from replication.coordination.groups.reconciliation import next_assignment
from replication.coordination.groups.states import MemberState
from tidelog.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from tidelog.types import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH

HeartbeatDecision = Decision[ConsumerGroupHeartbeatAnswer | None]


class Heartbeats:
    """Decides on heartbeats, and on pushes to members."""

    def __init__(
        self,
        state: GroupsState,
        config: GroupConfig,
        times: GroupTimes,
        timers: MemberTimers,
        pushes: Pushes,
        steps: MemberSteps,
    ) -> None:
        self._state, self._config, self._times = state, config, times
        self._timers, self._pushes, self._steps = timers, pushes, steps

    def decide(self, heartbeat: MemberHeartbeat, now: Instant) -> HeartbeatDecision:
        """Raises a TidelogError that refuses the heartbeat."""
        request, assignors = heartbeat.request, self._config.consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise UnsupportedAssignor(f"unknown assignor {request.server_assignor!r}; known: {', '.join(assignors)}")
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request)
        joins, key = request.member_epoch == JOIN_EPOCH, (request.group_id, request.member_id)
        step, classic = self._begin(heartbeat)
        reported = None if request.topic_partitions is None else as_sets(request.topic_partitions)
        owned: Assignment | None = NOTHING
        pushed = self._pushes.is_unconfirmed(*key)  # before `owned`, which may confirm it: the answer repeats it
        if joins:
            self._pushes.forget(*key)
        else:
            self._check_epoch(request, step.base)
            owned = self._pushes.owned(*key, request.member_epoch, reported)
        if step.base.state == MemberState.UNKNOWN and owned != NOTHING:
            # The recorded assignment cannot be interpreted: partitions that the member still reads could get a second
            # owner.
            raise FencedMemberEpoch(
                f"the assignment of member {request.member_id!r} of group {request.group_id!r} was recorded by a newer "
                "version: give up all partitions and join again"
            )
        current = self._steps.advance(step, owned, heartbeat.view, now)
        refused, notice = ((), "") if classic is None else self._upgraded(classic, step, now)
        self._timers.expect_heartbeat(*key)  # only now: a refused heartbeat must not keep a member alive
        if joins:
            self._timers.cancel(TimerKind.REBALANCE, *key)  # of what it had to do by the classic protocol
        return Decision(
            self._answer(request, current, pushed or _needs_assignment(request, step.base, current)),
            tuple(step.records),
            effects=(*refused, *nudge(request.group_id, step.nudged - {request.member_id})),
            notice=notice,
        )

    # --- the member ---

    def _begin(self, heartbeat: MemberHeartbeat) -> tuple[MemberStep, ClassicGroup | None]:
        """Returns also the classic group that becomes a consumer group by this heartbeat, if there is one."""
        request = heartbeat.request
        group_id, member_id = request.group_id, request.member_id
        joins = request.member_epoch == JOIN_EPOCH
        records: list[GroupRecord] = []
        group, classic = self._state.consumer.get(group_id), None
        if group is None:
            if not joins:
                raise UnknownMemberId(f"group {group_id!r} has no members; member {member_id!r} has to join again")
            classic = self._state.classic.get(group_id)
            group, records = self._made_of(group_id, classic)
        replaced = self._replaced(group, request)
        stored = group.members.get(member_id)
        if stored is None and not joins:
            raise UnknownMemberId(f"group {group_id!r} has no member {member_id!r}; it has to join again")
        check_size(group, self._config, is_new=stored is None and replaced is None)
        base = joining(replaced or stored) if joins or stored is None else stored.assignment
        metadata = _metadata(None if joins or stored is None else stored.metadata, heartbeat)
        return MemberStep(group, member_id, stored, replaced, base, metadata, records), classic

    def _made_of(self, group_id: str, classic: ClassicGroup | None) -> tuple[ConsumerGroup, list[GroupRecord]]:
        """A new group, which an empty classic group gives way to, or one with the members of a classic group."""
        if classic is not None and classic.members:
            return upgraded(classic, self._config, self._state.catalog)
        tombstone: GroupRecord = CoordinatorRecord(GroupMetadataKey(group_id), None)
        return ConsumerGroup(group_id, {}), [] if classic is None else [tombstone]

    def _upgraded(self, classic: ClassicGroup, step: MemberStep, now: Instant) -> tuple[tuple[object, ...], str]:
        """A classic group becomes a consumer group: the sessions of its members go on. Returns the answers of their
        requests that wait, and what the log says."""
        if not classic.members:
            return (), ""
        for member in step.group.members.values():
            self._timers.expect_loaded(step.group.group_id, member)
        return waiting_are_refused(classic, now), (
            f"group {classic.group_id!r} is a consumer group (KIP-848) from now on, with its {len(classic.members)} "
            f"members of the classic protocol: member {step.member_id!r} has joined"
        )

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
        # A member that changes its protocol takes its own place: the process before it may not have left, since classic
        # static members never do.
        if not member.is_away and member.classic is None:
            raise UnreleasedInstanceId(
                f"instance id {request.instance_id!r} of group {group.group_id!r} belongs to member {owner!r}, which "
                "has not left: stop it, or wait until its session has timed out"
            )
        return member

    def _check_epoch(self, request: ConsumerGroupHeartbeat, current: CurrentAssignment) -> None:
        """Only the current epoch is accepted, or the one before if the answer with the current one was lost."""
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
            self._times.heartbeat_interval_ms(request.group_id),
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
            None, request.member_id, request.member_epoch, self._times.heartbeat_interval_ms(request.group_id)
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
            effects=nudge(group.group_id, waiting_for_released(group, (member, None), away) - {member.member_id}),
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
        is_out_of_reach = member.is_away or member.classic is not None
        if is_out_of_reach or before.state == MemberState.UNKNOWN or before.member_epoch == JOIN_EPOCH:
            return Decision(None)  # only a request of its own can take it out of these states
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


def check_size(group: ConsumerGroup, config: GroupConfig, *, is_new: bool) -> None:
    """Raises GroupMaxSizeReached if the group has no place for a new member."""
    if is_new and len(group.members) >= config.consumer_max_size:
        raise GroupMaxSizeReached(
            f"group {group.group_id!r} has {len(group.members)} members, as many as group.consumer.max.size allows"
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


def _needs_assignment(request: ConsumerGroupHeartbeat, before: CurrentAssignment, current: CurrentAssignment) -> bool:
    """Whether the answer must carry the assignment."""
    if request.member_epoch == JOIN_EPOCH or request.member_epoch != before.member_epoch:
        return True
    if current.assigned_partitions != before.assigned_partitions:
        return True
    reported = request.topic_partitions
    return reported is not None and as_sets(reported) != as_sets(current.assigned_partitions)


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
