"""Calls to the active controller: directly if this process is the active controller, otherwise over the network.

Invariant: a call is repeated only after an error that excludes any effect (not the controller, no connection).
Not here: which node leads (node/quorum/driver.py keeps the view up to date).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, cast

from node.api.api import Answered, Api, Asked
from node.api.controller_requests import Envelope
from node.api.peers import Peers
from node.api.table import CONTROLLER_ENVELOPE
from node.quorum.state import QuorumView
from node.requests.context import RequestContext
from node.requests.gate import Gate
from node.requests.recorded_changes import audited
from node.security.authorizer import AuditTrail
from tidelog.clock import Clock
from tidelog.errors import ConnectionFailed, NotController, RequestTimedOut, UnknownServerError
from tidelog.types import Endpoint, NodeId

PAUSE_MS: Final = 50
LOST_PATIENCE_MS: Final = 3_000
"""Limit of the timeout while no leader has been heard from for `LOST_MS` (node/quorum/state.py)."""


class ControllerClient:
    """Finds the active controller for each call, and again if it has moved."""

    def __init__(
        self,
        view: QuorumView,
        local: Gate,
        voters: Callable[[], Mapping[NodeId, Endpoint | None]],
        *,
        clock: Clock,
        peers: Peers,
        audit: AuditTrail | None = None,
    ) -> None:
        """local: the gate of this process's controller. voters: returns the addresses of the voters, None for this
        process. audit: records the changes that this node requests from its own controller; other controllers record
        theirs themselves."""
        self._view, self._local, self._voters = view, local, voters
        self._clock, self._peers = clock, peers
        me = f"node {view.node_id}"
        self._context = RequestContext("local", me, me, audit=audit or AuditTrail())

    def why_unavailable(self) -> str:
        """Why no change is possible now, as text; empty if an active controller was heard from recently."""
        if not self._view.is_lost:
            return ""
        heard = f"no active controller has been heard for {self._view.silence_ms() // 1_000} s"
        voters = sorted(self._voters())
        if not voters:
            return f"{heard}: this node belongs to no cluster yet"
        return f"{heard}: a majority of the voters, nodes {voters}, must run and reach each other; start what is down"

    def inactive_controllers(self) -> list[Endpoint | None]:
        """Addresses of the voters that this node does not know as the active controller; None: this process."""
        return [where for node_id, where in self._voters().items() if node_id != self._view.leader_id]

    async def send(self, target: Endpoint | None, api: Api[Asked, Answered], asked: Asked, *, timeout_ms: int) -> None:
        """Call one controller once, active or not. Raises the TidelogError of the answer."""
        if target is None:
            await self._serve(api, asked, timeout_ms)
        else:
            await self._peers.call(target, api, asked, timeout_ms=timeout_ms)

    async def forward(
        self, api: Api[Asked, Answered], asked: Asked, *, timeout_ms: int, principal: str = ""
    ) -> Answered:
        """Request a change from the active controller, as `call`. principal: that of the caller of this node, or
        empty."""
        answer = await self.call(CONTROLLER_ENVELOPE, Envelope(api, asked, principal), timeout_ms=timeout_ms)
        if answer.api is not api:
            raise UnknownServerError(f"the active controller answered {api} with the answer to {answer.api}: a defect")
        return cast("Answered", answer.answered)

    async def call(self, api: Api[Asked, Answered], asked: Asked, *, timeout_ms: int) -> Answered:
        """Call the active controller. timeout_ms: limit of all attempts together.

        Raises the TidelogError of the answer, NotController if no active controller was found in time.
        """
        patience_ms = min(timeout_ms, LOST_PATIENCE_MS) if self._view.is_lost else timeout_ms
        deadline = self._clock.monotonic_ms() + patience_ms
        while True:
            left = deadline - self._clock.monotonic_ms()
            try:
                return await self._attempt(api, asked, max(1, left))
            except (NotController, ConnectionFailed):
                if left <= PAUSE_MS:
                    if reason := self.why_unavailable():
                        raise NotController(reason) from None
                    raise
                await self._clock.sleep_ms(PAUSE_MS)

    async def _attempt(self, api: Api[Asked, Answered], asked: Asked, timeout_ms: int) -> Answered:
        if self._view.leads:
            return await self._serve(api, asked, timeout_ms)
        endpoint = self._view.endpoint
        if endpoint is None:
            raise NotController("no active controller is known: the metadata quorum has no leader that responds")
        return await self._peers.call(endpoint, api, asked, timeout_ms=timeout_ms)

    async def _serve(self, api: Api[Asked, Answered], asked: Asked, timeout_ms: int) -> Answered:
        handle = audited(api, self._local.handler(api))
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                answered: Answered = await handle(asked, self._context)
                return answered
        except TimeoutError:
            raise RequestTimedOut(
                f"{api}: this node's own controller did not commit within {timeout_ms} ms; try again"
            ) from None
