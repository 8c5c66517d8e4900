"""How a node talks to the active controller: directly where it is this very process, else over the network.

Kept true: a call is sent again only where the error says that nothing was done (not the controller, no connection).
Left to others: finding out who leads (driver.py keeps the view up to date).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from node.quorum.state import QuorumView
from node.requests.types.context import RequestContext
from node.runtime.clock import Clock
from node.runtime.methods import Answer, Method, Request
from node.runtime.transport import Transport
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
        transport: Transport,
    ) -> None:
        """local: the controller service of this process. voters: where each voter is reached, None: this process."""
        self._view, self._local, self._voters = view, local, voters
        self._clock, self._transport = clock, transport
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

    async def tell(
        self, target: Endpoint | None, method: Method[Request, Answer], request: Request, *, timeout_ms: int
    ) -> None:
        """Call one controller, active or not, once. Raises the TidelogError of the answer."""
        if target is None:
            serve: Any = getattr(self._local, method.attribute)
            await self._within(cast("Awaitable[Answer]", serve(request, self._context)), method, timeout_ms)
        else:
            await self._transport.call(target, method, request, timeout_ms=timeout_ms)

    async def call(self, method: Method[Request, Answer], request: Request, *, timeout_ms: int) -> Answer:
        """Call the active controller. timeout_ms: for all attempts together.

        Raises the TidelogError of the answer; NotController where none was found in time.
        """
        patience_ms = min(timeout_ms, LOST_PATIENCE_MS) if self._view.is_lost else timeout_ms
        deadline = self._clock.monotonic_ms() + patience_ms
        while True:
            left = deadline - self._clock.monotonic_ms()
            try:
                return await self._attempt(method, request, max(1, left))
            except (NotController, ConnectionFailed):
                if left <= PAUSE_MS:
                    if trouble := self.trouble():
                        raise NotController(trouble) from None
                    raise
                await self._clock.sleep_ms(PAUSE_MS)

    async def _attempt(self, method: Method[Request, Answer], request: Request, timeout_ms: int) -> Answer:
        if self._view.leads:
            serve: Any = getattr(self._local, method.attribute)
            return await self._within(cast("Awaitable[Answer]", serve(request, self._context)), method, timeout_ms)
        endpoint = self._view.endpoint
        if endpoint is None:
            raise NotController("no active controller is known: the metadata quorum has no leader that answers")
        return await self._transport.call(endpoint, method, request, timeout_ms=timeout_ms)

    async def _within(self, answer: Awaitable[Answer], method: Method[Request, Answer], timeout_ms: int) -> Answer:
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await answer
        except TimeoutError:
            raise RequestTimedOut(
                f"{method}: this node's own controller did not commit within {timeout_ms} ms; ask again"
            ) from None
