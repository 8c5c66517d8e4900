"""Health of the node through gRPC's health service, as Kubernetes' probes query it.

Service "" and each of the node's services: alive, the process answers. This does not depend on other nodes; otherwise
the loss of a majority would make Kubernetes restart every node.
Service `tidelog.ready`: the node is registered, unfenced and caught up with the metadata, and is not stopping.
Service `tidelog.caught-up`: it is ready, and its replicas have been in sync once since the process started
(node/process/catch_up.py). Rolling updates and disruption budgets use this one.

Invariant: a change of the state waits for no watcher. The servicer of grpcio-health-checking holds a lock while it
writes to a watcher, so that one caller who does not read keeps the state from changing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

READY: Final = "tidelog.ready"
CAUGHT_UP: Final = "tidelog.caught-up"


class Health:
    """The state that the health service reports. `servicer` is added to each listener (`GrpcServer.serve_health`)."""

    def __init__(self, services: Iterable[str]) -> None:
        self.servicer = HealthState()
        self._services = tuple(services)
        self._is_ready = self._has_caught_up = False

    def alive(self) -> None:
        """Report the node as alive and not ready."""
        for service in ("", *self._services):
            self.servicer.set(service, health_pb2.HealthCheckResponse.SERVING)
        self.ready(is_ready=False)

    def ready(self, *, is_ready: bool) -> None:
        """Report whether the node is ready, also to watchers."""
        self._is_ready = is_ready
        self._report()

    def caught_up(self) -> None:
        """Report from now on, while the node is ready, that it has caught up."""
        self._has_caught_up = True
        self._report()

    def _report(self) -> None:
        answer = health_pb2.HealthCheckResponse
        for service, holds in ((READY, self._is_ready), (CAUGHT_UP, self._is_ready and self._has_caught_up)):
            self.servicer.set(service, answer.SERVING if holds else answer.NOT_SERVING)


class HealthState(health_pb2_grpc.HealthServicer):
    """gRPC's health service."""

    def __init__(self) -> None:
        self._statuses: dict[str, Any] = {}
        self._changed = asyncio.Event()

    def set(self, service: str, status: Any) -> None:
        """Report this from now on."""
        self._statuses[service] = status
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 (gRPC's names)
        status = self._statuses.get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return health_pb2.HealthCheckResponse(status=status)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        reported = None
        while True:
            changed, status = self._changed, self._statuses.get(request.service, unknown)
            if status == reported:
                await changed.wait()
                continue
            await context.write(health_pb2.HealthCheckResponse(status=status))
            reported = status
