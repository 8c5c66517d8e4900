"""Worker threads for work that must not run on the event loop: fsync, recovery, reads outside the page cache.

Invariants:
  1. A `ThreadExecutor` with one worker runs its work one after the other and in order, as the writer of a log directory
     must.
  2. `done` always runs on the loop that created the executor, never on a worker.
  3. A submitted piece wakes at most one worker: the one that went idle last. (The waiting threads of a `SimpleQueue`
     share one lock: with eight of them, each piece wakes a second thread that finds nothing.)
  4. A worker goes idle only after it has found the queue empty while it was listed as idle. `submit` appends before it
     looks for an idle worker, so one of the two notices the other.
  5. Work that was begun is reported, whatever has ended it, and its worker continues.
Not here: which work goes to which executor (node/process/node.py).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Piece: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]

_log = logging.getLogger("node.executor")


class WorkPanicked(Exception):
    """Work has ended with what is no error that a caller can handle: a defect of the code that it called."""


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
        self._queue: deque[_Piece] = deque()
        self._idle: list[threading.Lock] = []
        """The locks of the idle workers, each of which waits for its own; the last one went idle last."""
        self._closing = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` on a worker, then call `done` on the loop with its result or exception."""
        self._queue.append((work, done))
        self._wake_one()

    def _wake_one(self) -> bool:
        """Wake an idle worker. Returns False if there is none: each busy one looks at the queue before it goes idle."""
        try:
            self._idle.pop().release()
        except IndexError:
            return False
        return True

    def close(self) -> None:
        """Finish the submitted work, end the threads and wait for them. Called from the loop's thread, or after the
        loop."""
        self._closing = True
        while self._wake_one():
            pass
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        wake = threading.Lock()
        wake.acquire()
        while True:
            try:
                work, done = self._queue.popleft()
            except IndexError:
                if self._closing:
                    return
                self._wait_for_work(wake)
            else:
                self._run(work, done)

    def _wait_for_work(self, wake: threading.Lock) -> None:
        """Wait until there may be work. wake: locked, before and after."""
        self._idle.append(wake)
        if self._queue or self._closing:
            try:
                self._idle.remove(wake)
            except ValueError:  # it was taken off the list meanwhile, and is released
                pass
            else:
                return
        wake.acquire()

    def _run(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        result: Any
        began = time.monotonic()
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 (an exception of the work is its result)
            result = _failure(error)
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


def _failure(error: BaseException) -> Exception:
    """What is reported of work that this has ended. A panic of a library in Rust is no Exception: here it would end the
    worker, and with it the executor, and in a task of the loop the node. A future takes no StopIteration: its waiter
    would wait for ever."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    panic = WorkPanicked(f"work on a thread ended with {type(error).__name__}: {error}")
    panic.__cause__ = error
    return panic
