"""The machine under a client: its clock, chance, threads and the tasks that no TaskGroup owns.

Everything else in the client takes these by its constructor; this is the only module that builds them.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

from tidelog.errors import InvalidRequest
from tidelog.types import Millis

T = TypeVar("T")

CLOSE_SECONDS_MAX: Final = 30
"""How long a synchronous client waits for its loop to end; by then every delivery has long had its outcome."""

END_SECONDS_MAX: Final = 1
"""How long calls of other threads may take to notice that their client was closed, before they are cancelled."""


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
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._submitting = threading.Lock()
        self._stopping = False
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the loop; return what it returns, raise what it raises. Ctrl-C cancels it.

        Raises InvalidRequest once the loop was stopped, also where that happens meanwhile.
        """
        with self._submitting:
            if self._stopping:
                work.close()
                raise self._closed()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
        except CancelledError:
            if self._stopping:
                raise self._closed() from None
            raise

    @property
    def is_running(self) -> bool:
        """Whether `run` still works."""
        return not self._stopping

    def stop(self) -> None:
        """Let what is under way end, then end loop and thread. Calling it twice is fine."""
        with self._submitting:
            if self._stopping:
                return
            self._stopping = True
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(CLOSE_SECONDS_MAX)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end(self) -> None:
        """A task that is dropped with the loop would leave its caller waiting for ever."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            _, pending = await asyncio.wait(others, timeout=END_SECONDS_MAX)
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending, timeout=END_SECONDS_MAX)
        await asyncio.sleep(0)  # the answers of tasks that have just ended are on their way to the callers
        self._loop.stop()

    def _closed(self) -> InvalidRequest:
        return InvalidRequest(f"the {self._name.removeprefix('tidelog ')} is closed: use it inside `with`")
