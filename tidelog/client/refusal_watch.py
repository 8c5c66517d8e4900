"""Warns if a node keeps refusing the batches of a producer: they are sent again until their time is over, which a full
disk would make two minutes without a word."""

from __future__ import annotations

import logging
from typing import Final

from tidelog.errors import Retry, TidelogError
from tidelog.types import Endpoint, Millis

_log: Final = logging.getLogger("tidelog.client")

WARN_AFTER_MS: Final = 2_500
"""How long a node may refuse batches before the first warning: a failover is over by then."""
WARN_AGAIN_MS: Final = 30_000
"""Interval of further warnings."""
OVER_MS: Final = 5_000
"""Without a refusal for this long the node accepts batches again: more than the longest pause between two attempts."""


class RefusalWatch:
    """The refusals of one node that a later attempt may not meet."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._since: Millis | None = None
        self._last = self._warn_at = Millis(0)

    def refused(self, error: TidelogError, at: Millis) -> None:
        """A batch was refused. Only errors that the same node may not repeat count: others end the batch, or another
        leader is looked up at once."""
        if error.retry is not Retry.LATER:
            return
        if self._since is None or at - self._last > OVER_MS:
            self._since, self._warn_at = at, Millis(at + WARN_AFTER_MS)
        self._last = at
        if at >= self._warn_at and at > self._since:
            self._warn_at = Millis(at + WARN_AGAIN_MS)
            seconds = (at - self._since) / 1_000
            _log.warning(
                "the node at %s has refused records for %.0f s, they are sent again: %s",
                self._endpoint,
                seconds,
                error.message,
            )
