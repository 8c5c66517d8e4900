"""Gate of a service: the listeners are open while the node still recovers its logs and cannot serve yet.

Invariant: until the gate is opened, every call is refused with NodeNotAvailable; from then on it reaches the service.
"""

from __future__ import annotations

from typing import Any

from node.requests.types.context import RequestContext
from tidelog.errors import NodeNotAvailable
from tidelog.protocol.methods import CallKind, Method, WireMessage, of_service


class Gate:
    """Has the methods of a service. `open` sets the object that serves them."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._inner: object | None = None
        for method in of_service(service):
            setattr(self, method.attribute, self._pass_on(method))

    def open(self, inner: object) -> None:
        """Pass all further calls to `inner`."""
        self._inner = inner

    def _pass_on(self, method: Method[WireMessage, WireMessage]) -> Any:
        attribute = method.attribute

        async def call(request: Any, context: RequestContext) -> Any:
            return await getattr(self._served(method), attribute)(request, context)

        async def stream(stream: Any, context: RequestContext) -> None:
            await getattr(self._served(method), attribute)(stream, context)

        return call if method.kind is CallKind.UNARY else stream

    def _served(self, method: object) -> object:
        if self._inner is None:
            raise NodeNotAvailable(
                f"{method}: the node is starting and still recovers its logs; use another node, or try again later"
            )
        return self._inner
