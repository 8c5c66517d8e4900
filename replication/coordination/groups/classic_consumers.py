"""Members of consumer groups that speak the classic protocol: their JoinGroups, SyncGroups, heartbeats and LeaveGroups.

The generation of such a member is its member epoch. A JoinGroup is answered at once: it reports what the member has, as
a heartbeat of the consumer protocol does, and takes the member one step nearer to its target assignment; SyncGroup
gives it the assignment. No member is the leader, since the coordinator assigns. A heartbeat says that the member is to
join again (RebalanceInProgress) if

  - there is a newer target assignment,
  - it has been asked to give partitions up, which it confirms by joining without them, or
  - the last partitions that it waited for are free.

It must join within its rebalance timeout then, and ask for its assignment within that after it has joined.

Rules: KIP-848, and Kafka 4.1's GroupMetadataManager.classicGroupJoinToConsumerGroup, classicGroupSyncToConsumerGroup,
classicGroupHeartbeatToConsumerGroup and classicGroupLeaveToConsumerGroup.
Differences to Kafka 4.1: a member is told to join again once the next target assignment is computed, not as soon as the
group has another epoch; a SyncGroup may name any protocol that its member supports.
"""

from __future__ import annotations

from typing import Any

from replication.coordination.classic_requests import (
    ClassicHeartbeat,
    ClassicHeartbeatAnswer,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    LeavingMember,
    LeftMember,
    MemberJoin,
    MemberSync,
    SyncGroupAnswer,
)
from replication.coordination.coordinator_machine import Decision, Instant
from replication.coordination.group_records import ClassicMemberMetadata
from replication.coordination.group_requests import EveryTopic
from replication.coordination.groups.assignments import as_sets
from replication.coordination.groups.classic_members import check_session_timeout, timeouts_of
from replication.coordination.groups.classic_protocols import names_of
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.consumer_protocol import (
    CONSUMER_PROTOCOL,
    assignment_bytes,
    existing,
    subscription_in,
)
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.groups_state import GroupsState
from replication.coordination.groups.heartbeats import check_instance, check_size, nudge
from replication.coordination.groups.member import Member, MemberMetadata
from replication.coordination.groups.member_steps import MemberStep, MemberSteps, joining
from replication.coordination.groups.member_timers import MemberTimers, TimerKind
from replication.coordination.groups.membership import remove_members, waiting_members
from replication.coordination.groups.pushes import Pushes
from replication.coordination.groups.states import MemberState
from tidelog.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    TidelogError,
    UnknownMemberId,
)
from tidelog.protocol.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription


