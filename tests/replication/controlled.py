"""A controller and its log, for tests: commits at once unless a test delays the commits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from uuid import UUID

from replication.common_events import ClockTicked, Report
from replication.controller import features
from replication.controller.controller import Controller, ControllerConfig
from replication.controller.events import (
    AcceptedIsr,
    Activated,
    AlterConfigs,
    AlteredPartition,
    AlteredPartitions,
    AlterPartition,
    AlterReassignments,
    Append,
    ChangedTopic,
    Committed,
    ConfigChange,
    CreateTopic,
    DamagedReplica,
    ElectionCause,
    Event,
    Fenced,
    Heartbeat,
    HeartbeatAnswer,
    IsrMember,
    LogEndsReported,
    PartitionOutcomes,
    ProbeNode,
    Proposal,
    QueryLogEnds,
    Reassignment,
    Registered,
    RegisterNode,
    ReplicaEnd,
    Reply,
    Request,
    Result,
    Submitted,
    UncleanlyElected,
)
from replication.controller.image import EMPTY, ClusterImage, NodeRegistration, PartitionState, TopicState, apply
from replication.controller.metadata_records import ClusterRecord, DirectoryState, LocatedRecord, VotersRecord
from replication.controller.moved_replicas import MovedReplica
from replication.controller.node_state import NodeCause
from replication.controller.refusals import RefusedNode
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.types import (
    NO_LEADER_EPOCH,
    DirectoryId,
    Endpoint,
    Incarnation,
    LeaderEpoch,
    Millis,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionKey,
)

CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
SESSION_MS = 2_000
CONFIG = ControllerConfig(SESSION_MS, drain_ms_max=30_000, voters=3, imbalance_check_ms=300_000, imbalance_percent=10)


def directory(number: int) -> DirectoryId:
    return DirectoryId(UUID(int=1_000 + number))


def check_configs(configs: Mapping[str, str]) -> None:
    if "no.such.key" in configs:
        raise InvalidConfig("no.such.key is no topic setting")


def valid_group_configs(configs: Mapping[str, str]) -> dict[str, str]:
    check_configs(configs)
    return {key: value.strip() for key, value in configs.items()}


class Controlled:
    """One controller; node n has log directory n unless a test sets another."""

    def __init__(self, seed: int = 1, *, level: int = features.LATEST) -> None:
        self.rng = random.Random(seed)
        self.log: list[LocatedRecord] = []
        self.batches: list[list[LocatedRecord]] = []
        self.replies: dict[int, Result | TidelogError] = {}
        self.reports: list[str] = []
        self.uncleanly: list[UncleanlyElected] = []
        self.asked: list[QueryLogEnds] = []
        self.fencings: list[tuple[NodeId, NodeCause]] = []
        self.probed: list[NodeId] = []
        self.elected: list[ElectionCause] = []
        self.hold_commits = False
        self.config = CONFIG
        """Of the next controller that `activate` makes."""
        self.now = Millis(10_000)
        self.requests = 0
        self.registering: dict[int, NodeId] = {}
        self.numbers: dict[NodeId, NodeEpoch] = {}
        self.on_disk: dict[DirectoryId, int] = {}
        self._write([ClusterRecord(CLUSTER, level), VotersRecord(())], Offset(0))
        self.activate()

    # --- driving ---

    def activate(self, node: int = 99, incarnation: int = 99) -> None:
        self.controller = Controller(
            rng=self.rng, check_configs=check_configs, valid_group_configs=valid_group_configs, config=self.config
        )
        self.handle(Activated(self.now, self.replayed(), NodeId(node), Incarnation(UUID(int=incarnation))))

    def handle(self, event: Event) -> None:
        effects = self.controller.handle(event)
        while effects:
            appended = False
            for effect in effects:
                match effect:
                    case Append(base_offset, records):
                        self._write(list(records), base_offset)
                        self.elected += effect.elected
                        appended = True
                    case Reply(request_id, result):
                        assert request_id not in self.replies, "each request is answered once"
                        self.replies[request_id] = result
                        if isinstance(result, Registered):
                            self.numbers[self.registering[request_id]] = result.node_epoch
                    case Report(text):
                        self.reports.append(text)
                    case Fenced(node_id, cause, text):
                        self.fencings.append((node_id, cause))
                        self.reports.append(text)
                    case ProbeNode(node_id):
                        self.probed.append(node_id)
                    case UncleanlyElected():
                        self.uncleanly.append(effect)
                    case QueryLogEnds():
                        self.asked.append(effect)
            if self.hold_commits or not (appended or isinstance(event, Activated)):
                break
            event = Committed(self.end)
            effects = self.controller.handle(event)

    def commit(self, offset: int | None = None) -> None:
        self.handle(Committed(self.end if offset is None else Offset(offset)))

    def _write(self, records: list, base_offset: Offset) -> None:  # type: ignore[type-arg]
        assert base_offset == self.end, "a batch begins where the log ends"
        batch = [(Offset(base_offset + index), record) for index, record in enumerate(records)]
        self.log.extend(batch)
        self.batches.append(batch)

    @property
    def end(self) -> Offset:
        return Offset(self.log[-1][0] + 1) if self.log else Offset(0)

    def replayed(self) -> ClusterImage:
        image = EMPTY
        for batch in self.batches:
            image = apply(image, batch)
        return image

    def ask(self, request: Request) -> Result | TidelogError | None:
        """The answer; None: it follows later."""
        self.requests += 1
        number = self.requests
        if isinstance(request, RegisterNode):
            self.registering[number] = request.node_id
        self.handle(Submitted(number, self.now, request))
        return self.replies.get(number)

    def pass_time(self, ms: int, *alive: int) -> None:
        """Let time pass in ticks; the given nodes keep sending heartbeats."""
        until = self.now + ms
        while self.now < until:
            self.now = Millis(min(self.now + 200, until))
            for node in alive:
                self.beat(node)
            self.handle(ClockTicked(self.now))

    def tell(
        self, ends: Mapping[int, tuple[int, int]], *, directories: Mapping[int, DirectoryId] | None = None
    ) -> None:
        """Answer the oldest question about log ends: by node, the epoch of its last record and its log end."""
        question = self.asked.pop(0)
        reported = tuple(
            ReplicaEnd(NodeId(node), LeaderEpoch(epoch), Offset(end), (directories or {}).get(node, directory(node)))
            for node, (epoch, end) in ends.items()
        )
        self.handle(LogEndsReported(question.number, reported))

    # --- nodes ---

    def register(
        self,
        node: int,
        *,
        run_number: int = 1,
        directories: Mapping[DirectoryId, int] | None = None,
        boot: bytes = b"boot",
        rack: str = "",
        damaged: Mapping[PartitionKey, str] | None = None,
        cluster: str = CLUSTER,
        offset: int | None = None,
        intact: bool | None = None,
        listeners: Mapping[str, Endpoint] | None = None,
    ) -> Result | TidelogError | None:
        """Register with the number that the last ready registration wrote to the directory. intact: whether the node
        reports its directories as intact (None: if the machine has not rebooted)."""
        own = directories if directories is not None else {directory(node): self.on_disk.get(directory(node), -1)}
        return self.ask(
            RegisterNode(
                cluster,
                NodeId(node),
                Incarnation(UUID(int=node * 1_000 + run_number)),
                {"client": Endpoint("127.0.0.1", 9000 + node)} if listeners is None else listeners,
                rack,
                boot,
                directories=tuple(
                    DirectoryState(directory_id, NodeEpoch(number)) for directory_id, number in own.items()
                ),
                intact_directories=frozenset(own if (boot == b"boot" if intact is None else intact) else ()),
                metadata_offset=self.end if offset is None else Offset(offset),
                damaged=tuple(DamagedReplica(key, reason) for key, reason in (damaged or {}).items()),
            )
        )

    def beat(
        self,
        node: int,
        *,
        offset: int | None = None,
        ready: bool = True,
        drain: bool = False,
        epoch: int | None = None,
        damaged: Mapping[PartitionKey, str] | None = None,
        used_in: LeaderEpoch = NO_LEADER_EPOCH,
        offline: Iterable[DirectoryId] = (),
        refused: Iterable[RefusedNode] = (),
        knows: int = features.LATEST,
        moved: Iterable[MovedReplica] = (),
    ) -> Result | TidelogError | None:
        number = self.numbers[NodeId(node)] if epoch is None else NodeEpoch(epoch)
        return self.ask(
            Heartbeat(
                NodeId(node),
                number,
                self.end if offset is None else Offset(offset),
                ready,
                drain,
                tuple(DamagedReplica(key, reason, used_in) for key, reason in (damaged or {}).items()),
                tuple(offline),
                tuple(refused),
                feature_level_max=knows,
                moved=tuple(moved),
            )
        )

    def start(
        self,
        *nodes: int,
        run_number: int = 1,
        racks: Mapping[int, str] | None = None,
        boot: bytes = b"boot",
        intact: bool | None = None,
    ) -> None:
        """Register, write the number into the directory, and be unfenced."""
        for node in nodes:
            answer = self.register(
                node, run_number=run_number, rack=(racks or {}).get(node, ""), boot=boot, intact=intact
            )
            assert isinstance(answer, Registered), answer
            self.on_disk[directory(node)] = answer.node_epoch
            assert self.beat(node) == HeartbeatAnswer(fenced=False, drained=False)

    def kill(self, *nodes: int, alive: tuple[int, ...] = ()) -> None:
        """End the sessions of these nodes."""
        self.pass_time(SESSION_MS + 200, *alive)
        assert all(self.node(node).fenced for node in nodes)

    # --- looking ---

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def node(self, node: int) -> NodeRegistration:
        return self.image.nodes[NodeId(node)]

    def create(
        self, name: str = "orders", *, partitions: int = 1, replicas: int = 3, **configs: str
    ) -> Result | TidelogError | None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        return self.ask(CreateTopic(name, partitions, replicas, settings))

    def topic(self, name: str = "orders") -> TopicState:
        topic = self.image.topic(name)
        assert topic is not None
        return topic

    def partition(self, index: int = 0, name: str = "orders") -> PartitionState:
        return self.topic(name).partitions[index]

    def made(self, name: str = "orders", *, partitions: int = 1, replicas: int = 3, **configs: str) -> PartitionState:
        assert isinstance(self.create(name, partitions=partitions, replicas=replicas, **configs), ChangedTopic)
        return self.partition(0, name)

    def alter(self, name: str = "orders", **configs: str | None) -> Result | TidelogError | None:
        """Change settings of a topic (`_` for `.`; None: the default again)."""
        changes = tuple(ConfigChange(key.replace("_", "."), value) for key, value in configs.items())
        return self.ask(AlterConfigs(name, changes))

    def reassign(
        self, key: PartitionKey, target: Iterable[int] | None, *, keeps_factor: bool = False, queued: bool = False
    ) -> PartitionState | TidelogError | None:
        """Give a partition these replicas; None: end what is under way. Its state after it, or why not."""
        replicas = None if target is None else tuple(NodeId(node) for node in target)
        moved = Reassignment(key, replicas or (), cancel=replicas is None, keeps_factor=keeps_factor, queued=queued)
        answer = self.ask(AlterReassignments((moved,)))
        return answer.partitions[0].outcome if isinstance(answer, PartitionOutcomes) else answer  # type: ignore[return-value]

    def propose(
        self,
        *members: int,
        by: int | None = None,
        state: PartitionState | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        epochs: Mapping[int, int] | None = None,
    ) -> PartitionState | TidelogError | None:
        """The leader proposes a set for partition 0 of `orders`; None: not answered yet."""
        state = self.partition() if state is None else state
        leader = state.leader if by is None else NodeId(by)
        known = {node: self.numbers[NodeId(node)] for node in members} | dict(epochs or {})
        proposal = Proposal(
            state.key,
            state.leader_epoch if leader_epoch is None else leader_epoch,  # type: ignore[arg-type]
            state.partition_epoch if partition_epoch is None else partition_epoch,  # type: ignore[arg-type]
            tuple(IsrMember(NodeId(node), NodeEpoch(known[node])) for node in members),
        )
        answer = self.ask(AlterPartition(leader, self.numbers[leader], (proposal,)))
        if answer is None or isinstance(answer, TidelogError):
            return answer
        assert isinstance(answer, AlteredPartitions)
        (altered,) = answer.partitions
        if isinstance(altered.outcome, TidelogError):
            return altered.outcome
        after = self.image.topics[state.topic_id].partitions[state.partition]
        assert altered == AlteredPartition(
            after.key, AcceptedIsr(after.leader, after.leader_epoch, after.partition_epoch, after.isr)
        )
        return after
