"""How long single turns of the event loop take: each callback that the loop runs, by the processor time of its thread,
so that other load of the machine does not count."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Turns:
    """The longest callbacks of each kind, in milliseconds."""

    longest: dict[str, float] = field(default_factory=dict)

    def note(self, what: str, ms: float) -> None:
        if ms > self.longest.get(what, 0.0):
            self.longest[what] = ms

    def above(self, ms: float) -> dict[str, float]:
        """The callbacks that took longer."""
        return {what: took for what, took in self.longest.items() if took > ms}


@contextmanager
def measured_turns() -> Iterator[Turns]:
    """Measure the callbacks of all event loops of this thread, without the cyclic garbage collector, which a node's
    process configures by itself."""
    turns = Turns()
    run = asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        what = _name(self)
        began = time.thread_time()
        run(self)
        turns.note(what, (time.thread_time() - began) * 1_000)

    gc.collect()
    gc.disable()
    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield turns
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.enable()


def _name(handle: asyncio.Handle) -> str:
    """What a callback is: the innermost coroutine of a task, or the function."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine: Any = task.get_coro()
        names = []
        while coroutine is not None and hasattr(coroutine, "cr_await"):
            names.append(coroutine.__qualname__)
            coroutine = coroutine.cr_await
        return " > ".join(names[-4:])
    return getattr(callback, "__qualname__", repr(callback))
