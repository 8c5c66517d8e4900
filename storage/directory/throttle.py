"""Rate limit for background work: how long to wait between pieces. Pure."""

from __future__ import annotations

from tidelog.types import Millis


class Throttle:
    """One rate, for work that is done in pieces."""

    __slots__ = ("_free_at", "_rate")

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    def wait_after(self, worked: int, started: Millis, now: Millis) -> Millis:
        """The milliseconds to wait after a piece of `worked` bytes, which ran from `started` to `now` (monotonic). Idle
        time is not credited."""
        self._free_at = max(self._free_at, float(started)) + worked * 1000 / self._rate
        return Millis(max(0, int(self._free_at - now)))
