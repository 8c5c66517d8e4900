"""Warns if no node answers a client: a wrong address would otherwise be noticed when a call gives up.

Invariant: a warning names each address that is queried, and what became of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidelog.errors import TidelogError
from tidelog.types import Endpoint

_log: Final = logging.getLogger("tidelog.client")

WARN_AFTER_S: Final = 1.5
"""How long all queried nodes may be silent before the first warning: a person waits for it."""
WARN_AGAIN_S: Final = 30.0
"""Interval of further warnings."""


class SilenceWatch:
    """The queries since the last answer of a node."""

    def __init__(self) -> None:
        self._queried: dict[Endpoint, TidelogError | None] = {}
        """With the last failure; None: no answer yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_asking = False
        """Whether a node was queried since the last warning."""

    def asked(self, endpoint: Endpoint) -> None:
        """A node is queried."""
        self._queried.setdefault(endpoint, None)
        self._is_asking = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WARN_AFTER_S, self._warn)

    def failed(self, endpoint: Endpoint, error: TidelogError) -> None:
        """A query failed."""
        self._queried[endpoint] = error

    def answered(self) -> None:
        """A node answered, or the client ends: nothing is left to warn of."""
        self._queried.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _warn(self) -> None:
        self._timer = None
        if not self._is_asking:  # the client gave up: its caller has the error
            self._queried.clear()
            return
        self._is_asking = any(error is None for error in self._queried.values())  # of a query that still runs
        states = "; ".join(
            f"{endpoint}: {'no answer yet' if error is None else error.message}"
            for endpoint, error in self._queried.items()
        )
        _log.warning("no node of the cluster answers, the client keeps trying: %s", states)
        self._timer = asyncio.get_running_loop().call_later(WARN_AGAIN_S, self._warn)
