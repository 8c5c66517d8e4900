"""Nodes that are only their metadata side: real log, quorum, controller and registration, on fake disks, a simulated
network and virtual time. No partitions' logs, so the stories are about the metadata alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from node.boundary.boundary import Boundary
from node.config import GRPC_LISTENER, SNAPSHOT_BYTES, ListenerConfig, NodeConfig, QuorumConfig
from node.listeners.grpc.grpc_peers import GrpcPeers
from node.metadata.metadata_log import open_log
from node.process.metadata_node import MetadataNode, identity_of, new_incarnation
from node.requests.gate import Gate
from replication.controller.image import ClusterImage, NodeRegistration
from storage.directory.log_directory import LogDirectory
from testbed.fake_disk import FakeDisk
from testbed.sim.clock import SimClock
from testbed.sim.executor import DiskPace, SimExecutor
from testbed.sim.loop import SimLoop, SimTask
from testbed.sim.network import Network
from testbed.sim.process import Process, ProcessState
from testbed.topic_requests import changed, creating
from tests.node.message_services import gates_of, message_services, messages_of
from tidelog.protocol import methods
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.v1 import quorum_pb2
from tidelog.types import Endpoint, NodeId

T = TypeVar("T")


def endpoint_of(node: int) -> Endpoint:
    return Endpoint(f"node-{node}", 9092)


@dataclass
class NodeRun:
    """One incarnation of a node."""

    process: Process
    failure: BaseException | None = None
    node: MetadataNode | None = None
    services: dict[str, object] = field(default_factory=dict)
    directories: list[LogDirectory] = field(default_factory=list)
    tasks: list[SimTask[Any]] = field(default_factory=list)


class MetadataWorld:
    """The metadata sides of several nodes on a simulated network. Node 0 forms the cluster. voters: of that cluster.
    Used as a context manager."""

    def __init__(self, nodes: int = 3, seed: int = 1, *, directories: int = 1, voters: int = 1) -> None:
        self.rng = random.Random(seed)
        self.loop = SimLoop(random.Random(seed + 1))
        self.network = Network(self.loop, random.Random(seed + 2))
        self.count = nodes
        self.directories_each = directories
        self.voters = voters
        self.snapshot_bytes = SNAPSHOT_BYTES
        self.disks = {node: FakeDisk() for node in range(nodes)}
        self.pace = {node: DiskPace() for node in range(nodes)}
        self.executors: dict[int, list[SimExecutor]] = {}
        self.node_runs: dict[int, NodeRun] = {}
        self.dead: list[NodeRun] = []
        self.boots = dict.fromkeys(range(nodes), b"boot")
        for node in range(nodes):
            self.network.name_endpoint(endpoint_of(node), f"node-{node}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.dispose()

    # --- processes ---

    def config(self, node: int) -> NodeConfig:
        return NodeConfig(
            node_id=NodeId(node),
            log_directories=tuple(f"/data{number}" for number in range(self.directories_each)),
            listeners=(ListenerConfig(GRPC_LISTENER, endpoint_of(node)),),
            quorum=QuorumConfig(
                node == 0, tuple(map(endpoint_of, range(self.count))), self.voters, self.snapshot_bytes
            ),
        )

    def start(self, *nodes: int) -> None:
        for node in nodes:
            process = Process(f"node-{node}", len(self.dead))
            node_run = self.node_runs[node] = NodeRun(process)
            process.run(self.loop.create_task, self._run(node, node_run))

    async def _run(self, node: int, node_run: NodeRun) -> None:
        try:
            await self._live(node, node_run)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            node_run.failure = error
            self.network.process_ended(node_run.process, power_lost=False)

    async def _live(self, node: int, node_run: NodeRun) -> None:
        config, clock = self.config(node), SimClock(self.loop)
        directories = []
        for path in config.log_directories:
            executor = SimExecutor(self.loop, random.Random(self.rng.random()), node_run.process, self.pace[node])
            directory = LogDirectory(
                path,
                files=self.disks[node],
                clock=clock,
                rng=random.Random(self.rng.random()),
                executor=executor,
                boot_id=self.boots[node],
            )
            directories.append((directory, executor))
        quorum = SimExecutor(self.loop, random.Random(self.rng.random()), node_run.process, self.pace[node])
        self.executors[node] = [quorum, *(executor for _, executor in directories)]
        node_run.directories = [directory for directory, _ in directories]
        identity = identity_of(config, new_incarnation(self.rng), self.boots[node])
        side = node_run.node = MetadataNode(
            config,
            identity,
            directories,
            open_log(directories[0][0]),
            quorum=quorum,
            files=self.disks[node],
            clock=clock,
            rng=random.Random(self.rng.random()),
            peers=GrpcPeers(self.network.transport(f"node-{node}")),
        )
        gates = {name: Gate(name, handlers) for name, handlers in side.services.items()}
        node_run.services = message_services(gates)
        boundary = Boundary(gates=gates_of(node_run.services))
        self.network.listen(endpoint_of(node), node_run.process, f"node-{node}", GRPC_LISTENER, boundary, messages_of)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(side.controller.run())
            tasks.create_task(side.run_quorum())
            tasks.create_task(side.registration.run(tuple))

    def kill(self, node: int, *, power: bool = False) -> None:
        """End the process between two steps; with `power`, the machine too: what was not synced is gone."""
        node_run = self.node_runs.pop(node)
        node_run.process.state = ProcessState.DEAD
        node_run.tasks = self.loop.tasks_of(node_run.process)
        self.dead.append(node_run)
        self.network.process_ended(node_run.process, power_lost=power)
        if power:
            self.disks[node].crash(self.rng)
            self.boots[node] = self.rng.randbytes(8)
        else:
            self.disks[node].kill()

    def stall(self, node: int) -> None:
        """The node's disk does not answer any more."""
        self.pace[node].stalled = True

    def release(self, node: int) -> None:
        self.pace[node].stalled = False
        for executor in self.executors[node]:
            executor.resume()

    def empty(self, node: int) -> None:
        """The node's volume is replaced by an empty one."""
        assert node not in self.node_runs
        self.disks[node] = FakeDisk()

    # --- looking and asking ---

    def side(self, node: int) -> MetadataNode:
        found = self.node_runs[node].node
        assert found is not None, f"node {node} has not opened its directory"
        return found

    def key(self, node: int) -> quorum_pb2.ReplicaKey:
        """The key of a running node's replica, as requests name it."""
        return quorum_pb2.ReplicaKey(node_id=node, directory_id=self.node_runs[node].directories[0].directory_id.bytes)

    def image(self, node: int = 0) -> ClusterImage:
        return self.side(node).image

    def unfenced(self, seen_by: int = 0) -> set[int]:
        """By the newest image of that node; for running nodes only their present incarnation counts."""
        node_run = self.node_runs.get(seen_by)
        if node_run is None or node_run.node is None:
            return set()
        return {
            node.node_id
            for node in node_run.node.image.nodes.values()
            if not node.fenced and (node.node_id not in self.node_runs or self._is_present(node))
        }

    def _is_present(self, node: NodeRegistration) -> bool:
        side = self.node_runs[node.node_id].node
        return side is not None and side.registration.node_epoch == node.node_epoch

    def run_until(self, reached: Callable[[], bool], within: float = 30, what: str = "") -> None:
        self.loop.run_until(reached, within=within, what=what)

    def wait_whole(self, *seen_by: int) -> None:
        """Until the images of these nodes (default: of all) contain every running node as unfenced."""
        everywhere = seen_by or tuple(sorted(self.node_runs))
        running = set(self.node_runs)
        self.run_until(
            lambda: all(self.unfenced(node) >= running for node in everywhere),
            what=f"all of {running} are unfenced, as {everywhere} have heard",
        )

    def begin(self) -> None:
        """All nodes, started and unfenced."""
        self.start(*range(self.count))
        self.wait_whole()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work of a client's process to its end."""
        client = Process("client")
        task = client.run(self.loop.create_task, work)
        self.run_until(task.done, within=60, what="the client's work is done")
        return task.result()

    def asking(self, node: int, method: Method[Request, Answer], request: Request) -> asyncio.Task[Answer]:
        """A call under way."""
        call = self.network.transport("client").call(endpoint_of(node), method, request, timeout_ms=20_000)
        return Process("client").run(self.loop.create_task, call)

    def call(self, node: int, method: Method[Request, Answer], request: Request, timeout_ms: int = 20_000) -> Answer:
        transport = self.network.transport("client")
        return self.do(transport.call(endpoint_of(node), method, request, timeout_ms=timeout_ms))

    def create(
        self, name: str = "orders", *, at: int = 0, partitions: int = 3, replicas: int = 3, **configs: str
    ) -> bytes:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        request = creating(name=name, partitions=partitions, replication_factor=replicas, configs=settings)
        return changed(self.call(at, methods.ADMIN_CREATE_TOPICS, request)).topic_id


def only_error(group: BaseException | None) -> BaseException:
    assert isinstance(group, BaseExceptionGroup), group
    (error,) = group.exceptions
    return only_error(error) if isinstance(error, BaseExceptionGroup) else error
