"""Decisions on requests of members of classic groups: JoinGroup, SyncGroup, heartbeat, LeaveGroup.

A decision may change what is not recorded of a group (classic_group.py), but nothing that a record says: that is
changed when its record is applied.

Differences to Kafka 4.1: a JoinGroup that waits is answered when its member sends another one, and a SyncGroup when its
member leaves; a SyncGroup during a rebalance is told so, whatever protocol it names; a group is not recorded before it
has its first generation; a coordinator that takes over leaves out some numbers of generations; a static member that
restarts before it has confirmed what it gave up begins a rebalance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from replication.coordination.classic_requests import (
    ClassicHeartbeat,
    ClassicHeartbeatAnswer,
    JoinGroup,
    JoinGroupAnswer,
    JoinOutcome,
    LeaveGroup,
    LeaveGroupAnswer,
    LeavingMember,
    LeftMember,
    MemberJoin,
    MemberSync,
    SyncOutcome,
)
from replication.coordination.coordinator_machine import Decision, Instant
from replication.coordination.groups.classic_group import NO_ASSIGNMENT, ClassicGroup, ClassicMember
from replication.coordination.groups.classic_protocols import elected, metadata_of, names_of
from replication.coordination.groups.classic_rebalances import NEW_MEMBER_JOIN_MS, ClassicRebalances, rebalances
from replication.coordination.groups.classic_states import ClassicCause, ClassicState
from replication.coordination.groups.classic_step import ClassicStep
from replication.coordination.groups.consumer_protocol import (
    CONSUMER_PROTOCOL,
    NamedPartitions,
    assignment_in,
    subscription_in,
)
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.groups_state import GroupsState
from replication.coordination.groups.member_timers import MemberTimers, TimerKey, TimerKind
from replication.coordination.groups.membership import group_tombstones
from tidelog.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    TidelogError,
    UnknownMemberId,
)
from tidelog.types import NO_TIMESTAMP, Millis

INVITED_MAX: Final = 10_000
"""Ids that were given to new members, which have not joined with them: of one group, where further ones are refused,
and of all groups of the coordinator, where the oldest one ends. A client that never joins asks for one after the other,
each in a group of its own, and each is kept for its session timeout of up to half an hour."""

LOST_GENERATIONS: Final = 100
"""Generations that a coordinator may begin before one is assigned, and so recorded: each takes as long as its members
need to join again."""


class ClassicMembers:
    """Decides on requests of members of classic groups, and on their timers."""

    def __init__(self, state: GroupsState, config: GroupConfig, timers: MemberTimers) -> None:
        self._state, self._config, self._timers = state, config, timers
        self._rebalances = ClassicRebalances(config, timers)
        self._invitations: deque[tuple[str, str]] = deque()
        """Groups and ids of the last `INVITED_MAX` invitations, the oldest first; some have joined since."""

    def decide(self, request: ClassicHeartbeat | MemberJoin | MemberSync | LeaveGroup, now: Instant) -> Decision[Any]:
        """Decide on a request of a member. Raises a TidelogError that refuses it."""
        match request:
            case ClassicHeartbeat():
                return self.heartbeat(request)
            case MemberJoin():
                return self.join(request, now)
            case MemberSync():
                return self.sync(request, now)
            case LeaveGroup():
                return self.leave(request, now)

    # --- join ---

    def join(self, asked: MemberJoin, now: Instant) -> Decision[JoinOutcome]:
        """Raises InvalidSessionTimeout, GroupMaxSizeReached, InconsistentGroupProtocol, UnknownMemberId,
        FencedInstanceId or InvalidRequest."""
        request, step = asked.request, ClassicStep(now.wall_ms)
        check_session_timeout(request.session_timeout_ms, self._config)
        group = self._group_to_join(request, step)
        if not self._has_place(group, request.member_id):
            group.invited.pop(request.member_id, None)
            raise GroupMaxSizeReached(
                f"group {request.group_id!r} has {len(group.members)} members, as many as group.max.size allows"
            )
        self._check_protocols(group, request)
        if not request.member_id:
            self._join_new(group, asked, step)
        elif request.member_id in group.invited:
            if request.instance_id is not None:
                raise InvalidRequest(
                    f"member id {request.member_id!r} of group {request.group_id!r} was given to a member without an "
                    "instance id: send the same fields when joining with it"
                )
            self._add(group, asked, request.member_id, step)
        else:
            self._join_again(group, asked, step)
        self._state.classic.setdefault(request.group_id, group)
        return step.decision(asked.ticket)

    def _group_to_join(self, request: JoinGroup, step: ClassicStep) -> ClassicGroup:
        """The group; a new one for a new member. A consumer group gives way: it is empty (classic_consumers.py)."""
        group_id = request.group_id
        consumer, classic = self._state.consumer.get(group_id), self._state.classic.get(group_id)
        if consumer is not None:
            step.records += group_tombstones(consumer)
        if classic is not None:
            return classic
        if request.member_id:
            raise UnknownMemberId(f"there is no group {group_id!r} of which {request.member_id!r} could be a member")
        return ClassicGroup(group_id)

    def _has_place(self, group: ClassicGroup, member_id: str) -> bool:
        """While members join again, those that have count: a group that is too large loses the last ones."""
        size = self._config.max_size
        if group.state is ClassicState.EMPTY:
            return True
        if group.state is ClassicState.PREPARING_REBALANCE:
            return member_id in group.joining or len(group.joining) < size
        return member_id in group.members or len(group.members) < size

    def _check_protocols(self, group: ClassicGroup, request: JoinGroup) -> None:
        """A group must keep a protocol that all members support."""
        if not request.protocol_type or not request.protocols:
            raise InconsistentGroupProtocol(
                f"a member of group {request.group_id!r} needs a protocol type and at least one protocol"
            )
        if not group.members:
            return
        known = group.common_protocols
        if request.protocol_type != group.protocol_type or known.isdisjoint(names_of(request.protocols)):
            offered = ", ".join(sorted(names_of(request.protocols)))[:200]
            raise InconsistentGroupProtocol(
                f"the members of group {request.group_id!r} use protocol type {group.protocol_type!r} with "
                f"{', '.join(sorted(known))}, and the new one {request.protocol_type[:100]!r} with {offered}: give all "
                "members the same type and a common protocol (partition.assignment.strategy)"
            )

    def _join_new(self, group: ClassicGroup, asked: MemberJoin, step: ClassicStep) -> None:
        request, member_id = asked.request, asked.new_member_id
        owner = None if request.instance_id is None else group.instances.get(request.instance_id)
        if owner is not None:
            self._replace_static(group, group.members[owner], asked, step)
        elif request.needs_member_id and request.instance_id is None:
            if len(group.invited) >= INVITED_MAX:
                raise GroupMaxSizeReached(
                    f"{INVITED_MAX} new members of group {request.group_id!r} have an id and have not joined with it: "
                    "let new members join again with the id that they are given"
                )
            group.invited[member_id] = None
            self._timers.schedule(
                TimerKind.CLASSIC_SESSION, group.group_id, request.session_timeout_ms, member_id=member_id
            )
            self._invitations.append((group.group_id, member_id))
            if len(self._invitations) > INVITED_MAX:
                self._end_oldest_invitation()
            error = MemberIdRequired(f"join group {group.group_id!r} again as member {member_id!r}")
            step.answer(asked.ticket, JoinGroupAnswer(member_id, error=error))
        else:
            self._add(group, asked, member_id, step)

    def _end_oldest_invitation(self) -> None:
        """Let its time end with the next tick. If its client joins later, it gets another id."""
        group_id, member_id = self._invitations.popleft()
        group = self._state.classic.get(group_id)
        if group is not None and member_id in group.invited:
            self._timers.schedule(TimerKind.CLASSIC_SESSION, group_id, 0, member_id=member_id)

    def _add(self, group: ClassicGroup, asked: MemberJoin, member_id: str, step: ClassicStep) -> None:
        member = _member(asked, member_id)
        member.is_new = group.has_newcomer = True
        if not group.members:
            group.protocol_type = asked.request.protocol_type
        group.add(member)
        group.joining[member_id] = asked.ticket
        self._timers.schedule(TimerKind.CLASSIC_SESSION, group.group_id, NEW_MEMBER_JOIN_MS, member_id=member.member_id)
        self._rebalances.rebalance(group, ClassicCause.JOINED, step)

    def _join_again(self, group: ClassicGroup, asked: MemberJoin, step: ClassicStep) -> None:
        request = asked.request
        member = group.checked(request.member_id, request.instance_id)
        is_same = member.protocols == request.protocols
        # The leader joins again for what it alone knows, as a topic with more partitions. In COMPLETING_REBALANCE it
        # did not get the answer that made it the leader.
        may_stay = group.state is ClassicState.COMPLETING_REBALANCE or member.member_id != group.leader
        if group.state is not ClassicState.PREPARING_REBALANCE and is_same and may_stay:
            step.answer(asked.ticket, group.joined(member))
            return
        step.refuse(group, member.member_id, rebalances(group))  # its client has given the earlier request up
        group.renew(member, request.protocols, timeouts_of(request))
        group.joining[member.member_id] = asked.ticket
        self._rebalances.rebalance(group, ClassicCause.JOINED, step)

    # --- static members ---

    def _replace_static(self, group: ClassicGroup, old: ClassicMember, asked: MemberJoin, step: ClassicStep) -> None:
        """A process with the instance id of a member has started: it takes the place of that, which is fenced."""
        member, former_leader = _member(asked, asked.new_member_id), group.leader
        member.assignment, member.is_new = old.assignment, False
        fenced = FencedInstanceId(
            f"instance id {old.instance_id!r} of group {group.group_id!r} belongs to member {member.member_id!r} now, "
            f"not to {old.member_id!r}"
        )
        step.refuse(group, old.member_id, fenced)
        self._timers.cancel(TimerKind.CLASSIC_SESSION, group.group_id, old.member_id)
        group.replace(old, member)
        self._rebalances.expect_heartbeat(group, member)
        protocols = (each.protocols for each in group.members.values())
        is_same = elected(protocols, group.common_protocols) == group.protocol
        if group.state is ClassicState.STABLE and is_same and not _gives_up(group, old):
            assignments = {each.member_id: each.assignment for each in group.members.values()}
            step.records.append(group.record(assignments, step.wall_ms))
            step.answer(asked.ticket, self._kept_place(group, member, former_leader, asked.request))
        else:
            group.joining[member.member_id] = asked.ticket
            # Also in COMPLETING_REBALANCE: the leader may assign to the old id, which nobody has any more.
            self._rebalances.rebalance(group, ClassicCause.JOINED, step)

    def _kept_place(
        self, group: ClassicGroup, member: ClassicMember, former_leader: str | None, request: JoinGroup
    ) -> JoinGroupAnswer:
        """The generation goes on. A leader that must not assign learns the members nevertheless, to watch their topics
        (KIP-814); one that does not know that field is told the id that it had before, and takes itself for none."""
        answer = group.joined(member)
        if request.skips_assignment:
            return replace(answer, skip_assignment=member.member_id == group.leader)
        return replace(answer, leader=former_leader or "", members=())

    # --- sync ---

    def sync(self, asked: MemberSync, now: Instant) -> Decision[SyncOutcome]:
        """Raises UnknownMemberId, FencedInstanceId, IllegalGeneration, InconsistentGroupProtocol or
        RebalanceInProgress."""
        request, step = asked.request, ClassicStep(now.wall_ms)
        group, member = self._member(request.group_id, request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        if group.state is ClassicState.PREPARING_REBALANCE:
            # Before the protocol: what a member was told of it by a consumer group need not be what that elected since.
            raise rebalances(group)
        for field, said, expected in (
            ("protocol type", request.protocol_type, group.protocol_type),
            ("protocol", request.protocol, group.protocol),
        ):
            if said is not None and said != expected:
                raise InconsistentGroupProtocol(
                    f"member {request.member_id!r} of group {request.group_id!r} names the {field} {said[:100]!r}, and "
                    f"that of the generation is {expected!r}: join the group again"
                )
        if group.state is ClassicState.STABLE:
            self._rebalances.note_sync(group, member)
            self._rebalances.expect_heartbeat(group, member)
            return Decision(group.synced(member.assignment))
        step.refuse(group, member.member_id, rebalances(group))  # its client has given the earlier request up
        if member.member_id == group.leader:
            self._assign(group, asked, step)
        else:
            self._rebalances.note_sync(group, member)
            group.syncing[member.member_id] = asked.ticket
        return step.decision(asked.ticket)

    def _assign(self, group: ClassicGroup, asked: MemberSync, step: ClassicStep) -> None:
        """The leader has assigned. Assignments of others than members are ignored.

        Applying the record ends the waits. If it cannot be recorded, the others wait for the next attempt, and the
        leader has not asked: without one it is removed in time, or by its session, and the others join again.
        """
        assignments = {each.member_id: each.assignment for each in asked.request.assignments}
        step.records.append(group.record(assignments, step.wall_ms))
        for member_id, ticket in (*group.syncing.items(), (asked.request.member_id, asked.ticket)):
            step.answer(ticket, group.synced(assignments.get(member_id, NO_ASSIGNMENT)))
            self._rebalances.expect_heartbeat(group, group.members[member_id])

    # --- heartbeat, leave ---

    def heartbeat(self, request: ClassicHeartbeat) -> Decision[ClassicHeartbeatAnswer]:
        """Raises UnknownMemberId, FencedInstanceId, IllegalGeneration or RebalanceInProgress."""
        group, member = self._member(request.group_id, request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        if not member.is_new:
            self._rebalances.expect_heartbeat(group, member)
        if group.state is ClassicState.PREPARING_REBALANCE:
            raise rebalances(group)
        return Decision(ClassicHeartbeatAnswer())

    def leave(self, request: LeaveGroup, now: Instant) -> Decision[LeaveGroupAnswer]:
        """Each member has its own outcome."""
        step, group = ClassicStep(now.wall_ms), self._state.classic.get(request.group_id)
        before = 0 if group is None else len(group.members)
        outcomes = tuple(self._leave(request.group_id, leaving, step) for leaving in request.members)
        if group is not None:
            if len(group.members) < before or group.state is ClassicState.PREPARING_REBALANCE:
                self._rebalances.rebalance(group, ClassicCause.MEMBER_GONE, step)
            self._forget_unused(group)
        return step.decided(LeaveGroupAnswer(outcomes))

    def _leave(self, group_id: str, leaving: LeavingMember, step: ClassicStep) -> LeftMember:
        member_id = leaving.member_id
        try:
            group = self._group(group_id)
            if member_id in group.invited:
                self._rebalances.forget(group, member_id)
            else:
                if not member_id and leaving.instance_id is not None:
                    member_id = group.instances.get(leaving.instance_id, "")
                self._rebalances.drop(group, group.checked(member_id, leaving.instance_id), "", step)
        except TidelogError as error:
            return LeftMember(leaving.member_id, leaving.instance_id, error)
        return LeftMember(leaving.member_id, leaving.instance_id)

    def _forget_unused(self, group: ClassicGroup) -> None:
        """No record knows a group that only ever had invited members."""
        if not (group.members or group.invited or group.generation):
            self._state.classic.pop(group.group_id, None)

    def _group(self, group_id: str) -> ClassicGroup:
        group = self._state.classic.get(group_id)
        if group is None:
            raise UnknownMemberId(f"there is no group {group_id!r} of the classic protocol: join it first")
        return group

    def _member(self, group_id: str, member_id: str, instance_id: str | None) -> tuple[ClassicGroup, ClassicMember]:
        group = self._group(group_id)
        return group, group.checked(member_id, instance_id)

    # --- offsets ---

    def committed(self, group_id: str, member_id: str) -> None:
        """A member has committed offsets: it is alive."""
        group = self._state.classic.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None and not member.is_new:
            self._rebalances.expect_heartbeat(group, member)

    # --- load, time ---

    def loaded(self) -> None:
        """The replay has ended: sessions start now."""
        for _, group in sorted(self._state.classic.items()):
            group.lost_generations = LOST_GENERATIONS
            self._expect_members(group)

    def adopted(self, group_id: str) -> None:
        """A consumer group has become a classic one."""
        self._expect_members(self._state.classic[group_id])

    def _expect_members(self, group: ClassicGroup) -> None:
        """Start the sessions of all members. Those of a group that was a consumer group have no leader yet: they are to
        join again."""
        for member in group.members.values():
            self._rebalances.expect_heartbeat(group, member)
        if group.members and group.leader is None:
            self._rebalances.rebalance(group, ClassicCause.MEMBER_GONE, ClassicStep(NO_TIMESTAMP))

    def time_out(self, due: list[TimerKey], wall_ms: Millis) -> list[Decision[Any]]:
        """Decide on timers of classic groups that are due: one decision for each group."""
        steps: dict[str, ClassicStep] = {}
        for key in due:
            group = self._state.classic.get(key.group_id)
            if group is None or self._timers.is_set(key):
                continue  # it was deleted since the timer was set; or what was decided before began the time again
            step = steps.setdefault(key.group_id, ClassicStep(wall_ms))
            match key.kind:
                case TimerKind.CLASSIC_SESSION:
                    self._rebalances.session_is_over(group, key.member_id, step)
                case TimerKind.CLASSIC_JOIN:
                    self._rebalances.join_time_is_over(group, step)
                case TimerKind.CLASSIC_SYNC:
                    self._rebalances.sync_time_is_over(group, step)
            self._forget_unused(group)
        return [step.decided() for step in steps.values() if step.records or step.answers or step.notices]


def _member(asked: MemberJoin, member_id: str) -> ClassicMember:
    """A member as its JoinGroup describes it."""
    request = asked.request
    session_ms, rebalance_ms = timeouts_of(request)
    return ClassicMember(
        member_id,
        request.instance_id,
        asked.client_id,
        asked.client_host,
        session_ms,
        rebalance_ms,
        request.protocols,
    )


def check_session_timeout(timeout_ms: int, config: GroupConfig) -> None:
    """Raises InvalidSessionTimeout."""
    low, high = config.min_session_timeout_ms, config.max_session_timeout_ms
    if not low <= timeout_ms <= high:
        raise InvalidSessionTimeout(
            f"a session timeout of {timeout_ms} ms is not allowed: use group.min.session.timeout.ms, {low}, to "
            f"group.max.session.timeout.ms, {high}"
        )


def timeouts_of(request: JoinGroup) -> tuple[int, int]:
    """Of the session and of rebalances. Kafka's version 0 has no rebalance timeout: the session is its limit, too."""
    rebalance_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms, request.session_timeout_ms if rebalance_ms < 0 else rebalance_ms


def _gives_up(group: ClassicGroup, member: ClassicMember) -> bool:
    """Whether a member had more when it joined the present generation than it was assigned. A cooperative member joins
    again once it has given that up, and only then does the leader assign it to others. A process that takes the place
    of such a member has nothing to give up, so that it would never join again: the partitions would stay without an
    owner."""
    if group.protocol_type != CONSUMER_PROTOCOL:
        return False
    subscription = subscription_in(metadata_of(member.protocols, group.protocol))
    if subscription is None:
        return False
    assignment = assignment_in(member.assignment)
    return bool(_named(subscription.owned_partitions) - _named(assignment.assigned_partitions if assignment else ()))


def _named(topics: Iterable[NamedPartitions]) -> set[tuple[str, int]]:
    return {(each.topic, partition) for each in topics for partition in each.partitions}


def _check_generation(group: ClassicGroup, generation: int) -> None:
    if generation != group.generation:
        raise IllegalGeneration(
            f"group {group.group_id!r} is in generation {group.generation}, not {generation}: join the group again"
        )
