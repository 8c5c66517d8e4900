"""Real nodes in this process: gRPC on loopback, the operating system's files, threads; each on the one event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from node.api.api import Api
from node.api.caller import Caller
from node.boundary.boundary import Boundary
from node.config import GRPC_LISTENER, ListenerConfig, NodeConfig, QuorumConfig
from node.coordinator_settings import CoordinatorSettings
from node.listener_settings import ListenerProtocol, ListenerTls
from node.listeners.grpc.server import GrpcServer
from node.listeners.grpc.server_tls import ServerTls
from node.process.free_ports import free_ports
from node.process.node import Node
from node.process.process import ANSWER_GRACE_MS
from node.quotas.client_quotas import ClientQuotas
from node.quotas.throttle import Quotas
from node.replication_settings import ReplicationConfig
from node.runtime.request_meter import RequestMeters
from node.runtime.thread_executor import ThreadExecutor
from node.security.acl_authorizer import AclAuthorizer
from node.security.audit_log import AuditLog
from node.security.authorizer import Authorizer
from node.security.sasl_sessions import SaslSession
from node.security.sasl_settings import SaslConfig
from node.security.security_settings import AuthorizerConfig
from node.tiering_settings import TieringConfig
from replication.controller.scram_users import CLUSTER_USER
from storage.directory.maintenance_config import MaintenanceConfig
from storage.files.os_files import OsFiles
from tidelog.clock import Clock, MachineClock
from tidelog.errors import ConnectionLost, InvalidConfig, RequestTimedOut, TopicExists
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.sasl_client import SaslClient
from tidelog.record_exchange import TopicReference
from tidelog.security.sasl_user import Sasl
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.obstore_store import open_object_store
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
    boundary: Boundary = field(default_factory=Boundary)
    config: NodeConfig | None = None
    transport: GrpcTransport | None = None
    """Between nodes."""

    @property
    def defects(self) -> list[str]:
        """APIs of which a request or stream was answered INTERNAL."""
        defect = "UNKNOWN_SERVER_ERROR"
        return [meter.api for meter in self.meters if defect in {*meter.failed, *meter.streams_ended}]


class _Listener(GrpcServer):
    """A listener of a node, perhaps for callers who have proved that they are this principal."""

    def __init__(self, listener: str, principal: str | None, **options: Any) -> None:
        super().__init__(listener, **options)
        self._principal = principal

    def _caller(self, call: Any, api: Api[Any, Any]) -> tuple[Caller, SaslSession | None]:
        caller, session = super()._caller(call, api)
        return caller if self._principal is None else replace(caller, principal=self._principal), session


OUTSIDE = "outside"
"""The listener of callers who authenticate by SASL."""

OPERATOR = "operator"
"""The listener of callers who may do everything, where nodes decide by ACLs."""


class RealNodes:
    """Nodes 0..N-1 of one cluster, each with the log directory `HOME/node-N`."""

    def __init__(
        self,
        home: Path,
        count: int,
        principals: Mapping[str, str] | None = None,
        tls: Mapping[str, ListenerTls] | None = None,
        sasl: SaslConfig | None = None,
    ) -> None:
        """principals: further listeners, and who connects there. tls: further listeners with TLS. With either, the
        nodes decide by ACLs: callers of the listener GRPC are nodes, those of OPERATOR may do everything. sasl:
        with a listener OUTSIDE that requires SASL."""
        self.home, self.sasl = home, sasl
        self.tls = dict(tls or {})
        self.principals = dict(principals or {})
        if self.tls or self.principals:
            self.principals[OPERATOR] = f"User:{OPERATOR}"
        self.audit: list[str] = []
        """The lines of the audit logs of all nodes."""
        self.addresses = _free_addresses(count)
        further = {*self.principals, *self.tls, *(() if sasl is None else (OUTSIDE,))}
        self.further = {name: _free_addresses(count) for name in sorted(further)}
        """The addresses of further listeners, by name."""
        self.transport = GrpcTransport()
        self.nodes: dict[int, RealNode] = {}
        self.secrets: dict[int, str] = {}
        """The secret of the cluster, for nodes that have one."""
        self.racks: dict[int, str] = {}
        """The racks of nodes that have one."""
        self.past: list[RealNode] = []
        """Every incarnation of every node, including the present ones."""
        self.coordinators = CoordinatorSettings()
        """Of nodes that are started from now on."""
        self.replication = ReplicationConfig()
        """Of nodes that are started from now on."""
        self.tiering = TieringConfig()
        """Of nodes that are started from now on."""
        self.maintenance = MaintenanceConfig()
        """Of nodes that are started from now on."""
        self.open_store: Callable[[str], ObjectStore] = open_object_store
        self.directories = 1
        """How many log directories each node has; the further ones are `HOME/node-N-1` and so on."""
        self.clock: Clock = MachineClock()
        """Of nodes that are started from now on."""
        self.now_ms: Callable[[], int] = MachineClock().monotonic_ms
        """The clock of the client quotas."""
        self.now_ns: Callable[[], int] = lambda: 0
        """The clock of the request meters."""
        self._starts = 0

    async def start(self, number: int) -> None:
        """Start one node; returns as soon as it answers calls."""
        self._starts += 1
        address, secret = self.addresses[number], self.secrets.get(number, "")
        nonces = random.Random(f"nonces {number} {self._starts}")
        user = SaslClient(Sasl(CLUSTER_USER, secret), nonces) if secret else None
        allowed = AuthorizerConfig(enabled=bool(self.principals), super_users=frozenset({f"User:{OPERATOR}"}))
        audit = AuditLog(self.audit.append, clock=MachineClock(), node_id=number)
        authorizer = AclAuthorizer(allowed, audit) if self.principals else None
        boundary = Boundary(
            RequestMeters(self.now_ns), authorizer or Authorizer(), Quotas(ClientQuotas(self.now_ms)), audit=audit
        )
        transport = GrpcTransport(sasl=user)
        bound = {GRPC_LISTENER: address, **{name: addresses[number] for name, addresses in self.further.items()}}
        servers: list[GrpcServer] = [
            _Listener(
                name,
                self.principals.get(name),
                boundary=boundary,
                for_nodes=name == GRPC_LISTENER,
                tls=ServerTls(name, self.tls[name], MachineClock()) if name in self.tls else None,
            )
            for name in bound
        ]
        await _bind(servers, bound)
        executors: list[ThreadExecutor] = []

        def make(name: str, workers: int = 1) -> ThreadExecutor:
            executors.append(ThreadExecutor(name, workers=workers))
            return executors[-1]

        config = NodeConfig(
            node_id=NodeId(number),
            log_directories=self.log_directories(number),
            listeners=tuple(ListenerConfig(name, each, protocol=self._protocol(name)) for name, each in bound.items()),
            quorum=QuorumConfig(number == 0, tuple(self.addresses), min(3, len(self.addresses))),
            authorizer=allowed,
            sasl=self.sasl or SaslConfig(),
            rack=self.racks.get(number, ""),
            coordinators=self.coordinators,
            replication=self.replication,
            tiering=self.tiering,
            maintenance=self.maintenance,
        )

        async def stop_servers(grace_ms: int = ANSWER_GRACE_MS) -> None:
            for server in servers:
                await server.stop(grace_ms)

        node = Node(
            config,
            clock=self.clock,
            rng=random.Random(f"{number} {self._starts}"),  # another incarnation with each start
            files=OsFiles(),
            executors=make,
            transport=transport,
            boot_id=b"one boot of all.",
            before_close=stop_servers,
            image_changed=None if authorizer is None else authorizer.follow,
            quotas=boundary.quotas,
            audit=audit,
            cluster_secret=secret,
            open_store=self.open_store,
        )
        for server in servers:
            server.serve(node.services, node.sasl)
            await server.start()

        async def run() -> None:
            try:
                await node.run()
            finally:
                await stop_servers(grace_ms=0)
                await transport.close()
                for executor in executors:
                    executor.close()

        running = asyncio.get_running_loop().create_task(run())
        self.nodes[number] = RealNode(node, address, boundary.meters, running, executors, boundary, config, transport)
        self.past.append(self.nodes[number])

    @property
    def outside(self) -> list[Endpoint]:
        """The addresses of the listener that requires SASL."""
        return self.further[OUTSIDE]

    def _protocol(self, listener: str) -> ListenerProtocol:
        """With secrets, the listener between nodes requires SASL too."""
        if (listener == OUTSIDE and self.sasl is not None) or (listener == GRPC_LISTENER and self.secrets):
            return ListenerProtocol.GRPC_SASL_SSL if listener in self.tls else ListenerProtocol.GRPC_SASL_PLAINTEXT
        return ListenerProtocol.GRPC_SSL if listener in self.tls else ListenerProtocol.GRPC

    def log_directories(self, number: int) -> tuple[str, ...]:
        """The paths of a node's log directories."""
        further = (self.home / f"node-{number}-{index}" for index in range(1, self.directories))
        return tuple(map(str, (self.home / f"node-{number}", *further)))

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

    async def wait_led(self, topic: TopicReference, partitions: int = 1) -> None:
        """Until node 0 leads the partitions; its metadata names it before, and their requests are refused meanwhile."""
        node = self.nodes[0].node

        def leads(index: int) -> bool:
            found = None if node.replicas is None else node.replicas.registry.find(topic, index)
            return found is not None and found.leader is not None

        await self.wait_until(lambda: all(map(leads, range(partitions))))

    async def wait_present(self, number: NodeId) -> None:
        """Until that node is unfenced in its present incarnation, by its own image."""
        node = self.nodes[number].node

        def present() -> bool:
            entry = None if node.image is None else node.image.nodes.get(number)
            return entry is not None and not entry.fenced and entry.incarnation == node.incarnation

        await self.wait_until(present)

    async def call(self, number: int, method: Method[Request, Answer], request: Request) -> Answer:
        return await self.transport.call(self.addresses[number], method, request, timeout_ms=CALL_MS)


