"""Lookup of group and transaction coordinators, and calls to them.

Invariants: a call returns the answer of a node that considered itself the coordinator, or raises. A request that was
certainly not handled (NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable, no connection) is sent again
until the timeout, after looking the coordinator up again. One that may have been applied is sent again only if the
caller says that this does no harm.
Not here: what the requests mean (group_offsets.py, group_session.py, the transactional producer), streams
(group_session.py).
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
"""Timeout of one attempt: a node that hangs is given up, and the coordinator is looked up again."""

KEYS_AT_ONCE: Final = 500
"""Keys in one request about many of them. Nodes describe 1,000 groups at most."""

Outcome = TypeVar("Outcome")


class CoordinatorKind(Enum):
    """What a coordinator is for."""

    GROUP = groups_pb2.COORDINATOR_TYPE_GROUP
    TRANSACTION = groups_pb2.COORDINATOR_TYPE_TRANSACTION


NOT_HANDLED: Final = (
    NotCoordinator,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NodeShuttingDown,
    NodeNotAvailable,
)
"""Refusals of a node that did nothing with the request."""

ErrorOf: TypeAlias = Callable[[Answer], TidelogError | None]
"""Returns the error in an answer that concerns the whole request; None: there is none."""


def is_not_handled(error: TidelogError) -> bool:
    """Whether the request was certainly not applied and can help when sent again, possibly to another node."""
    return isinstance(error, NOT_HANDLED) or (
        isinstance(error, ConnectionFailed) and not isinstance(error, ConnectionLost)
    )


def may_be_applied(error: TidelogError) -> bool:
    """Whether it is unknown if the request was applied."""
    return isinstance(error, ConnectionLost | RequestTimedOut | UnknownServerError)


class Coordinators:
    """Finds the coordinators of groups and transactional ids, and remembers them until they refuse."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster, self._rng = cluster, rng
        self._known: dict[tuple[CoordinatorKind, str], Endpoint] = {}
        self._repeats = False
        """Whether the last lookup did not help: another node is asked then, since one may have old metadata."""

    @property
    def retries(self) -> Callable[[int], Retries]:
        """Return the function that begins the attempts of a call, which may take some time (milliseconds)."""
        return self._cluster.retries

    async def find(self, kind: CoordinatorKind, key: str, *, timeout_ms: int) -> Endpoint:
        """Return the address of the coordinator. Looks it up for at most `timeout_ms`, then raises the last error:
        CoordinatorNotAvailable, ConnectionFailed. Raises at once what no repetition changes: GroupAuthorizationFailed,
        TransactionalIdAuthorizationFailed, InvalidGroupId, InvalidRequest, UnsupportedVersion."""
        retries = self._cluster.retries(timeout_ms)
        while True:
            try:
                found = (await self.look_up(kind, [key]))[key]
            except TidelogError as error:
                found = error
            if isinstance(found, Endpoint):
                return found
            if not helps_again(found):
                raise found
            await retries.pause(found)

    async def look_up(self, kind: CoordinatorKind, keys: Iterable[str]) -> dict[str, Endpoint | TidelogError]:
        """Return the coordinator of each key, or the reason why there is none; one question for those that are not
        known. Raises ConnectionFailed if no node answers."""
        wanted = list(dict.fromkeys(keys))
        found: dict[str, Endpoint | TidelogError] = {
            key: self._known[kind, key] for key in wanted if (kind, key) in self._known
        }
        unknown = [key for key in wanted if key not in found]
        if unknown:
            request = groups_pb2.FindCoordinatorRequest(
                type=groups_pb2.CoordinatorType.ValueType(kind.value), keys=unknown
            )
            answer = await self._ask(request)
            for key, each in zip(unknown, answer.coordinators, strict=True):
                if error := error_of(each):
                    found[key] = error
                else:
                    found[key] = self._known[kind, key] = address_from_proto(each.node).endpoint
        return {key: found[key] for key in wanted}

    def forget(self, kind: CoordinatorKind, key: str, endpoint: Endpoint) -> None:
        """The node at this address is not the coordinator, or does not answer: the next call looks it up again."""
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
            if not isinstance(error, CoordinatorLoadInProgress):  # that node is the coordinator, a moment too early
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
        """Ask the coordinators of many keys, each node about `KEYS_AT_ONCE` of its keys at once. send: asks one node
        and returns the outcome of each key. Returns the outcomes in the order of the keys; what could not be asked
        within `timeout_ms` has its error. For requests that may be repeated."""
        retries = self._cluster.retries(timeout_ms)
        left = wanted = list(dict.fromkeys(keys))
        outcomes: dict[str, Outcome | TidelogError] = {}
        while left:
            by_node: dict[Endpoint, list[str]] = {}
            for some in _divided(left):
                try:
                    found = await self.look_up(kind, some)
                except TidelogError as error:
                    found = dict.fromkeys(some, error)
                for key, place in found.items():
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
            failed = {key: each for key in wanted if isinstance(each := outcomes[key], TidelogError)}
            left = [key for key, error in failed.items() if helps_again(error)]
            if left:
                try:
                    await retries.pause(failed[left[0]])
                except TidelogError:
                    break  # each key has its own error
        return {key: outcomes[key] for key in wanted}

    async def _ask(self, request: groups_pb2.FindCoordinatorRequest) -> groups_pb2.FindCoordinatorResponse:
        """Ask the node that answered last. After a lookup that did not help, ask in random order."""
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
