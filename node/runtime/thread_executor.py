"""Worker threads for work that must not run on the event loop: fsync, recovery, reads outside the page cache.

Invariants: a `ThreadExecutor` with one worker runs its work one after the other and in order, as the writer of a log
directory must. `done` always runs on the loop that created the executor, never on a worker.
Not here: which work goes to which executor (node/process/node.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Piece: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]] | None

_log = logging.getLogger("node.executor")


class ThreadExecutor:
    """`storage.files.disk_executor.Executor` on `workers` threads. Created on a running loop. The threads end with
    `close`."""

    def __init__(
        self,
        name: str,
        *,
        workers: int = 1,
        observe: Callable[[float], None] | None = None,
        on_defect: Callable[[Exception], None] | None = None,
    ) -> None:
        """observe: called on the loop with the duration of each piece of work (seconds). on_defect: called with an
        exception that a `done` raised; without it the loop's exception handler is called."""
        self._loop = asyncio.get_running_loop()
        self._observe, self._on_defect = observe, on_defect
        self._queue: SimpleQueue[_Piece] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` on a worker, then call `done` on the loop with its result or exception."""
        self._queue.put((work, done))

    def close(self) -> None:
        """Finish the submitted work, end the threads and wait for them. Called from the loop's thread, or after the
        loop."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (piece := self._queue.get()) is not None:
            work, done = piece
            result: Any
            began = time.monotonic()
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 (an exception of the work is its result)
                result = error
            try:
                self._loop.call_soon_threadsafe(self._report, done, result, time.monotonic() - began)
            except RuntimeError:
                _log.debug("the event loop has ended; the result of this work is discarded")

    def _report(self, done: Callable[[Any], None], result: Any, seconds: float) -> None:
        if self._observe is not None:
            self._observe(seconds)
        try:
            done(result)
        except Exception as defect:
            if self._on_defect is None:
                raise
            self._on_defect(defect)
