"""How fast clients write to a log and read from it, over some minutes: what its node is loaded with.

The rate is a mean in which older seconds count less: after `WINDOW_MS` without traffic it is a third of what it was. Of
a log that was opened less than that ago, it is the mean since then.
"""

from __future__ import annotations

import math
from typing import Final

from tidelog.types import Millis

WINDOW_MS: Final = 300_000
"""Long enough that a burst moves no replica, short enough that a plan sees the traffic of now."""


class LogFlow:
    """The bytes of one log, without those of replication."""

    __slots__ = ("_at", "_first", "_in", "_out", "bytes_in", "bytes_out", "in_rate", "out_rate")

    def __init__(self) -> None:
        self.bytes_in = 0
        """Of producers, since the log was opened."""
        self.bytes_out = 0
        """To consumers."""
        self.in_rate = 0.0
        """Bytes per second, as of the last `sample`."""
        self.out_rate = 0.0
        self._at: Millis | None = None
        self._first = Millis(0)
        self._in = self._out = 0

    def sample(self, at: Millis) -> None:
        """Take the bytes since the last call into the rates. at: monotonic."""
        if self._at is None:
            self._first = at
        elif at > self._at:
            elapsed = at - self._at
            # Else the logs of a node that has just started would seem to be idle, and it would get more of them.
            share = max(1 - math.exp(-elapsed / WINDOW_MS), elapsed / (at - self._first))
            self.in_rate += share * ((self.bytes_in - self._in) * 1_000 / elapsed - self.in_rate)
            self.out_rate += share * ((self.bytes_out - self._out) * 1_000 / elapsed - self.out_rate)
        self._at, self._in, self._out = at, self.bytes_in, self.bytes_out
