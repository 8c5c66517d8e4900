"""A transport to three nodes that answer as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tidelog.errors import (
    ConnectionFailed,
    TidelogError,
)
from tidelog.protocol import methods
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import groups_pb2 as pb
from tidelog.types import Endpoint

NODES = [Endpoint("node", port) for port in (1, 2, 3)]


class Nodes:
    """A transport to three nodes. `coordinator` is what each of them says; `on_call` what the coordinator answers."""

    def __init__(self) -> None:
        self.coordinator: dict[Endpoint, Endpoint | TidelogError] = dict.fromkeys(NODES, NODES[0])
        self.on_call: Callable[[Endpoint], TidelogError | None] = lambda _to: None
        self.lookups: list[Endpoint] = []
        self.calls: list[Endpoint] = []

    async def call(self, to: Endpoint, method: Any, request: Any, *, timeout_ms: int) -> Any:
        await asyncio.sleep(0)  # noqa: TID251 - others run
        if method is methods.COORDINATORS_FIND_COORDINATOR:
            self.lookups.append(to)
            answer = pb.FindCoordinatorResponse()
            for key in request.keys:
                found, said = answer.coordinators.add(key=key), self.coordinator[to]
                if isinstance(said, ConnectionFailed):
                    raise said
                elif isinstance(said, TidelogError):
                    found.error.CopyFrom(to_proto(said))
                else:
                    found.node.host, found.node.port = said.host, said.port
            return answer
        self.calls.append(to)
        error = self.on_call(to)
        if isinstance(error, ConnectionFailed):
            raise error
        outcome = pb.DeleteGroupsResponse()
        for group_id in request.group_ids:
            deleted = outcome.groups.add(group_id=group_id)
            if error is not None:
                deleted.error.CopyFrom(to_proto(error))
        return outcome

    async def open_stream(self, to: Endpoint, method: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...
