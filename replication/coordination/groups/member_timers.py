"""The timers of one coordinator: sessions, rebalance timeouts, target assignments and the search for expired offsets.

Timers are not recorded: when a coordinator is replaced, sessions and timeouts start again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.group_times import GroupTimes
from replication.coordination.groups.member import Member
from replication.coordination.groups.states import MemberState
from replication.coordination.timers import Timers
from tidelog.types import Millis


class TimerKind(IntEnum):
    """What a timer waits for."""

    SESSION = 0
    """A member sent no heartbeat for the session timeout."""
    REBALANCE = 1
    """A member did not give up partitions within its rebalance timeout; one of a consumer group that speaks the classic
    protocol did not join again, or did not ask for its assignment."""
    CLASSIC_SESSION = 2
    """As SESSION, for a member of a classic group; or an invited member did not join."""
    ASSIGNMENT = 3
    """The target assignment of a group is older than its epoch."""
    EXPIRY = 4
    """The next search for expired offsets."""
    METADATA = 5
    """The next comparison of groups with the newest image."""
    CLASSIC_JOIN = 6
    """The time to join the next generation of a classic group is over."""
    CLASSIC_SYNC = 7
    """The time to ask for the assignments of a generation is over."""
    DOWNGRADE = 8
    """A consumer group has only members of the classic protocol."""


CLASSIC_TIMERS: Final = (TimerKind.CLASSIC_SESSION, TimerKind.CLASSIC_JOIN, TimerKind.CLASSIC_SYNC)


class TimerKey(NamedTuple):
    """A timer."""

    kind: TimerKind
    group_id: str = ""
    """Empty for all groups."""
    member_id: str = ""
    """Empty for a whole group."""


class MemberTimers:
    """The timers of the coordinator of one partition."""

    def __init__(self, config: GroupConfig, times: GroupTimes) -> None:
        self._config, self._times = config, times
        self._timers: Timers[TimerKey] = Timers()
        self._assigned_at: dict[str, Millis] = {}
        """When the last target assignment of each group was computed."""
        self.now = Millis(0)
        """The time of the last event."""

    def next(self) -> Millis | None:
        """The time of the next timer, or None."""
        return self._timers.next()

    def pop_due(self, limit: int) -> list[TimerKey]:
        """Remove and return timers that have expired, at most `limit`."""
        return self._timers.pop_due(self.now, limit)

    def again(self, key: TimerKey) -> None:
        """Let a timer expire again at once: its work could not be done."""
        self._timers.schedule(key, self.now)

    def expect_heartbeat(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """Start the member's session again: it has sent a request. timeout_ms: its own one."""
        key = TimerKey(TimerKind.SESSION, group_id, member_id)
        timeout_ms = self._times.session_timeout_ms(group_id) if timeout_ms is None else timeout_ms
        self._timers.schedule(key, Millis(self.now + timeout_ms))

    def expect_loaded(self, group_id: str, member: Member) -> None:
        """Start the session of a member that is recorded. A member of the classic protocol has its own timeout."""
        classic = member.classic
        self.expect_heartbeat(group_id, member.member_id, None if classic is None else classic.session_timeout_ms)

    def expect_join(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Give a member of the classic protocol this time to join a consumer group again, unless it has less."""
        if TimerKey(TimerKind.REBALANCE, group_id, member_id) not in self._timers:
            self.schedule(TimerKind.REBALANCE, group_id, timeout_ms, member_id=member_id)

    def schedule(self, kind: TimerKind, group_id: str, delay_ms: int, *, member_id: str = "") -> None:
        """Set a timer of a classic group, or of one of its members."""
        self._timers.schedule(TimerKey(kind, group_id, member_id), Millis(self.now + delay_ms))

    def is_set(self, key: TimerKey) -> bool:
        """Whether the timer runs. One that has expired does not, until it is set again."""
        return key in self._timers

    def cancel(self, kind: TimerKind, group_id: str, member_id: str = "") -> None:
        """Drop such a timer, if it is set."""
        self._timers.cancel(TimerKey(kind, group_id, member_id))

    def forget_classic(self, group_id: str) -> None:
        """Drop the timers of a classic group. Sessions of members that it only invited end without effect."""
        self.cancel(TimerKind.CLASSIC_JOIN, group_id)
        self.cancel(TimerKind.CLASSIC_SYNC, group_id)

    def expect_revocation(self, group: ConsumerGroup, member: Member) -> None:
        """Start or end the member's rebalance timeout after a change of its assignment. A member of the classic
        protocol has it for its next request instead."""
        if member.classic is not None:
            return
        key = TimerKey(TimerKind.REBALANCE, group.group_id, member.member_id)
        if member.metadata is not None and member.assignment.state == MemberState.UNREVOKED_PARTITIONS:
            self._timers.schedule(key, Millis(self.now + max(0, member.metadata.rebalance_timeout_ms)))
        else:
            self._timers.cancel(key)

    def forget_member(self, group_id: str, member_id: str) -> None:
        """Cancel the timers of a member that was removed."""
        self._timers.cancel(TimerKey(TimerKind.SESSION, group_id, member_id))
        self._timers.cancel(TimerKey(TimerKind.REBALANCE, group_id, member_id))

    def may_assign(self, group: ConsumerGroup) -> bool:
        """Whether the pause since the last target assignment of the group is over."""
        return group.assignment_epoch <= 0 or self._assignment_time(group) <= self.now

    def expect_assignment(self, group: ConsumerGroup) -> None:
        """Plan the group's next target assignment, or cancel it, after a change of its epoch or of its assignment."""
        key = TimerKey(TimerKind.ASSIGNMENT, group.group_id)
        if group.epoch > group.assignment_epoch and group.members:
            self._timers.schedule(key, max(self.now, self._assignment_time(group)))
        else:
            self._timers.cancel(key)

    def expect_downgrade(self, group_id: str, *, is_due: bool) -> None:
        """Let the group become a classic one in the next turn, or not."""
        if is_due:
            self.schedule(TimerKind.DOWNGRADE, group_id, 0)
        else:
            self.cancel(TimerKind.DOWNGRADE, group_id)

    def note_assignment(self, group_id: str) -> None:
        """Note that a target assignment of the group was computed."""
        self._assigned_at[group_id] = self.now

    def forget_group(self, group_id: str) -> None:
        """Cancel the timers of a group that was deleted."""
        self._assigned_at.pop(group_id, None)
        self._timers.cancel(TimerKey(TimerKind.ASSIGNMENT, group_id))
        self._timers.cancel(TimerKey(TimerKind.DOWNGRADE, group_id))

    def plan_expiry(self, delay_ms: int) -> None:
        """Search for expired offsets after this time."""
        self._timers.schedule(TimerKey(TimerKind.EXPIRY), Millis(self.now + delay_ms))

    def plan_comparison(self) -> None:
        """Compare further groups with the newest image in the next turn."""
        self._timers.schedule(TimerKey(TimerKind.METADATA), self.now)

    def _assignment_time(self, group: ConsumerGroup) -> Millis:
        last = self._assigned_at.get(group.group_id)
        if last is None:
            return Millis(0)
        pause = min(len(group.members) // 10, self._config.consumer_assignment_interval_max_ms)
        return Millis(last + pause)


_NAMED_MAX: Final = 5
"""Members that a notice names. Of the others it gives the number."""


def removal_notice(group: ConsumerGroup, members: Mapping[str, TimerKind]) -> str:
    """The log line about members that were removed. members: each with the timer that expired."""
    named = []
    for member_id, kind in list(members.items())[:_NAMED_MAX]:
        metadata = group.members[member_id].metadata
        whose = "" if metadata is None else f" (client id {metadata.client_id!r}, {metadata.client_host})"
        if kind is TimerKind.SESSION:
            why = "it sent no heartbeat for the session timeout"
        elif group.members[member_id].classic is not None:
            why = "it did not join again, or ask for its assignment, within its rebalance timeout"
        else:
            why = "it did not give up partitions within its rebalance timeout"
        named.append(f"{member_id}{whose}: {why}")
    more = f"; and {len(members) - _NAMED_MAX} more" if len(members) > _NAMED_MAX else ""
    return f"removed from group {group.group_id!r}: {'; '.join(named)}{more}"
