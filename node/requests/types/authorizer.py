"""Authorization: the one place where a request can be rejected because of its origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from node.requests.types.api import Api

if TYPE_CHECKING:
    from node.requests.types.context import RequestContext


class Authorizer:
    """Allows every request: listeners do not authenticate callers yet."""

    def ensure_allowed(self, context: RequestContext, api: Api[Any, Any], asked: Any) -> None:
        """Called with each request, and with each message of a stream, before its handler. Raises
        TopicAuthorizationFailed or ClusterAuthorizationFailed to reject it."""
