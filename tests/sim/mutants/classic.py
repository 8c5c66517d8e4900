"""Coordinators that break a rule of classic groups: of generations, assignments, static members, waiting requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from replication.coordination.classic_requests import AnsweredLater
from replication.coordination.groups import classic_members, classic_rebalances, offset_requests
from replication.coordination.groups.classic_group import ClassicGroup
from replication.coordination.groups.classic_members import ClassicMembers
from replication.coordination.groups.classic_rebalances import ClassicRebalances
from replication.coordination.groups.classic_states import ClassicState
from replication.coordination.groups.classic_step import ClassicStep
from replication.coordination.groups.group_machine import GroupMachine
from replication.coordination.groups.member_timers import MemberTimers, TimerKind
from tests.sim import classic_group_stories as stories
from tests.sim.mutants.mutant import Mutant, Patch


def _nothing(*_: object, **__: object) -> None:
    return None


def _without_timer(patch: Patch, kind: TimerKind) -> None:
    schedule = MemberTimers.schedule

    def no_timer(self: Any, each: TimerKind, *args: Any, **options: Any) -> None:
        if each is not kind:
            schedule(self, each, *args, **options)

    patch.setattr(MemberTimers, "schedule", no_timer)


# --- generations ------------------------------------------------------------------------------------------------------


def generations_keep_their_number(patch: Patch) -> None:
    """A rebalance does not count: members of the generation before are not told apart."""
    end_join = ClassicRebalances._end_join

    def uncounted(self: Any, group: ClassicGroup, step: ClassicStep) -> None:
        if group.generation > 0:
            group.lost_generations = -1
        end_join(self, group, step)

    patch.setattr(ClassicRebalances, "_end_join", uncounted)


def numbers_of_generations_are_given_again(patch: Patch) -> None:
    """A coordinator that takes over counts on from the last generation that is recorded, as if no other had begun."""
    patch.setattr(classic_members, "LOST_GENERATIONS", 0)


def any_generation_is_current(patch: Patch) -> None:
    """The generation in a request is not compared."""
    patch.setattr(classic_members, "_check_generation", _nothing)


def join_does_not_wait_for_others(patch: Patch) -> None:
    """A generation begins before the members of the last one have joined it."""
    patch.setattr(ClassicGroup, "all_joined", property(lambda _: True))


def invited_members_are_not_waited_for(patch: Patch) -> None:
    """A member that has its id, and sends its second JoinGroup, finds that the generation has begun without it."""
    patch.setattr(ClassicGroup, "all_joined", property(lambda group: len(group.joining) == len(group.members)))


def new_groups_do_not_wait(patch: Patch) -> None:
    """Each member that joins a new group begins a rebalance of its own."""
    patch.setattr(ClassicGroup, "is_initial", property(lambda _: False))


def newcomers_do_not_prolong_the_first_rebalance(patch: Patch) -> None:
    """The first generation begins after the initial delay, even while further members join."""
    over = ClassicRebalances.join_time_is_over

    def at_once(self: Any, group: ClassicGroup, step: ClassicStep) -> None:
        group.has_newcomer = False
        over(self, group, step)

    patch.setattr(ClassicRebalances, "join_time_is_over", at_once)


def first_rebalance_may_take_for_ever(patch: Patch) -> None:
    """Newcomers prolong the first rebalance beyond the rebalance timeout."""
    over = ClassicRebalances.join_time_is_over

    def prolonged(self: Any, group: ClassicGroup, step: ClassicStep) -> None:
        if group.initial_left_ms is not None:
            group.initial_left_ms = 3_000
        over(self, group, step)

    patch.setattr(ClassicRebalances, "join_time_is_over", prolonged)


def heartbeats_do_not_tell_of_a_rebalance(patch: Patch) -> None:
    """A member learns of a rebalance only by its next JoinGroup."""
    heartbeat = ClassicMembers.heartbeat

    def content(self: Any, request: Any) -> Any:
        group = self._group(request.group_id)
        state, group.state = group.state, ClassicState.STABLE
        try:
            return heartbeat(self, request)
        finally:
            group.state = state

    patch.setattr(ClassicMembers, "heartbeat", content)


def members_that_do_not_join_stay(patch: Patch) -> None:
    """A rebalance waits for a member without a limit."""
    _without_timer(patch, TimerKind.CLASSIC_JOIN)
    rebalance = ClassicRebalances.rebalance

    def at_once(self: Any, group: ClassicGroup, cause: Any, step: ClassicStep) -> None:
        rebalance(self, group, cause, step)
        if group.is_initial and len(group.members) > 1:
            self._end_join(group, step)

    patch.setattr(ClassicRebalances, "rebalance", at_once)


def members_that_never_sync_stay(patch: Patch) -> None:
    """Trap 19: a member that joined and does not ask for its assignment keeps its partitions."""
    _without_timer(patch, TimerKind.CLASSIC_SYNC)


# --- assignments ------------------------------------------------------------------------------------------------------


def everyone_gets_the_first_assignment(patch: Patch) -> None:
    """All members that wait get the assignment of one of them."""
    synced = ClassicGroup.synced
    first: dict[int, bytes] = {}

    def mixed_up(self: Any, assignment: bytes) -> Any:
        return synced(self, first.setdefault(self.generation, assignment))

    patch.setattr(ClassicGroup, "synced", mixed_up)


def assignments_are_not_recorded(patch: Patch) -> None:
    """The record of a generation has its members, without what was assigned to them."""
    record = ClassicGroup.record
    patch.setattr(ClassicGroup, "record", lambda self, _, wall_ms: record(self, {}, wall_ms))


def assignments_are_given_before_they_are_recorded(patch: Patch) -> None:
    """The members have their assignments although the record cannot be appended."""
    assign = ClassicMembers._assign

    def early(self: Any, group: ClassicGroup, request: Any, step: ClassicStep) -> None:
        assign(self, group, request, step)
        group.take(step.records[-1].value)  # type: ignore[arg-type]

    patch.setattr(ClassicMembers, "_assign", early)


def any_member_assigns(patch: Patch) -> None:
    """The assignment of a member that does not lead is taken: it is empty."""
    sync = ClassicMembers.sync

    def first_one_wins(self: Any, asked: Any, now: Any) -> Any:
        group = self._state.classic.get(asked.request.group_id)
        if group is not None and group.state is ClassicState.COMPLETING_REBALANCE:
            group.leader = asked.request.member_id
        return sync(self, asked, now)

    patch.setattr(ClassicMembers, "sync", first_one_wins)


# --- protocols --------------------------------------------------------------------------------------------------------


def the_first_member_chooses_the_protocol(patch: Patch) -> None:
    """The protocol is the one that one member prefers, whether or not the others support it."""
    patch.setattr(classic_rebalances, "elected", lambda members, _: next(iter(members))[0].name)


def any_protocol_is_accepted(patch: Patch) -> None:
    """A member joins whatever its protocol type and its protocols are."""
    patch.setattr(ClassicMembers, "_check_protocols", _nothing)


# --- members ----------------------------------------------------------------------------------------------------------


def sessions_do_not_time_out(patch: Patch) -> None:
    """A member that sends no heartbeats stays in its group, and so does an id that nobody uses."""
    _without_timer(patch, TimerKind.CLASSIC_SESSION)


def loaded_classic_members_have_no_session(patch: Patch) -> None:
    """A coordinator that has loaded a group waits for the first heartbeat of a member before it starts its session."""
    patch.setattr(ClassicMembers, "loaded", _nothing)


def waiting_members_time_out(patch: Patch) -> None:
    """The session of a member runs while its request waits, and it cannot send heartbeats."""
    over = ClassicRebalances.session_is_over

    def also_waiting(self: Any, group: ClassicGroup, member_id: str, step: ClassicStep) -> None:
        member = group.members.get(member_id)
        if member is not None:
            member.is_new = True
        over(self, group, member_id, step)

    patch.setattr(ClassicRebalances, "session_is_over", also_waiting)


def new_members_wait_for_ever(patch: Patch) -> None:
    """A member whose client is gone holds up its first generation."""
    patch.setattr(classic_members, "NEW_MEMBER_JOIN_MS", 1 << 40)


def leaving_begins_no_rebalance(patch: Patch) -> None:
    """What a member had that leaves is nobody's until the next rebalance."""
    leave = ClassicMembers.leave

    def quietly(self: Any, request: Any, now: Any) -> Any:
        with_rebalance = ClassicRebalances.rebalance
        ClassicRebalances.rebalance = _nothing  # type: ignore[method-assign]
        try:
            return leave(self, request, now)
        finally:
            ClassicRebalances.rebalance = with_rebalance  # type: ignore[method-assign]

    patch.setattr(ClassicMembers, "leave", quietly)


