"""How the console asks the cluster: as one visitor, through the boundary of each node that it asks.

A request to this node goes to its boundary, as if it had come over a listener. One to another node is sent between the
nodes, on behalf of the visitor. So permissions, quotas, limits and the audit log hold for the console as for a client.
Not here: what it asks (tidelog/console/), who the visitor is (visitors.py).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import NoReturn

from node.api.caller import Caller
from node.api.table import APIS
from node.boundary.boundary import Boundary, Request
from node.listeners.grpc.codecs import codec_of
from tidelog.errors import InvalidRequest, RequestTimedOut
from tidelog.protocol import rpc, wire
from tidelog.protocol.grpc_transport import GrpcTransport, behalf
from tidelog.types import Endpoint


class ConsoleTransport:
    """A `tidelog.protocol.network.Transport` for one visitor."""

    def __init__(self, boundary: Boundary, own: Endpoint, between_nodes: GrpcTransport, visitor: Caller) -> None:
        """boundary: with the handlers of this node. own: the address of this node at the listener between nodes, by
        which answers name it. visitor: at that listener, without the rights of a node."""
        assert not visitor.for_nodes, "a person is no node"
        self._boundary, self._own, self._between_nodes, self._visitor = boundary, own, between_nodes, visitor
        self._on_behalf = behalf(visitor.principal, visitor.host, visitor.connection)

    async def call(
        self, to: Endpoint, method: rpc.Method[rpc.Request, rpc.Answer], request: rpc.Request, *, timeout_ms: int
    ) -> rpc.Answer:
        if to != self._own:
            return await self._between_nodes.call_for(self._on_behalf, to, method, request, timeout_ms=timeout_ms)
        api, codec = APIS[str(method)], codec_of(str(method))
        data = wire.writer(method.request)(request)
        caller = replace(self._visitor, deadline_ms=timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                answer = await self._boundary.serve(api, Request(data, codec), caller)
        except TimeoutError:
            raise RequestTimedOut(f"{method} at {to}: no answer within {timeout_ms} ms") from None
        return wire.reader(method.answer)(answer.data)

    async def open_stream(self, to: Endpoint, method: rpc.Method[rpc.Request, rpc.Answer]) -> NoReturn:
        raise InvalidRequest(f"{method} at {to}: the console opens no streams")

    async def close(self) -> None:
        """Nothing is open: the connections between nodes belong to the node."""
