"""Real nodes in this process, on one event loop, and the longest callbacks of that loop.

All nodes share the loop, so that each of their callbacks is timed. Their executors are threads, as in a real process.
Their standard output is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from node.config import GRPC_LISTENER, ListenerConfig, NodeConfig, QuorumConfig
from node.process.free_ports import free_ports
from node.process.node import Node
from node.process.process import NodeProcess
from node.replication_settings import ReplicationConfig
from storage.directory.maintenance_config import MaintenanceConfig
from tidelog.types import Endpoint, NodeId

HOST = "127.0.0.1"
POLL_S = 0.01


class Callbacks:
    """The callbacks of the loop while it is watched: the longest one in seconds, by the clock and in processor time
    of the loop's thread, and its name. Clock time includes waits for other programs and for the interpreter's lock."""

    def __init__(self) -> None:
        self.longest_s = self.busiest_s = 0.0
        self.which = ""

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Time every callback that begins within the block."""
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began, used = time.perf_counter(), time.thread_time()
            run(handle)
            took = time.perf_counter() - began
            self.busiest_s = max(self.busiest_s, time.thread_time() - used)
            if took > self.longest_s:
                self.longest_s, self.which = took, repr(handle)

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            asyncio.Handle._run = run  # type: ignore[method-assign]


class BenchProcess(NodeProcess):
    """A node's process without its signal handlers and exit. `node`: set once it is assembled."""

    node: Node | None = None

    def _listen_to_signals(self, node: Node) -> None:
        self.node = node

    async def _run_unless_defect(self, node: Node) -> None:
        await node.run()  # cancelled with its task: a process that is killed


class Nodes:
    """Nodes 0 to N-1 of one cluster."""

    def __init__(self, directory: Path, count: int) -> None:
        ports = free_ports(count)
        self.addresses = [Endpoint(HOST, port) for port in ports]
        self.processes = [
            BenchProcess(
                NodeConfig(
                    node_id=NodeId(number),
                    log_directories=(str(directory / f"node-{number}"),),
                    listeners=(ListenerConfig(GRPC_LISTENER, self.addresses[number]),),
                    quorum=QuorumConfig(number == 0, tuple(self.addresses), voters=count),
                    replication=ReplicationConfig(imbalance_check_ms=0),  # type: ignore[arg-type]
                    maintenance=MaintenanceConfig(reserve_bytes=0, checkpoint_ms=500),
                )
            )
            for number in range(count)
        ]
        self.tasks: list[asyncio.Task[None]] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(map(str, self.addresses))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start all nodes and wait until they are ready; at the end stop them without a drain."""
        with contextlib.redirect_stdout(io.StringIO()):
            self.tasks = [asyncio.ensure_future(process.run()) for process in self.processes]
            try:
                for process in self.processes:
                    await self.until(lambda process=process: _is_ready(process))  # type: ignore[misc]
                yield
            finally:
                for number in range(len(self.tasks)):
                    await self.end(number)

    async def end(self, number: int) -> None:
        """End a node at once, without moving leaderships away first."""
        self.tasks[number].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks[number]

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached` returns True. Raises the error of a node that ends meanwhile."""
        while not reached():
            for task in self.tasks:
                if task.done() and not task.cancelled():
                    task.result()
            await asyncio.sleep(POLL_S)

    def logs(self, number: int) -> int:
        """The number of topic partitions with a log on a node."""
        node = self.processes[number].node
        return 0 if node is None or node.replicas is None else sum(1 for _ in node.replicas.partitions())

    def in_sync(self) -> bool:
        """Whether every replica is in sync by the metadata of the first node."""
        node = self.processes[0].node
        image = None if node is None else node.image
        return image is not None and all(len(state.isr) == len(state.replicas) for state in image.partitions())

    def led(self, number: int) -> int:
        """The number of partitions that a node leads."""
        node = self.processes[number].node
        if node is None or node.replicas is None:
            return 0
        return sum(partition.leader is not None for partition in node.replicas.partitions())


def _is_ready(process: BenchProcess) -> bool:
    return process.node is not None and process.node.metric_sources().ready
