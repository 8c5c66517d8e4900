"""The time of day as storage needs it: for log append time, the age of a segment and of unflushed bytes."""

from __future__ import annotations

from typing import Protocol

from tidelog.types import Millis


class WallClock(Protocol):
    """Wall-clock time. It may jump, also backwards; nothing here relies on more than its being roughly right."""

    def wall_ms(self) -> Millis:
        """Milliseconds since 1970."""
        ...
