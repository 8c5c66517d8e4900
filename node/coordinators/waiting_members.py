"""Requests of members of classic groups that wait for other members: their coordinator answers them later.

Invariants: each request has its answer, or its refusal, once. When the coordinator of a group is dropped, the requests
that wait for it are refused, and their members look it up again.
Not here: the decisions (replication/coordination/groups/), the requests (node/requests/group_handlers.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from replication.coordination.classic_requests import LateAnswer
from tidelog.errors import NotCoordinator, TidelogError
from tidelog.types import PartitionIndex
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request that a coordinator may answer later. ticket: its name in a LateAnswer."""

    ticket: int
    answer: asyncio.Future[Any]


class WaitingMembers:
    """The requests of a node that may be answered later."""

    def __init__(self) -> None:
        self._by_partition: dict[PartitionIndex, dict[int, WaitingRequest]] = {}
        self._tickets = count(1)

    @contextmanager
    def opened(self, partition: PartitionIndex) -> Iterator[WaitingRequest]:
        """A request to the coordinator of a partition of the internal topic, until it has its answer."""
        request = WaitingRequest(next(self._tickets), asyncio.get_running_loop().create_future())
        # Before the coordinator decides: its late answer may come in the same turn of the loop as the decision.
        self._by_partition.setdefault(partition, {})[request.ticket] = request
        try:
            yield request
        finally:
            requests = self._by_partition.get(partition, {})
            requests.pop(request.ticket, None)
            if not requests:
                self._by_partition.pop(partition, None)
            request.answer.cancel()
            if not request.answer.cancelled():
                request.answer.exception()  # nobody may have awaited it: asyncio would log that it was not retrieved

    def answered(self, partition: PartitionIndex, late: LateAnswer) -> None:
        """Give an answer away. A request whose caller is gone gets none."""
        request = self._by_partition.get(partition, {}).pop(late.ticket, None)
        if request is None or request.answer.done():
            return
        if isinstance(late.answer, TidelogError):
            request.answer.set_exception(late.answer)
        else:
            request.answer.set_result(late.answer)

    def unloaded(self, partition: PartitionIndex) -> None:
        """Refuse the requests that wait for the coordinator of this partition, which was dropped."""
        for request in self._by_partition.pop(partition, {}).values():
            if not request.answer.done():
                request.answer.set_exception(
                    NotCoordinator(
                        "this node no longer coordinates the group, or loads its coordinator again: look the "
                        "coordinator up, and join there"
                    )
                )

    def __len__(self) -> int:
        return sum(map(len, self._by_partition.values()))
