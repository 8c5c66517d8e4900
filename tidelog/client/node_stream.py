"""A client's stream to one node: sends queued items, receives answers, reports a broken connection.

Invariants: every queued item is either sent, or reported as failed with the cause of the break. After the break no item
is accepted. The stream ends with its connection, and its task with the stream.
Not here: messages, answers and their receivers (produce_stream.py, fetch_stream.py).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from tidelog.clock import Clock
from tidelog.errors import ConnectionLost, TidelogError
from tidelog.protocol.network import MessageStream, Transport
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.types import Endpoint, Millis

_log = logging.getLogger("tidelog.client")

PAUSE_MS_MAX: Final = 10_000
"""Limit of one pause while the node throttles this client (KIP-219): the quota may be raised meanwhile. A message that
is sent too early waits until the node reads it."""
REPORT_MS: Final = 60_000
"""Interval of the log lines about quotas."""

Given = TypeVar("Given")


class NodeStream(ABC, Generic[Given, Request, Answer]):
    """Common part of produce and fetch streams."""

    def __init__(self, endpoint: Endpoint, transport: Transport, method: Method[Request, Answer], clock: Clock) -> None:
        self._endpoint, self._transport, self._method, self._clock = endpoint, transport, method, clock
        self._paused_until = self._report_at = Millis(0)
        self._outbox: deque[Given] = deque()
        self._wake = asyncio.Event()
        self._broken: TidelogError | None = None
        self._stream: MessageStream[Request, Answer] | None = None
        self._over = asyncio.Event()

    def give(self, item: Given) -> bool:
        """Put an item into the outbox. Returns False if the stream has ended; then create a new one."""
        if self._broken is not None:
            return False
        self._outbox.append(item)
        self._wake.set()
        return True

    async def run(self) -> None:
        """Connect, then send and receive until the connection breaks or this task is cancelled."""
        try:
            stream = await self._transport.open_stream(self._endpoint, self._method)
        except TidelogError as cause:
            self._break(cause)
            return
        self._stream = stream
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(stream), name=f"read {self._method} answers of {self._endpoint}")
                await self._write(stream)
        finally:
            stream.close()
            self._stream = None  # who keeps a closed client would keep its channel too, and with it gRPC's threads
            self._over.set()

    async def finish(self) -> None:
        """Return once the node has read all that was sent, or the connection is broken. Nothing may be sent later."""
        if self._stream is not None:
            with suppress(TidelogError):
                await self._stream.end()
            await self._over.wait()

    @abstractmethod
    def _next_request(self) -> Request | None:
        """Return the next message from the non-empty outbox, or None if none of its items is needed any more."""

    def _sent(self, request: Request) -> None:
        """Called after the message was sent."""

    @abstractmethod
    def _received(self, answer: Answer) -> None:
        """Called for a received message."""

    @abstractmethod
    def _failed(self, unsent: Sequence[Given], cause: TidelogError) -> None:
        """Called when no answer will arrive any more, neither for `unsent` nor for items in flight."""

    def _throttled(self, throttle_time_ms: int) -> None:
        """Pause sending: the node reads nothing from this client for this time, because a quota is exceeded."""
        now = self._clock.monotonic_ms()
        self._paused_until = Millis(now + min(throttle_time_ms, PAUSE_MS_MAX))
        if now >= self._report_at:
            self._report_at = Millis(now + REPORT_MS)
            _log.warning(
                "%s: the node at %s throttles this client for %d ms, because it exceeds a quota (`tidelog quota list`)",
                self._method,
                self._endpoint,
                throttle_time_ms,
            )

    async def _wait_unpaused(self) -> None:
        while self._broken is None and (left := self._paused_until - self._clock.monotonic_ms()) > 0:
            await self._clock.sleep_ms(left)

    def _break(self, cause: TidelogError) -> None:
        if self._broken is not None:
            return
        self._broken = cause
        self._wake.set()
        unsent, self._outbox = self._outbox, deque()
        self._failed(unsent, cause)

    async def _write(self, stream: MessageStream[Request, Answer]) -> None:
        while self._broken is None:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox and self._broken is None:
                await self._wait_unpaused()
                request = self._next_request() if self._outbox else None
                if request is None:
                    continue
                try:
                    await stream.send(request)
                except TidelogError as cause:
                    self._break(cause)
                else:
                    self._sent(request)
        stream.close()

    async def _read(self, stream: MessageStream[Request, Answer]) -> None:
        while True:
            try:
                answer = await stream.receive()
            except TidelogError as cause:
                self._break(cause)
                return
            if answer is None:
                self._break(ConnectionLost(f"the node at {self._endpoint} ended the stream {self._method}."))
                return
            self._received(answer)
