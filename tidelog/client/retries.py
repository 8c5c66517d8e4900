"""Repetition of requests: the backoff between attempts, and the deadline of all attempts of a call."""

from __future__ import annotations

from random import Random
from typing import Final

from tidelog.clock import Clock
from tidelog.errors import TidelogError

BACKOFF_MS: Final = 100
"""Pause after the first failure (Kafka's `retry.backoff.ms`)."""
BACKOFF_MS_MAX: Final = 400
"""A failover takes about a second: pauses longer than this would add to it."""


def backoff_ms(failures: int, rng: Random, *, first: int = BACKOFF_MS, most: int = BACKOFF_MS_MAX) -> int:
    """Return the pause before the next attempt, after this number of failures in a row (1 or more): doubling up to
    `most`. It varies by a fifth, so that clients that failed together do not come back together."""
    full = min(most, first << min(failures - 1, 20))
    return max(1, int(full * rng.uniform(0.8, 1.2)))


class Retries:
    """The attempts of one call, which may take `timeout_ms` in all."""

    def __init__(self, clock: Clock, rng: Random, timeout_ms: int) -> None:
        self._clock, self._rng = clock, rng
        self._end = clock.monotonic_ms() + timeout_ms
        self._failures = 0

    @property
    def left_ms(self) -> int:
        """The time that is left for an attempt, at least 1."""
        return max(1, self._end - self._clock.monotonic_ms())

    async def pause(self, error: TidelogError) -> None:
        """Wait before the next attempt. Raises the error of the last one if that would be too late."""
        self._failures += 1
        left_ms = self._end - self._clock.monotonic_ms()
        if left_ms <= BACKOFF_MS:
            raise error
        # The pause is shortened to leave time for a last attempt: a failover may have ended meanwhile.
        await self._clock.sleep_ms(min(backoff_ms(self._failures, self._rng), left_ms // 2))
