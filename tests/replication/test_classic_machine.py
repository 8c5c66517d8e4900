"""Classic groups under any order of events: a state machine by hypothesis, with invariants after each step.

Members follow the protocol, but stop, restart with their instance id, change their subscription, and send requests
again; coordinators fail over. At the end all is quiet: every member is in one generation with an assignment of its own.
"""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from replication.coordination.classic_requests import JoinGroupAnswer
from replication.coordination.group_requests import DeleteGroups, OffsetCommit, OffsetToCommit
from replication.coordination.groups.classic_group import ClassicGroup
from replication.coordination.groups.classic_states import CLASSIC_TRANSITIONS, ClassicState
from replication.coordination.groups.group_config import GroupConfig
from tests.replication.classic_clients import ClassicClient
from tests.replication.group_stories import Client, Coordinator, compacted
from tidelog.errors import TidelogError
from tidelog.types import Offset, PartitionIndex

CONFIG = GroupConfig(max_size=4)
NAMES = ("a", "b", "c", "d", "e")
PROTOCOLS: tuple[dict[str, bytes], ...] = (
    {"range": b"1"},
    {"range": b"2"},
    {"range": b"1", "sticky": b"1"},
    {"sticky": b"1", "range": b"1"},
)
WAYS = {(source, target) for (source, _), target in CLASSIC_TRANSITIONS.items()}

names = st.sampled_from(NAMES)


