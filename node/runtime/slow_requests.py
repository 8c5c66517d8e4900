"""The slow-request log: one line for each request that takes longer than a node should.

A request is slow if its work on the loop exceeds the threshold, or its total time less the wait that it asked for does.
A burst of slow requests is not written whole: `LINES_MAX` lines in `WINDOW_NS`, then the number of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

_log = logging.getLogger("node.slow_requests")

LINES_MAX: Final = 10
WINDOW_NS: Final = 10_000_000_000
NEVER_NS: Final = 1 << 62


class SlowRequestLog:
    """Decides which requests are slow, and logs them."""

    def __init__(self, threshold_ms: int, now_ns: Callable[[], int]) -> None:
        """threshold_ms: 0 to log nothing. now_ns: monotonic time."""
        self.threshold_ns = threshold_ms * 1_000_000 or NEVER_NS
        """Only a request with a longer total time can be slow."""
        self._threshold_ms = threshold_ms
        self._now_ns = now_ns
        self._window_ends = 0
        self._lines = 0
        self._left_out = 0

    def look_at(
        self, api: str, total_ns: int, local_ns: int, wait_ms: int | None, *, connection: str, client_id: str
    ) -> None:
        """Log the request if it was slow. wait_ms: how long it asked to wait; None: without a limit."""
        over = local_ns if wait_ms is None else max(local_ns, total_ns - wait_ms * 1_000_000)
        if over <= self.threshold_ns:
            return
        now = self._now_ns()
        if now >= self._window_ends:
            self._window_ends, self._lines = now + WINDOW_NS, 0
        if self._lines == LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        _log.warning(
            "slow request %s from %s, client id %r: %d ms, of these %d ms of work and %d ms of waiting; the threshold "
            "is %d ms%s",
            api,
            connection,
            client_id,
            total_ns // 1_000_000,
            local_ns // 1_000_000,
            (total_ns - local_ns) // 1_000_000,
            self._threshold_ms,
            f"; {left_out} earlier slow requests were not logged" if left_out else "",
        )
