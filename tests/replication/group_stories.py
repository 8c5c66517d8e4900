"""Shared by the stories about groups: a coordinator with its log and its clock, and members that follow KIP-848."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from node.coordinators.re2_patterns import compile_pattern
from replication.controller.image import ClusterImage, NodeRegistration, PartitionState, TopicState
from replication.coordination.classic_requests import LateAnswer
from replication.coordination.coordinator_machine import Decision, Instant, TransactionalProducer
from replication.coordination.group_records import (
    GroupKey,
    GroupMetadataKey,
    GroupRecord,
    GroupValue,
    OffsetCommitKey,
    TopicPartitions,
)
from replication.coordination.group_requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DescribedGroup,
    DescribeGroups,
    EveryTopic,
    FetchedOffset,
    MemberHeartbeat,
    MemberNudged,
    NamedPartition,
    NudgeMembers,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
    VisibleTopics,
)
from replication.coordination.groups.assignments import as_sets, as_topics
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.group_machine import GroupMachine
from replication.coordination.groups.states import GroupState
from tidelog.errors import TidelogError
from tidelog.types import (
    NO_NODE,
    DirectoryId,
    Incarnation,
    LeaderEpoch,
    Millis,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    ProducerId,
    TopicId,
)

EVERY_TOPIC = EveryTopic()
SESSION_MS = 45_000
REBALANCE_MS = 30_000
WALL_START_MS = 1_700_000_000_000

Partition = tuple[str, int]


def topic_id(name: str, incarnation: int = 0) -> TopicId:
    """The id of a topic in images made by `image_of`."""
    return TopicId(UUID(int=int.from_bytes(name.encode()[:8].ljust(8), "big") * 1_000 + incarnation))


def image_of(
    topics: Mapping[str, int],
    *,
    offset: int = 1,
    incarnations: Mapping[str, int] | None = None,
    racks: Mapping[int, str] | None = None,
    replicas: int = 1,
) -> ClusterImage:
    """A cluster with these topics, by name with their number of partitions. racks: of the nodes; the replicas of
    partition p are on the nodes from the p-th on."""
    nodes = {NodeId(node): _node(node, rack) for node, rack in (racks or {}).items()}
    order = sorted(nodes) or [NodeId(1)]
    states = {}
    for name, partitions in topics.items():
        identity = topic_id(name, (incarnations or {}).get(name, 0))
        states[identity] = TopicState(
            name, identity, {}, tuple(_partition(identity, index, order, replicas) for index in range(partitions))
        )
    ids = {state.name: identity for identity, state in states.items()}
    return ClusterImage(Offset(offset), "cluster", 1, (), nodes, states, ids)


def _node(node: int, rack: str) -> NodeRegistration:
    return NodeRegistration(
        NodeId(node), NodeEpoch(node), Incarnation(UUID(int=node)), {}, rack, b"", (), fenced=False, draining=False
    )


def _partition(identity: TopicId, index: int, order: list[NodeId], replicas: int) -> PartitionState:
    nodes = tuple(order[(index + number) % len(order)] for number in range(min(replicas, len(order))))
    directories = tuple(DirectoryId(UUID(int=node)) for node in nodes)
    return PartitionState(
        identity,
        PartitionIndex(index),
        nodes,
        directories,
        nodes,
        (),
        (),
        nodes[0] if nodes else NO_NODE,
        LeaderEpoch(0),
        PartitionEpoch(0),
    )


def names_of(topics: Iterable[TopicPartitions]) -> set[Partition]:
    """Partitions by the name of their topic."""
    return {(_name(topic.topic_id), partition) for topic in topics for partition in topic.partitions}


def _name(identity: UUID) -> str:
    return (identity.int // 1_000).to_bytes(8, "big").decode().strip()


@dataclass(frozen=True)
class Entry:
    """A record or, if `committed` is given, a marker of a transaction."""

    record: GroupRecord | None
    producer: TransactionalProducer | None = None
    committed: bool | None = None


def compacted(log: list[Entry]) -> list[Entry]:
    """The log with only the last record of each key, without tombstones that delete nothing, up to the first record of
    an open transaction. Markers stay; records of aborted transactions do not."""
    ends: dict[int, int] = {}
    open_records: dict[ProducerId, list[int]] = {}
    for number, entry in enumerate(log):
        if entry.producer is None:
            continue
        if entry.record is not None:
            open_records.setdefault(entry.producer.producer_id, []).append(number)
        else:
            ends.update(dict.fromkeys(open_records.pop(entry.producer.producer_id, []), number))
    stable_end = min((each for numbers in open_records.values() for each in numbers), default=len(log))
    counted: dict[int, GroupRecord] = {}
    kept: set[int] = set()
    for number, entry in enumerate(log[:stable_end]):
        end = ends.get(number)
        if entry.record is None or (end is not None and end >= stable_end):
            kept.add(number)
        elif end is None or log[end].committed:
            counted[number] = entry.record
    last = {record.key: number for number, record in counted.items()}
    undecided = {entry.record.key for number in kept if (entry := log[number]).record is not None}
    # A tombstone outlives the records that it deletes, and a cleaner leaves none of those behind it.
    kept.update(number for key, number in last.items() if counted[number].value is not None or key in undecided)
    return [log[number] for number in sorted(kept)] + log[stable_end:]


def group_of(record: GroupRecord) -> str:
    """The group that a record is about."""
    return record.key.group if isinstance(record.key, OffsetCommitKey | GroupMetadataKey) else record.key.group_id


class Coordinator:
    """A machine, loaded with nothing at time 1,000 ms, in the hands of a runtime that commits each decision at once."""

    def __init__(self, topics: Mapping[str, int] | None = None, *, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig()
        self.now_ms = 1_000
        self.image = image_of(topics or {})
        self.log: list[Entry] = []
        self.streams: dict[tuple[str, str], Client] = {}
        self.nudges: list[NudgeMembers] = []
        self.late: dict[int, Any] = {}
        """Answers and refusals of requests that waited, by ticket."""
        self.notices: list[str] = []
        self.moves: set[tuple[GroupState, GroupState]] = set()
        self.machine = GroupMachine(self.config, compile_pattern)
        self.loaded()

    @property
    def now(self) -> Instant:
        return Instant(Millis(self.now_ms), Millis(WALL_START_MS + self.now_ms))

    def loaded(self) -> None:
        """Tell the machine that its log is read."""
        for decision in self.machine.loaded(self.image, 0, self.now):
            self.commit(decision)
        self.settle()

    def ask(self, request: Any) -> Any:
        """Decide, apply, and return the answer. Raises the refusal."""
        decision = self.machine.handle(request, self.now)
        answer = decision.answer
        self.commit(decision)
        if not isinstance(request, MemberNudged):
            self.settle()
        if isinstance(answer, TidelogError):
            raise answer
        return answer

    def commit(self, decision: Decision[Any]) -> None:
        """What the runtime does with a decision."""
        assert not (isinstance(decision.answer, TidelogError) and decision.records), "records with a refusal"
        ids = {group_of(record) for record in decision.records}
        before = {group_id: self.state_of(group_id) for group_id in ids}
        for record in decision.records:
            self.log.append(Entry(record, decision.producer))
            self.machine.apply(record, Offset(-1), decision.producer)
        self.moves.update((before[each], after) for each in ids if (after := self.state_of(each)) is not before[each])
        self.nudges += [effect for effect in decision.effects if isinstance(effect, NudgeMembers)]
        for effect in decision.effects:
            if isinstance(effect, LateAnswer):
                assert effect.ticket not in self.late, f"request {effect.ticket} is answered twice"
                self.late[effect.ticket] = effect.answer
        if decision.notice:
            self.notices.append(decision.notice)

    def state_of(self, group_id: str) -> GroupState:
        """The state of a group, without the cost of a description."""
        state = self.machine._state
        if group_id in state.consumer:
            return state.consumer[group_id].state()
        return GroupState.EMPTY if state.exists(group_id) else GroupState.DEAD

    def settle(self) -> None:
        """Do what is due, and push to the members with an open stream."""
        for _ in range(100_000):
            deadline = self.machine.deadline()
            if deadline is not None and deadline <= self.now_ms:
                for decision in self.machine.tick(self.now):
                    self.commit(decision)
            elif self.nudges:
                effect = self.nudges.pop(0)
                for member_id in effect.member_ids:
                    client = self.streams.get((effect.group_id, member_id))
                    if client is not None:
                        client.nudged()
            else:
                return
        raise AssertionError("the coordinator does not come to rest")

    def pass_time(self, ms: int) -> None:
        """Let the clock run, and everything that is due happen at its time."""
        end = self.now_ms + ms
        while (deadline := self.machine.deadline()) is not None and deadline <= end:
            self.now_ms = max(self.now_ms, deadline)
            self.settle()
        self.now_ms = end

    def change_topics(self, topics: Mapping[str, int], **others: Any) -> None:
        """A new image of the cluster."""
        self.see(image_of(topics, offset=self.image.offset + 1, **others))

    def see(self, image: ClusterImage) -> None:
        """This image is the newest one."""
        self.image = image
        for decision in self.machine.on_image(self.image, self.now):
            self.commit(decision)
        self.settle()

    def marker(self, producer: int, *, committed: bool) -> None:
        """The marker of a producer's transaction is appended."""
        ended = TransactionalProducer(ProducerId(producer), 0)
        self.log.append(Entry(None, ended, committed))
        self.machine.apply_marker(ended, committed=committed)

    def replayed(self, log: list[Entry]) -> GroupMachine:
        """A machine that has read a log, not loaded."""
        machine = GroupMachine(self.config, compile_pattern)
        for offset, entry in enumerate(log):
            if entry.record is not None:
                machine.apply(entry.record, Offset(offset), entry.producer)
            else:
                assert entry.producer is not None and entry.committed is not None
                machine.apply_marker(entry.producer, committed=entry.committed)
        return machine

    def last_values(self) -> dict[GroupKey, GroupValue | None]:
        """The last value of each key in the log."""
        return {entry.record.key: entry.record.value for entry in self.log if entry.record is not None}

    def fail_over(self) -> None:
        """Another node becomes the coordinator: it reads the log; members' streams end."""
        self.machine = self.replayed(self.log)
        self.streams.clear()
        self.nudges.clear()
        self.loaded()

    # --- shorthands ---

    def group(self, group_id: str = "g") -> DescribedGroup:
        answer = self.ask(DescribeGroups((group_id,))).groups[0]
        assert isinstance(answer, DescribedGroup)
        return answer

    def commit_offset(
        self,
        partition: int,
        offset: int,
        *,
        topic: str = "t",
        group_id: str = "g",
        member: Client | None = None,
        **others: Any,
    ) -> TidelogError | None:
        """Commit one offset. Returns the error of the partition."""
        commit = OffsetToCommit(topic, PartitionIndex(partition), Offset(offset), **others)
        member_id, epoch = ("", -1) if member is None else (member.member_id, member.epoch)
        answer = self.ask(OffsetCommit(group_id, member_id, epoch, None, (commit,)))
        error = answer.partitions[0].error
        assert error is None or isinstance(error, TidelogError)
        return error

    def commit_in_transaction(
        self, producer: int, partition: int, offset: int, *, topic: str = "t", group_id: str = "g"
    ) -> TidelogError | None:
        commit = OffsetToCommit(topic, PartitionIndex(partition), Offset(offset))
        answer = self.ask(
            TxnOffsetCommit(f"id-{producer}", ProducerId(producer), 0, 2, group_id, "", -1, None, (commit,))
        )
        error = answer.partitions[0].error
        assert error is None or isinstance(error, TidelogError)
        return error

    def fetched(
        self, partition: int, *, topic: str = "t", group_id: str = "g", require_stable: bool = False
    ) -> FetchedOffset:
        named = (NamedPartition(topic, PartitionIndex(partition)),)
        answer = self.ask(OffsetFetch(group_id, "", -1, named, require_stable))
        offset = answer.partitions[0]
        assert isinstance(offset, FetchedOffset)
        return offset


