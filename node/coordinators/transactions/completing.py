"""Requests that arrive while the markers of the last transaction of their transactional id are being written.

A producer begins its next transaction as soon as the last one is decided, some milliseconds before that one is
complete. Its requests wait here: they are decided in the turn of the loop in which the markers are reported, so that
the Complete record and the first record of the next transaction are appended and committed together. Refused at once,
they would be repeated after pauses, and wait for a commit of their own.

Invariants: a request waits at most `WAIT_MS`, then it gets the answer that it would have got at once. When a
coordinator is dropped, requests that wait for it are submitted at once, and refused.
Not here: the decision (replication/coordination/transactions): nothing is decided before the markers are reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from tidelog.errors import TidelogError
from tidelog.types import PartitionIndex
from tidelog.values import dataclass

WAIT_MS: Final = 100
"""Markers take some milliseconds, unless a partition has no leader: then the request is repeated after pauses."""

Submit: TypeAlias = Callable[[PartitionIndex, Any], asyncio.Future[Any]]


@dataclass(eq=False, slots=True)
class _WaitingRequest:
    """A request that waits."""

    request: Any
    answer: asyncio.Future[Any]
    late: asyncio.TimerHandle | None = None
    """The timer that ends the wait."""


class CompletingTransactions:
    """The decided transactions that are not complete, of all coordinators of a node, with the requests that wait for
    their end. They are named by partition of `__transaction_state` and transactional id."""

    def __init__(self, submit: Submit) -> None:
        """submit: gives a request to the coordinator of a partition; raises its TidelogError if it decides nothing."""
        self._submit = submit
        self._of: dict[PartitionIndex, dict[str, list[_WaitingRequest]]] = {}

    def begin(self, partition: PartitionIndex, transactional_id: str) -> None:
        """Note that a transaction was decided."""
        self._of.setdefault(partition, {}).setdefault(transactional_id, [])

    def end(self, partition: PartitionIndex, transactional_id: str) -> None:
        """Submit the requests that wait for a transaction: its markers were just reported to the coordinator."""
        found = self._of.get(partition, {})
        waiting = found.pop(transactional_id, [])
        if not found:
            self._of.pop(partition, None)
        self._decide(partition, waiting)

    def drop(self, partition: PartitionIndex) -> None:
        """Submit the requests that wait for a coordinator that was dropped."""
        for waiting in self._of.pop(partition, {}).values():
            self._decide(partition, waiting)

    def again(self, partition: PartitionIndex, transactional_id: str, request: Any) -> asyncio.Future[Any]:
        """The answer to a request that was answered with ConcurrentTransactions before, once the transaction is
        complete."""
        loop = asyncio.get_running_loop()
        repeated = _WaitingRequest(request, loop.create_future())
        waiting = self._of.get(partition, {}).get(transactional_id)
        if waiting is None:  # it is complete by now
            self._decide(partition, [repeated])
        else:
            waiting.append(repeated)
            repeated.late = loop.call_later(WAIT_MS / 1_000, self._give_up, partition, waiting, repeated)
        return repeated.answer

    def _give_up(self, partition: PartitionIndex, waiting: list[_WaitingRequest], late: _WaitingRequest) -> None:
        waiting.remove(late)
        self._decide(partition, [late])

    def _decide(self, partition: PartitionIndex, requests: list[_WaitingRequest]) -> None:
        for each in requests:
            if each.late is not None:
                each.late.cancel()
            if each.answer.done():
                continue  # its caller is gone
            try:
                decision = self._submit(partition, each.request)
            except TidelogError as error:
                each.answer.set_exception(error)
            else:
                decision.add_done_callback(partial(_pass_on, each.answer))


def _pass_on(answer: asyncio.Future[Any], decision: asyncio.Future[Any]) -> None:
    error = decision.exception()
    if answer.done():
        return  # its caller is gone
    if error is None:
        answer.set_result(decision.result())
    else:
        answer.set_exception(error)
