"""A monotonic clock in nanoseconds that a test advances."""

from __future__ import annotations


class Nanoseconds:
    """Monotonic time that the test advances."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, ms: int) -> None:
        self.now += ms * 1_000_000
