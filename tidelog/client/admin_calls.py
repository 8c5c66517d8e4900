"""The requests of an Admin client: which nodes get them, and when they are sent again.

Queries go to any node that answers. A change is sent once: if the connection breaks before the answer, the change may
or may not have been applied. The error states this, and the client does not retry.
Not here: the queries and changes (admin.py, group_admin.py, transaction_admin.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, Unpack

from tidelog.client.connection import ClientOptions, Service
from tidelog.client.coordinator_listing import Listed, OnMissing, list_all
from tidelog.client.coordinators import Coordinators
from tidelog.client.options import at_least
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    NodeShuttingDown,
    RequestTimedOut,
    ThrottlingQuotaExceeded,
    TidelogError,
    TooFewNodes,
)
from tidelog.protocol import methods
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.status import error_of, sound
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import Endpoint, Millis, NodeId

NODES_START_MS: Final = 5_000
"""A change that needs more nodes than are usable is sent again for this long: the nodes of a cluster register within
seconds of each other. A request that only validates is not: its answer is what is possible now."""
NODES_AGAIN_MS: Final = 200
"""Pause between two attempts of such a change."""


R = TypeVar("R")


class AdminCalls(Service):
    """Base of Admin: see there for the options."""

    def __init__(
        self,
        bootstrap: str | list[str] | tuple[str, ...],
        *,
        request_timeout_ms: int = 30_000,
        patience_ms: int = 30_000,
        **client: Unpack[ClientOptions],
    ) -> None:
        super().__init__(bootstrap, **client)
        at_least(1, request_timeout_ms=request_timeout_ms)
        at_least(0, patience_ms=patience_ms)
        self._timeout_ms, self._patience_ms = request_timeout_ms, patience_ms
        self._coordinators_or_none: Coordinators | None = None

    @property
    def _coordinators(self) -> Coordinators:
        if self._coordinators_or_none is None:
            self._coordinators_or_none = Coordinators(self._cluster, self._rng)
        return self._coordinators_or_none

    async def _query(self, method: Method[Request, Answer], request: Request) -> Answer:
        """Query the nodes in turn until one answers. Raises ConnectionFailed after `patience_ms`."""
        retries = self._cluster.retries(self._patience_ms)
        while True:
            try:
                return await self._cluster.call_any(method, request)
            except ConnectionFailed as error:
                await retries.pause(error)

    async def _metadata(self, **asked: Any) -> admin_pb2.GetMetadataResponse:
        """Query nodes and topics. asked: the fields of the request."""
        return await self._query(methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(**asked))

    async def _refreshed_nodes(self) -> dict[NodeId, Endpoint]:
        """All nodes, according to the metadata of the node that answers."""
        answer = await self._metadata()
        return {NodeId(node.node_id): Endpoint(node.host, node.port) for node in answer.nodes}

    async def _list_all(
        self,
        topic: str,
        method: Method[Request, Listed],
        request: Request,
        on_missing: OnMissing | None,
        timeout_ms: int,
    ) -> dict[NodeId, Listed]:
        """Collect a listing from all nodes: see `list_all`."""

        async def ask(to: Endpoint, timeout_ms: int) -> Listed:
            return await self._cluster.transport.call(to, method, request, timeout_ms=min(self._timeout_ms, timeout_ms))

        retries = self._cluster.retries(timeout_ms)
        return await list_all(topic, self._refreshed_nodes, ask, retries, on_missing=on_missing)

    async def _change_topic(
        self, method: Method[Request, admin_pb2.ChangedTopics], request: Request, *, validate_only: bool = False
    ) -> admin_pb2.ChangedTopic:
        """As `_change`, for a request about one topic. Raises its error. validate_only: the request changes nothing."""
        return await self._change_and_read(
            method, request, lambda answer: sound(answer.topics[0]), validate_only=validate_only
        )

    async def _change(self, method: Method[Request, Answer], request: Request) -> Answer:
        """Send a change to the first reachable node. If the node throttles this client, the change is sent again after
        the time that the node names, within `request_timeout_ms` (KIP-599). While too few nodes are usable, the change
        is sent again for `NODES_START_MS`: the program may have been started together with the cluster."""
        return await self._change_and_read(method, request, lambda answer: answer)

    async def _change_and_read(
        self,
        method: Method[Request, Answer],
        request: Request,
        read: Callable[[Answer], R],
        *,
        validate_only: bool = False,
    ) -> R:
        """As `_change`. read: returns the result in an answer, or raises the error in it."""
        began = self._clock.monotonic_ms()
        while True:
            try:
                return await self._change_once(method, request, read)
            except (ThrottlingQuotaExceeded, TooFewNodes) as error:
                wait_ms = self._again_after(error, began, validate_only=validate_only)
                if not wait_ms:
                    raise
            await self._clock.sleep_ms(wait_ms)

    def _again_after(self, error: TidelogError | None, began: Millis, *, validate_only: bool) -> int:
        """Return after how many milliseconds a change with this outcome is sent again; 0: it is not."""
        if isinstance(error, ThrottlingQuotaExceeded):
            wait_ms, limit_ms = error.throttle_time_ms, self._timeout_ms
        elif isinstance(error, TooFewNodes) and not validate_only:
            wait_ms, limit_ms = NODES_AGAIN_MS, NODES_START_MS
        else:
            return 0
        return wait_ms if self._clock.monotonic_ms() + wait_ms - began <= limit_ms else 0

    async def _change_topics(
        self,
        method: Method[Any, admin_pb2.ChangedTopics],
        request: Callable[..., Any],
        topics: Mapping[str, Any | TidelogError],
        *,
        validate_only: bool = False,
    ) -> dict[str, admin_pb2.ChangedTopic | TidelogError]:
        """As `_change`, for a request about many topics, each of which is sent again by itself. Returns the outcome of
        each by its name, in order. request: makes the request about some of the topics. topics: the part of the request
        about each, or why it has none, which is its outcome then. Raises the error of the first request; that of a
        later one is the outcome of its topics."""
        outcomes: dict[str, Any] = dict(topics)
        began = self._clock.monotonic_ms()
        left = [topic for topic in topics.values() if not isinstance(topic, TidelogError)]
        is_first = True
        while left:
            try:
                answer = await self._change(method, request(topics=left))
            except TidelogError as failure:
                if is_first:
                    raise
                # An exception would hide which of the other topics were changed before.
                return outcomes | {topic.name: failure for topic in left}
            is_first = False
            pauses: dict[str, int] = {}
            for topic, changed in zip(left, answer.topics, strict=True):
                error = error_of(changed)
                outcomes[topic.name] = error or changed
                pauses[topic.name] = self._again_after(error, began, validate_only=validate_only)
            left = [topic for topic in left if pauses[topic.name]]
            if left:
                await self._clock.sleep_ms(max(pauses.values()))
        return outcomes

    async def _change_once(self, method: Method[Request, Answer], request: Request, read: Callable[[Answer], R]) -> R:
        failures: list[TidelogError] = []
        for endpoint in self._cluster.candidates():
            try:
                return read(await self._cluster.transport.call(endpoint, method, request, timeout_ms=self._timeout_ms))
            except (ConnectionLost, RequestTimedOut) as error:  # before ConnectionFailed: the change may be applied
                what = error.message.rstrip(".")
                raise type(error)(
                    f"{what}. It is unknown whether the change was applied: check before you repeat it."
                ) from error
            except (ConnectionFailed, NodeShuttingDown) as error:
                failures.append(error)
        raise self._cluster.no_answer(failures)
