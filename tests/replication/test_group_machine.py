"""Groups under any order of events: a state machine by hypothesis, with invariants after each step.

Members follow KIP-848, but lose answers, stop, restart, and get pushes that cross their heartbeats. Topics come and go,
coordinators fail over. At the end all is quiet: every partition must have one owner.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from replication.coordination.coordinator_machine import Decision
from replication.coordination.group_records import ConsumerGroupCurrentMemberAssignmentKey as CurrentKey
from replication.coordination.group_records import ConsumerGroupCurrentMemberAssignmentValue as Current
from replication.coordination.group_requests import (
    ConsumerGroupHeartbeatAnswer,
    DeleteGroups,
    DescribeGroups,
    ListGroups,
    MemberNudged,
    NamedPartition,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
)
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.group_machine import GroupMachine
from replication.coordination.groups.states import GROUP_TRANSITIONS
from tests.replication.group_stories import Client, Coordinator, compacted
from tidelog.errors import TidelogError
from tidelog.types import Offset, PartitionIndex, ProducerId

GROUPS = ("g", "h")
TOPICS = ("t", "u", "v")
MEMBERS = ("m1", "m2", "m3", "m4")
CONFIG = GroupConfig(offsets_retention_minutes=10, offsets_retention_check_interval_ms=60_000)

groups = st.sampled_from(GROUPS)
topics = st.sampled_from(TOPICS)
members = st.sampled_from(MEMBERS)
subscriptions = st.lists(topics, min_size=1, max_size=3, unique=True)
producers = st.integers(1, 3)
partitions = st.integers(0, 3)


def view(machine: GroupMachine, coordinator: Coordinator) -> str:
    """All that a client can see of a machine, as text: errors have no equality."""

    def ask(request: object) -> Any:
        return machine.handle(request, coordinator.now).answer

    listed = ask(ListGroups())
    ids = tuple(group.group_id for group in listed.groups)
    offsets = [ask(OffsetFetch(each, "", -1, None, stable)).partitions for each in ids for stable in (False, True)]
    return repr((listed, ask(DescribeGroups(ids)), offsets))


class GroupWorld(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.topics = {"t": 3, "u": 2}
        self.incarnations: dict[str, int] = {}
        self.coordinator = Coordinator(self.topics, config=CONFIG)
        self.clients: dict[tuple[str, str], Client] = {}
        self.epochs: dict[str, tuple[int, int]] = {}
        self.restarts = 0

    # --- members ---

    @rule(
        group=groups,
        member=members,
        names=subscriptions,
        static=st.booleans(),
        stream=st.booleans(),
        kind=st.integers(0, 3),
    )
    def join(self, group: str, member: str, names: list[str], static: bool, stream: bool, kind: int) -> None:
        pattern = "[tu]" if kind == 0 else None
        assignor = "range" if kind == 1 else None
        instance = f"i-{member}" if static else None
        client = Client(
            self.coordinator,
            member,
            names,
            group_id=group,
            instance=instance,
            pattern=pattern,
            assignor=assignor,
            stream=stream,
        )
        self.attempt(client, client.join)

    @rule(group=groups, member=members)
    def replace_static(self, group: str, member: str) -> None:
        """Another process with the same instance id starts."""
        self.restarts += 1
        client = Client(
            self.coordinator, f"{member}-{self.restarts}", ("t", "u"), group_id=group, instance=f"i-{member}"
        )
        self.attempt(client, client.join)

    def attempt(self, client: Client, act: object) -> None:
        key = client.group_id, client.member_id
        try:
            act()  # type: ignore[operator]
            self.clients[key] = client
        except TidelogError:
            self.clients.pop(key, None)
            if self.coordinator.streams.get(key) is client:
                del self.coordinator.streams[key]

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        how=st.sampled_from(["beat", "heartbeat", "reconnect", "lost", "subscribe"]),
        names=subscriptions,
    )
    def heartbeat(self, data: st.DataObject, how: str, names: list[str]) -> None:
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        if how == "subscribe":
            client.topics = tuple(names)
            self.attempt(client, client.reconnect)
        elif how == "lost":
            before = client.epoch, client.owned, client.given
            self.attempt(client, client.reconnect)
            client.epoch, client.owned, client.given = before
            self.attempt(client, client.reconnect)
        else:
            self.attempt(client, getattr(client, how))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), epoch=st.sampled_from([-1, -2]), silent=st.booleans())
    def leave(self, data: st.DataObject, epoch: int, silent: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients.pop(key)
        self.coordinator.streams.pop(key, None)
        if not silent:
            with contextlib.suppress(TidelogError):
                client.leave(epoch)

    @rule(group=groups, member=members)
    def nudge(self, group: str, member: str) -> None:
        client = self.coordinator.streams.get((group, member))
        if client is not None:
            client.nudged()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_deaf=st.booleans())
    def break_stream(self, data: st.DataObject, is_deaf: bool) -> None:
        self.clients[data.draw(st.sampled_from(sorted(self.clients)))].is_deaf = is_deaf

    # --- offsets ---

    @rule(
        group=groups,
        topic=topics,
        index=partitions,
        offset=st.integers(0, 99),
        producer=st.one_of(st.none(), producers),
    )
    def commit(self, group: str, topic: str, index: int, offset: int, producer: int | None) -> None:
        wanted = (OffsetToCommit(topic, PartitionIndex(index), Offset(offset)),)
        client = next((each for (name, _), each in sorted(self.clients.items()) if name == group), None)
        member_id, epoch = ("", -1) if client is None else (client.member_id, client.epoch)
        request: object = OffsetCommit(group, member_id, epoch, None, wanted)
        if producer is not None:
            request = TxnOffsetCommit("id", ProducerId(producer), 0, 2, group, member_id, epoch, None, wanted)
        with contextlib.suppress(TidelogError):
            self.coordinator.ask(request)

    @rule(producer=producers, committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        self.coordinator.marker(producer, committed=committed)

    @rule(group=groups, topic=topics, index=partitions, whole=st.booleans())
    def delete(self, group: str, topic: str, index: int, whole: bool) -> None:
        request: object = DeleteGroups((group,))
        if not whole:
            request = OffsetDelete(group, (NamedPartition(topic, PartitionIndex(index)),))
        with contextlib.suppress(TidelogError):
            self.coordinator.ask(request)

    # --- the world ---

    @rule(topic=topics, count=st.integers(0, 4), again=st.booleans())
    def change_topic(self, topic: str, count: int, again: bool) -> None:
        if count == 0:
            self.topics.pop(topic, None)
            self.incarnations[topic] = self.incarnations.get(topic, 0) + 1
        elif again or topic not in self.topics:
            self.incarnations[topic] = self.incarnations.get(topic, 0) + 1
            self.topics[topic] = count
        else:
            self.topics[topic] = max(count, self.topics[topic])
        self.coordinator.change_topics(self.topics, incarnations=self.incarnations)

    @rule(ms=st.sampled_from([1, 5_000, 29_999, 44_999, 45_000, 700_000]))
    def pass_time(self, ms: int) -> None:
        self.coordinator.pass_time(ms)

    @rule()
    def fail_over(self) -> None:
        self.coordinator.fail_over()

    # --- what must hold ---

    @invariant()
    def one_owner(self) -> None:
        """A partition has at most one member that has it or was asked to give it up."""
        owners: Counter[tuple[str, UUID, int]] = Counter()
        for key, value in self.coordinator.last_values().items():
            if isinstance(key, CurrentKey) and isinstance(value, Current):
                for topic in (*value.assigned_partitions, *value.partitions_pending_revocation):
                    owners.update((key.group_id, topic.topic_id, index) for index in topic.partitions)
        assert max(owners.values(), default=0) <= 1, owners

    @invariant()
    def epochs_grow(self) -> None:
        for group_id in GROUPS:
            group = self.coordinator.group(group_id)
            before = self.epochs.get(group_id, (0, 0))
            if group.error is not None or group.type == "classic":
                self.epochs.pop(group_id, None)
                continue
            self.epochs[group_id] = group.group_epoch, group.assignment_epoch
            assert before <= self.epochs[group_id]
            assert group.assignment_epoch <= group.group_epoch
            assert all(-2 <= member.member_epoch <= group.assignment_epoch for member in group.members)
            assert not (group.state == "Assigning" and self.coordinator.machine.deadline() is None)

    @invariant()
    def replay_gives_the_same(self) -> None:
        for log in (self.coordinator.log, compacted(self.coordinator.log)):
            machine = self.coordinator.replayed(log)
            machine.loaded(self.coordinator.image, 0, self.coordinator.now)
            assert view(machine, self.coordinator) == view(self.coordinator.machine, self.coordinator)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """Nobody has to be nudged whom no effect has named."""
        for (group, member), client in sorted(self.coordinator.streams.items()):
            decision: Decision[ConsumerGroupHeartbeatAnswer | None] = self.coordinator.machine.handle(
                MemberNudged(group, member), self.coordinator.now
            )
            if isinstance(decision.answer, TidelogError):
                continue
            if decision.answer is not None:
                assert decision.answer.assignment is None, f"{member} was not told of {decision.answer.assignment}"
            assert client is not None

    def teardown(self) -> None:
        """Quiet: every member that is alive heartbeats, all others time out. All partitions have an owner then."""
        for _ in range(4):
            for key in sorted(self.clients):
                client = self.clients[key]
                client.is_deaf = False
                try:
                    client.heartbeat()
                except TidelogError:
                    self.attempt(client, client.join)
            self.coordinator.pass_time(20_000)
        for _ in range(20):
            for key in sorted(self.clients):
                self.clients[key].heartbeat()
        assert self.coordinator.moves <= {(source, target) for (source, _), target in GROUP_TRANSITIONS.items()}
        for group_id in GROUPS:
            alive = {name: client for (group, name), client in self.clients.items() if group == group_id}
            group = self.coordinator.group(group_id)
            assert {member.member_id for member in group.members} == set(alive)
            assert group.state == ("Stable" if alive else group.state)
            had: Counter[object] = Counter()
            for client in alive.values():
                had.update(client.partitions)
            wanted = {
                (topic, index)
                for client in alive.values()
                for topic in (*client.topics, *(("t", "u") if client.pattern else ()))  # type: ignore[misc]
                if topic in self.topics
                for index in range(self.topics[topic])
            }
            assert set(had) == wanted
            assert max(had.values(), default=0) <= 1


GroupWorld.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGroupWorld = GroupWorld.TestCase
