"""The origin of a request, as a listener describes it to the handlers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from node.observability.meters.request_meter import MeteredRequest, RequestMeter
from node.requests.types.authorizer import Authorizer

ANONYMOUS: Final = "anonymous"
"""The principal of a connection that was not authenticated. Listeners do not authenticate yet."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One for each call, and one for each stream.

    listener: the name of the listener on which the request arrived; answers name the addresses of that listener.
    connection: the address of the other side, as the listener describes it.
    principal: the authenticated identity.
    client_id: the name that the client chose; empty if its protocol has none.
    deadline_ms: how long the caller waits for the answer, from the arrival; None if the listener does not know.
    meter: the counters of the request's API.
    authorizer: decides whether the requests are allowed.
    """

    listener: str
    connection: str
    principal: str = ANONYMOUS
    client_id: str = ""
    deadline_ms: int | None = None
    meter: RequestMeter = field(default_factory=RequestMeter, compare=False, repr=False)
    authorizer: Authorizer = field(default_factory=Authorizer, compare=False, repr=False)

    def begin(self, *, entries: int = 0, wait_ms: int | None = 0) -> MeteredRequest:
        """Measure a request from now on. entries: parts that are answered one by one. wait_ms: how long it may wait
        for records; None: without a limit."""
        return MeteredRequest(self.meter, self.connection, self.client_id, entries, wait_ms)
