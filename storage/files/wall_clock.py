"""The wall clock that storage uses: for log append time, the age of a segment and the age of unflushed bytes."""

from __future__ import annotations

from typing import Protocol

from tidelog.types import Millis


class WallClock(Protocol):
    """Wall-clock time. It may jump, also backwards; storage requires only that it is roughly right."""

    def wall_ms(self) -> Millis:
        """Milliseconds since 1970."""
