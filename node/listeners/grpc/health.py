"""Health of the node through gRPC's health service, as Kubernetes' probes query it.

Service "" and each of the node's services: alive, the process answers. This does not depend on other nodes; otherwise
the loss of a majority would make Kubernetes restart every node.
Service `tidelog.ready`: the node is registered, unfenced and caught up with the metadata, and is not stopping. Rolling
updates and disruption budgets use this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from grpc_health.v1 import health, health_pb2

READY: Final = "tidelog.ready"


class Health:
    """The state that the health service reports. `servicer` is added to each listener (`GrpcServer.serve_health`)."""

    def __init__(self, services: Iterable[str]) -> None:
        self.servicer = health.aio.HealthServicer()
        self._services = tuple(services)

    async def alive(self) -> None:
        """Report the node as alive and not ready."""
        for service in ("", *self._services):
            await self.servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
        await self.ready(is_ready=False)

    async def ready(self, *, is_ready: bool) -> None:
        """Report whether the node is ready, also to watchers."""
        answer = health_pb2.HealthCheckResponse
        await self.servicer.set(READY, answer.SERVING if is_ready else answer.NOT_SERVING)