class Client:
    """A member of a group. It takes what it is given at once, and gives up what it has to when `heartbeat` is called.

    stream: whether the coordinator can push to it. is_deaf: its stream is broken, which nobody has noticed yet.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        member_id: str,
        topics: Iterable[str] | None = ("t",),
        *,
        group_id: str = "g",
        instance: str | None = None,
        rack: str | None = None,
        pattern: str | None = None,
        assignor: str | None = None,
        stream: bool = True,
        view: VisibleTopics = EVERY_TOPIC,
    ) -> None:
        self.coordinator = coordinator
        self.member_id, self.group_id = member_id, group_id
        self.topics = None if topics is None else tuple(topics)
        self.pattern, self.instance, self.rack, self.assignor = pattern, instance, rack, assignor
        self.stream, self.view = stream, view
        self.is_deaf = False
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.given: dict[UUID, frozenset[int]] = {}
        self.errors: list[TidelogError] = []
        self.pushed: list[ConsumerGroupHeartbeatAnswer] = []
        self._reported: dict[UUID, frozenset[int]] | None = None

    @property
    def partitions(self) -> set[Partition]:
        """What it has, by topic name."""
        return names_of(as_topics(self.owned))

    def join(self, **changes: Any) -> ConsumerGroupHeartbeatAnswer:
        """Join, with nothing."""
        self.epoch, self.owned, self.given = 0, {}, {}
        return self._send(**{"topic_partitions": (), **self._all(), **changes})

    def reconnect(self, **changes: Any) -> ConsumerGroupHeartbeatAnswer:
        """Say everything again, as after a lost answer."""
        return self._send(**{"topic_partitions": as_topics(self.owned), **self._all(), **changes})

    def _all(self) -> dict[str, Any]:
        self.coordinator.streams.pop((self.group_id, self.member_id), None)
        if self.stream:
            self.coordinator.streams[self.group_id, self.member_id] = self
        return {
            "instance_id": self.instance,
            "rack_id": self.rack,
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": self.topics,
            "subscribed_topic_regex": self.pattern,
            "server_assignor": self.assignor,
        }

    def heartbeat(self, **changes: Any) -> ConsumerGroupHeartbeatAnswer:
        """Give up what has to be given up, take what is given, and report what has changed."""
        self.owned = dict(self.given)
        return self.beat(**changes)

    def beat(self, **changes: Any) -> ConsumerGroupHeartbeatAnswer:
        """Send a heartbeat with what it has, if that has changed since the last one."""
        if self.owned != self._reported:
            changes.setdefault("topic_partitions", as_topics(self.owned))
        changes.setdefault("instance_id", self.instance)
        return self._send(**changes)

    def settle(self) -> None:
        """Heartbeat until there is nothing to do."""
        for _ in range(100):
            before = self.epoch, self.owned, self.given
            self.heartbeat()
            if before == (self.epoch, self.owned, self.given):
                return
        raise AssertionError(f"member {self.member_id} does not come to rest")

    def leave(self, epoch: int = -1) -> None:
        """Leave; -2 for a while."""
        self.coordinator.streams.pop((self.group_id, self.member_id), None)
        self._send(member_epoch=epoch, instance_id=self.instance)

    def nudged(self) -> None:
        """The coordinator pushes."""
        decided = self.coordinator.machine.handle(MemberNudged(self.group_id, self.member_id), self.coordinator.now)
        self.coordinator.commit(decided)
        if self.is_deaf:
            return
        if isinstance(decided.answer, TidelogError):
            self.errors.append(decided.answer)
            self.owned, self.given = {}, {}
        elif decided.answer is not None:
            self.pushed.append(decided.answer)
            self._take(decided.answer)

    def _send(self, **fields: Any) -> ConsumerGroupHeartbeatAnswer:
        request = ConsumerGroupHeartbeat(self.group_id, self.member_id, **{"member_epoch": self.epoch, **fields})
        answer = self.coordinator.machine.handle(
            MemberHeartbeat(request, f"client-{self.member_id}", "/127.0.0.1", self.view), self.coordinator.now
        )
        self.coordinator.commit(answer)
        if isinstance(answer.answer, TidelogError):
            self.coordinator.settle()
            raise answer.answer
        assert isinstance(answer.answer, ConsumerGroupHeartbeatAnswer)
        if request.topic_partitions is not None:
            self._reported = as_sets(request.topic_partitions)
        if request.member_epoch >= 0:
            self._take(answer.answer)
        self.coordinator.settle()
        return answer.answer

    def _take(self, answer: ConsumerGroupHeartbeatAnswer) -> None:
        """What is new is read at once; what is not given any more is kept until the next `heartbeat`."""
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self._reported = None  # to be confirmed by the next heartbeat
            self.given = as_sets(answer.assignment)
            for identity, partitions in self.given.items():
                self.owned[identity] = self.owned.get(identity, frozenset()) | partitions


def settle_all(*clients: Client) -> None:
    """Let members heartbeat until all have what they are to have."""
    for _ in range(100):
        before = [(client.epoch, client.owned, client.given) for client in clients]
        for client in clients:
            client.heartbeat()
        if before == [(client.epoch, client.owned, client.given) for client in clients]:
            return
    raise AssertionError("the members do not come to rest")
