"""The boundary of a node: what each request passes between its listener and its handler.

Listeners of all protocols share one `Boundary`. Authorization gets the decoded request (from `GrpcService` in
`node/listeners/grpc/codec.py`); quotas and meters get its bytes and times (from the server of the listener).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from node.observability.meters.request_meter import RequestMeters
from node.requests.types.authorizer import Authorizer
from node.requests.types.context import RequestContext


class Quotas:
    """Quotas of clients and principals. There are none yet: no request is delayed."""

    def charge(self, context: RequestContext, size: int) -> int:  # noqa: ARG002 (for subclasses)
        """Called with the size in bytes of each request and of each answer message. Returns the delay of the request in
        milliseconds. Answers are not delayed: their excess delays later requests."""
        return 0


@dataclass(frozen=True, slots=True)
class Boundary:
    """Authorization, quotas and meters of a node. The defaults allow every request without limits."""

    meters: RequestMeters = field(default_factory=RequestMeters)
    authorizer: Authorizer = field(default_factory=Authorizer)
    quotas: Quotas = field(default_factory=Quotas)
