"""How fast a node may fetch what is being moved to it: so many bytes a second on average, a fetch at a time.

Kept true: over any time the bytes spent are at most the rate times that time, plus the last fetch.
Left to others: which fetches it is asked for (node/replicas/replica_fetcher.py).
"""

from __future__ import annotations

from tidelog.types import Millis


class Throttle:
    """A debt of bytes that time pays back. rate: bytes per second; 0: no limit."""

    def __init__(self, rate: int) -> None:
        assert rate >= 0
        self._rate = rate
        self._free_at = 0.0

    def spend(self, count: int, at: Millis) -> None:
        """So many bytes came."""
        if self._rate:
            self._free_at = max(self._free_at, at) + 1_000 * count / self._rate

    def is_open(self, at: Millis) -> bool:
        """May something be fetched now?"""
        return at >= self._free_at
