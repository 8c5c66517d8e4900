"""The origin of a request, as a listener describes it to the handlers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ANONYMOUS: Final = "anonymous"
"""The principal of a connection that was not authenticated. Listeners authenticate nobody yet."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One for each call, and one for each stream.

    listener: the name of the listener on which the request arrived; answers name the addresses of that listener.
    connection: the address of the other side, as the listener describes it.
    principal: the authenticated identity.
    client_id: the name that the client gave itself; empty where its protocol has none.
    """

    listener: str
    connection: str
    principal: str = ANONYMOUS
    client_id: str = ""