async def repeated(change: Callable[[], Awaitable[object]]) -> None:
    """Make a change of the metadata, and repeat it while its outcome is unknown: on a busy machine the nodes may elect
    another controller meanwhile. A topic that exists was created by an earlier attempt."""
    while True:
        with suppress(RequestTimedOut, ConnectionLost):
            with suppress(TopicExists):
                await change()
            return


@asynccontextmanager
async def real_nodes(
    home: Path,
    count: int = 1,
    principals: Mapping[str, str] | None = None,
    tls: Mapping[str, ListenerTls] | None = None,
    sasl: SaslConfig | None = None,
    coordinators: CoordinatorSettings | None = None,
    replication: ReplicationConfig | None = None,
    clock: Clock | None = None,
    directories: int = 1,
    prepare: Callable[[RealNodes], None] = lambda _nodes: None,
) -> AsyncIterator[RealNodes]:
    """A cluster of so many nodes, all of them unfenced. prepare: called before they start."""
    nodes = RealNodes(home, count, principals, tls, sasl)
    nodes.coordinators = coordinators or nodes.coordinators
    nodes.replication = replication or nodes.replication
    nodes.clock = clock or nodes.clock
    nodes.directories = directories
    prepare(nodes)
    try:
        for number in range(count):
            await nodes.start(number)
        await nodes.wait_whole()
        yield nodes
    finally:
        await nodes.kill_all()


async def _bind(servers: list[GrpcServer], addresses: Mapping[str, Endpoint]) -> None:
    try:
        for server in servers:
            server.bind(addresses[server.listener])
    except InvalidConfig:
        for server in servers:
            await server.stop(0)
        raise


def _free_addresses(count: int) -> list[Endpoint]:
    """Each node must know those of the others before it starts."""
    return [Endpoint("127.0.0.1", port) for port in free_ports(count)]
