"""What several tests of the node share."""

from __future__ import annotations


class SilentMeter:
    """Counts nothing."""

    def answered(self, method: str, seconds: float, outcome: str) -> None: ...
    def stream_opened(self, method: str) -> None: ...
    def stream_closed(self, method: str, outcome: str) -> None: ...
