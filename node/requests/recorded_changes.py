"""Recording of administrative changes: every request of an audited API passes through here, with its outcome.

The boundary records the changes that others request from this node; the client of the controller records those that
this node requests from its own controller.
Not here: the audited APIs (node/api/table.py), the form of a line (node/security/audit_log.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from node.api.api import Api
from node.requests.context import RequestContext
from tidelog.errors import TidelogError

Handle: TypeAlias = Callable[[Any, RequestContext], Awaitable[Any]]


def audited(api: Api[Any, Any], handle: Handle) -> Handle:
    """The handler of this API, which also reports each change to the audit trail of the request's context."""
    if not api.audited:
        return handle

    async def recorded(asked: Any, context: RequestContext) -> Any:
        outcome = None  # unknown: the caller went away, or the handler has a defect
        try:
            outcome = await handle(asked, context)
        except TidelogError as error:
            outcome = error
            raise
        finally:
            context.audit.changed(context, api, asked, outcome)
        return outcome

    return recorded
