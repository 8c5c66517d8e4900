"""A member's stream to the coordinator of its group: opened again whenever it ends or the coordinator moves.

Invariant: messages of an earlier stream are never passed on.
Not here: the content of heartbeats, and the effect of answers on the member (group_core.py, group_member.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias
from uuid import UUID

from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import CoordinatorKind, Coordinators, is_not_handled, may_be_applied
from tidelog.client.group_core import Connected, Disconnected, Event, HeartbeatAnswered, HeartbeatRefused
from tidelog.client.retries import backoff_ms
from tidelog.errors import ConnectionLost, RequestTimedOut, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.network import MessageStream
from tidelog.protocol.status import error_of
from tidelog.protocol.v1.groups_pb2 import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from tidelog.types import Endpoint, Millis, PartitionIndex, PartitionKey, TopicId

_log = logging.getLogger("tidelog.client")

FIND_MS: Final = 1_000
"""Timeout of one lookup of the coordinator; lookups follow each other until one succeeds."""
OPEN_MS: Final = 5_000
"""Timeout for opening a stream."""
REPORT_MS: Final = 60_000
"""Interval of the log lines about a coordinator that cannot be reached."""

_Stream: TypeAlias = MessageStream[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]


class GroupSession:
    """Keeps one stream open. handle: called with the events of the stream."""

    def __init__(
        self, group_id: str, cluster: Cluster, coordinators: Coordinators, rng: Random, handle: Callable[[Event], None]
    ) -> None:
        self._group_id, self._cluster, self._coordinators = group_id, cluster, coordinators
        self._rng, self._handle = rng, handle
        self._outbox: deque[ConsumerGroupHeartbeatRequest] = deque()
        self._wake = asyncio.Event()
        self._stream: _Stream | None = None
        self._failures = 0
        self._report_at = Millis(0)

    def send(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Send a message on the open stream."""
        self._outbox.append(request)
        self._wake.set()

    def reconnect(self) -> None:
        """End the stream; the coordinator is looked up again."""
        if self._stream is not None:
            self._stream.close()

    async def run(self) -> None:
        """Keep a stream open until this task is cancelled."""
        clock = self._cluster.clock
        while True:
            try:
                coordinator = await self._coordinators.find(CoordinatorKind.GROUP, self._group_id, timeout_ms=FIND_MS)
                await self._follow(coordinator)
            except TidelogError as error:
                self._report(error)
                # Other errors end this stream only: the next one may reach the coordinator.
                if not (is_not_handled(error) or may_be_applied(error)):
                    self._handle(HeartbeatRefused(error, clock.monotonic_ms()))
            self._failures += 1
            # The first time without a pause: usually the coordinator has just moved, and partitions are not read
            # meanwhile.
            await clock.sleep_ms(0 if self._failures == 1 else backoff_ms(self._failures - 1, self._rng))

    async def _follow(self, coordinator: Endpoint) -> None:
        """Open a stream and pass its messages on until it ends. Raises the cause."""
        try:
            try:
                async with asyncio.timeout(OPEN_MS / 1000):
                    stream: _Stream = await self._cluster.transport.open_stream(
                        coordinator, methods.GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM
                    )
            except TimeoutError:
                raise RequestTimedOut(f"the node at {coordinator} opened no stream within {OPEN_MS} ms") from None
            self._stream = stream
            self._outbox.clear()  # of the stream before: the member sends its whole state on each new stream
            try:
                async with asyncio.TaskGroup() as tasks:
                    writing = tasks.create_task(self._write(stream), name="send heartbeats")
                    self._handle(Connected(self._cluster.clock.monotonic_ms()))
                    cause = await self._read(stream, coordinator)
                    writing.cancel()
            finally:
                self._stream = None
                stream.close()
                self._handle(Disconnected(self._cluster.clock.monotonic_ms()))
            raise cause
        finally:
            # Also after an orderly end: a node ends its streams when it stops leading the partition of the group.
            self._coordinators.forget(CoordinatorKind.GROUP, self._group_id, coordinator)

    async def _read(self, stream: _Stream, coordinator: Endpoint) -> TidelogError:
        """Pass all messages on; return why the stream ended."""
        while True:
            try:
                answer = await stream.receive()
            except TidelogError as cause:
                return cause
            if answer is None:
                return ConnectionLost(f"the node at {coordinator} ended the stream of group {self._group_id!r}")
            self._failures = 0
            self._handle(_event_of(answer, self._cluster.clock.monotonic_ms()))

    async def _write(self, stream: _Stream) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                try:
                    await stream.send(self._outbox.popleft())
                except TidelogError:
                    return  # the reader learns the cause

    def _report(self, error: TidelogError) -> None:
        at = self._cluster.clock.monotonic_ms()
        if self._failures >= 3 and at >= self._report_at:
            self._report_at = Millis(at + REPORT_MS)
            _log.warning("group %r: no coordinator serves this member: %s", self._group_id, error.message)


def _event_of(answer: ConsumerGroupHeartbeatResponse, at: Millis) -> HeartbeatAnswered | HeartbeatRefused:
    if error := error_of(answer):
        return HeartbeatRefused(error, at)
    assignment = None
    if answer.HasField("assignment"):
        assignment = frozenset(
            PartitionKey(TopicId(UUID(bytes=topic.topic_id)), PartitionIndex(partition))
            for topic in answer.assignment.topics
            for partition in topic.partitions
        )
    return HeartbeatAnswered(answer.member_epoch, answer.heartbeat_interval_ms, assignment, at)
