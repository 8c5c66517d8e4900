"""Nodes that are only their metadata side: real log, quorum, controller and registration, on fake disks, a simulated
network and virtual time. No partitions' logs, so the stories are about the metadata alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from node.config import SNAPSHOT_BYTES, ListenerConfig, NodeConfig, QuorumConfig
from node.listeners.grpc.codecs import grpc_services
from node.listeners.grpc.grpc_peers import GrpcPeers
from node.metadata.metadata_log import open_log
from node.process.metadata_node import MetadataNode, identity_of, new_incarnation
from node.requests.gate import Gate
from replication.controller.image import ClusterImage, NodeRegistration
from storage.directory.log_directory import LogDirectory
from tests.fakes.fake_disk import FakeDisk
from tests.sim.clock import SimClock
from tests.sim.executor import DiskPace, SimExecutor
from tests.sim.loop import SimLoop, SimTask
from tests.sim.network import Network
from tests.sim.process import Process, ProcessState
from tidelog.protocol import methods
from tidelog.protocol.methods import Answer, Method, Request
from tidelog.protocol.v1 import admin_pb2, quorum_pb2
from tidelog.types import Endpoint, NodeId

T = TypeVar("T")


def endpoint_of(node: int) -> Endpoint:
    return Endpoint(f"node-{node}", 9092)


@dataclass
class Life:
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
        self.lives: dict[int, Life] = {}
        self.dead: list[Life] = []
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
            listeners=(ListenerConfig("client", endpoint_of(node)),),
            quorum=QuorumConfig(
                node == 0, tuple(map(endpoint_of, range(self.count))), self.voters, self.snapshot_bytes
            ),
        )

    def start(self, *nodes: int) -> None:
        for node in nodes:
            process = Process(f"node-{node}", len(self.dead))
            life = self.lives[node] = Life(process)
            process.run(self.loop.create_task, self._run(node, life))

    async def _run(self, node: int, life: Life) -> None:
        try:
            await self._live(node, life)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            life.failure = error
            self.network.process_ended(life.process, power_lost=False)

    async def _live(self, node: int, life: Life) -> None:
        config, clock = self.config(node), SimClock(self.loop)
        directories = []
        for path in config.log_directories:
            executor = SimExecutor(self.loop, random.Random(self.rng.random()), life.process, self.pace[node])
            directory = LogDirectory(
                path,
                files=self.disks[node],
                clock=clock,
                rng=random.Random(self.rng.random()),
                executor=executor,
                boot_id=self.boots[node],
            )
            directories.append((directory, executor))
        quorum = SimExecutor(self.loop, random.Random(self.rng.random()), life.process, self.pace[node])
        self.executors[node] = [quorum, *(executor for _, executor in directories)]
        life.directories = [directory for directory, _ in directories]
        identity = identity_of(config, new_incarnation(self.rng), self.boots[node])
        side = life.node = MetadataNode(
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
        gates = {name: Gate(name, handlers) for name, handlers in side.services().items()}
        life.services = grpc_services(gates)
        self.network.listen(endpoint_of(node), life.process, f"node-{node}", "client", life.services)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(side.run_controller())
            tasks.create_task(side.run_quorum())
            tasks.create_task(side.run_membership(tuple))

    def kill(self, node: int, *, power: bool = False) -> None:
        """End the process between two steps; with `power`, the machine too: what was not synced is gone."""
        life = self.lives.pop(node)
        life.process.state = ProcessState.DEAD
        life.tasks = self.loop.tasks_of(life.process)
        self.dead.append(life)
        self.network.process_ended(life.process, power_lost=power)
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
        assert node not in self.lives
        self.disks[node] = FakeDisk()

    # --- looking and asking ---

    def side(self, node: int) -> MetadataNode:
        found = self.lives[node].node
        assert found is not None, f"node {node} has not opened its directory"
        return found

    def key(self, node: int) -> quorum_pb2.ReplicaKey:
        """The key of a running node's replica, as requests name it."""
        return quorum_pb2.ReplicaKey(node_id=node, directory_id=self.lives[node].directories[0].directory_id.bytes)

    def image(self, node: int = 0) -> ClusterImage:
        return self.side(node).image

    def unfenced(self, seen_by: int = 0) -> set[int]:
        """By the newest image of that node; for running nodes only their present incarnation counts."""
        life = self.lives.get(seen_by)
        if life is None or life.node is None:
            return set()
        return {
            node.node_id
            for node in life.node.image.nodes.values()
            if not node.fenced and (node.node_id not in self.lives or self._is_present(node))
        }

    def _is_present(self, node: NodeRegistration) -> bool:
        side = self.lives[node.node_id].node
        return side is not None and side.registration.node_epoch == node.node_epoch

    def run_until(self, reached: Callable[[], bool], within: float = 30, what: str = "") -> None:
        self.loop.run_until(reached, within=within, what=what)

    def wait_whole(self, *seen_by: int) -> None:
        """Until the images of these nodes (default: of all) contain every running node as unfenced."""
        everywhere = seen_by or tuple(sorted(self.lives))
        running = set(self.lives)
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
        request = admin_pb2.CreateTopicRequest(
            name=name, partitions=partitions, replication_factor=replicas, configs=settings
        )
        return self.call(at, methods.ADMIN_CREATE_TOPIC, request).topic_id