class ClassicConsumers:
    """Decides on requests of the classic protocol to consumer groups."""

    def __init__(
        self, state: GroupsState, config: GroupConfig, timers: MemberTimers, pushes: Pushes, steps: MemberSteps
    ) -> None:
        self._state, self._config, self._timers, self._pushes, self._steps = state, config, timers, pushes, steps

    def group_of(self, request: ClassicHeartbeat | MemberJoin | MemberSync | LeaveGroup) -> ConsumerGroup | None:
        """The group that a request is for; None if it is for a classic group, to which a consumer group without members
        gives way when a member joins."""
        group_id = request.request.group_id if isinstance(request, MemberJoin | MemberSync) else request.group_id
        group = self._state.consumer.get(group_id)
        return None if group is None or not group.members else group

    def decide(
        self, group: ConsumerGroup, request: ClassicHeartbeat | MemberJoin | MemberSync | LeaveGroup, now: Instant
    ) -> Decision[Any]:
        """Decide on a request. Raises a TidelogError that refuses it."""
        match request:
            case MemberJoin():
                return self._join(group, request, now)
            case MemberSync():
                return self._sync(group, request)
            case ClassicHeartbeat():
                return self._heartbeat(group, request)
            case LeaveGroup():
                return self._leave(group, request)

    # --- join ---

    def _join(self, group: ConsumerGroup, asked: MemberJoin, now: Instant) -> Decision[JoinGroupAnswer]:
        """Raises InvalidSessionTimeout, GroupMaxSizeReached, InconsistentGroupProtocol, UnknownMemberId or
        FencedInstanceId."""
        request, member_id = asked.request, asked.request.member_id or asked.new_member_id
        check_session_timeout(request.session_timeout_ms, self._config)
        stored, replaced = group.members.get(member_id), self._replaced(group, request)
        check_size(group, self._config, is_new=stored is None and replaced is None)
        subscription = _subscription(group, request)
        if not request.member_id and request.needs_member_id and request.instance_id is None:
            # The id need not be remembered: a group accepts every member that joins with one.
            error = MemberIdRequired(f"join group {group.group_id!r} again as member {member_id!r}")
            return Decision(JoinGroupAnswer(member_id, error=error))
        owned = as_sets(existing(subscription.owned_partitions, self._state.catalog))
        known = None if stored is None or stored.classic is None else stored.assignment
        if known is not None and known.state == MemberState.UNKNOWN and owned:
            raise UnknownMemberId(
                f"the assignment of member {member_id!r} of group {group.group_id!r} was recorded by a newer version: "
                "give up all partitions and join as a new member"
            )
        base = joining(replaced or stored) if known is None else known
        metadata = _metadata(asked, subscription, stored)
        step = MemberStep(group, member_id, stored, replaced, base, metadata)
        current = self._steps.advance(step, owned, EveryTopic(), now)
        self._pushes.forget(group.group_id, member_id)
        self._timers.expect_heartbeat(group.group_id, member_id, request.session_timeout_ms)
        self._timers.schedule(
            TimerKind.REBALANCE, group.group_id, metadata.rebalance_timeout_ms, member_id=member_id
        )  # to ask for its assignment
        return Decision(
            JoinGroupAnswer(member_id, current.member_epoch, CONSUMER_PROTOCOL, request.protocols[0].name),
            tuple(step.records),
            effects=nudge(group.group_id, step.nudged - {member_id}),
        )

    def _replaced(self, group: ConsumerGroup, request: JoinGroup) -> Member | None:
        """The static member whose place a new process takes, of either protocol: the one before it is fenced."""
        if request.instance_id is None:
            return None
        if request.member_id:
            check_instance(group, request.instance_id, request.member_id)
            return None
        owner = group.instances.get(request.instance_id)
        return None if owner is None else group.members[owner]

    # --- sync, heartbeat ---

    def _sync(self, group: ConsumerGroup, asked: MemberSync) -> Decision[SyncGroupAnswer]:
        """Raises UnknownMemberId, FencedInstanceId, IllegalGeneration, RebalanceInProgress or
        InconsistentGroupProtocol."""
        request = asked.request
        member, classic = _member(group, request.member_id, request.instance_id)
        _check_generation(group, member, request.generation)
        if member.epoch < group.assignment_epoch and member.assignment.state != MemberState.UNREVOKED_PARTITIONS:
            raise self._must_join(group, member)
        protocols = classic.supported_protocols
        for field, said, known in (
            ("protocol type", request.protocol_type, (CONSUMER_PROTOCOL,)),
            ("protocol", request.protocol, names_of(protocols)),
        ):
            if said is not None and said not in known:
                raise InconsistentGroupProtocol(
                    f"member {request.member_id!r} of group {request.group_id!r} names the {field} {said[:100]!r}, and "
                    f"has joined with {', '.join(sorted(known))[:200]}: join the group again"
                )
        self._timers.cancel(TimerKind.REBALANCE, group.group_id, member.member_id)
        self._timers.expect_loaded(group.group_id, member)
        assignment = assignment_bytes(member.assignment.assigned_partitions, protocols[0].metadata, self._state.catalog)
        return Decision(SyncGroupAnswer(CONSUMER_PROTOCOL, request.protocol or protocols[0].name, assignment))

    def _heartbeat(self, group: ConsumerGroup, request: ClassicHeartbeat) -> Decision[ClassicHeartbeatAnswer]:
        """Raises UnknownMemberId, FencedInstanceId, IllegalGeneration or RebalanceInProgress."""
        member, _ = _member(group, request.member_id, request.instance_id)
        _check_generation(group, member, request.generation)
        self._timers.expect_loaded(group.group_id, member)
        state = member.assignment.state
        if (
            member.epoch < group.assignment_epoch
            or state == MemberState.UNREVOKED_PARTITIONS
            or (state == MemberState.UNRELEASED_PARTITIONS and not _waits(group, member))
        ):
            raise self._must_join(group, member)
        return Decision(ClassicHeartbeatAnswer())

    def _must_join(self, group: ConsumerGroup, member: Member) -> RebalanceInProgress:
        """The error of a member that has to join again, from now on within its rebalance timeout."""
        if member.metadata is not None:
            self._timers.expect_join(group.group_id, member.member_id, member.metadata.rebalance_timeout_ms)
        return RebalanceInProgress(
            f"group {group.group_id!r} reassigns partitions, and member {member.member_id!r} has to join it again"
        )

    # --- leave ---

    def _leave(self, group: ConsumerGroup, request: LeaveGroup) -> Decision[LeaveGroupAnswer]:
        """Each member has its own outcome. An operator removes members of either protocol so."""
        gone: dict[str, None] = {}
        outcomes = tuple(self._left(group, leaving, gone) for leaving in request.members)
        if not gone:
            return Decision(LeaveGroupAnswer(outcomes))
        records = remove_members(group, gone, self._state.catalog)
        effects = nudge(group.group_id, waiting_members(group, gone).union(gone))
        return Decision(LeaveGroupAnswer(outcomes), tuple(records), effects=effects)

    def _left(self, group: ConsumerGroup, leaving: LeavingMember, gone: dict[str, None]) -> LeftMember:
        member_id = leaving.member_id
        if not member_id and leaving.instance_id is not None:
            member_id = group.instances.get(leaving.instance_id, "")
        try:
            if leaving.instance_id is not None:
                check_instance(group, leaving.instance_id, member_id)
            if member_id in gone or member_id not in group.members:
                raise UnknownMemberId(f"group {group.group_id!r} has no member {member_id!r}")
        except TidelogError as error:
            return LeftMember(leaving.member_id, leaving.instance_id, error)
        gone[member_id] = None
        return LeftMember(leaving.member_id, leaving.instance_id)


