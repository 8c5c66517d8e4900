"""Nodes of one process, connected by wires in memory: real drivers and logs, fake disks, virtual time, no metadata
quorum. The test sets the metadata: `Cluster.set` publishes an image to every node, as the controller would. Streams
keep their order; every message crosses as bytes. A wire can be disconnected: messages on it are lost, streams over it
break."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from node.api.fetch import FetchRequest
from node.api.table import DATA_FETCH
from node.config import GRPC_LISTENER
from node.listeners.grpc.codecs import codec_of
from node.listeners.grpc.grpc_peers import GrpcPeers
from node.listeners.grpc.server import ANSWER_COPIES, REQUEST_COPIES
from node.replicas.log_maintenance import LogMaintenance
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_manager import ReplicaManager
from node.requests.context import RequestContext
from node.requests.data_handlers import DataHandlers
from node.requests.fetch_session import FetchSessions
from node.requests.gate import Gate
from node.requests.incremental_sessions import SessionCache
from node.requests.producer_ids import ProducerIds
from replication.controller.events import AcceptedIsr, AlteredPartition, AlteredPartitions, AlterPartition, Proposal
from replication.controller.image import EMPTY, ClusterImage, NodeRegistration, PartitionState, TopicState
from replication.controller.metadata_records import DirectoryState
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.directory.maintenance_config import MaintenanceConfig
from storage.files.disk_executor import InlineExecutor
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk
from testbed.message_bytes import bytes_of
from testbed.sim.clock import SimClock
from testbed.sim.loop import SimLoop
from tests.node.message_services import MessageService
from tidelog.errors import ConnectionFailed, InvalidUpdateVersion, NotController, RequestTimedOut, TidelogError
from tidelog.protocol import methods, status, wire
from tidelog.protocol.network import MessageStream
from tidelog.protocol.rpc import Answer, CallKind, Method, Request
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchAnswer, ProduceBatch, ProduceRequest
from tidelog.records import RecordBatchBuilder
from tidelog.types import (
    NO_NODE,
    DirectoryId,
    Endpoint,
    Incarnation,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    PartitionKey,
    TopicId,
    TopicPartition,
)

T = TypeVar("T")
TOPIC = TopicId(UUID(int=70))
ANYWHERE = DirectoryId(UUID(int=0))
CALLER = RequestContext(GRPC_LISTENER, "test", request_copies=REQUEST_COPIES, answer_copies=ANSWER_COPIES)


def endpoint_of(node: int) -> Endpoint:
    return Endpoint(f"node-{node}", 9092)


class HeldExecutor:
    """An executor that runs its work when the test releases it, or at once."""

    def __init__(self) -> None:
        self.holding = False
        self._waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        if self.holding:
            self._waiting.append((work, done))
        else:
            InlineExecutor().submit(work, done)

    def release(self) -> None:
        self.holding = False
        while self._waiting:
            work, done = self._waiting.pop(0)
            InlineExecutor().submit(work, done)


class WireStream:
    """One end of a stream."""

    def __init__(self, wires: Wires, receives: type[Any]) -> None:
        self._wires = wires
        self._receives = receives
        self._inbox: asyncio.Queue[bytes | TidelogError | None] = asyncio.Queue()
        self.other: WireStream | None = None
        self.broken = False
        self.on_close: Callable[[], object] = lambda: None
        self.sent = 0

    async def send(self, message: Any) -> None:
        if self.broken or self.other is None:
            raise ConnectionFailed("the stream is broken")
        self.sent += 1
        self._wires.messages += 1
        if not self._wires.stalled:
            self.other._inbox.put_nowait(bytes_of(message))

    async def receive(self) -> Any:
        if self.broken and self._inbox.empty():
            raise ConnectionFailed("the stream is broken")
        item = await self._inbox.get()
        if isinstance(item, TidelogError):
            raise item
        return None if item is None else wire.reader(self._receives)(item)

    async def end(self, error: TidelogError | None = None) -> None:
        """This side is done: the other one reads to the end, then this."""
        if self.other is not None and not self.other.broken:
            self.other._inbox.put_nowait(error)

    def close(self) -> None:
        if not self.broken:
            self.broken = True
            self._inbox.put_nowait(ConnectionFailed("the stream is closed"))
            self.on_close()


class OpenCalls:
    """The unary calls that a node serves, each in the task of its caller."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def serve(self, answer: Awaitable[T]) -> T:
        """Wait for an answer. Raises ConnectionFailed if the node is killed before."""
        task = asyncio.current_task()
        assert task is not None, "a call has a task"
        self._tasks.add(task)
        try:
            return await answer
        except asyncio.CancelledError:
            if task in self._tasks:  # its caller has cancelled it
                raise
            task.uncancel()
            raise ConnectionFailed("the node was killed") from None
        finally:
            self._tasks.discard(task)

    def break_off(self) -> None:
        """The node is gone: nothing of it runs on, and every caller loses its connection."""
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()


