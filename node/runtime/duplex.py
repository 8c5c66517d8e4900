"""Both directions of one stream, as two coroutines with one end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tidelog.errors import TidelogError


async def run_duplex(receiving: Coroutine[Any, Any, None], sending: Coroutine[Any, Any, None]) -> None:
    """Run both until `receiving` returns; `sending` is cancelled then. An error of either ends both and is raised as
    itself, not in a group; of several, a defect goes first."""
    try:
        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(sending)
            await receiving
            sender.cancel()
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell of: the first that is not a TidelogError, else the first."""
    flat = [_first(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return next((error for error in flat if not isinstance(error, TidelogError)), flat[0])
