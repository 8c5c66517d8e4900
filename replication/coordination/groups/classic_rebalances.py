"""How a classic group comes from one generation to the next.

PREPARING_REBALANCE: the members join again; a heartbeat tells them to. It ends when all have, or when the longest
rebalance timeout of a member is over: then dynamic members that have not joined are removed, and static ones keep their
place until their session times out. The first rebalance of a group waits `group.initial.rebalance.delay.ms` for further
members instead, and as long again whenever one comes, within the rebalance timeout.

COMPLETING_REBALANCE: the members know the generation and ask for their assignment; those that do not within the longest
rebalance timeout are removed, the leader included, and the members join once more.
"""

from __future__ import annotations

from typing import Final

from replication.coordination.groups.classic_group import ClassicGroup, ClassicMember
from replication.coordination.groups.classic_protocols import elected
from replication.coordination.groups.classic_states import ClassicCause, ClassicState
from replication.coordination.groups.classic_step import ClassicStep
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.member_timers import MemberTimers, TimerKind
from tidelog.errors import RebalanceInProgress, UnknownMemberId

NEW_MEMBER_JOIN_MS: Final = 300_000
"""How long a member may wait for its first generation. It sends no heartbeats meanwhile, and a client that has gone
away leaves a member behind that nobody is. Kafka's limit."""


class ClassicRebalances:
    """Moves classic groups from generation to generation."""

    def __init__(self, config: GroupConfig, timers: MemberTimers) -> None:
        self._config, self._timers = config, timers

    def rebalance(self, group: ClassicGroup, cause: ClassicCause, step: ClassicStep) -> None:
        """A member has joined, has changed or is gone: begin a rebalance, or end the join phase if all have joined."""
        if group.state is ClassicState.PREPARING_REBALANCE:
            self._end_join_if_all_joined(group, step)
            return
        self._timers.cancel(TimerKind.CLASSIC_SYNC, group.group_id)
        group.unsynced.clear()
        for member_id in list(group.syncing):
            step.refuse(group, member_id, rebalances(group))
            self.expect_heartbeat(group, group.members[member_id])  # it need not send any while its request waited
        if group.state is ClassicState.EMPTY:
            delay = self._config.initial_rebalance_delay_ms
            group.initial_left_ms = max(0, group.rebalance_timeout_ms - delay)
            group.has_newcomer = False
            group.move(cause)
            self._timers.schedule(TimerKind.CLASSIC_JOIN, group.group_id, delay)
            return
        group.move(cause)
        if not self._end_join_if_all_joined(group, step):
            self._timers.schedule(TimerKind.CLASSIC_JOIN, group.group_id, group.rebalance_timeout_ms)

    def _end_join_if_all_joined(self, group: ClassicGroup, step: ClassicStep) -> bool:
        if group.is_initial or not group.all_joined:
            return False
        self._end_join(group, step)
        return True

    def join_time_is_over(self, group: ClassicGroup, step: ClassicStep) -> None:
        """The time to join has passed, or that to wait for members of a new group."""
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return
        left = group.initial_left_ms
        if left and group.has_newcomer:
            delay = min(self._config.initial_rebalance_delay_ms, left)
            group.has_newcomer, group.initial_left_ms = False, left - delay
            self._timers.schedule(TimerKind.CLASSIC_JOIN, group.group_id, delay)
            return
        self._end_join(group, step)

    def _end_join(self, group: ClassicGroup, step: ClassicStep) -> None:
        self._timers.cancel(TimerKind.CLASSIC_JOIN, group.group_id)
        group.initial_left_ms = None
        absent = [each for each in group.members.values() if each.member_id not in group.joining]
        for member in [each for each in absent if each.instance_id is None]:
            self.drop(group, member, "it did not join again within the rebalance timeout", step)
        if not group.members:
            group.begin_generation()
            group.protocol = group.leader = None
            group.move(ClassicCause.NONE_LEFT)
            step.records.append(group.record({}, step.wall_ms))
            return
        if not group.joining:  # only static members that are away: they have until their sessions time out
            self._timers.schedule(TimerKind.CLASSIC_JOIN, group.group_id, group.rebalance_timeout_ms)
            return
        if group.leader not in group.joining:
            group.leader = next(member_id for member_id in group.members if member_id in group.joining)
        group.begin_generation()
        protocols = (member.protocols for member in group.members.values())
        group.protocol = elected(protocols, group.common_protocols)
        group.move(ClassicCause.ALL_JOINED)
        for member in group.members.values():
            step.answer(group.joining.pop(member.member_id, None), group.joined(member))
            member.is_new = False
            group.unsynced[member.member_id] = None
            self.expect_heartbeat(group, member)
        self._timers.schedule(TimerKind.CLASSIC_SYNC, group.group_id, group.rebalance_timeout_ms)

    def sync_time_is_over(self, group: ClassicGroup, step: ClassicStep) -> None:
        """Members that have not asked for their assignment are removed: nobody reads what is assigned to them."""
        gone = [group.members[member_id] for member_id in group.unsynced if member_id in group.members]
        if not gone or group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
            return
        for member in gone:
            self.drop(group, member, "it did not ask for its assignment within the rebalance timeout", step)
        self.rebalance(group, ClassicCause.MEMBER_GONE, step)

    def session_is_over(self, group: ClassicGroup, member_id: str, step: ClassicStep) -> None:
        """A member has sent no heartbeat for its session timeout, or an invited one has not joined. While a request of
        a member waits it need not send any; but a new one has no generation yet, and its client may be gone."""
        member = group.members.get(member_id)
        if member_id in group.invited:
            self.forget(group, member_id)
            if group.state is ClassicState.PREPARING_REBALANCE:
                self._end_join_if_all_joined(group, step)
        elif member is None:
            pass  # it was replaced, or left
        elif member.is_new or (member_id not in group.joining and member_id not in group.syncing):
            self.drop(group, member, "it sent no heartbeat for the session timeout", step)
            self.rebalance(group, ClassicCause.MEMBER_GONE, step)

    def drop(self, group: ClassicGroup, member: ClassicMember, why: str, step: ClassicStep) -> None:
        """Remove a member. why: for the log; empty: it leaves on purpose."""
        gone = UnknownMemberId(f"member {member.member_id!r} is no longer in group {group.group_id!r}")
        step.refuse(group, member.member_id, gone)
        self.forget(group, member.member_id)
        if why:
            whose = f"{member.member_id} (client id {member.client_id!r}, {member.client_host})"
            step.notices.append(f"removed from group {group.group_id!r}: {whose}: {why}")

    def forget(self, group: ClassicGroup, member_id: str) -> None:
        """A member, or one that was invited, is gone."""
        group.remove(member_id)
        self._timers.cancel(TimerKind.CLASSIC_SESSION, group.group_id, member_id)

    def expect_heartbeat(self, group: ClassicGroup, member: ClassicMember) -> None:
        """The member is alive: its session starts again."""
        self._timers.schedule(
            TimerKind.CLASSIC_SESSION, group.group_id, member.session_timeout_ms, member_id=member.member_id
        )

    def note_sync(self, group: ClassicGroup, member: ClassicMember) -> None:
        """The member has asked for its assignment."""
        group.unsynced.pop(member.member_id, None)
        if not group.unsynced:
            self._timers.cancel(TimerKind.CLASSIC_SYNC, group.group_id)


def rebalances(group: ClassicGroup) -> RebalanceInProgress:
    """The error of a member that has to join the next generation."""
    return RebalanceInProgress(f"group {group.group_id!r} waits for its members to join again: join it first")
