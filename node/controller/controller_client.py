"""How a node talks to the active controller: directly where it is this very process, else over the network.

Kept true: a call is sent again only where the error says that nothing was done (not the controller, no connection).
Left to others: finding out who leads (driver.py keeps the view up to date).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from node.quorum.state import QuorumView
from node.requests.types.api import Answered, Api, Asked
from node.requests.types.context import RequestContext
from node.runtime.clock import Clock
from node.runtime.peers import Peers
from tidelog.errors import ConnectionFailed, NotController, RequestTimedOut
from tidelog.types import Endpoint, NodeId

PAUSE_MS: Final = 50
LOST_PATIENCE_MS: Final = 3_000
"""How long a call waits for a controller where none has been heard for long."""


class ControllerClient:
    """Finds the active controller for each call, again where it has moved."""

    def __init__(
        self,
        view: QuorumView,
        local: object,
        voters: Callable[[], Mapping[NodeId, Endpoint | None]],
        *,
        clock: Clock,
        peers: Peers,
    ) -> None:
        """local: the handlers of this process's controller. voters: where each voter is reached, None: this process."""
        self._view, self._local, self._voters = view, local, voters
        self._clock, self._peers = clock, peers
        self._context = RequestContext("local", f"node {view.node_id}")

    def trouble(self) -> str:
        """Why nothing can be changed now, in words; empty where an active controller was heard a moment ago."""
        if not self._view.is_lost:
            return ""
        heard = f"no active controller has been heard for {self._view.silence_ms() // 1_000} s"
        voters = sorted(self._voters())
        if not voters:
            return f"{heard}: this node belongs to no cluster yet"
        return f"{heard}: a majority of the voters, nodes {voters}, has to run and reach each other; start what is down"

    def standing_by(self) -> list[Endpoint | None]:
        """The voters that are not the active controller as far as this node knows; None: this process."""
        return [where for node_id, where in self._voters().items() if node_id != self._view.leader_id]

    async def tell(self, target: Endpoint | None, api: Api[Asked, Answered], asked: Asked, *, timeout_ms: int) -> None:
        """Call one controller, active or not, once. Raises the TidelogError of the answer."""
        if target is None:
            await self._serve(api, asked, timeout_ms)
        else:
            await self._peers.call(target, api, asked, timeout_ms=timeout_ms)

    async def call(self, api: Api[Asked, Answered], asked: Asked, *, timeout_ms: int) -> Answered:
        """Call the active controller. timeout_ms: for all attempts together.

        Raises the TidelogError of the answer; NotController where none was found in time.
        """
        patience_ms = min(timeout_ms, LOST_PATIENCE_MS) if self._view.is_lost else timeout_ms
        deadline = self._clock.monotonic_ms() + patience_ms
        while True:
            left = deadline - self._clock.monotonic_ms()
            try:
                return await self._attempt(api, asked, max(1, left))
            except (NotController, ConnectionFailed):
                if left <= PAUSE_MS:
                    if trouble := self.trouble():
                        raise NotController(trouble) from None
                    raise
                await self._clock.sleep_ms(PAUSE_MS)

    async def _attempt(self, api: Api[Asked, Answered], asked: Asked, timeout_ms: int) -> Answered:
        if self._view.leads:
            return await self._serve(api, asked, timeout_ms)
        endpoint = self._view.endpoint
        if endpoint is None:
            raise NotController("no active controller is known: the metadata quorum has no leader that answers")
        return await self._peers.call(endpoint, api, asked, timeout_ms=timeout_ms)

    async def _serve(self, api: Api[Asked, Answered], asked: Asked, timeout_ms: int) -> Answered:
        handle: Any = getattr(self._local, api.handler)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return cast("Answered", await handle(asked, self._context))
        except TimeoutError:
            raise RequestTimedOut(
                f"{api}: this node's own controller did not commit within {timeout_ms} ms; ask again"
            ) from None
