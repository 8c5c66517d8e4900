"""Throttle for the fetches of replicas that a reassignment adds: an average rate in bytes per second.

Invariant: in any interval the bytes fetched are at most rate times duration, plus the last fetch.
Not here: which fetches are throttled (node/replicas/replica_fetcher.py).
"""

from __future__ import annotations

from tidelog.types import Millis


class MoveThrottle:
    """A throttle. rate: bytes per second; 0: no limit."""

    def __init__(self, rate: int) -> None:
        assert rate >= 0
        self._rate = rate
        self._free_at = 0.0
        """When all bytes fetched so far would have been fetched at the rate. A replica that did not fetch for a while
        gains nothing by it: it must not make up for the pause with a burst."""

    def spend(self, count: int, at: Millis) -> None:
        """Record that `count` bytes were fetched at time `at`."""
        if self._rate:
            self._free_at = max(self._free_at, at) + 1_000 * count / self._rate

    def is_open(self, at: Millis) -> bool:
        """Return True if a fetch may be sent now."""
        return at >= self._free_at
