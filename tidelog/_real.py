"""The machine under a client: its clock, chance, threads and the tasks that no TaskGroup owns.

Everything else in the client takes these by its constructor; this is the only module that builds them.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from tidelog.types import Millis

T = TypeVar("T")

CLOSE_SECONDS_MAX: Final = 30
"""How long a synchronous client waits for its loop to end; by then every delivery has long had its outcome."""


class RealClock:
    """The machine's clocks, and waiting on the running loop."""

    def wall_ms(self) -> Millis:
        """Milliseconds since 1970 (UTC)."""
        return Millis(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> Millis:
        """Milliseconds from an arbitrary start; never goes back."""
        return Millis(time.monotonic_ns() // 1_000_000)

    async def sleep_ms(self, ms: int) -> None:
        """Return after at least `ms` milliseconds; 0 lets other tasks run once."""
        await asyncio.sleep(ms / 1000)


def real_rng() -> random.Random:
    """Chance from the operating system's entropy."""
    return random.Random()


def start_root_task(work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
    """The one task of a client that no TaskGroup owns: all others are its children. Its client waits for it."""
    return asyncio.create_task(work, name=name)


class LoopThread:
    """An event loop in a thread of its own, for the synchronous faces."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop; return what it returns, raise what it raises. Ctrl-C cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    @property
    def is_running(self) -> bool:
        """Whether `run` still works."""
        return not self._loop.is_closed()

    def stop(self) -> None:
        """End loop and thread. Calling it twice is fine."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS_MAX)
        if not self._thread.is_alive():
            self._loop.close()