def groups_grow_without_limit(patch: Patch) -> None:
    """`group.max.size` is not obeyed."""
    patch.setattr(ClassicMembers, "_has_place", lambda *_: True)


def any_session_timeout_is_accepted(patch: Patch) -> None:
    """A member may choose a session of a day."""
    patch.setattr(classic_members, "check_session_timeout", _nothing)


def the_leader_cannot_begin_a_rebalance(patch: Patch) -> None:
    """A leader that joins again gets the generation that it has, and a topic's new partitions are nobody's."""
    join_again = ClassicMembers._join_again

    def stays(self: Any, group: ClassicGroup, asked: Any, step: ClassicStep) -> None:
        if group.state is ClassicState.STABLE and asked.request.member_id == group.leader:
            step.answer(asked.ticket, group.joined(group.members[asked.request.member_id]))
            return
        join_again(self, group, asked, step)

    patch.setattr(ClassicMembers, "_join_again", stays)


# --- static members ---------------------------------------------------------------------------------------------------


def static_members_are_strangers_after_a_restart(patch: Patch) -> None:
    """A process with a known instance id is a new member, and begins a rebalance."""

    def as_new(self: Any, group: ClassicGroup, old: Any, asked: Any, step: ClassicStep) -> None:
        self._rebalances.drop(group, old, "", step)
        self._add(group, asked, asked.new_member_id, step)

    patch.setattr(ClassicMembers, "_replace_static", as_new)


