"""The console of a node: what it needs of the node, and when its pages are loaded.

Nothing of `tidelog.console` and of the client is imported before somebody opens a page: an idle node keeps its memory.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from node.api.caller import Caller
from node.boundary.boundary import Boundary
from node.config import NodeConfig
from node.listeners.http.console_listener import Asking, ConsoleListener, HttpConnection
from node.listeners.http.console_transport import ConsoleTransport
from node.listeners.http.http_messages import form_bytes_of
from node.listeners.http.visitors import Visitors
from node.process.node import CONSOLE_LISTENER, Node
from node.runtime.request_meter import BOUNDS_MS
from tidelog.clock import Clock
from tidelog.console.live_figures import EVERY_MS, LiveFigures, NodeCounters
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.security.loopback import is_loopback

if TYPE_CHECKING:
    from node.listeners.http.http_tls import HttpTls
    from tidelog.console.page_exchange import Visitor
    from tidelog.console.pages import Pages

READS_OF_RECORDS: Final = 2
"""Pages that read and decode records at once: each may take as much memory as the largest batch decompressed."""
CLIENT_ID: Final = "console"
"""In quotas, logs and the audit log."""


class NodeConsole:
    """The console of one node, as the HTTP port serves it."""

    def __init__(
        self,
        config: NodeConfig,
        node: Node,
        *,
        boundary: Boundary,
        between_nodes: GrpcTransport,
        clock: Clock,
        rng: random.Random,
        host_name: str,
        tls: HttpTls | None,
    ) -> None:
        """config: with the bound ports. boundary: of the node; the console has a copy with the handlers. rng:
        unpredictable. host_name: of the machine. tls: None for plain text."""
        self._config, self._node, self._clock, self._tls = config, node, clock, tls
        self._boundary = replace(boundary, gates=node.services)
        self._between_nodes = between_nodes
        self._live = LiveFigures(self._counters, BOUNDS_MS)
        self._reading = asyncio.Semaphore(READS_OF_RECORDS)
        visitors = Visitors(CONSOLE_LISTENER, self._boundary, node.sasl, rng, strangers=lets_strangers_look(config))
        self._listener = ConsoleListener(
            visitors, self._load, names=_names(config, host_name), allow_insecure=config.allow_insecure
        )

    async def read_body(self, head: bytes, reader: asyncio.StreamReader) -> bytes:
        """The form of a request; empty if it has none."""
        return await reader.readexactly(form_bytes_of(head))

    async def answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bytes:
        """The answer to a request."""
        host, port = (writer.get_extra_info("peername") or ("", 0))[:2]
        encrypted = writer.get_extra_info("ssl_object")
        shown = None if encrypted is None else encrypted.getpeercert(binary_form=True)
        certified = None if self._tls is None else self._tls.principal_of(shown)
        own_port = (writer.get_extra_info("sockname") or ("", 0))[1]
        connection = HttpConnection(host, port, own_port, is_encrypted=encrypted is not None, certified=certified)
        return await self._listener.answer(head, body, connection)

    def close(self) -> None:
        """Refuse further requests: the node stops."""
        self._boundary.close()

    async def run(self) -> None:
        """Take samples for the charts while somebody looks, until cancelled."""
        while True:
            await self._clock.sleep_ms(EVERY_MS)
            self._live.sample()

    def _load(self) -> Callable[[Asking], Pages]:
        from tidelog.console.pages import Pages

        config = self._config
        (between,) = [each for each in config.listeners if each.name == config.inter_listener]
        own = between.advertised or between.bind

        def pages_of(asking: Asking) -> Pages:
            def connect(visitor: Visitor) -> ConsoleTransport:
                caller = Caller(
                    config.inter_listener,
                    asking.connection,
                    visitor.principal,
                    for_nodes=False,
                    client_id=CLIENT_ID,
                    host=asking.host,
                )
                return ConsoleTransport(self._boundary, own, self._between_nodes, caller)

            return Pages(str(own), connect, self._reading, self._live, self._clock)

        return pages_of

    def _counters(self) -> NodeCounters:
        replicas = self._node.replicas
        topics = [] if replicas is None else [meter for _, meter in replicas.topics]
        meters = {each.api: each for each in self._boundary.meters}

        def times(*apis: str) -> tuple[int, ...]:
            found = [meters[api].times for api in apis if api in meters]
            return tuple(map(sum, zip(*found, strict=True))) if found else (0,) * (len(BOUNDS_MS) + 1)

        return NodeCounters(
            self._clock.monotonic_ms(),
            records_in=sum(each.messages_in for each in topics),
            bytes_in=sum(each.bytes_in for each in topics),
            bytes_out=sum(each.bytes_out for each in topics),
            requests=sum(sum(each.times) for each in meters.values()),
            errors=sum(sum(each.errors.values()) for each in meters.values()),
            produce_times=times("Data.Produce", "Data.ProduceStream"),
            fetch_times=times("Data.Fetch", "Data.FetchStream"),
        )


def lets_strangers_look(config: NodeConfig) -> bool:
    """Whether a visitor who has not logged in may look, as an anonymous client: only where such a client could connect
    at all, and not from other machines, unless the operator has accepted that."""
    if config.metrics_bind is None or all(each.requires for each in config.listeners):
        return False
    return config.allow_insecure or is_loopback(config.metrics_bind.host)


def _names(config: NodeConfig, host_name: str) -> frozenset[str]:
    """The names of this node, by which a browser may open its console."""
    addresses = [each.advertised or each.bind for each in config.listeners]
    bound = [] if config.metrics_bind is None else [config.metrics_bind.host]
    return frozenset(name.lower() for name in (*(each.host for each in addresses), *bound, host_name))
