"""The answer of a unary call until it is sent: its caller need not read it, and gRPC keeps it for as long.

Invariants: gRPC keeps an answer no longer than `UNREAD_ANSWER_MS`, or `SLOW_READER_MS` while it occupies memory that
other requests wait for. Nothing else ends such a call: a handler that has returned cannot be cancelled.
Not here: the answers of a stream, which is served on while it is sent (server.py, node/requests/fetch_session.py).
"""

from __future__ import annotations

import asyncio
import logging

from node.listeners.grpc.connections import ConnectionShutdown
from node.runtime.limits import SLOW_READER_MS, UNREAD_ANSWER_MS
from tidelog.record_exchange import FetchAnswer

_log = logging.getLogger("node.requests")


class UnreadAnswer:
    """Shuts down the connection of a caller that does not read the answer of a call."""

    __slots__ = ("_answer", "_peer", "_shutdown", "_timer", "_waited_ms")

    def __init__(self, answer: object, peer: str, shutdown: ConnectionShutdown) -> None:
        """The answer is ready. peer: its caller, as gRPC reports it."""
        self._answer: object = answer
        self._peer, self._shutdown = peer, shutdown
        self._waited_ms = 0
        self._timer = self._start_timer()

    def sent(self) -> None:
        """The answer was sent completely, or its connection has ended."""
        self._timer.cancel()
        self._answer = None  # its memory is returned as soon as gRPC gives the message up, too

    def _start_timer(self) -> asyncio.TimerHandle:
        wait_ms = min(SLOW_READER_MS, UNREAD_ANSWER_MS - self._waited_ms)
        return asyncio.get_running_loop().call_later(wait_ms / 1000, self._check, wait_ms)

    def _check(self, wait_ms: int) -> None:
        self._waited_ms += wait_ms
        answer = self._answer
        delays_others = isinstance(answer, FetchAnswer) and answer.charge is not None and answer.charge.delays_others
        if not delays_others and self._waited_ms < UNREAD_ANSWER_MS:
            self._timer = self._start_timer()
            return
        if self._shutdown.request(self._peer):
            _log.warning(
                "closing the connection of %s: it has not read the answer of a call for %d ms%s",
                self._peer,
                self._waited_ms,
                " while other requests wait for memory" if delays_others else "",
            )
