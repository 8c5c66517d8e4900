"""Ctrl-C and SIGTERM: whenever they come, the demo ends soon, by way of its own clean-up.

A signal raises KeyboardInterrupt wherever the main thread is. That may be a place that swallows it (a finalizer, a
library's `except`), so it is also remembered, and raised again at the next step. Within `logging` it is raised a moment
later: a fork takes the locks of logging in a callback, whose exception is printed and lost. Within an event loop it
cancels.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
LATER: Final = signal.SIGALRM
LATER_SECONDS: Final = 0.05


class Interrupts:
    """Listens from `listen` until `ignore`, on the main thread."""

    def __init__(self) -> None:
        self.came = False

    def listen(self) -> None:
        """From now on a signal raises KeyboardInterrupt."""
        for number in (*NUMBERS, LATER):
            signal.signal(number, self._take)

    def ignore(self) -> None:
        """From now on a signal does nothing: what is left is short, and has to be done."""
        for number in (*NUMBERS, LATER):
            signal.signal(number, signal.SIG_IGN)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come at any time."""
        if self.came:
            raise KeyboardInterrupt

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on a loop of its own; a signal cancels it and, once it has ended, is KeyboardInterrupt."""
        try:
            return asyncio.run(self._cancelled_by_signals(work))
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            self.listen()  # the loop has left the system's handlers behind

    async def _cancelled_by_signals(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            self.came = True
            task.cancel()

        for number in NUMBERS:
            asyncio.get_running_loop().add_signal_handler(number, cancel)
        return await work

    def _take(self, _number: int, frame: FrameType | None) -> None:
        self.came = True
        if frame is not None and frame.f_code.co_filename == logging.__file__:
            signal.setitimer(signal.ITIMER_REAL, LATER_SECONDS)
            return
        raise KeyboardInterrupt
