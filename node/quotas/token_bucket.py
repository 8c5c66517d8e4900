"""The use of one quota: a bucket that fills at the rate of the limit, and may be below zero.

A request is admitted while the bucket is not below zero, and takes all its tokens at once. The average over a long time
is therefore the limit, whatever the sizes of the requests. An idle client may use a full bucket at once.
Kafka limits changes of topics in this way (KIP-599, `TokenBucket`). It measures byte rates over a sliding window
(KIP-13, `Rate`): the average is the same, but each window can begin with a burst of a whole window.
Not here: clocks. Every method gets the present time in milliseconds of a monotonic clock.
"""

from __future__ import annotations

import math
from typing import Final

DELAY_MS_MAX: Final = 3_600_000
"""The longest delay that is reported, so that it fits into the field of an answer. A client that still exceeds its
quota after that is delayed again."""
_ROUNDING_MS: Final = 1e-3
"""A shorter delay is a rounding error."""


class TokenBucket:
    """The tokens of one entity."""

    __slots__ = ("_at", "_limit", "_size_ms", "_tokens")

    def __init__(self, limit: float, size_ms: int, now: int) -> None:
        """A full bucket. limit: tokens per second. size_ms: the time that fills it."""
        self._limit, self._size_ms = limit, size_ms
        self._tokens = limit * size_ms / 1_000
        self._at = now

    def take(self, amount: float, now: int, *, bounded: bool = False) -> None:
        """Take tokens; a negative amount gives them back. bounded: take at most as many as make the wait `size_ms`
        long."""
        self._fill(now)
        full = self._limit * self._size_ms / 1_000
        left = min(full, self._tokens - amount)
        self._tokens = max(left, min(self._tokens, -full)) if bounded else left

    def delay_ms(self, now: int) -> int:
        """How long until the bucket is not below zero, at most DELAY_MS_MAX."""
        self._fill(now)
        if self._tokens >= 0:
            return 0
        return math.ceil(min(DELAY_MS_MAX, -self._tokens / self._limit * 1_000) - _ROUNDING_MS)

    def set_limit(self, limit: float, now: int) -> None:
        """Fill at another rate from now on. Tokens that were taken stay taken."""
        self._fill(now)
        self._limit = limit
        self._tokens = min(self._tokens, limit * self._size_ms / 1_000)

    def _fill(self, now: int) -> None:
        if now > self._at:
            full = self._limit * self._size_ms / 1_000
            self._tokens = min(full, self._tokens + self._limit * (now - self._at) / 1_000)
            self._at = now
