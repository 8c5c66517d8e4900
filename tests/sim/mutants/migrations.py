"""Coordinators that break a rule of groups whose members change their protocol one by one."""

from __future__ import annotations

from typing import Any, Final

from replication.coordination.classic_requests import ClassicHeartbeatAnswer
from replication.coordination.coordinator_machine import Decision
from replication.coordination.groups import classic_consumers, group_machine, heartbeats, migration
from replication.coordination.groups.assignments import AssignedTopics, as_sets
from replication.coordination.groups.classic_consumers import ClassicConsumers
from replication.coordination.groups.classic_group import ClassicGroup
from replication.coordination.groups.classic_members import ClassicMembers
from replication.coordination.groups.classic_rebalances import ClassicRebalances
from replication.coordination.groups.consumer_protocol import existing
from replication.coordination.groups.group_config import MigrationPolicy
from replication.coordination.groups.heartbeats import Heartbeats
from replication.coordination.groups.member import CurrentAssignment, Member
from replication.coordination.groups.member_timers import MemberTimers, TimerKind
from replication.coordination.groups.migration import downgraded, upgraded, waiting_are_refused
from replication.coordination.groups.offset_requests import OffsetRequests
from tests.sim import migration_stories as stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.errors import InconsistentGroupProtocol, RebalanceInProgress
from tidelog.protocol.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription


def _nothing(*_: object, **__: object) -> None:
    return None


# --- classic members of consumer groups -------------------------------------------------------------------------------


def classic_members_get_their_targets(patch: Patch) -> None:
    """SyncGroup gives a member its target assignment, of which others may still have partitions."""
    sync = ClassicConsumers._sync

    def of_target(self: Any, group: Any, asked: Any) -> Any:
        member = group.members.get(asked.request.member_id)
        if member is not None and member.current is not None:
            epoch, target = member.current.member_epoch, group.target_of(member.member_id)
            given = Member(member.member_id, member.metadata, CurrentAssignment(epoch, epoch, 0, target, ()))
            group.members[member.member_id], member = given, group.members[member.member_id]
            try:
                return sync(self, group, asked)
            finally:
                group.members[member.member_id] = member
        return sync(self, group, asked)

    patch.setattr(ClassicConsumers, "_sync", of_target)


def joining_members_own_nothing(patch: Patch) -> None:
    """What a member says in its JoinGroup to have is ignored: partitions that it reads on are free for others."""
    patch.setattr(classic_consumers, "existing", lambda *args: existing(*args)[:0])


def classic_members_are_not_told_of_assignments(patch: Patch) -> None:
    """A heartbeat of a classic member never says that it has to join again."""
    heartbeat = ClassicConsumers._heartbeat

    def untold(self: Any, group: Any, request: Any) -> Any:
        try:
            return heartbeat(self, group, request)
        except RebalanceInProgress:
            return Decision(ClassicHeartbeatAnswer())

    patch.setattr(ClassicConsumers, "_heartbeat", untold)


def freed_partitions_are_not_announced(patch: Patch) -> None:
    """A classic member is not told that what it waited for is free."""
    patch.setattr(classic_consumers, "_waits", lambda *_: True)


def any_generation_is_an_epoch(patch: Patch) -> None:
    """The generation in a request is not compared with the epoch of the member."""
    patch.setattr(classic_consumers, "_check_generation", _nothing)


