"""Timers by key. Moving a timer to a later time, as each heartbeat does, costs one assignment."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

from tidelog.types import Millis

K = TypeVar("K")


class Timers(Generic[K]):
    """The times at which keys are due.

    Invariant: the heap has an entry for each key at or before its time; entries of other times are stale, and are
    dropped or moved when they come up.
    """

    def __init__(self) -> None:
        self._times: dict[K, Millis] = {}
        self._heap: list[tuple[Millis, int, K]] = []
        self._entries: dict[K, Millis] = {}  # the earliest entry of each key in the heap
        self._number = 0  # keeps entries of the same time in the order of their creation

    def __contains__(self, key: K) -> bool:
        return key in self._times

    def __len__(self) -> int:
        return len(self._times)

    def schedule(self, key: K, at: Millis) -> None:
        """Set the time of a key, earlier or later than before."""
        self._times[key] = at
        entry = self._entries.get(key)
        if entry is None or at < entry:
            self._push(key, at)

    def cancel(self, key: K) -> None:
        """Forget a key, if it is known."""
        self._times.pop(key, None)

    def _push(self, key: K, at: Millis) -> None:
        self._number += 1
        self._entries[key] = at
        heappush(self._heap, (at, self._number, key))

    def next(self) -> Millis | None:
        """The earliest time of a key; None if there is none."""
        while self._heap:
            at, number, key = self._heap[0]
            time = self._times.get(key)
            if self._entries.get(key) != at or time is None:
                heappop(self._heap)
                if self._entries.get(key) == at:
                    del self._entries[key]
            elif time > at:
                self._entries[key] = time
                heapreplace(self._heap, (time, number, key))
            else:
                return at
        return None

    def pop_due(self, now: Millis, limit: int) -> list[K]:
        """Remove and return the keys whose time has come, by time; at most `limit` of them."""
        due: list[K] = []
        while len(due) < limit and (at := self.next()) is not None and at <= now:
            _, _, key = heappop(self._heap)
            del self._times[key], self._entries[key]
            due.append(key)
        return due
