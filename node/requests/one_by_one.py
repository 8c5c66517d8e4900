"""Changes that one request asks for and that are made one after the other, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from node.requests.context import RequestContext
from node.runtime.limits import ensure_few
from tidelog.errors import NotController, RequestTimedOut, TidelogError

PARTS_MAX: Final = 1_000
"""Topics, users or entities that one request changes, each with a commit of its own: some seconds."""

Part = TypeVar("Part")
Done = TypeVar("Done")


async def one_by_one(
    parts: Sequence[Part],
    what: str,
    name_of: Callable[[Part], str],
    change: Callable[[Part], Awaitable[Done]],
    context: RequestContext,
) -> list[Done | TidelogError]:
    """What became of each part, in the order of the request, or why it was not changed. what: the parts are, in the
    plural. name_of: a part, in errors. Raises InvalidRequest for too many."""
    ensure_few(parts, what, PARTS_MAX)
    outcomes: list[Done | TidelogError] = []
    unreachable: tuple[Part, TidelogError] | None = None
    for part in parts:
        if unreachable is None:
            try:
                outcomes.append(await change(part))
                continue
            except TidelogError as error:
                refusal = error
                if isinstance(error, NotController | RequestTimedOut):
                    unreachable = part, error
        else:  # it would wait as long for the controller
            earlier, cause = unreachable
            refusal = _not_tried(name_of(part), name_of(earlier), cause)
        context.meter.count_error(refusal)
        outcomes.append(refusal)
    return outcomes


def _not_tried(name: str, earlier: str, error: TidelogError) -> TidelogError:
    """The error of a part whose turn did not come, of the same kind as that of the part which the controller did not
    answer in time."""
    return type(error)(
        f"{name} was not changed: the controller did not answer in time for {earlier}, which the same request names "
        f"before it ({error.message}); repeat the request for this one"
    )
