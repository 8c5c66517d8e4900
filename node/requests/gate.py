"""Gate of a service: the listeners are open while the node still recovers its logs and cannot serve yet.

Invariant: until the gate is opened, every request is refused with NodeNotAvailable; then it reaches its handler.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from node.api.api import Answered, Api, Asked
from node.requests.context import RequestContext
from tidelog.errors import NodeNotAvailable


class Gate:
    """The handlers of one service in values, for the listeners of all protocols."""

    def __init__(self, service: str, handlers: object | None = None) -> None:
        """service: the first part of the names of its APIs (`Data`). handlers: as for `open`."""
        self.service = service
        self._handlers = handlers

    def open(self, handlers: object) -> None:
        """Pass all further requests to `handlers`: an object with one async method for each API of the service."""
        self._handlers = handlers

    def handler(self, api: Api[Asked, Answered]) -> Callable[[Any, RequestContext], Coroutine[Any, Any, Answered]]:
        """The handler of an API: takes the request, or the stream of an API with streams, and its context. One from
        before the gate was opened passes requests on, too."""
        if self._handlers is not None:  # each request comes here: no coroutine around its own
            opened: Callable[[Any, RequestContext], Coroutine[Any, Any, Answered]] = getattr(
                self._handlers, api.handler
            )
            return opened

        async def handle(asked: Any, context: RequestContext) -> Answered:
            if self._handlers is None:
                raise NodeNotAvailable(
                    f"{api}: the node is starting and still recovers its logs; use another node, or try again later"
                )
            answered: Answered = await getattr(self._handlers, api.handler)(asked, context)
            return answered

        return handle
