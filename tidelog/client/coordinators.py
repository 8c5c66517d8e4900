"""Lookup of group and transaction coordinators, and calls to them.

Invariants: a call returns the answer of a node that considered itself the coordinator, or raises. A request that was
certainly not handled (NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable, no connection) is sent again
until the timeout, after looking the coordinator up again. A request that may have been applied is sent again only if
the caller permits it.
Not here: the requests (group_offsets.py, the transactional producer), streams (group_session.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum
from random import Random
from typing import Final, TypeAlias, TypeVar

from tidelog.client.cluster import QUERY_TIMEOUT_MS, Cluster
from tidelog.client.retries import Retries
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NodeNotAvailable,
    NodeShuttingDown,
    NotCoordinator,
    RequestTimedOut,
    TidelogError,
    UnknownServerError,
)
from tidelog.protocol import methods
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.status import address_from_proto, error_of
from tidelog.protocol.v1 import groups_pb2
from tidelog.types import Endpoint

ATTEMPT_MS: Final = 5_000
"""Timeout of one attempt. If a node hangs, the coordinator is looked up again: another node may have replaced it."""

KEYS_AT_ONCE: Final = 500
"""Keys in one request. Nodes accept at most 1,000 groups or transactional ids."""

Outcome = TypeVar("Outcome")


class CoordinatorKind(Enum):
    """What a coordinator coordinates."""

    GROUP = groups_pb2.COORDINATOR_TYPE_GROUP
    TRANSACTION = groups_pb2.COORDINATOR_TYPE_TRANSACTION


NOT_HANDLED: Final = (
    NotCoordinator,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NodeShuttingDown,
    NodeNotAvailable,
)
"""Errors of a node that did nothing with the request."""

ErrorOf: TypeAlias = Callable[[Answer], TidelogError | None]
"""Returns the error of the whole request in an answer, or None."""


def is_not_handled(error: TidelogError) -> bool:
    """Whether the request was certainly not applied and may succeed when it is sent again, possibly to another node."""
    return isinstance(error, NOT_HANDLED) or (
        isinstance(error, ConnectionFailed) and not isinstance(error, ConnectionLost)
    )


def may_be_applied(error: TidelogError) -> bool:
    """Whether it is unknown if the request was applied."""
    return isinstance(error, ConnectionLost | RequestTimedOut | UnknownServerError)


class Coordinators:
    """Finds the coordinators of groups and transactional ids, and keeps their addresses until they refuse a request."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster, self._rng = cluster, rng
        self._known: dict[tuple[CoordinatorKind, str], Endpoint] = {}
        self._repeats = False
        """The last lookup did not help: the next one goes to another node, since that one may have old metadata."""

    @property
    def retries(self) -> Callable[[int], Retries]:
        """Return the function that begins the attempts of a call, given its time limit in milliseconds."""
        return self._cluster.retries

    async def find(self, kind: CoordinatorKind, key: str, *, timeout_ms: int) -> Endpoint:
        """Return the address of the coordinator. Looks it up for at most `timeout_ms`, then raises the last error:
        CoordinatorNotAvailable, ConnectionFailed. Raises at once errors that a repetition does not change:
        GroupAuthorizationFailed, TransactionalIdAuthorizationFailed, InvalidGroupId, InvalidRequest,
        UnsupportedVersion."""
        retries = self._cluster.retries(timeout_ms)
        while True:
            try:
                place = (await self.look_up(kind, [key]))[key]
            except TidelogError as error:
                place = error
            if isinstance(place, Endpoint):
                return place
            if not helps_again(place):
                raise place
            await retries.pause(place)

    async def look_up(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, Endpoint | TidelogError]:
        """Return the coordinator of each key, or the reason why there is none. Those that are not known are looked up
        with one request. Raises ConnectionFailed if no node answers."""
        keys = list(dict.fromkeys(keys))
        places: dict[str, Endpoint | TidelogError] = {
            key: self._known[kind, key] for key in keys if (kind, key) in self._known
        }
        unknown = [key for key in keys if key not in places]
        if unknown:
            request = groups_pb2.FindCoordinatorRequest(
                type=groups_pb2.CoordinatorType.ValueType(kind.value), keys=unknown
            )
            answer = await self._ask(request)
            for key, each in zip(unknown, answer.coordinators, strict=True):
                if error := error_of(each):
                    places[key] = error
                else:
                    places[key] = self._known[kind, key] = address_from_proto(each.node).endpoint
        return {key: places[key] for key in keys}

    def forget(self, kind: CoordinatorKind, key: str, endpoint: Endpoint) -> None:
        """Forget that this node is the coordinator of the key, since it refuses or does not answer: the next call looks
        the coordinator up again."""
        if self._known.get((kind, key)) == endpoint:
            del self._known[kind, key]
        self._repeats = True

    async def call(
        self,
        kind: CoordinatorKind,
        key: str,
        method: Method[Request, Answer],
        request: Request | Callable[[], Request],
        *,
        error_of: ErrorOf[Answer] = lambda _answer: None,
        timeout_ms: int,
        repeats_unknown: bool = True,
    ) -> Answer:
        """Call the coordinator of a key and return its answer, which has no error of the whole request by `error_of`.

        request: a message, or a function that builds it for each attempt (it may raise, which ends the call).
        repeats_unknown: send the request again although an earlier attempt may have been applied (connection lost, no
        answer). Raises the error of the answer, or the last error after `timeout_ms`.
        """
        retries = self._cluster.retries(timeout_ms)
        while True:
            to = await self.find(kind, key, timeout_ms=retries.left_ms)
            message = request() if callable(request) else request
            try:
                answer: Answer = await self._cluster.transport.call(
                    to, method, message, timeout_ms=min(retries.left_ms, ATTEMPT_MS)
                )
                error = error_of(answer)
            except TidelogError as refusal:
                error = refusal
            if error is None:
                return answer
            if not (is_not_handled(error) or (repeats_unknown and may_be_applied(error))):
                raise error
            if not isinstance(error, CoordinatorLoadInProgress):  # else the node is the coordinator, and ready soon
                self.forget(kind, key, to)
            await retries.pause(error)

    async def call_each(
        self,
        kind: CoordinatorKind,
        keys: Iterable[str],
        send: Callable[[Endpoint, list[str]], Awaitable[dict[str, Outcome | TidelogError]]],
        *,
        timeout_ms: int,
    ) -> dict[str, Outcome | TidelogError]:
        """Send requests about many keys to their coordinators, `KEYS_AT_ONCE` keys in one. send: sends one request to a
        node and returns the outcome of each key. Returns the outcomes in the order of the keys; a key without an answer
        after `timeout_ms` has its last error. For requests that may be repeated."""
        retries = self._cluster.retries(timeout_ms)
        left = all_keys = list(dict.fromkeys(keys))
        outcomes: dict[str, Outcome | TidelogError] = {}
        while left:
            by_node: dict[Endpoint, list[str]] = {}
            for some in _divided(left):
                try:
                    places = await self.look_up(kind, some)
                except TidelogError as error:
                    places = dict.fromkeys(some, error)
                for key, place in places.items():
                    if isinstance(place, TidelogError):
                        outcomes[key] = place
                    else:
                        by_node.setdefault(place, []).append(key)
            for endpoint, theirs in [(each, some) for each, keys in by_node.items() for some in _divided(keys)]:
                try:
                    answered = await send(endpoint, theirs)
                except TidelogError as error:
                    answered = dict.fromkeys(theirs, error)
                outcomes.update(answered)
                for key in theirs:
                    outcome = answered[key]
                    if helps_again(outcome) and not isinstance(outcome, CoordinatorLoadInProgress):
                        self.forget(kind, key, endpoint)
            failed = {key: each for key in all_keys if isinstance(each := outcomes[key], TidelogError)}
            left = [key for key, error in failed.items() if helps_again(error)]
            if left:
                try:
                    await retries.pause(failed[left[0]])
                except TidelogError:
                    break  # each key has its own error
        return {key: outcomes[key] for key in all_keys}

    async def _ask(self, request: groups_pb2.FindCoordinatorRequest) -> groups_pb2.FindCoordinatorResponse:
        """Query the node that answered last or, after a lookup that did not help, the nodes in random order."""
        repeats, self._repeats = self._repeats, False
        if not repeats:
            return await self._cluster.call_any(methods.COORDINATORS_FIND_COORDINATOR, request)
        endpoints = self._cluster.candidates()
        self._rng.shuffle(endpoints)
        failures: list[TidelogError] = []
        for endpoint in endpoints:
            try:
                return await self._cluster.transport.call(
                    endpoint, methods.COORDINATORS_FIND_COORDINATOR, request, timeout_ms=QUERY_TIMEOUT_MS
                )
            except (ConnectionFailed, RequestTimedOut, NodeShuttingDown, NodeNotAvailable) as error:
                failures.append(error)
        raise self._cluster.no_answer(failures)


def _divided(keys: list[str]) -> list[list[str]]:
    return [keys[start : start + KEYS_AT_ONCE] for start in range(0, len(keys), KEYS_AT_ONCE)]


def helps_again(outcome: object) -> bool:
    """Whether a request that may be repeated can succeed when it is sent again, possibly to another node."""
    return isinstance(outcome, TidelogError) and (is_not_handled(outcome) or may_be_applied(outcome))