class ClassicWorld(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator({"t": 4}, config=CONFIG)
        self.clients: dict[str, ClassicClient] = {}
        self.started = 0
        self.lives = 0
        self.seen: dict[tuple[int, int], tuple[object, ...]] = {}
        """What members learned of a generation. A generation that was not assigned is forgotten by a failover: lives
        counts these, and deletions of the group."""
        self.learned: dict[ClassicClient, JoinGroupAnswer] = {}
        self.waiting: dict[int, None] = {}

    @property
    def group(self) -> ClassicGroup | None:
        return self.coordinator.machine._state.classic.get("g")

    def attempt(self, client: ClassicClient, what: str) -> None:
        """Let a member send a request; what a client does with a refusal, it does."""
        try:
            getattr(client, what)()
            error = client.error
        except TidelogError as refused:
            error = refused
        if client.waiting is not None:
            self.waiting[client.waiting] = None
        self.learn(client)
        if type(error).__name__ in ("UnknownMemberId", "FencedInstanceId"):
            client.member_id, client.joined = "", None

    def learn(self, client: ClassicClient) -> None:
        joined = client.joined
        if joined is None or self.learned.get(client) is joined:
            return
        self.learned[client] = joined
        said = joined.protocol_type, joined.protocol
        assert self.seen.setdefault((self.lives, joined.generation), said) == said, "one generation, one protocol"

    @precondition(lambda self: len(self.clients) < 4)
    @rule(name=names, static=st.booleans(), protocols=st.sampled_from(PROTOCOLS), needs_id=st.booleans())
    def start(self, name: str, static: bool, protocols: dict[str, bytes], needs_id: bool) -> None:
        """A process starts; with an instance id it may take the place of another."""
        self.started += 1
        client = ClassicClient(
            self.coordinator,
            f"{name}{self.started}",
            instance=f"i-{name}" if static else None,
            protocols=protocols,
            needs_member_id=needs_id,
            skips_assignment=needs_id,
        )
        self.clients[name] = client
        self.attempt(client, "join")

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        what=st.sampled_from(["join", "send_join", "look", "sync", "heartbeat", "leave", "again", "subscribe"]),
    )
    def act(self, data: st.DataObject, what: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients[name]
        if what == "sync" and (client.joined is None or not client.member_id):
            what = "join"
        elif what == "again":
            self.attempt(client, "join")
            what = "join"
        elif what == "subscribe":
            client.protocols = data.draw(st.sampled_from(PROTOCOLS))
            what = "join"
        self.attempt(client, what)
        if what == "leave":
            del self.clients[name]

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        del self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """All members do what they have to, in some order: otherwise few generations would ever be assigned."""
        for _ in range(3):
            for name in data.draw(st.permutations(sorted(self.clients))):
                self.follow(self.clients[name])
            self.coordinator.pass_time(3_000)

    def follow(self, client: ClassicClient) -> None:
        """One step of a client that follows the protocol."""
        self.attempt(client, "look")
        if client.waiting is not None:
            return
        if client.joined is None or not client.member_id or client.error is not None:
            self.attempt(client, "join")
        elif client.assignment is None:
            self.attempt(client, "sync")
        else:
            try:
                client.heartbeat()
            except TidelogError as error:
                client.error = error

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), simple=st.booleans())
    def commit(self, data: st.DataObject, simple: bool) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        simple = simple or client.generation < 0
        member_id, generation = ("", -1) if simple else (client.member_id, client.generation)
        partitions = (OffsetToCommit("t", PartitionIndex(0), Offset(1)),)
        with contextlib.suppress(TidelogError):
            self.coordinator.ask(OffsetCommit("g", member_id, generation, None, partitions))
            group = self.group
            assert simple or (group is not None and member_id in group.members)
            assert not simple or group is None or not group.members

    @rule(whole=st.booleans())
    def others(self, whole: bool) -> None:
        """An operator deletes the group, or a member of the other protocol joins it: only while it has no members."""
        had = self.group is not None and bool(self.group.members)
        for client in self.clients.values():
            self.attempt(client, "look")  # later, its answer would be taken for one of the next life
        self.lives += not had
        if whole:
            answer = self.coordinator.ask(DeleteGroups(("g",)))
            assert not had or answer.groups[0].error is not None
            return
        other = Client(self.coordinator, "new")
        try:
            other.join()
        except TidelogError:
            assert had
        else:
            assert not had
            other.leave()

    @rule(ms=st.sampled_from([1, 2_999, 9_999, 10_000, 60_000, 400_000]))
    def pass_time(self, ms: int) -> None:
        self.coordinator.pass_time(ms)

    @rule()
    def fail_over(self) -> None:
        self.coordinator.fail_over()
        self.lives += 1
        self.waiting.clear()  # the node refuses what waits when it drops the machine
        for client in self.clients.values():
            client.waiting = None

    # --- what must hold ---

    @invariant()
    def the_group_is_whole(self) -> None:
        group = self.group
        if group is None:
            return
        assert {instance: group.members[member].instance_id for instance, member in group.instances.items()} == {
            instance: instance for instance in group.instances
        }
        statics = [member.instance_id for member in group.members.values() if member.instance_id is not None]
        assert sorted(statics) == sorted(group.instances)
        supported = [{protocol.name for protocol in member.protocols} for member in group.members.values()]
        common = set.intersection(*supported) if supported else set()
        assert group.common_protocols == common
        assert bool(common) == bool(supported)
        assert group.joining.keys() | group.syncing.keys() <= group.members.keys()
        assert not group.joining or group.state is ClassicState.PREPARING_REBALANCE
        assert not group.syncing or group.state is ClassicState.COMPLETING_REBALANCE
        assert (group.state is ClassicState.EMPTY) <= (not group.members)
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            assert group.leader in group.members
            assert group.protocol in common

    @invariant()
    def no_two_members_have_the_same(self) -> None:
        group = self.group
        if group is not None and group.state is ClassicState.STABLE:
            assigned = [member.assignment for member in group.members.values() if member.assignment]
            assert len(set(assigned)) == len(assigned), "two members have the same assignment"

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        """A request is answered, or the group knows it and has a timer."""
        group = self.group
        known = set() if group is None else {*group.joining.values(), *group.syncing.values()}
        for ticket in list(self.waiting):
            if ticket in self.coordinator.late:
                del self.waiting[ticket]
            else:
                assert ticket in known, f"request {ticket} is forgotten"
                assert self.coordinator.machine.deadline() is not None

    @invariant()
    def replay_gives_the_same(self) -> None:
        group = self.group
        if group is None or group.state not in (ClassicState.STABLE, ClassicState.EMPTY) or not group.generation:
            return
        for log in (self.coordinator.log, compacted(self.coordinator.log)):
            again = self.coordinator.replayed(log)._state.classic["g"]
            assert again.record(_assigned(again), again.recorded_at) == group.record(
                _assigned(group), group.recorded_at
            )

    def teardown(self) -> None:
        """No more faults: the members that still run follow the protocol until the group is stable."""
        for client in self.clients.values():
            client.protocols = {"range": b"1", "sticky": b"1"}
        for _ in range(90):  # longer than a new member may wait whose client is gone
            for name in sorted(self.clients):
                self.follow(self.clients[name])
            self.coordinator.pass_time(4_000)
        self.nobody_waits_for_ever()
        assert not self.waiting
        group = self.group
        if not self.clients:
            return
        assert group is not None and group.state is ClassicState.STABLE
        assert set(group.members) == {client.member_id for client in self.clients.values()}
        assert {client.generation for client in self.clients.values()} == {group.generation}
        assert len({client.assignment for client in self.clients.values()}) == len(self.clients)


def _assigned(group: ClassicGroup) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in group.members.values()}


ClassicWorld.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestClassicWorld = ClassicWorld.TestCase
