"""Signals: Ctrl-C while a command starts, and the end of a command that Ctrl-C or SIGTERM ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")

INTERRUPTED = 130
"""Exit code of a command that was interrupted."""
TERMINATED = 143
"""Exit code of a command that SIGTERM ended."""


class Terminated(BaseException):
    """SIGTERM ended the command, after it cleaned up."""


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Within this context an interrupt ends the process with 130 at once, without a traceback. For imports: they take a
    noticeable time and have nothing to clean up."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or not _is_main_thread():
        yield  # ignored, as in a background job, or handled by the caller
        return
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def run_until_signal(work: Coroutine[Any, Any, Result]) -> Result:
    """Run the work of a command as `asyncio.run` does. Ctrl-C and SIGTERM cancel it, so that it can send what it has
    and commit what it printed. Raises KeyboardInterrupt or Terminated then."""
    import asyncio  # a command that asks no node needs none of it

    is_terminated = False

    async def watched() -> Result:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None, "the coroutine runs in a task"

        def terminate() -> None:
            nonlocal is_terminated
            is_terminated = True
            task.cancel()

        if _is_main_thread():
            loop.add_signal_handler(signal.SIGTERM, terminate)
        return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        if is_terminated:
            raise Terminated from None
        raise


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
