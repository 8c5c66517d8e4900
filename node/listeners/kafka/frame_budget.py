"""The memory of the requests that a Kafka listener has not answered yet, complete or not.

Invariants:
  1. All frames together have at most `bytes_max` bytes. Nothing is allocated for a frame that has no room.
  2. Room is given in the order in which it was asked for, so that small requests cannot keep a large one waiting.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable


class FrameBudget:
    """The bytes of all frames of one listener."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._waiting: OrderedDict[Callable[[], None], int] = OrderedDict()

    @property
    def is_short(self) -> bool:
        """True if frames wait for room."""
        return bool(self._waiting)

    def take(self, size: int, given: Callable[[], None]) -> bool:
        """Take room for a frame. Returns False if there is none now; `given` is called when there is, with it taken."""
        assert size <= self.bytes_max, "a frame that never has room is refused"
        if not self._waiting and self.used + size <= self.bytes_max:
            self.used += size
            return True
        self._waiting[given] = size
        return False

    def forget(self, given: Callable[[], None]) -> None:
        """A frame that waits for room, if it does, is not wanted any more."""
        if self._waiting.pop(given, None) is not None:
            self._give()

    def give_back(self, size: int) -> None:
        """A frame is no longer needed."""
        self.used -= size
        self._give()

    def _give(self) -> None:
        while self._waiting:
            given, size = next(iter(self._waiting.items()))
            if self.used + size > self.bytes_max:
                return
            del self._waiting[given]
            self.used += size
            given()
