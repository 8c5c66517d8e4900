"""The boundary of a node: what each request passes between its listener and its handler.

Listeners of all protocols share one `Boundary`. Authorization and the audit trail get the decoded request (from
`GrpcService` in `node/listeners/grpc/codec.py`); quotas, limits and meters get its bytes and times (from the server of
the listener).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from node.quotas.open_calls import OpenCalls
from node.quotas.throttle import Quotas
from node.runtime.request_meter import RequestMeters
from node.security.authorizer import AuditTrail, Authorizer


@dataclass(frozen=True, slots=True)
class Boundary:
    """Authorization, audit trail, quotas, limits and meters of a node. The defaults allow every request."""

    meters: RequestMeters = field(default_factory=RequestMeters)
    authorizer: Authorizer = field(default_factory=Authorizer)
    quotas: Quotas = field(default_factory=Quotas)
    audit: AuditTrail = field(default_factory=AuditTrail)
    calls: OpenCalls = field(default_factory=OpenCalls)