def instance_ids_are_not_compared(patch: Patch) -> None:
    """A process goes on although another one has taken the place of its instance id."""
    checked = ClassicGroup.checked

    def unfenced(self: Any, member_id: str, instance_id: str | None) -> Any:
        owner = self.instances.get(instance_id)
        return checked(self, member_id if owner is None else owner, instance_id)

    patch.setattr(ClassicGroup, "checked", unfenced)


def replacements_are_not_recorded(patch: Patch) -> None:
    """Trap 15: the next coordinator knows the process that the instance id had before."""
    replace_static = ClassicMembers._replace_static

    def unrecorded(self: Any, group: ClassicGroup, old: Any, asked: Any, step: ClassicStep) -> None:
        replace_static(self, group, old, asked, step)
        step.records.clear()

    patch.setattr(ClassicMembers, "_replace_static", unrecorded)


def instance_ids_are_not_loaded(patch: Patch) -> None:
    """Trap 15: a coordinator that has loaded its log takes static members for dynamic ones."""
    take = ClassicGroup.take

    def forgetting(self: Any, value: Any) -> None:
        take(self, value)
        self.instances.clear()

    apply = GroupMachine.apply

    def applied(self: Any, record: Any, offset: Any, producer: Any) -> None:
        with Patch.context() as inner:
            if not self._is_loaded:
                inner.setattr(ClassicGroup, "take", forgetting)
            apply(self, record, offset, producer)

    patch.setattr(GroupMachine, "apply", applied)


def a_restarted_leader_assigns(patch: Patch) -> None:
    """A static leader that restarts is told to assign, or an older client that it leads: its assignment is dropped."""
    kept_place = ClassicMembers._kept_place

    def leading(self: Any, group: ClassicGroup, member: Any, former: Any, request: Any) -> Any:
        return replace(kept_place(self, group, member, member.member_id, request), skip_assignment=False)

    patch.setattr(ClassicMembers, "_kept_place", leading)


def restarted_members_never_gave_anything_up(patch: Patch) -> None:
    """A static member that restarts keeps its place although the process before it had more: nobody gets that."""
    patch.setattr(classic_members, "_gives_up", lambda group, member: False)


