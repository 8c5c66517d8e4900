"""Groups whose members come and go with either protocol, under any order of events: a state machine by hypothesis, with
invariants after each step.

Processes die, leave, and start again with the same instance id and another protocol; coordinators fail over. At the end
all is quiet: every partition has one owner, and the group has the protocol of its members.
"""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from replication.coordination.group_requests import OffsetCommit, OffsetToCommit
from replication.coordination.groups.assignments import as_sets
from replication.coordination.groups.group_config import GroupConfig
from tests.replication.group_stories import Client, Coordinator, Partition, compacted
from tests.replication.rolling_clients import Roller, settle_rolling
from tidelog.errors import FencedInstanceId, TidelogError, UnreleasedInstanceId
from tidelog.types import Offset, PartitionIndex

CONFIG = GroupConfig(initial_rebalance_delay_ms=0)
NAMES = ("a", "b", "c", "d")
TOPICS = {"t": 3, "u": 2}
PLACES = {(topic, number) for topic, count in TOPICS.items() for number in range(count)}


class MigratingWorld(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(TOPICS, config=CONFIG)
        self.members: dict[str, Roller | Client] = {}
        self.started = 0
        self.cooperative = False

    @initialize(cooperative=st.booleans())
    def classic_members_are(self, cooperative: bool) -> None:
        """Those of one group need a protocol in common."""
        self.cooperative = cooperative

    @rule(name=st.sampled_from(NAMES), classic=st.booleans(), static=st.booleans(), leaves=st.booleans())
    def start(self, name: str, classic: bool, static: bool, leaves: bool) -> None:
        """A process starts in the place of another one, which has left or died."""
        if name in self.members:
            self.end(name, leaves)
        self.started += 1
        instance = f"i-{name}" if static else None
        topics = tuple(TOPICS)
        if classic:
            self.members[name] = Roller(
                self.coordinator,
                f"{name}{self.started}",
                cooperative=self.cooperative,
                topics=topics,
                instance=instance,
                rebalance_ms=20_000,
            )
        else:
            self.members[name] = Client(self.coordinator, f"{name}{self.started}", topics, instance=instance)
        self.follow(name)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), leaves=st.booleans())
    def stop(self, data: st.DataObject, leaves: bool) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.members))), leaves)

    def end(self, name: str, leaves: bool) -> None:
        member = self.members.pop(name)
        if isinstance(member, Client):
            self.coordinator.streams.pop((member.group_id, member.member_id), None)
        if leaves:
            with contextlib.suppress(TidelogError):
                member.leave()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), times=st.integers(1, 4))
    def act(self, data: st.DataObject, times: int) -> None:
        for _ in range(times):
            self.follow(data.draw(st.sampled_from(sorted(self.members))))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """All members do what they have to, in some order."""
        for _ in range(4):
            for name in data.draw(st.permutations(sorted(self.members))):
                self.follow(name)
                self.nothing_is_with_two()
            self.coordinator.pass_time(500)

    def follow(self, name: str) -> None:
        """One step of a client that follows its protocol."""
        member = self.members[name]
        if isinstance(member, Roller):
            if "FencedInstanceId" not in member.refusals:
                member.step()
            return
        try:
            if member.epoch:
                member.heartbeat()
            else:
                member.join()
        except (UnreleasedInstanceId, FencedInstanceId):
            member.epoch, member.owned, member.given = 0, {}, {}
        except TidelogError:
            member.epoch, member.owned, member.given = 0, {}, {}
            with contextlib.suppress(UnreleasedInstanceId):
                member.join()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        """What is committed has a member, in its epoch, that nobody has fenced."""
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        epoch = member.generation if isinstance(member, Roller) else member.epoch
        if not member.member_id or epoch < 0:
            return
        partitions = (OffsetToCommit("t", PartitionIndex(0), Offset(1)),)
        with contextlib.suppress(TidelogError):
            self.coordinator.ask(OffsetCommit("g", member.member_id, epoch, None, partitions))
            assert self.is_current(member), f"{member.member_id} commits in {epoch}"

    @rule(ms=st.sampled_from([1, 999, 9_999, 10_000, 20_000, 45_000]))
    def pass_time(self, ms: int) -> None:
        self.coordinator.pass_time(ms)

    @rule()
    def fail_over(self) -> None:
        self.coordinator.fail_over()
        for member in self.members.values():
            if isinstance(member, Roller):
                if member.waiting is not None:
                    member.waiting, member.must_join = None, True  # the node refuses what waits
            elif member.epoch:
                with contextlib.suppress(TidelogError):
                    member.reconnect()

    # --- what must hold ---

    def is_current(self, member: Roller | Client) -> bool:
        """Whether the coordinator takes it for a member in the epoch in which it is."""
        state = self.coordinator.machine._state
        consumer, classic = state.consumer.get("g"), state.classic.get("g")
        if isinstance(member, Roller) and classic is not None:
            return member.member_id in classic.members and member.generation == classic.generation
        found = None if consumer is None else consumer.members.get(member.member_id)
        if found is None or (found.classic is not None) != isinstance(member, Roller):
            return False
        if isinstance(member, Roller):
            return member.generation == found.epoch
        return member.epoch in (found.epoch, found.assignment.previous_member_epoch)

    @invariant()
    def nothing_is_with_two(self) -> None:
        readers: dict[Partition, str] = {}
        for name, member in self.members.items():
            places = member.places if isinstance(member, Roller) else member.partitions
            for place in places if self.is_current(member) else ():
                other = readers.setdefault(place, name)
                assert other == name, f"{place} is read by {name} and {other}, and neither is fenced"

    @invariant()
    def records_name_one_owner(self) -> None:
        group = self.coordinator.machine._state.consumer.get("g")
        owned = [
            (topic, partition)
            for member in (() if group is None else group.members.values())
            for topic, partitions in as_sets(
                (*member.assignment.assigned_partitions, *member.assignment.partitions_pending_revocation)
            ).items()
            for partition in partitions
        ]
        assert len(owned) == len(set(owned))
        if group is not None:
            classic = sum(member.classic is not None for member in group.members.values())
            assert group.classic_members == classic
            assert not group.members or classic < len(group.members), "it should be a classic group"
            assert "g" not in self.coordinator.machine._state.classic

    @invariant()
    def compaction_changes_nothing(self) -> None:
        group = self.coordinator.machine._state.consumer.get("g")
        again = self.coordinator.replayed(compacted(self.coordinator.log))._state.consumer.get("g")
        assert (group is None) == (again is None)
        if group is not None and again is not None:
            assert (group.epoch, group.assignment_epoch, group.members, group.targets) == (
                again.epoch,
                again.assignment_epoch,
                again.members,
                again.targets,
            )

    def teardown(self) -> None:
        """No more faults: the members that still run follow their protocols until every partition has an owner."""
        for name in sorted(self.members):
            member = self.members[name]
            if isinstance(member, Roller) and "FencedInstanceId" in member.refusals:
                del self.members[name]
        for _ in range(150):  # longer than all sessions
            for name in sorted(self.members):
                self.follow(name)
            self.coordinator.pass_time(500)
        if not self.members:
            return
        settle_rolling(*self.members.values(), rounds=100)
        had = [each.places if isinstance(each, Roller) else each.partitions for each in self.members.values()]
        assert set().union(*had) == PLACES, had
        assert sum(map(len, had)) == len(PLACES), had
        kinds = {type(each) for each in self.members.values()}
        assert self.coordinator.group().type == ("classic" if kinds == {Roller} else "consumer")


MigratingWorld.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMigratingWorld = MigratingWorld.TestCase
