"""Runs the receiving and the sending side of one stream as two coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tidelog.errors import TidelogError


async def run_duplex(receiving: Coroutine[Any, Any, None], sending: Coroutine[Any, Any, None]) -> None:
    """Run both until `receiving` returns; then `sending` is cancelled. An error of either ends both and is raised
    directly, not in a group. Of several errors a defect is raised first, and then the cancellation of this task."""
    task = asyncio.current_task()
    assert task is not None, "a stream is served by a task"
    cancelled_before = task.cancelling()
    try:
        async with asyncio.TaskGroup() as tasks:
            # A task of its own: awaited here, each message would resume all frames from the listener down to it.
            receiver = tasks.create_task(receiving)
            sender = tasks.create_task(sending)
            # Waited for inside of the group: a group that is left before a task of it fails cancels this task and does
            # not take that back (Python 3.11); a later call of this task would take it for a cancellation of its own.
            await asyncio.wait((receiver,))
            sender.cancel()
        if receiver.cancelled():
            raise asyncio.CancelledError
    except BaseExceptionGroup as group:
        error = _first(group)
        # The group forgets that this task was cancelled, too: it would serve the next stream, and never end.
        if isinstance(error, TidelogError) and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError from None
        raise error from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to raise: the first one that is no TidelogError, else the first one."""
    flat = [_first(error) if isinstance(error, BaseExceptionGroup) else error for error in group.exceptions]
    return next((error for error in flat if not isinstance(error, TidelogError)), flat[0])
