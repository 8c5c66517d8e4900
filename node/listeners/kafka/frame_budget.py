"""The memory of the requests that a Kafka listener has not answered yet, complete or not.

Invariants:
  1. All frames together have at most `bytes_max` bytes. Nothing is allocated for a frame that has no room.
  2. Room is given in the order in which it was asked for, so that small requests cannot keep a large one waiting.
  3. Small frames have room of their own, and so have tiny ones. So a client that announces large frames and sends
     nothing, or has many requests that wait for records, does not delay the heartbeats of other clients.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

SMALL_BYTES: Final = 65_536
"""Limit of a small frame: most requests, but those with many records."""

TINY_BYTES: Final = 1_024
"""Limit of a tiny frame: a heartbeat, a commit of some partitions. A request keeps its room while it waits, a fetch for
up to a minute, so that a few hundred of small ones would keep all others out."""

_SMALL_SHARE: Final = 8
"""The small and the tiny frames have one part in so many, half of it each."""


class FrameBudget:
    """The bytes of all frames of one listener."""

    def __init__(self, bytes_max: int, frame_bytes_max: int) -> None:
        """bytes_max: of all frames; it is exceeded if one of each kind has no room otherwise."""
        small = max(bytes_max // _SMALL_SHARE, SMALL_BYTES)
        tiny = max(small // 2, TINY_BYTES)
        self._tiny, self._small = _Share(tiny), _Share(max(small - tiny, SMALL_BYTES))
        self._large = _Share(max(bytes_max - small, frame_bytes_max))
        self._shares = self._tiny, self._small, self._large

    @property
    def bytes_max(self) -> int:
        """Limit of all frames."""
        return sum(each.bytes_max for each in self._shares)

    @property
    def used(self) -> int:
        """The bytes of all frames."""
        return sum(each.used for each in self._shares)

    def is_short(self, size: int) -> bool:
        """True if others wait for the room that a frame of this size has."""
        return self._share(size).is_short

    def take(self, size: int, given: Callable[[], None]) -> bool:
        """Take room for a frame. Returns False if there is none now; `given` is called when there is, with it taken."""
        return self._share(size).take(size, given)

    def forget(self, given: Callable[[], None]) -> None:
        """A frame that waits for room, if it does, is not wanted any more."""
        for each in self._shares:
            each.forget(given)

    def give_back(self, size: int) -> None:
        """A frame is no longer needed."""
        self._share(size).give_back(size)

    def _share(self, size: int) -> _Share:
        if size <= TINY_BYTES:
            return self._tiny
        return self._small if size <= SMALL_BYTES else self._large


class _Share:
    """The room of the frames of one kind."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._waiting: OrderedDict[Callable[[], None], int] = OrderedDict()

    @property
    def is_short(self) -> bool:
        return bool(self._waiting)

    def take(self, size: int, given: Callable[[], None]) -> bool:
        assert size <= self.bytes_max, "a frame that never has room is refused"
        if not self._waiting and self.used + size <= self.bytes_max:
            self.used += size
            return True
        self._waiting[given] = size
        return False

    def forget(self, given: Callable[[], None]) -> None:
        if self._waiting.pop(given, None) is not None:
            self._give()

    def give_back(self, size: int) -> None:
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
