"""The boundary of a node: what each request passes between its listener and its handler.

Listeners of all protocols share one `Boundary`. Authorization sees the value of the request (`GrpcService` in
`node/listeners/grpc/codec.py` asks), quotas and meters see its bytes and times (the listener's server tells).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from node.observability.meters.request_meter import RequestMeters
from node.requests.types.authorizer import Authorizer
from node.requests.types.context import RequestContext


class Quotas:
    """Quotas of clients and principals; there are none yet, so that no request waits."""

    def charge(self, context: RequestContext, size: int) -> int:  # noqa: ARG002 (for subclasses)
        """Called with the size in bytes of each request, and of each message sent in answer. Returns how long the
        request waits before it is handled (milliseconds); an answer does not wait, its excess delays the requests that
        follow."""
        return 0


@dataclass(frozen=True, slots=True)
class Boundary:
    """Authorization, quotas and meters of a node; today every request is allowed, without limits."""

    meters: RequestMeters = field(default_factory=RequestMeters)
    authorizer: Authorizer = field(default_factory=Authorizer)
    quotas: Quotas = field(default_factory=Quotas)
