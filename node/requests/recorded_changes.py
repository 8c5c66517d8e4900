"""Recording of administrative changes: every request of an audited API passes through here, with its outcome.

The listener records what others ask of this node; the client of the controller what this node asks of its own.
Not here: which APIs are audited (node/api/table.py), how a line looks (node/security/audit_log.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from node.api.api import Api
from node.requests.context import RequestContext
from tidelog.errors import TidelogError

Handle: TypeAlias = Callable[[Any, RequestContext], Awaitable[Any]]


def audited(api: Api[Any, Any], handle: Handle) -> Handle:
    """The handler of this API, which also tells the audit trail of the request's context about each change."""
    if not api.audited:
        return handle

    async def recorded(asked: Any, context: RequestContext) -> Any:
        outcome = None  # unknown: the caller went away, or a defect
        try:
            outcome = await handle(asked, context)
        except TidelogError as error:
            outcome = error
            raise
        finally:
            context.audit.changed(context, api, asked, outcome)
        return outcome

    return recorded