def _subscription(group: ConsumerGroup, request: JoinGroup) -> ConsumerProtocolSubscription:
    """What a member says that joins. Raises InconsistentGroupProtocol if a consumer group has no place for it."""
    others = [member.classic for member in group.members.values() if member.member_id != request.member_id]
    offered = names_of(request.protocols)
    common = offered.intersection(*(names_of(each.supported_protocols) for each in others if each is not None))
    subscription = subscription_in(request.protocols[0].metadata) if request.protocols else None
    if request.protocol_type == CONSUMER_PROTOCOL and common and subscription is not None:
        return subscription
    if request.protocol_type != CONSUMER_PROTOCOL:
        why = f"the protocol type is {request.protocol_type[:100]!r}, not {CONSUMER_PROTOCOL!r}"
    elif not common:
        why = f"its members of the classic protocol do not all support one of {', '.join(sorted(offered))[:200] or '-'}"
    else:
        why = f"the subscription for protocol {request.protocols[0].name[:100]!r} is malformed"
    raise InconsistentGroupProtocol(
        f"group {group.group_id!r} is a consumer group (KIP-848), which takes consumers of the classic protocol with a "
        f"partition.assignment.strategy in common: {why}"
    )


def _metadata(asked: MemberJoin, subscription: ConsumerProtocolSubscription, stored: Member | None) -> MemberMetadata:
    request = asked.request
    session_ms, rebalance_ms = timeouts_of(request)
    known = None if stored is None or stored.metadata is None else stored.metadata.instance_id
    return MemberMetadata(
        request.instance_id or known,
        subscription.rack_id or None,
        asked.client_id,
        asked.client_host,
        tuple(sorted(set(subscription.topics))),
        None,
        rebalance_ms,
        None,
        ClassicMemberMetadata(session_ms, request.protocols),
    )


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[Member, ClassicMemberMetadata]:
    """Raises UnknownMemberId, also for a member of the consumer protocol, or FencedInstanceId."""
    if instance_id is not None:
        check_instance(group, instance_id, member_id)
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise UnknownMemberId(
            f"group {group.group_id!r} has no member {member_id!r} of the classic protocol: join the group again"
        )
    return member, member.classic


def _check_generation(group: ConsumerGroup, member: Member, generation: int) -> None:
    if generation != member.epoch:
        raise IllegalGeneration(
            f"member {member.member_id!r} of group {group.group_id!r} is in generation {member.epoch}, not "
            f"{generation}: join the group again"
        )


def _waits(group: ConsumerGroup, member: Member) -> bool:
    """Whether another member has a partition of its target assignment."""
    return any(
        group.owner(topic.topic_id, partition) not in (None, member.member_id)
        for topic in group.target_of(member.member_id)
        for partition in topic.partitions
    )
