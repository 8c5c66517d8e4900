"""Real nodes in this process: gRPC on loopback, the operating system's files, threads; each on the one event loop."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from node.config import ListenerConfig, NodeConfig, QuorumConfig
from node.listeners.grpc.codecs import grpc_services
from node.listeners.grpc.server import GrpcServer
from node.observability.meters.request_meter import RequestMeters
from node.process.node import Node
from node.requests.boundary import Boundary
from node.runtime.thread_executor import ThreadExecutor
from storage.files.os_files import OsFiles
from tidelog.clock import MachineClock
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.methods import Answer, Method, Request
from tidelog.types import Endpoint, NodeId

START_S = 30.0
"""Longer than the busiest machine takes: what is waited for comes, or the test fails."""
CALL_MS = 20_000


@dataclass
class RealNode:
    """One node while it runs."""

    node: Node
    address: Endpoint
    meters: RequestMeters
    running: asyncio.Task[None]
    executors: list[ThreadExecutor] = field(default_factory=list)

    @property
    def defects(self) -> list[str]:
        """APIs of which a request or stream was answered INTERNAL."""
        defect = "UNKNOWN_SERVER_ERROR"
        return [meter.api for meter in self.meters if defect in {*meter.failed, *meter.streams_ended}]


class RealNodes:
    """Nodes 0..N-1 of one cluster, each with the directory `HOME/node-N`."""

    def __init__(self, home: Path, count: int) -> None:
        self.home = home
        self.addresses = _free_addresses(count)
        self.transport = GrpcTransport()
        self.nodes: dict[int, RealNode] = {}
        self.past: list[RealNode] = []
        """Every incarnation of every node, including the present ones."""
        self._starts = 0

    async def start(self, number: int) -> None:
        """Start one node; returns as soon as it answers calls."""
        self._starts += 1
        address, count = self.addresses[number], len(self.addresses)
        boundary, transport = Boundary(), GrpcTransport()
        server = GrpcServer("client", boundary=boundary)
        server.bind(address)
        executors: list[ThreadExecutor] = []

        def make(name: str, workers: int = 1) -> ThreadExecutor:
            executors.append(ThreadExecutor(name, workers=workers))
            return executors[-1]

        config = NodeConfig(
            node_id=NodeId(number),
            log_directories=(str(self.home / f"node-{number}"),),
            listeners=(ListenerConfig("client", address),),
            quorum=QuorumConfig(number == 0, tuple(self.addresses), min(3, count)),
        )
        node = Node(
            config,
            clock=MachineClock(),
            rng=random.Random(f"{number} {self._starts}"),  # another incarnation with each start
            files=OsFiles(),
            executors=make,
            transport=transport,
            boot_id=b"one boot of all.",
            before_close=lambda: server.stop(0),
        )
        server.serve(grpc_services(node.services()))
        await server.start()

        async def run() -> None:
            try:
                await node.run()
            finally:
                await server.stop(0)
                await transport.close()
                for executor in executors:
                    executor.close()

        running = asyncio.get_running_loop().create_task(run())
        self.nodes[number] = RealNode(node, address, boundary.meters, running, executors)
        self.past.append(self.nodes[number])

    async def stop(self, number: int) -> None:
        """Stop one node gracefully. Raises what ended it before."""
        found = self.nodes.pop(number)
        found.node.stop()
        await found.running

    async def kill_all(self) -> None:
        for found in self.nodes.values():
            found.running.cancel()
        await asyncio.gather(*(found.running for found in self.nodes.values()), return_exceptions=True)
        self.nodes.clear()
        await self.transport.close()

    def ensure_running(self) -> None:
        """Raises what ended a node."""
        for found in self.nodes.values():
            if found.running.done():
                found.running.result()
                raise AssertionError(f"the node at {found.address} ended")

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        """Evaluate the condition repeatedly, as long as all nodes run. Raises TimeoutError."""
        clock = MachineClock()
        async with asyncio.timeout(START_S):
            while not reached():
                self.ensure_running()
                await clock.sleep_ms(10)

    async def wait_whole(self) -> None:
        """Until every running node has the image in which every node is unfenced."""

        def whole() -> bool:
            images = [found.node.image for found in self.nodes.values()]
            present = {int(number) for number in self.nodes}
            return all(
                image is not None and {int(n.node_id) for n in image.nodes.values() if not n.fenced} >= present
                for image in images
            )

        await self.wait_until(whole)

    async def wait_present(self, number: NodeId) -> None:
        """Until that node is unfenced in its present incarnation, by its own image."""
        node = self.nodes[number].node

        def present() -> bool:
            entry = None if node.image is None else node.image.nodes.get(number)
            return entry is not None and not entry.fenced and entry.incarnation == node.incarnation

        await self.wait_until(present)

    async def call(self, number: int, method: Method[Request, Answer], request: Request) -> Answer:
        return await self.transport.call(self.addresses[number], method, request, timeout_ms=CALL_MS)


@asynccontextmanager
async def real_nodes(home: Path, count: int = 1) -> AsyncIterator[RealNodes]:
    """A cluster of so many nodes, all of them unfenced."""
    nodes = RealNodes(home, count)
    try:
        for number in range(count):
            await nodes.start(number)
        await nodes.wait_whole()
        yield nodes
    finally:
        await nodes.kill_all()


def _free_addresses(count: int) -> list[Endpoint]:
    """Ports that are free now: each node must know those of the others before it starts."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [Endpoint("127.0.0.1", each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
