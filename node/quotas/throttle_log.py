"""Log lines about clients that exceed a quota: in each minute one for each client, and for a limited number of clients.

Not here: metrics, which name quotas and not clients (node/observability/metrics.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidelog.types import QuotaType

_log = logging.getLogger("node.quotas")

LINES_MAX: Final = 20
"""Clients that are logged in one window. Clients choose their ids: a flood of ids must not fill the log."""
WINDOW_MS: Final = 60_000


class ThrottleLog:
    """Decides which clients are logged."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._window_ends = 0
        self._named: set[tuple[QuotaType, str, str]] = set()
        self._is_full = False

    def note(self, quota: QuotaType, limit: float, user: str, client_id: str, delay_ms: int) -> None:
        """Note that a client has exceeded a quota and must wait; log it unless it was logged in this window."""
        key = quota, user, client_id
        if key in self._named and self._now_ms() < self._window_ends:
            return
        now = self._now_ms()
        if now >= self._window_ends:
            self._window_ends, self._is_full = now + WINDOW_MS, False
            self._named.clear()
        if len(self._named) < LINES_MAX:
            self._named.add(key)
            _log.info(
                "user %r, client id %r exceeds the quota %s=%.15g and waits for %d ms",
                user,
                client_id,
                quota.value,
                limit,
                delay_ms,
            )
        elif not self._is_full:
            self._is_full = True
            _log.info("more than %d clients exceed a quota; the others are not logged for a minute", LINES_MAX)