def away_static_members_are_removed(patch: Patch) -> None:
    """A static member that restarts during a rebalance loses its place."""
    end_join = ClassicRebalances._end_join

    def all_dynamic(self: Any, group: ClassicGroup, step: ClassicStep) -> None:
        for member in [each for each in group.members.values() if each.member_id not in group.joining]:
            self.drop(group, member, "away", step)
        end_join(self, group, step)

    patch.setattr(ClassicRebalances, "_end_join", all_dynamic)


# --- requests that wait -----------------------------------------------------------------------------------------------


def a_repeated_join_leaves_the_first_without_an_answer(patch: Patch) -> None:
    """A JoinGroup that its member sends again is forgotten."""
    join_again = ClassicMembers._join_again

    def forgetful(self: Any, group: ClassicGroup, asked: Any, step: ClassicStep) -> None:
        group.joining.pop(asked.request.member_id, None)
        join_again(self, group, asked, step)

    patch.setattr(ClassicMembers, "_join_again", forgetful)


def a_removed_member_has_no_answer(patch: Patch) -> None:
    """A request of a member that leaves or is removed waits for ever."""
    patch.setattr(ClassicStep, "refuse", _nothing)


def a_rebalance_leaves_syncs_waiting(patch: Patch) -> None:
    """Members that wait for an assignment are not told that there will be none."""
    rebalance = ClassicRebalances.rebalance

    def forgetful(self: Any, group: ClassicGroup, cause: Any, step: ClassicStep) -> None:
        group.syncing.clear()
        rebalance(self, group, cause, step)

    patch.setattr(ClassicRebalances, "rebalance", forgetful)


def late_answers_are_lost(patch: Patch) -> None:
    """Only the member whose request ends a phase has its answer."""
    decided = ClassicStep.decided

    def only_own(self: Any, answer: Any = None) -> Any:
        if not isinstance(answer, AnsweredLater):
            self.answers.clear()
        return decided(self, answer)

    patch.setattr(ClassicStep, "decided", only_own)


# --- offsets ----------------------------------------------------------------------------------------------------------


def anyone_commits_for_a_classic_group(patch: Patch) -> None:
    """Offsets are accepted without a check of member and generation."""
    patch.setattr(offset_requests, "_check_classic", _nothing)


def commits_do_not_count_as_heartbeats(patch: Patch) -> None:
    """A member that commits and sends no heartbeats is removed."""
    patch.setattr(ClassicMembers, "committed", _nothing)


# --- in worlds --------------------------------------------------------------------------------------------------------

NOT_LOGGED: Final = "its committed log does not say so"

MUTANTS: Final = (
    Mutant(everyone_gets_the_first_assignment, "classic groups", stories.classic_members_share_partitions, NOT_LOGGED),
    Mutant(assignments_are_not_recorded, "classic groups", stories.classic_coordinator_is_killed, NOT_LOGGED),
    Mutant(
        generations_keep_their_number,
        "classic groups",
        stories.classic_members_share_partitions,
        "changes generation 1, which its members have already",
    ),
    Mutant(
        leaving_begins_no_rebalance,
        "classic groups",
        stories.classic_members_share_partitions,
        "not within 2 s .* with no member",
    ),
    Mutant(
        late_answers_are_lost,
        "classic groups",
        stories.classic_members_share_partitions,
        "not within .* with no member",
    ),
    Mutant(
        sessions_do_not_time_out,
        "classic groups",
        stories.killed_classic_member_is_replaced,
        "not within 15 s .* with no member",
    ),
    Mutant(
        loaded_classic_members_have_no_session,
        "classic groups",
        stories.classic_member_dies_with_its_coordinator,
        "not within 15 s .* with no member",
    ),
    Mutant(
        anyone_commits_for_a_classic_group,
        "classic groups",
        stories.late_commit_of_a_removed_classic_member,
        "which is fenced: generation 1 of 2",
    ),
    Mutant(replacements_are_not_recorded, "trap 15", stories.static_classic_member_restarts, NOT_LOGGED),
    Mutant(instance_ids_are_not_loaded, "trap 15", stories.static_classic_member_restarts, "no rebalance"),
    Mutant(
        static_members_are_strangers_after_a_restart, "KIP-345", stories.static_classic_member_restarts, "no rebalance"
    ),
)
