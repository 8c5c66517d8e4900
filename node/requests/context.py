"""The origin of a request, with the services of the node that count, permit, record and throttle it."""

from __future__ import annotations

from dataclasses import field

from node.api.caller import Caller
from node.quotas.throttle import NO_THROTTLE, Throttle
from node.runtime.request_meter import MeteredRequest, RequestMeter
from node.security.authorizer import AuditTrail, Authorizer
from tidelog.errors import ClusterAuthorizationFailed
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class RequestContext(Caller):
    """The context of one call or one stream. The defaults allow every request."""

    meter: RequestMeter = field(default_factory=RequestMeter, compare=False, repr=False)
    """The counters of the request's API."""
    authorizer: Authorizer = field(default_factory=Authorizer, compare=False, repr=False)
    audit: AuditTrail = field(default_factory=AuditTrail, compare=False, repr=False)
    throttle: Throttle = field(default=NO_THROTTLE, compare=False, repr=False)
    """The quotas of the caller."""

    def begin(self, *, entries: int = 0, wait_ms: int | None = 0, queue_ns: int = 0) -> MeteredRequest:
        """Measure a request from now on. entries: parts that are answered one by one. wait_ms: how long it may wait
        for records; None: without a limit. queue_ns: how long it has waited since it arrived."""
        worked = self.throttle.worked if self.throttle.applies else None
        return MeteredRequest(self.meter, self.connection, self.client_id, entries, wait_ms, worked, queue_ns)

    def ensure_for_nodes(self, what: object) -> None:
        """Raise ClusterAuthorizationFailed if the caller may not call node-only APIs. what: names the request."""
        if not self.for_nodes:
            self.audit.not_a_node(self, str(what))
            raise ClusterAuthorizationFailed(
                f"{what} is for nodes only, and {self.principal} at listener {self.listener!r} is none. Clients have "
                "no use for it. A node calls the listener that inter.broker.listener.name names, and where that "
                "requires certificates, with one whose extended key usage has serverAuth and clientAuth; where it "
                "requires SASL, with the secret of the cluster"
            )
