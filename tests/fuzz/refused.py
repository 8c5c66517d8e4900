"""A listener of a node for callers that may do nothing, and everything that a request could change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from node.api.api import Api
from node.api.caller import Caller
from node.boundary.boundary import Boundary
from node.listeners.grpc.server import GrpcServer
from node.runtime.request_meter import RequestMeters
from node.security.authorizer import Authorizer
from tests.node.real_nodes import RealNode
from tidelog.errors import ClusterAuthorizationFailed
from tidelog.types import Endpoint


class RefusesAll(Authorizer):
    """Refuses every request."""

    def ensure_allowed(self, caller: Caller, api: Api[Any, Any], asked: Any) -> None:
        raise ClusterAuthorizationFailed(f"{caller.principal} may not call {api.name}")


@dataclass(frozen=True)
class RefusingListener:
    """A listener whose authorizer refuses every request."""

    address: Endpoint
    meters: RequestMeters

    @property
    def defects(self) -> list[str]:
        """APIs of which a request or stream was answered INTERNAL."""
        defect = "UNKNOWN_SERVER_ERROR"
        return [meter.api for meter in self.meters if defect in {*meter.failed, *meter.streams_ended}]

    @property
    def served(self) -> list[str]:
        """APIs of which a request was answered with more than an error. A stream without a message ends well."""
        return [f"{meter.api} is served" for meter in self.meters if meter.answered]


@asynccontextmanager
async def refusing_listener(found: RealNode) -> AsyncIterator[RefusingListener]:
    """Another listener of this node, on a port of its own."""
    boundary = Boundary(authorizer=RefusesAll())
    server = GrpcServer("outside", boundary=boundary)
    address = server.bind(Endpoint("127.0.0.1", 0))
    server.serve(found.node.services)
    await server.start()
    try:
        yield RefusingListener(address, boundary.meters)
    finally:
        await server.stop(0)


def everything(found: RealNode) -> dict[str, object]:
    """What requests can change on a node, by name: the metadata log, and the logs of partitions."""
    node = found.node
    image = node.image
    assert image is not None
    assert node._metadata is not None
    view = node._metadata.view
    return {
        "the metadata": image,
        "the end of the metadata log": image.offset,
        "the epoch of the quorum": (view.leader_epoch, view.leader_id),
        "the ends of the logs": sorted(
            (each.name, each.log.log_start_offset, each.log.log_end_offset, each.log.high_watermark)
            for each in (() if node.replicas is None else node.replicas.partitions())
        ),
    }
