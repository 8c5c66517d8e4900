"""Which reads of a node are at its object store, and which wait: a store that does not answer holds back no other read.

    submit -> waiting -> at the store (on the executor) -> `done`

Invariants:
  1. At most `STORE_READS_AT_ONCE` reads are at the store, one for each object. The others wait here, without a thread
     or memory; one that is not wanted any more when its turn comes is dropped.
  2. While the store is unavailable, one read at a time tries it. The others are answered at once with its error: they
     would wait for as long, behind it.
Used on the loop only. Not here: what is read (remote_reads.py), who waits for it (cold_reads.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from node.runtime.failure_log import FailureLog
from storage.files.disk_executor import Executor
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_errors import STORE_ERRORS, ObjectStoreUnavailable
from tidelog.values import dataclass

_log = logging.getLogger("node.tiering")

STORE_READS_AT_ONCE: Final = 4
"""Threads of the executor."""


class StoreRead(Protocol):
    """A read of one object."""

    error: TidelogError | None
    """Set by `run`, which does not raise it."""

    @property
    def object_key(self) -> str:
        """The key of the object."""
        ...

    def run(self) -> None:
        """Read. Called on any thread."""
        ...


@dataclass(frozen=True, slots=True)
class _WaitingRead:
    read: StoreRead
    is_wanted: Callable[[], bool]
    begun: Callable[[], object]
    done: Callable[[BaseException | None], object]


class StoreReads:
    """The reads of one node. `errors`: how many reads the store has failed."""

    def __init__(self, executor: Executor, cache: RemoteCache, clock: Clock) -> None:
        """executor: of `STORE_READS_AT_ONCE` threads. cache: of the reads, which counts what the store has answered."""
        self._executor, self._cache = executor, cache
        self._waiting: deque[_WaitingRead] = deque()
        self._running: set[str] = set()
        """Keys of the objects that are being read."""
        self._failure: TidelogError | None = None
        """The last error of the store; None once it has answered again."""
        self._misses = 0
        """What the store had answered when it failed."""
        self.errors = 0
        self._failures = FailureLog(_log, clock, common=STORE_ERRORS)

    def submit(
        self,
        read: StoreRead,
        done: Callable[[BaseException | None], object],
        *,
        is_wanted: Callable[[], bool] = lambda: True,
        begun: Callable[[], object] = lambda: None,
    ) -> None:
        """Run a read when it has a place, then `done` on the loop, with the exception of a defect. Not called for a
        read that was dropped. begun: called on the loop before the read is at the store."""
        failure = self._present_failure()
        if failure is not None and self._running:
            read.error = failure
            done(None)
            return
        self._waiting.append(_WaitingRead(read, is_wanted, begun, done))
        self._begin_next()

    def _present_failure(self) -> TidelogError | None:
        if self._failure is not None and self._cache.misses != self._misses:
            self._failures.succeeded("the object store answers reads again")
            self._failure = None
        return self._failure

    def _begin_next(self) -> None:
        at_once = STORE_READS_AT_ONCE if self._failure is None else 1
        passed: list[_WaitingRead] = []
        while self._waiting and len(self._running) < at_once:
            entry = self._waiting.popleft()
            if not entry.is_wanted():
                continue
            if entry.read.object_key in self._running:
                # It would wait for the same bytes on another thread.
                passed.append(entry)
                continue
            self._begin(entry)
        self._waiting.extendleft(reversed(passed))

    def _begin(self, entry: _WaitingRead) -> None:
        key = entry.read.object_key
        self._running.add(key)
        entry.begun()

        def ended(defect: BaseException | None) -> None:
            self._running.discard(key)
            self._note(entry.read)
            entry.done(defect)
            self._begin_next()

        self._executor.submit(entry.read.run, ended)

    def _note(self, read: StoreRead) -> None:
        error = read.error
        if error is None:
            self._present_failure()
            return
        self.errors += 1
        self._failures.failed(error, read.object_key, lambda: f"a read of the object store failed: {error.message}")
        if not isinstance(error, ObjectStoreUnavailable):
            return
        self._failure, self._misses = error, self._cache.misses
        refused, self._waiting = self._waiting, deque()
        for entry in refused:
            if entry.is_wanted():
                entry.read.error = error
                entry.done(None)
