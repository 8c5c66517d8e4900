"""The wait of a node that is asked to stop: until the other nodes can do without it, or until its time is over.

Meanwhile the node goes on as before: it leads, answers and fetches. The judgement is that of
`tidelog node safe-to-restart`, by the image of this node. It is no lock: nodes that are asked at the same moment, as
when a whole cluster is stopped, all find the others there, and stop together.

Invariant: the wait ends within `limit_ms`, whatever the other nodes do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from node.controller.node_registration import Registration
from replication.controller.explain import RestartReview
from replication.controller.image import ClusterImage
from tidelog.clock import Clock
from tidelog.types import Millis, NodeId

_log = logging.getLogger("node.lifecycle")

LOOK_MS: Final = 500
"""Interval of the judgements."""


class StopGate:
    """The wait of one incarnation of a node."""

    def __init__(
        self,
        node_id: NodeId,
        registration: Registration,
        image: Callable[[], ClusterImage],
        why_unavailable: Callable[[], str],
        *,
        clock: Clock,
        limit_ms: Millis,
    ) -> None:
        """image: the newest one. why_unavailable: why the controller cannot be reached; empty if it can. limit_ms: 0:
        the node does not wait."""
        self._node_id, self._registration, self._image = node_id, registration, image
        self._why_unavailable = why_unavailable
        self._clock, self._limit_ms = clock, limit_ms
        self._review = RestartReview(node_id)

    async def wait_until_safe(self) -> None:
        """Return once the other nodes can do without this one, once it is not in service, or when the time is over."""
        if not self._limit_ms:
            return
        until = self._clock.monotonic_ms() + self._limit_ms
        waits_for = self._awaited()
        if waits_for:
            _log.warning(
                "node %d goes on for %d s at most before it stops: %s",
                self._node_id,
                self._limit_ms // 1_000,
                "; ".join(waits_for),
            )
        while waits_for and (left_ms := until - self._clock.monotonic_ms()) > 0:
            await self._clock.sleep_ms(min(LOOK_MS, left_ms))
            waits_for = self._awaited()
        if interrupted := self._reasons():
            _log.warning(
                "node %d stops although it is not safe%s: %s",
                self._node_id,
                f", after {self._limit_ms // 1_000} s" if waits_for else "",
                "; ".join(interrupted),
            )

    def _awaited(self) -> list[str]:
        """The reasons not to stop that can pass."""
        return self._reasons(if_it_can_pass=True)

    def _reasons(self, *, if_it_can_pass: bool = False) -> list[str]:
        """The reasons not to stop. Nothing depends on a node that is not in service."""
        if not self._registration.unfenced:
            return []
        unavailable = self._why_unavailable()
        interrupted = self._review.reasons(self._image(), if_it_can_pass=if_it_can_pass)
        return [*filter(None, [unavailable]), *interrupted]
