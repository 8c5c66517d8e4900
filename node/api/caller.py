"""The caller of a request, as its listener describes it."""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog.errors import TidelogError
from tidelog.values import dataclass

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a connection that was not authenticated. Kafka's name."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The other side of a call or of a stream."""

    listener: str
    """The name of the listener on which the request arrived; answers name the addresses of that listener."""
    connection: str
    """The address of the other side, as the listener describes it."""
    principal: str = ANONYMOUS
    """The authenticated identity, `User:NAME`."""
    for_nodes: bool = True
    """True if the caller may call the APIs of nodes: by the listener, and by the certificate if one is required; where
    SASL is required, only the user of the nodes may."""
    client_id: str = ""
    """The name that the client chose; empty if its protocol has none."""
    deadline_ms: int | None = None
    """How long the caller waits for the answer, from the arrival; None if the listener does not know."""
    host: str = ""
    """The IP address of the other side, without a port; empty if there is none."""
    mutes: bool = False
    """True if the listener reads nothing of a throttled caller for the time in the answer (KIP-219). Requests of others
    wait before they are handled."""
    request_copies: int = 1
    """How often the records of a request are in memory while it is handled, with those of the transport."""
    answer_copies: int = 1
    """The same for the records of an answer until it is sent."""
    unauthenticated: TidelogError | None = None
    """Why the caller is not known; None if it is, or need not be."""
    appends: asyncio.Lock | None = None
    """Held while the records of a request are appended, if several requests of a connection are handled at once: they
    append in the order in which they were sent. None: its protocol has streams for that."""
    asked_from: str = ""
    """Where the request was made, if another node passes it on for a visitor of its console; empty: at `connection`."""
