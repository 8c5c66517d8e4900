"""Memory budget of one node for records in transit: grants shares of it, and queues requests while it is used up.

Kinds in the order of priority: fetches of followers, produce requests, fetches of consumers. A kind may fill the budget
up to its ceiling, and each ceiling is lower than that of the kind before it: memory that consumers may not use remains
for followers and producers, so replication continues under any load of consumers.

Invariants:
  1. No more than the limit is granted, except to a request larger than its ceiling: it is granted alone.
  2. Within a kind requests are served in order of arrival. No request is served before an earlier one of a higher
     priority.
  3. A grant is returned exactly once: by its release, or when the waiting task is cancelled.
  4. A consumer's answer gets at most an eighth of the free memory, and at least the minimum it needs: the fuller the
     budget, the smaller the answers. A consumer that does not take its answer occupies a small part only.

Memory that is already used is charged without waiting (`charge`): a received request, the state of producers. Such
charges may exceed the limit; nothing is granted until they are returned.
Not here: the size of a request (fetch_session.py, produce_session.py), when an answer is sent (`AnswerCharge`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Final, NamedTuple, Self


class Kind(Enum):
    """What memory is used for. The value is the label in metrics."""

    FOLLOWER_FETCH = "follower_fetch"
    PRODUCE = "produce"
    CONSUMER_FETCH = "consumer_fetch"
    PRODUCER_STATE = "producer_state"

    __hash__ = object.__hash__
    """Every message looks kinds up several times, and Enum's own hash is written in Python."""


CEILINGS: Final = {Kind.FOLLOWER_FETCH: 8, Kind.PRODUCE: 7, Kind.CONSUMER_FETCH: 6}
"""In eighths of the limit, in the order of priority."""

FREE_SHARE: Final = 8
"""A consumer's answer gets at most this fraction (1/N) of the free memory."""

STATE_EIGHTHS: Final = 2
"""Limit of the producers' state, in eighths of the budget. Beyond it the oldest states are dropped."""

PRODUCER_BYTES: Final = 1 << 10
"""Estimated size of one producer in one partition, with its last five batches."""


class MemoryFigures(NamedTuple):
    """State of the budget (bytes). waiting: number of waiting requests."""

    limit: int
    used: Mapping[Kind, int]
    waiting: Mapping[Kind, int]


class Share:
    """A part of the budget. Use it in `with`, or `release` it; a second release has no effect."""

    __slots__ = ("_budget", "kind", "size")

    def __init__(self, budget: MemoryBudget, kind: Kind, size: int) -> None:
        self._budget, self.kind, self.size = budget, kind, size

    def resize(self, size: int) -> None:
        """Set the size to the bytes that are actually used."""
        self._budget.used_more(self.kind, size - self.size)
        self.size = size

    def release(self) -> None:
        """Return the whole share."""
        self.resize(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class _WaitingShare(NamedTuple):
    wanted: int
    least: int
    granted: asyncio.Future[Share]


class MemoryBudget:
    """The memory budget of one node. Used on the node's loop only."""

    def __init__(self, limit: int) -> None:
        """limit: bytes of all kinds together."""
        self.limit = limit
        self._used = dict.fromkeys(Kind, 0)
        self._waiting: dict[Kind, deque[_WaitingShare]] = {kind: deque() for kind in CEILINGS}
        self._count = 0
        """The number of waiting requests."""

    @property
    def figures(self) -> MemoryFigures:
        """Used memory and waiting requests."""
        waiting = {kind: len(queue) for kind, queue in self._waiting.items()}
        return MemoryFigures(self.limit, dict(self._used), waiting)

    @property
    def is_short(self) -> bool:
        """Whether any request waits."""
        return self._count > 0

    async def take(self, kind: Kind, wanted: int, least: int = 1) -> Share:
        """Wait for a share of `wanted` bytes, or of fewer but at least `least`. Cancelling returns what was granted
        meanwhile."""
        share = self.take_now(kind, wanted, least)
        if share.size:
            return share
        waiting = _WaitingShare(max(wanted, least), least, asyncio.get_running_loop().create_future())
        self._waiting[kind].append(waiting)
        self._count += 1
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            if waiting.granted.cancelled():
                with suppress(ValueError):  # `_grant` has already removed it
                    self._waiting[kind].remove(waiting)
                    self._count -= 1
                self._grant()
            else:
                waiting.granted.result().release()
            raise

    def take_now(self, kind: Kind, wanted: int, least: int = 1) -> Share:
        """As `take`, but returns an empty share instead of waiting."""
        return self.charge(kind, 0 if self._has_waiting(kind) else self._grantable(kind, max(wanted, least), least))

    async def wait_room(self, kind: Kind) -> None:
        """Return when memory of this kind can be granted."""
        if self._has_waiting(kind) or not self._grantable(kind, 1, 1):
            (await self.take(kind, 1)).release()

    def charge(self, kind: Kind, size: int) -> Share:
        """A share for memory that is already used."""
        self.used_more(kind, size)
        return Share(self, kind, size)

    def used_more(self, kind: Kind, size: int) -> None:
        """Increase the used memory by `size` bytes; a negative size decreases it."""
        self._used[kind] += size
        if size < 0 and self._count:
            self._grant()

    def _has_waiting(self, kind: Kind) -> bool:
        """Whether a request waits that has priority over a new one of this kind."""
        if not self._count:
            return False
        for each, queue in self._waiting.items():
            if queue:
                return True
            if each is kind:
                return False
        return False

    def _grantable(self, kind: Kind, wanted: int, least: int) -> int:
        """How many bytes may be granted now; 0 if none."""
        used = sum(self._used.values())
        free = self.limit * CEILINGS[kind] // 8 - used
        if free < least:
            is_alone = used == self._used[Kind.PRODUCER_STATE]
            return least if is_alone else 0
        return min(wanted, max(least, free // FREE_SHARE)) if kind is Kind.CONSUMER_FETCH else min(wanted, free)

    def _grant(self) -> None:
        for kind, queue in self._waiting.items():
            while queue:
                if queue[0].granted.cancelled():  # its task has not removed it yet
                    self._remove_first(queue)
                    continue
                size = self._grantable(kind, queue[0].wanted, queue[0].least)
                if not size:
                    break
                self._remove_first(queue).granted.set_result(self.charge(kind, size))
            if queue:
                return

    def _remove_first(self, queue: deque[_WaitingShare]) -> _WaitingShare:
        self._count -= 1
        return queue.popleft()


class AnswerCharge:
    """The share of the budget that the records of an answer occupy, until it is released or deleted. The listener keeps
    the charge with the message until it is sent."""

    __slots__ = ("_budget", "_copies", "_share")

    def __init__(self, budget: MemoryBudget, kind: Kind, copies: int) -> None:
        """copies: how often the records are in memory while the answer is sent."""
        self._budget, self._share, self._copies = budget, budget.charge(kind, 0), copies

    @property
    def size(self) -> int:
        """Bytes of its share."""
        return self._share.size

    @property
    def delays_others(self) -> bool:
        """True if requests wait for memory, some of which this answer occupies."""
        return self._share.size > 0 and self._budget.is_short

    def add(self, records_size: int, share: Share) -> None:
        """Charge further records (bytes). share: the memory they were read with; its unused part is returned."""
        self._share.resize(self._share.size + self._copies * records_size)
        share.release()

    def release(self) -> None:
        """Return the share: the answer is sent, or dropped."""
        self._share.release()

    def __del__(self) -> None:
        self._share.release()