class Wires:
    """The network: which node is behind which endpoint. It is its own owner of the tasks that serve streams."""

    def __init__(self) -> None:
        self.services: dict[Endpoint, dict[str, object]] = {}
        self.calls: defaultdict[Endpoint, OpenCalls] = defaultdict(OpenCalls)
        self.unreachable: set[Endpoint] = set()
        self.stalled = False
        self.messages = 0
        self.serving: dict[asyncio.Task[None], WireStream] = {}

    async def call(self, to: Endpoint, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        if to in self.unreachable or to not in self.services:
            raise ConnectionFailed(f"{to} cannot be reached")
        served = wire.reader(method.request)(bytes_of(request))
        serve = getattr(self.services[to][method.service], method.attribute)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await self.calls[to].serve(serve(served, CALLER))
        except TimeoutError:
            raise RequestTimedOut(f"{method} at {to}") from None
        return wire.reader(method.answer)(bytes_of(answer))

    async def open_stream(self, to: Endpoint, method: Method[Request, Answer]) -> MessageStream[Request, Answer]:
        if to in self.unreachable or to not in self.services:
            raise ConnectionFailed(f"{to} cannot be reached")
        ours, theirs = WireStream(self, method.answer), WireStream(self, method.request)
        ours.other, theirs.other = theirs, ours
        handler = getattr(self.services[to][method.service], method.attribute)
        task = asyncio.get_running_loop().create_task(self._serve(handler(theirs, CALLER), theirs))
        self.serving[task] = ours
        task.add_done_callback(self.serving.pop)
        ours.on_close = task.cancel
        return ours

    @staticmethod
    async def _serve(handler: Awaitable[None], theirs: WireStream) -> None:
        try:
            await handler
            await theirs.end()
        except TidelogError as error:
            await theirs.end(status.from_proto(status.to_proto(error)))

    async def is_refused(self, to: Endpoint, *, timeout_ms: int) -> bool:
        return to not in self.services

    async def close(self) -> None:
        """No connections are kept."""

    def break_streams(self) -> None:
        """Every open stream breaks, on both sides."""
        for task, ours in list(self.serving.items()):
            ours.close()
            task.cancel()


class Received:
    """A Data service whose unary answers are read from their bytes, as a caller receives them."""

    def __init__(self, service: object, calls: OpenCalls) -> None:
        self._service, self._calls = service, calls

    def __getattr__(self, name: str) -> Any:
        serve = getattr(self._service, name)
        [method] = [each for each in methods.of_service(methods.DATA) if each.attribute == name]
        if method.kind is CallKind.STREAM:
            return serve

        async def call(request: Any, context: RequestContext) -> Any:
            return wire.reader(method.answer)(bytes_of(await self._calls.serve(serve(request, context))))

        return call


async def _live(manager: ReplicaManager, maintenance: LogMaintenance) -> None:
    async with asyncio.TaskGroup() as tasks:
        caring = tasks.create_task(maintenance.run())
        await manager.run()
        caring.cancel()


@dataclass
class Machine:
    """A node's disk, and its present incarnation."""

    number: int
    disk: FakeDisk = field(default_factory=FakeDisk)
    executor: HeldExecutor = field(default_factory=HeldExecutor)
    inspectors: HeldExecutor = field(default_factory=HeldExecutor)
    node_runs: int = 0
    manager: ReplicaManager | None = None
    sessions: FetchSessions | None = None
    service: Any = None
    """The Data service, as the listeners serve it: in messages."""
    data: DataHandlers | None = None
    """The same, in values."""
    fetch_sessions: SessionCache = field(default_factory=lambda: SessionCache(10, random.Random(1)))
    directory: LogDirectory | None = None
    task: asyncio.Task[None] | None = None

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(UUID(int=self.number * 1000 + self.node_runs))


class Cluster:
    """Nodes and one topic `t`, whose state the test sets. AlterPartition is granted unless `refuse` contains an
    error."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        partitions: int = 1,
        config: ReplicaConfig | None = None,
        maintenance: MaintenanceConfig | None = None,
        **configs: str,
    ) -> None:
        self.loop = SimLoop(random.Random(1))
        self.wires = Wires()
        self.config = config or ReplicaConfig()
        self.maintenance = maintenance or MaintenanceConfig()
        self.configs = {key.replace("_", "."): value for key, value in configs.items()}
        self.machines = {number: Machine(number) for number in range(1, nodes + 1)}
        self.image = EMPTY
        self.refuse: TidelogError | None = None
        self.proposals: list[tuple[int, ...]] = []
        everyone = tuple(NodeId(number) for number in self.machines)
        states = tuple(
            PartitionState(
                TOPIC,
                PartitionIndex(index),
                everyone,
                (ANYWHERE,) * nodes,
                everyone,
                (),
                (),
                NO_NODE,
                LeaderEpoch(0),
                PartitionEpoch(0),
            )
            for index in range(partitions)
        )
        topic = TopicState("t", TOPIC, self.configs, states)
        self.image = replace(EMPTY, topics={TOPIC: topic}, topic_ids={"t": TOPIC})
        for number in self.machines:
            self.start(number)

    def next(self, stream: MessageStream[Any, Answer]) -> Answer:
        """The next message on a stream that has not ended."""
        message = self.wait(stream.receive())
        assert message is not None, "the stream has ended"
        return message

    def directory(self, number: int) -> LogDirectory:
        """The log directory of a node that has been started."""
        directory = self.machines[number].directory
        assert directory is not None, f"node {number} has not been started"
        return directory

    # --- nodes ---

    def start(self, number: int, *, publish: bool = True) -> None:
        """A new incarnation of a node: registered again, its logs recovered."""
        machine = self.machines[number]
        machine.node_runs += 1
        machine.fetch_sessions = SessionCache(10, random.Random(number))
        clock = SimClock(self.loop)
        machine.directory = LogDirectory(
            "/data", files=machine.disk, clock=clock, rng=random.Random(number), executor=machine.executor
        )
        machine.directory.load_logs(lambda _tp, _topic_id: LogConfig.from_topic(self.configs))
        logs = LogManager([machine.directory])
        manager = ReplicaManager(
            NodeId(number),
            machine.incarnation,
            logs,
            clock=clock,
            rng=random.Random(number),
            peers=GrpcPeers(self.wires),
            alter_partition=self.alter_partition,
            config=self.config,
            call_soon=self.loop.call_soon,
        )
        machine.manager = manager
        sessions = machine.sessions = FetchSessions(manager, clock=clock, config=self.config)
        handlers = DataHandlers(
            manager,
            sessions,
            ProducerIds(no_blocks),
            clock=clock,
            config=self.config,
            inspectors=machine.inspectors,
            fetch_sessions=machine.fetch_sessions,
        )
        machine.data, machine.service = handlers, MessageService(Gate("Data", handlers))
        self.wires.services[endpoint_of(number)] = {methods.DATA: machine.service}
        maintenance = LogMaintenance(
            logs,
            self.maintenance,
            clock=clock,
            damage_found=manager.damage.found,
            log_start_moved=manager.log_start_moved,
            memory=manager.memory,
        )
        machine.task = self.loop.create_task(_live(manager, maintenance))
        node = NodeRegistration(
            NodeId(number),
            NodeEpoch(number * 10 + machine.node_runs),
            machine.incarnation,
            {GRPC_LISTENER: endpoint_of(number)},
            "",
            b"",
            (DirectoryState(ANYWHERE, NodeEpoch(-1)),),
            fenced=False,
            draining=False,
        )
        self.image = replace(self.image, nodes={**self.image.nodes, NodeId(number): node})
        if publish:
            self.publish()

    def kill(self, number: int, *, power_fails: bool = False) -> None:
        """The node is gone at once; its disk forgets what was not synced where the power failed."""
        machine = self.machines[number]
        assert machine.task is not None
        machine.task.cancel()
        del self.wires.services[endpoint_of(number)]
        self.wires.break_streams()
        self.wires.calls[endpoint_of(number)].break_off()
        machine.executor, machine.inspectors = HeldExecutor(), HeldExecutor()
        machine.manager = machine.sessions = machine.service = machine.data = None
        self.run(0.001)
        assert machine.task.done(), "a task of the node runs on"
        if power_fails:
            machine.disk.crash(random.Random(number))
        else:
            machine.disk.kill()

    def stop(self, number: int) -> None:
        machine = self.machines[number]
        assert machine.manager is not None
        assert machine.task is not None
        assert machine.directory is not None
        self.wait(machine.manager.stop())
        self.sessions(number).stop()
        self.wait(machine.task)
        machine.directory.close_clean()
        del self.wires.services[endpoint_of(number)]
        machine.manager = machine.sessions = machine.service = machine.data = None

    def manager(self, number: int) -> ReplicaManager:
        manager = self.machines[number].manager
        assert manager is not None, f"node {number} is down"
        return manager

    def sessions(self, number: int) -> FetchSessions:
        sessions = self.machines[number].sessions
        assert sessions is not None, f"node {number} is down"
        return sessions

    def data(self, number: int) -> DataHandlers:
        data = self.machines[number].data
        assert data is not None, f"node {number} is down"
        return data

    def service(self, number: int) -> Any:
        service = self.machines[number].service
        assert service is not None, f"node {number} is down"
        return Received(service, self.wires.calls[endpoint_of(number)])

    # --- metadata ---

    def state(self, index: int = 0) -> PartitionState:
        return self.image.topics[TOPIC].partitions[index]

    def set(self, index: int = 0, *, publish: bool = True, min_insync: int | None = None, **changes: Any) -> None:
        """The metadata change: leader (a new epoch), isr, ...; the partition epoch goes up."""
        state = self.state(index)
        if "leader" in changes:
            changes["leader_epoch"] = LeaderEpoch(state.leader_epoch + 1)
        state = replace(state, partition_epoch=PartitionEpoch(state.partition_epoch + 1), **changes)
        topic = self.image.topics[TOPIC]
        partitions = (*topic.partitions[:index], state, *topic.partitions[index + 1 :])
        configs = dict(topic.configs)
        if min_insync is not None:
            configs["min.insync.replicas"] = str(min_insync)
        topics = {**self.image.topics, TOPIC: replace(topic, partitions=partitions, configs=configs)}
        self.image = replace(self.image, topics=topics)
        if publish:
            self.publish()

    def publish(self, *numbers: int) -> None:
        """Give these nodes, or all, the newest image."""
        self.image = replace(self.image, offset=Offset(self.image.offset + 1))
        for number in numbers or tuple(self.machines):
            manager = self.machines[number].manager
            if manager is not None:
                self.loop.call_soon(manager.on_image, self.image)
        self.run(0.0001)

    async def alter_partition(self, proposals: AlterPartition) -> AlteredPartitions:
        return AlteredPartitions(tuple(map(self._judge, proposals.partitions)))

    def _judge(self, proposal: Proposal) -> AlteredPartition:
        members = tuple(member.node_id for member in proposal.new_isr)
        self.proposals.append(members)
        index = proposal.key.partition
        state = self.state(index)
        if self.refuse is not None:
            return AlteredPartition(proposal.key, self.refuse)
        if (proposal.leader_epoch, proposal.partition_epoch) != (state.leader_epoch, state.partition_epoch):
            return AlteredPartition(proposal.key, InvalidUpdateVersion())
        self.set(index, publish=False, isr=members)
        state = self.state(index)
        accepted = AcceptedIsr(state.leader, state.leader_epoch, state.partition_epoch, state.isr)
        return AlteredPartition(proposal.key, accepted)

    # --- running ---

    def run(self, seconds: float) -> None:
        self.loop.run_for(seconds)

    def until(self, reached: Callable[[], bool], *, within: float = 5.0, what: str = "") -> None:
        self.loop.run_until(reached, within=within, what=what)

    def wait(self, coro: Awaitable[T], *, within: float = 10.0) -> T:
        async def waiting() -> T:
            return await coro

        task = self.loop.create_task(waiting())
        self.loop.run_until(task.done, within=within, what="the call has not returned")
        return task.result()

    def close(self) -> None:
        self.loop.dispose()

    # --- looking ---

    def log(self, number: int, index: int = 0) -> Any:
        directory = self.machines[number].directory
        assert directory is not None
        return directory.logs[TopicPartition("t", PartitionIndex(index))]

    def read_files_only(self, number: int) -> None:
        """Let this node keep no recent batches in memory: its followers are answered from its files."""
        directory = self.machines[number].directory
        assert directory is not None
        directory.recent_appends.bytes_max = 0

    def watermark(self, number: int, index: int = 0) -> int:
        return int(self.log(number, index).high_watermark)

    def contents(self, number: int, index: int = 0) -> bytes:
        log = self.log(number, index)
        data, offset = b"", log.log_start_offset
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 20, up_to=log.log_end_offset)
            data += bytes(read.records)
            offset = read.next_offset
        return data

    def partition(self, number: int, index: int = 0) -> Any:
        partition = self.manager(number).registry.find(TOPIC.bytes, index)
        assert partition is not None
        return partition

    # --- clients ---

    def produce(
        self,
        number: int,
        *batches: bytes,
        acks: int = -1,
        index: int = 0,
        epoch: int = -1,
        timeout_ms: int = 5_000,
        topic: TopicId = TOPIC,
    ) -> list[data_pb2.PartitionProduced]:
        """Send batches and wait for the answers."""
        entries = [
            ProduceBatch(
                correlation_id=i, topic_id=topic.bytes, partition=index, leader_epoch=LeaderEpoch(epoch), records=batch
            )
            for i, batch in enumerate(batches)
        ]
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, partitions=entries)
        answer = self.wait(self.service(number).produce(request, CALLER))
        return sorted(answer.partitions, key=lambda produced: produced.batch_id)

    def append(
        self, number: int, *batches: bytes, index: int = 0, acks: int = -1
    ) -> asyncio.Task[data_pb2.ProduceResponse]:
        """Send batches and do not wait: the leader has them, the answer may come later."""
        entries = [
            ProduceBatch(correlation_id=i, topic_id=TOPIC.bytes, partition=index, records=batch)
            for i, batch in enumerate(batches)
        ]
        request = ProduceRequest(acks=acks, timeout_ms=60_000, partitions=entries)
        task = self.loop.create_task(self.service(number).produce(request, CALLER))
        self.run(0.0001)
        return task

    def fetch(self, number: int, offset: int, *, index: int = 0, **fields: Any) -> Any:
        """A consumer's fetch, over the unary twin."""
        request = fetch_request(offset, index=index, **fields)
        answer: FetchAnswer = self.wait(self.service(number).fetch(request, CALLER))
        [fetched] = answer.partitions
        return fetched


def fetch_request(
    offset: int,
    *,
    index: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    epoch: int = -1,
    last_epoch: int = -1,
    fetch_id: int = 1,
    topic: TopicId = TOPIC,
    rack: str = "",
) -> data_pb2.FetchRequest:
    request = data_pb2.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, rack=rack)
    request.partitions.add(
        fetch_id=fetch_id,
        topic_id=topic.bytes,
        partition=index,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        durable_offset=-1,
        log_start_offset=-1,
        max_bytes=max_bytes,
    )
    return request


def as_value(request: data_pb2.FetchRequest) -> FetchRequest:
    """The request as the handlers get it."""
    value: FetchRequest = codec_of(DATA_FETCH.name).decode(bytes_of(request))
    return value


def batch(*values: bytes) -> bytes:
    builder = RecordBatchBuilder()
    for value in values:
        builder.append(key=None, value=value, timestamp=1_700_000_000_000)
    return builder.build()


async def no_blocks() -> Any:
    """For nodes without a controller: they have no producer ids to give."""
    raise NotController("these nodes have no controller that assigns producer ids")


def key_of(index: int = 0) -> PartitionKey:
    return PartitionKey(TOPIC, PartitionIndex(index))


__all__ = ["CALLER", "TOPIC", "Cluster", "ClusterImage", "as_value", "batch", "endpoint_of", "fetch_request", "key_of"]