def classic_members_never_time_out(patch: Patch) -> None:
    """Sessions of classic members in consumer groups do not end."""
    expect = MemberTimers.expect_heartbeat

    def of_others(self: Any, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        if timeout_ms is None:
            expect(self, group_id, member_id)

    patch.setattr(MemberTimers, "expect_heartbeat", of_others)


def classic_members_join_when_they_like(patch: Patch) -> None:
    """A classic member that was told to join again keeps its place without doing so."""
    patch.setattr(MemberTimers, "expect_join", _nothing)


def classic_members_need_not_sync(patch: Patch) -> None:
    """A classic member that has joined keeps its place without asking for its assignment."""
    schedule = MemberTimers.schedule

    def unless_joined(self: Any, kind: TimerKind, *args: Any, **options: Any) -> None:
        if kind is not TimerKind.REBALANCE:
            schedule(self, kind, *args, **options)

    patch.setattr(MemberTimers, "schedule", unless_joined)


def consumer_groups_take_any_member(patch: Patch) -> None:
    """The kind and the protocols of a member that joins a consumer group are not compared."""
    subscription = classic_consumers._subscription

    def lenient(group: Any, request: Any) -> Any:
        try:
            return subscription(group, request)
        except InconsistentGroupProtocol:
            return ConsumerProtocolSubscription((), None)

    patch.setattr(classic_consumers, "_subscription", lenient)


def any_classic_member_commits(patch: Patch) -> None:
    """A committer that was a member of the classic protocol need not be one any more."""
    check = OffsetRequests._check_committer

    def members_of_the_other(self: Any, request: Any) -> None:
        if request.group_id not in self._state.consumer or not request.member_id:
            check(self, request)

    patch.setattr(OffsetRequests, "_check_committer", members_of_the_other)
    patch.setattr(OffsetRequests, "_check_order", _nothing)


# --- migrations -------------------------------------------------------------------------------------------------------


def upgrades_forget_assignments(patch: Patch) -> None:
    """The members of an upgraded group keep their places, and what they have is free for others."""
    nothing: AssignedTopics = ()
    patch.setattr(migration, "existing", lambda *_: nothing)


def upgrades_give_partitions_to_two_members(patch: Patch) -> None:
    """A partition that a leader has assigned twice has two owners in the consumer group."""
    patch.setattr(migration, "as_sets", lambda topics: _Unshared(as_sets(topics)))


class _Unshared(dict[Any, Any]):
    """Partitions that never lack what others have."""

    def items(self) -> Any:
        return [(topic, _Whole(own)) for topic, own in super().items()]


class _Whole(frozenset[int]):
    def __sub__(self, other: object) -> _Whole:
        return self


def upgrades_leave_requests_waiting(patch: Patch) -> None:
    """The JoinGroups and SyncGroups that wait in a classic group are forgotten when it becomes a consumer group."""
    patch.setattr(heartbeats, "waiting_are_refused", lambda *_: ())


def upgraded_members_have_no_session(patch: Patch) -> None:
    """The sessions of the members of a classic group end with it."""
    patch.setattr(Heartbeats, "_upgraded", lambda _, classic, __, now: (waiting_are_refused(classic, now), ""))


def upgrades_reuse_lost_generations(patch: Patch) -> None:
    """The epochs of an upgraded group count from its last recorded generation, as if no other had begun."""

    def from_recorded(classic: ClassicGroup, *args: Any) -> Any:
        classic.lost_generations = 0
        return upgraded(classic, *args)

    patch.setattr(heartbeats, "upgraded", from_recorded)


def any_classic_group_is_upgraded(patch: Patch) -> None:
    """A classic group becomes a consumer group whatever it is for, and whatever the policy."""
    patch.setattr(migration, "_obstacle", lambda *_: "")


def groups_are_never_downgraded(patch: Patch) -> None:
    """A consumer group stays one when the last member that speaks its protocol has left."""
    patch.setattr(group_machine, "may_downgrade", lambda *_: False)


def downgrades_ignore_the_policy(patch: Patch) -> None:
    """A consumer group becomes a classic one although that is not allowed."""
    patch.setattr(MigrationPolicy, "downgrades", property(lambda _: True))


def downgraded_groups_do_not_rebalance(patch: Patch) -> None:
    """The members of a downgraded group are not told to join again: what the last member had stays without an owner."""
    rebalance = ClassicRebalances.rebalance

    def if_led(self: Any, group: ClassicGroup, cause: Any, step: Any) -> None:
        if group.leader is not None or group.joining:
            rebalance(self, group, cause, step)

    patch.setattr(ClassicRebalances, "rebalance", if_led)


def loaded_downgrades_do_not_rebalance(patch: Patch) -> None:
    """A coordinator that loads a downgraded group takes it for one with a complete assignment."""
    expect_members = ClassicMembers._expect_members

    def led(self: Any, group: ClassicGroup) -> None:
        if group.lost_generations and group.members and group.leader is None:
            group.leader = next(iter(group.members))
        expect_members(self, group)

    patch.setattr(ClassicMembers, "_expect_members", led)


def downgraded_members_have_nothing(patch: Patch) -> None:
    """The record of a downgraded group lacks what its members own."""
    patch.setattr(migration, "assignment_bytes", lambda *_: b"")


def downgrades_fence_everyone(patch: Patch) -> None:
    """A downgraded group begins with a generation that none of its members has."""

    def later(group: Any, *args: Any) -> Any:
        group.assignment_epoch += 1
        return downgraded(group, *args)

    patch.setattr(group_machine, "downgraded", later)


# --- static members ---------------------------------------------------------------------------------------------------


def other_protocols_are_other_members(patch: Patch) -> None:
    """A static member that comes back with another protocol is refused, since the one before it has not left."""
    patch.setattr(Member, "classic", property(_classic_unless_static))


def _classic_unless_static(member: Member) -> Any:
    metadata = member.metadata
    return None if metadata is None or metadata.instance_id is not None else metadata.classic_member_metadata


def static_members_join_beside_themselves(patch: Patch) -> None:
    """A classic static member that restarts does not take the place of the process before it."""
    patch.setattr(ClassicConsumers, "_replaced", _nothing)


UNOWNED: Final = "not within .* no member"

MUTANTS: Final = (
    Mutant(
        upgrades_forget_assignments,
        "migration",
        stories.cooperative_group_rolls_there_and_back,
        "loses .* in generation 1",
    ),
    Mutant(upgrades_leave_requests_waiting, "migration", stories.upgrade_meets_a_rebalance, "it has its share"),
    Mutant(
        upgraded_members_have_no_session,
        "migration",
        stories.killed_classic_member_is_replaced_in_a_consumer_group,
        UNOWNED,
    ),
    Mutant(
        classic_members_never_time_out,
        "migration",
        stories.killed_classic_member_is_replaced_in_a_consumer_group,
        UNOWNED,
    ),
    Mutant(joining_members_own_nothing, "migration", stories.slow_member_gives_up, "is not fenced"),
    Mutant(
        classic_members_get_their_targets,
        "migration",
        stories.cooperative_group_rolls_there_and_back,
        "the new member has its share",
    ),
    Mutant(
        classic_members_are_not_told_of_assignments,
        "migration",
        stories.eager_group_rolls_there_and_back,
        "the classic member has its share",
    ),
    Mutant(
        freed_partitions_are_not_announced,
        "migration",
        stories.eager_group_rolls_there_and_back,
        "the classic member has its share",
    ),
    Mutant(
        groups_are_never_downgraded,
        "migration",
        stories.eager_group_rolls_there_and_back,
        "it is a classic group again",
    ),
    Mutant(downgraded_groups_do_not_rebalance, "migration", stories.last_member_of_the_new_protocol_dies, UNOWNED),
    Mutant(loaded_downgrades_do_not_rebalance, "migration", stories.coordinator_dies_after_a_downgrade, UNOWNED),
    Mutant(
        downgraded_members_have_nothing,
        "migration",
        stories.last_member_of_the_new_protocol_dies,
        "loses .* in generation",
    ),
    Mutant(
        downgrades_fence_everyone, "migration", stories.last_member_of_the_new_protocol_dies, "they read on meanwhile"
    ),
    Mutant(any_classic_member_commits, "fencing", stories.paused_classic_member_commits_late, "which is fenced"),
)
