"""The state machine of one partition of `__consumer_offsets`: groups, their members and their offsets.

It implements replication/coordination/coordinator_machine.py. Its requests are the classes of group_requests.py and
classic_requests.py. Its effects are NudgeMembers and LateAnswer.

Invariants:
  1. Decisions do not change the state; only `apply` and `apply_marker` do, and they alone give it again on replay.
  2. A partition has at most one member that has it, or has been asked to give it up.
  3. Epochs of groups never decrease while the group exists.
  4. A change of members, subscriptions or topics leads to a new target assignment without any heartbeat: `deadline`
     gives its time, `tick` computes it, and NudgeMembers names the members that are concerned.
Timers, pushes, views and the rebalances of classic groups (member_timers.py, pushes.py, member_views.py,
classic_rebalances.py) are not recorded and may change while deciding: they start again when a machine is loaded.

Errors: a refusal is the answer of the decision, and no records come with it. A MemberNudged for a member that was
removed is answered by UnknownMemberId, so that the stream can tell it at once.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from replication.controller.image import ClusterImage
from replication.coordination.classic_requests import (
    ClassicHeartbeat,
    DescribeClassicGroups,
    LeaveGroup,
    MemberJoin,
    MemberSync,
)
from replication.coordination.coordinator_machine import Decision, Instant, TransactionalProducer
from replication.coordination.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    GroupRecord,
)
from replication.coordination.group_requests import (
    DeleteGroups,
    DescribeGroups,
    ListGroups,
    MemberHeartbeat,
    MemberNudged,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TxnOffsetCommit,
)
from replication.coordination.groups.classic_consumers import ClassicConsumers
from replication.coordination.groups.classic_members import ClassicMembers
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.descriptions import described, list_groups
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.group_deletion import DeletedTopics, OffsetExpiry, delete_groups
from replication.coordination.groups.group_times import GroupTimes
from replication.coordination.groups.groups_state import GroupsState
from replication.coordination.groups.heartbeats import Heartbeats, nudge
from replication.coordination.groups.member_steps import MemberSteps
from replication.coordination.groups.member_timers import (
    CLASSIC_TIMERS,
    MemberTimers,
    TimerKey,
    TimerKind,
    removal_notice,
)
from replication.coordination.groups.member_views import MemberViews
from replication.coordination.groups.membership import remove_members, waiting_members
from replication.coordination.groups.metadata_changes import MetadataChanges
from replication.coordination.groups.migration import downgraded, may_downgrade
from replication.coordination.groups.offset_requests import OffsetRequests
from replication.coordination.groups.pushes import Pushes
from replication.coordination.groups.target_assignment import TargetAssignments
from replication.coordination.groups.topic_patterns import CompilePattern, TopicPatterns
from tidelog.errors import TidelogError
from tidelog.types import Millis, Offset

_PAUSE_OF_SEARCH_MS: Final = 10
_TIMERS_PER_TICK: Final = 200
"""What is done in one tick; the rest is still due then."""


class GroupMachine:
    """The machine. compile_pattern: the library for patterns of topic names (RE2), see topic_patterns.py."""

    def __init__(self, config: GroupConfig, compile_pattern: CompilePattern) -> None:
        self._config = config
        self._state = GroupsState()
        self._times = GroupTimes(config, self._state.catalog)
        self._timers = MemberTimers(config, self._times)
        self._pushes = Pushes()
        self._views = MemberViews()
        patterns = TopicPatterns(compile_pattern)
        self._assignments = TargetAssignments(self._state.catalog, config.consumer_assignors, self._timers, self._views)
        steps = MemberSteps(self._state, self._timers, patterns, self._views, self._assignments)
        self._heartbeats = Heartbeats(self._state, config, self._times, self._timers, self._pushes, steps)
        self._classic_consumers = ClassicConsumers(self._state, config, self._timers, self._pushes, steps)
        self._classic = ClassicMembers(self._state, config, self._timers)
        self._offsets = OffsetRequests(self._state, config, self._classic)
        self._changes = MetadataChanges(self._state, patterns)
        self._deleted = DeletedTopics(self._state)
        self._expiry = OffsetExpiry(self._state, config)
        self._is_loaded = False
        self._wall_ms = Millis(0)

    # --- state ---

    def apply(self, record: GroupRecord, _offset: Offset, producer: TransactionalProducer | None, /) -> None:
        """Apply a record; see CoordinatorMachine."""
        group = self._state.apply(record, producer)
        if self._is_loaded:
            self._follow(record, group)

    def apply_marker(self, producer: TransactionalProducer, /, *, committed: bool) -> None:
        """Apply the end of a transaction; no effect if it committed no offsets here."""
        self._state.offsets.end_transaction(producer.producer_id, committed=committed)

    def _follow(self, record: GroupRecord, group: ConsumerGroup | None) -> None:
        """Keep the timers in line with a record that was applied."""
        key = record.key
        match key:
            case GroupMetadataKey(group_id):
                classic = self._state.classic.get(group_id)
                if classic is None:
                    self._timers.forget_classic(group_id)
                elif classic.leader is None:
                    self._classic.adopted(group_id)
            case ConsumerGroupMetadataKey(group_id) if group is None:
                self._timers.forget_group(group_id)
                self._views.forget_group(group_id)
            case ConsumerGroupMetadataKey() | ConsumerGroupTargetAssignmentMetadataKey() if group is not None:
                self._timers.expect_assignment(group)
            case ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id) | ConsumerGroupMemberMetadataKey(
                group_id, member_id
            ):
                if group is not None:
                    self._timers.expect_downgrade(group_id, is_due=may_downgrade(group, self._config))
                member = None if group is None else group.members.get(member_id)
                if group is not None and member is not None:
                    group.empty_since = None
                    if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
                        self._timers.expect_revocation(group, member)
                    return
                self._timers.forget_member(group_id, member_id)
                self._pushes.forget(group_id, member_id)
                self._views.forget_member(group_id, member_id)
                if group is not None and not group.members:
                    group.empty_since = self._wall_ms
            case _:
                pass

    # --- events ---

    def loaded(self, image: ClusterImage, _coordinator_epoch: int, now: Instant, /) -> Sequence[Decision[Any]]:
        """The replay has ended: sessions and timeouts start, and what changed in the meantime is decided."""
        self._set_time(now)
        self._is_loaded = True
        self._state.catalog.update(image, ())
        decisions: list[Decision[Any]] = []
        for group_id in sorted(self._state.consumer):
            group = self._state.consumer[group_id]
            broken = [member_id for member_id, member in sorted(group.members.items()) if member.metadata is None]
            if broken:
                decisions.append(self._removal(group, broken))
            for member in group.members.values():
                self._timers.expect_loaded(group_id, member)
                self._timers.expect_revocation(group, member)
            self._timers.expect_assignment(group)
            self._timers.expect_downgrade(group_id, is_due=may_downgrade(group, self._config))
        self._classic.loaded()
        self._changes.note_all()
        self._deleted.note_all()
        self._timers.plan_comparison()  # once these decisions are applied
        self._timers.plan_expiry(self._config.offsets_retention_check_interval_ms)
        return decisions

    def handle(self, request: Any, now: Instant, /) -> Decision[Any]:
        """Decide on a request."""
        self._set_time(now)
        decision = self._decide(request, now)
        notice = decision.notice or self._times.take_notice()
        return replace(decision, notice=notice) if notice else decision

    def _decide(self, request: Any, now: Instant) -> Decision[Any]:
        try:
            match request:
                case OffsetCommit():
                    return self._offsets.commit(request, now)
                case MemberHeartbeat():
                    return self._heartbeats.decide(request, now)
                case MemberNudged():
                    return self._heartbeats.push(request)
                case ClassicHeartbeat() | MemberJoin() | MemberSync() | LeaveGroup():
                    return self._decide_classic(request, now)
                case TxnOffsetCommit():
                    return self._offsets.commit_in_transaction(request, now)
                case OffsetFetch():
                    return self._offsets.fetch(request)
                case OffsetDelete():
                    return self._offsets.delete(request)
                case ListGroups():
                    return Decision(list_groups(self._state, request))
                case DescribeGroups() | DescribeClassicGroups():
                    return Decision(described(self._state, self._config, request))
                case DeleteGroups():
                    return delete_groups(self._state, request)
                case _:
                    raise AssertionError(f"a group coordinator gets no {type(request).__name__}")
        except TidelogError as error:
            return Decision(error)

    def _decide_classic(
        self, request: ClassicHeartbeat | MemberJoin | MemberSync | LeaveGroup, now: Instant
    ) -> Decision[Any]:
        group = self._classic_consumers.group_of(request)
        if group is None:
            return self._classic.decide(request, now)
        return self._classic_consumers.decide(group, request, now)

    def on_image(self, image: ClusterImage, now: Instant, /) -> Sequence[Decision[Any]]:
        """The metadata changed: groups with changed topics get a new epoch, offsets of deleted topics are deleted."""
        self._set_time(now)
        before = self._state.catalog.image
        changed = self._state.catalog.update(image, self._state.index)
        added: frozenset[str] = frozenset()
        if image.topic_ids is not before.topic_ids:
            added = frozenset(image.topic_ids.keys() - before.topic_ids.keys())
            self._deleted.note(before.topics[gone].name for gone in before.topics.keys() - image.topics.keys())
        self._changes.note(changed, added)
        return self._follow_metadata(now)

    def _follow_metadata(self, now: Instant) -> list[Decision[None]]:
        """Decide for some of the groups that changed topics concern; for the others with the next ticks."""
        decisions = [*self._changes.step(now.wall_ms), *self._deleted.step()]
        if self._changes or self._deleted:
            self._timers.plan_comparison()
        return decisions

    def tick(self, now: Instant, /) -> Sequence[Decision[Any]]:
        """Decide on expired timers: remove members that timed out, compute target assignments, expire offsets."""
        self._set_time(now)
        due = self._timers.pop_due(_TIMERS_PER_TICK)
        if any(key.kind is TimerKind.METADATA for key in due):
            for key in due:
                if key.kind is not TimerKind.METADATA:
                    self._timers.again(key)  # once these decisions are applied
            return self._follow_metadata(now)
        timed_out: dict[str, dict[str, TimerKind]] = {}
        for key in due:
            if key.kind in (TimerKind.SESSION, TimerKind.REBALANCE):
                timed_out.setdefault(key.group_id, {})[key.member_id] = key.kind
        classic = [key for key in due if key.kind in CLASSIC_TIMERS]
        decisions: list[Decision[Any]] = [*self._time_out(timed_out), *self._classic.time_out(classic, now.wall_ms)]
        for key in due:
            if key.kind is TimerKind.EXPIRY:
                decisions += self._expire(now, {*timed_out, *(each.group_id for each in classic)})
            elif key.kind in (TimerKind.ASSIGNMENT, TimerKind.DOWNGRADE) and key.group_id in timed_out:
                self._timers.again(key)  # once the removal is applied
            elif key.kind is TimerKind.DOWNGRADE:
                decisions += self._downgrade(key.group_id, now)
            elif key.kind is TimerKind.ASSIGNMENT and TimerKey(TimerKind.DOWNGRADE, key.group_id) in due:
                self._timers.again(key)  # in vain, once the group is a classic one: its members assign
            elif key.kind is TimerKind.ASSIGNMENT:
                decisions += self._assign(key.group_id)
        return decisions

    def deadline(self) -> Millis | None:
        """Monotonic time at which something is due."""
        return self._timers.next()

    def sizes(self) -> Mapping[str, int]:
        """Groups of each protocol, groups that have offsets, and these offsets."""
        state = self._state
        return {
            "consumer_group": len(state.consumer),
            "classic_group": len(state.classic),
            "group_with_offsets": state.offsets.group_count,
            "offset": len(state.offsets),
        }

    # --- decisions ---

    def _time_out(self, timed_out: dict[str, dict[str, TimerKind]]) -> Iterator[Decision[None]]:
        for group_id, members in timed_out.items():
            group = self._state.consumer.get(group_id)
            if group is not None:
                known = {member_id: kind for member_id, kind in members.items() if member_id in group.members}
                if known:
                    yield replace(self._removal(group, list(known)), notice=removal_notice(group, known))

    def _removal(self, group: ConsumerGroup, member_ids: Sequence[str]) -> Decision[None]:
        """Remove members, and tell them and those that wait for their partitions."""
        records = remove_members(group, member_ids, self._state.catalog)
        concerned = waiting_members(group, member_ids).union(member_ids)
        return Decision(None, tuple(records), effects=nudge(group.group_id, concerned))

    def _assign(self, group_id: str) -> list[Decision[None]]:
        group = self._state.consumer.get(group_id)
        if group is None or group.epoch <= group.assignment_epoch or not group.members:
            return []  # it was assigned with a heartbeat, or emptied, since the timer was set
        assignment = self._assignments.compute(group, group.epoch, group.subscriptions(), group.targets, {})
        return [Decision(None, assignment.records, effects=nudge(group.group_id, assignment.changed))]

    def _downgrade(self, group_id: str, now: Instant) -> list[Decision[None]]:
        group = self._state.consumer.get(group_id)
        if group is None or not may_downgrade(group, self._config):
            return []  # it was deleted, or a member of the other protocol has joined, since the timer was set
        decision = downgraded(group, self._state.catalog, now)
        return self._assign(group_id) if decision is None else [decision]

    def _expire(self, now: Instant, undecided: Container[str]) -> list[Decision[None]]:
        """undecided: groups that lose members in this tick. That is not applied yet, so that the time since which such
        a group is empty is not known: it waits for the next search."""
        decisions, ended = self._expiry.step(now.wall_ms, undecided)
        self._timers.plan_expiry(self._config.offsets_retention_check_interval_ms if ended else _PAUSE_OF_SEARCH_MS)
        return decisions

    def _set_time(self, now: Instant) -> None:
        self._timers.now, self._wall_ms = now.monotonic_ms, now.wall_ms
