"""Is this node alive, is it ready: gRPC's own health service, which Kubernetes' probes speak.

Service "" (and each of the node's services): alive, the process answers. Never about other nodes, or the loss of one
majority would have every node restarted. Service `tidelog.ready`: registered, unfenced, its metadata caught up, not
being stopped; rolling updates and disruption budgets go by this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from grpc_health.v1 import health, health_pb2

READY: Final = "tidelog.ready"


class Health:
    """What the health service answers. `servicer` goes to each listener (`GrpcServer.serve_health`)."""

    def __init__(self, services: Iterable[str]) -> None:
        self.servicer = health.aio.HealthServicer()
        self._services = tuple(services)

    async def alive(self) -> None:
        """The process answers; it is not ready yet."""
        for service in ("", *self._services):
            await self.servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
        await self.ready(is_ready=False)

    async def ready(self, *, is_ready: bool) -> None:
        """Tell those who ask, and those who watch."""
        answer = health_pb2.HealthCheckResponse
        await self.servicer.set(READY, answer.SERVING if is_ready else answer.NOT_SERVING)
