"""The origin of a request, as a listener describes it to the handlers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from node.observability.meters.request_meter import MeteredRequest, RequestMeter
from node.quotas.throttle import NO_THROTTLE, Throttle
from node.requests.types.authorizer import AuditTrail, Authorizer
from tidelog.errors import ClusterAuthorizationFailed

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection that was not authenticated. Kafka's name."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One for each call, and one for each stream.

    listener: the name of the listener on which the request arrived; answers name the addresses of that listener.
    connection: the address of the other side, as the listener describes it.
    principal: the authenticated identity, `User:NAME`.
    for_nodes: whether the caller may ask what is for nodes: by the listener, and by the certificate if one is required;
        where SASL is required, only the user of the nodes may.
    host: the IP address of the other side, without a port; empty if there is none.
    client_id: the name that the client chose; empty if its protocol has none.
    deadline_ms: how long the caller waits for the answer, from the arrival; None if the listener does not know.
    meter: the counters of the request's API.
    authorizer: decides whether the requests are allowed.
    audit: records administrative requests.
    throttle: the quotas of the caller.
    """

    listener: str
    connection: str
    principal: str = ANONYMOUS
    for_nodes: bool = True
    client_id: str = ""
    deadline_ms: int | None = None
    meter: RequestMeter = field(default_factory=RequestMeter, compare=False, repr=False)
    authorizer: Authorizer = field(default_factory=Authorizer, compare=False, repr=False)
    host: str = ""
    audit: AuditTrail = field(default_factory=AuditTrail, compare=False, repr=False)
    throttle: Throttle = field(default=NO_THROTTLE, compare=False, repr=False)

    def begin(self, *, entries: int = 0, wait_ms: int | None = 0) -> MeteredRequest:
        """Measure a request from now on. entries: parts that are answered one by one. wait_ms: how long it may wait
        for records; None: without a limit."""
        worked = self.throttle.worked if self.throttle.applies else None
        return MeteredRequest(self.meter, self.connection, self.client_id, entries, wait_ms, worked)

    def ensure_for_nodes(self, what: object) -> None:
        """Raise ClusterAuthorizationFailed if the caller may not ask what is for nodes. what: names the request."""
        if not self.for_nodes:
            self.audit.not_a_node(self, str(what))
            raise ClusterAuthorizationFailed(
                f"{what} is for nodes only, and {self.principal} at listener {self.listener!r} is none. Clients have "
                "no use for it. A node calls the listener that inter.broker.listener.name names, and where that "
                "requires certificates, with one whose extended key usage has serverAuth and clientAuth; where it "
                "requires SASL, with the secret of the cluster"
            )
