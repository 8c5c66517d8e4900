"""One node's memory for records on their way: who gets it, and who waits.

Kinds in the order in which they are served: fetches of followers, produce requests, fetches of consumers. A kind may
fill the budget up to its ceiling, and each ceiling lies below that of the kind before it: what consumers may not take
is left to followers and producers, so a cluster goes on replicating whatever its readers do.

Kept true:
  1. No more than the limit is granted, but to a request that is larger than its ceiling: that is granted alone.
  2. Within a kind, who came first is served first; nobody is passed by a kind that comes after its own.
  3. What is granted is given back once: when it is released, or when the one who waited for it is cancelled.
  4. Consumers get at most an eighth of what is free, and at least what they cannot do without: the fuller the budget,
     the smaller the answers, and a reader that does not take its answer keeps a small part.

What has come already is charged without asking (`charge`): a request that was received, the state of producers. Such
charges may exceed the limit; nothing is granted until they are gone.
Left to others: what it costs in bytes (fetch_session.py, produce_session.py), when an answer is gone
(`ChargedResponse`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Final, NamedTuple, Self

from tidelog.protocol.wire import FetchResponse, PartitionFetched


class Kind(Enum):
    """What memory is used for; the value is the label in metrics."""

    FOLLOWER_FETCH = "follower_fetch"
    PRODUCE = "produce"
    CONSUMER_FETCH = "consumer_fetch"
    PRODUCER_STATE = "producer_state"


CEILINGS: Final = {Kind.FOLLOWER_FETCH: 8, Kind.PRODUCE: 7, Kind.CONSUMER_FETCH: 6}
"""In eighths of the limit, in the order in which the kinds are served."""

FREE_SHARE: Final = 8
"""A consumer's answer takes at most this part of what is free."""

STATE_EIGHTHS: Final = 2
"""So much of the limit may be the state of producers: beyond it the oldest are forgotten."""

PRODUCER_BYTES: Final = 1 << 10
"""What one producer in one partition costs, with its last five batches."""

ANSWER_COPIES: Final = 3
"""Of the records of an answer, while it is written: as read, as serialized, and gRPC's own."""

REQUEST_COPIES: Final = 2
"""Of the records of a request: gRPC's own, and the message that they are views of."""


class MemoryFigures(NamedTuple):
    """The budget as it is now (bytes). waiting: how many wait."""

    limit: int
    used: Mapping[Kind, int]
    waiting: Mapping[Kind, int]


class Share:
    """A part of the budget. Use it in `with`, or `release` it; releasing twice is fine."""

    __slots__ = ("_budget", "kind", "size")

    def __init__(self, budget: MemoryBudget, kind: Kind, size: int) -> None:
        self._budget, self.kind, self.size = budget, kind, size

    def resize(self, size: int) -> None:
        """It is known now how much is used (bytes)."""
        self._budget.used_more(self.kind, size - self.size)
        self.size = size

    def release(self) -> None:
        """Nothing is used any more."""
        self.resize(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class _Waiting(NamedTuple):
    wanted: int
    least: int
    granted: asyncio.Future[Share]


class MemoryBudget:
    """The memory of one node. For the node's loop."""

    def __init__(self, limit: int) -> None:
        """limit: bytes of all kinds together."""
        self.limit = limit
        self._used = dict.fromkeys(Kind, 0)
        self._waiting: dict[Kind, deque[_Waiting]] = {kind: deque() for kind in CEILINGS}

    @property
    def figures(self) -> MemoryFigures:
        """How much is used, and how many wait."""
        waiting = {kind: len(queue) for kind, queue in self._waiting.items()}
        return MemoryFigures(self.limit, dict(self._used), waiting)

    @property
    def is_short(self) -> bool:
        """Does anybody wait?"""
        return any(self._waiting.values())

    async def take(self, kind: Kind, wanted: int, least: int = 1) -> Share:
        """A share of `wanted` bytes, or of fewer, but at least `least`; waits for its turn. Cancelling gives back what
        was granted meanwhile."""
        share = self.take_now(kind, wanted, least)
        if share.size:
            return share
        waiting = _Waiting(max(wanted, least), least, asyncio.get_running_loop().create_future())
        self._waiting[kind].append(waiting)
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            if waiting.granted.cancelled():
                with suppress(ValueError):  # `_grant` has passed it over meanwhile
                    self._waiting[kind].remove(waiting)
                self._grant()
            else:
                waiting.granted.result().release()
            raise

    def take_now(self, kind: Kind, wanted: int, least: int = 1) -> Share:
        """As `take`, but empty where that would have to wait."""
        return self.charge(kind, 0 if self._has_waiting(kind) else self._grantable(kind, max(wanted, least), least))

    async def wait_room(self, kind: Kind) -> None:
        """Return when something of this kind may be taken."""
        (await self.take(kind, 1)).release()

    def charge(self, kind: Kind, size: int) -> Share:
        """A share for what is there already."""
        self.used_more(kind, size)
        return Share(self, kind, size)

    def used_more(self, kind: Kind, size: int) -> None:
        """So many bytes more are used; negative: fewer."""
        self._used[kind] += size
        if size < 0:
            self._grant()

    def _has_waiting(self, kind: Kind) -> bool:
        """Does anybody wait who is served before a newcomer of this kind?"""
        for each, queue in self._waiting.items():
            if queue:
                return True
            if each is kind:
                return False
        return False

    def _grantable(self, kind: Kind, wanted: int, least: int) -> int:
        """How much may be granted now, 0 for nothing."""
        used = sum(self._used.values())
        free = self.limit * CEILINGS[kind] // 8 - used
        if free < least:
            is_alone = used == self._used[Kind.PRODUCER_STATE]
            return least if is_alone else 0
        return min(wanted, max(least, free // FREE_SHARE)) if kind is Kind.CONSUMER_FETCH else min(wanted, free)

    def _grant(self) -> None:
        for kind, queue in self._waiting.items():
            while queue:
                if queue[0].granted.cancelled():  # its task has not run since
                    queue.popleft()
                    continue
                size = self._grantable(kind, queue[0].wanted, queue[0].least)
                if not size:
                    break
                queue.popleft().granted.set_result(self.charge(kind, size))
            if queue:
                return


class ChargedResponse(FetchResponse):
    """An answer that keeps its share of the budget until it is released, or as long as it exists: gRPC keeps the answer
    of a call until that is written."""

    __slots__ = ("_share",)

    def __init__(self, budget: MemoryBudget, kind: Kind) -> None:
        super().__init__()
        self._share = budget.charge(kind, 0)

    @property
    def charged(self) -> int:
        """Bytes of its share."""
        return self._share.size

    def add(self, partitions: list[PartitionFetched], share: Share) -> None:
        """Take these into the answer. share: what they were read with; what they did not need of it is given back."""
        self.partitions += partitions
        size = ANSWER_COPIES * sum(len(each.records) for each in partitions)
        self._share.resize(self._share.size + size)
        share.release()

    def release(self) -> None:
        """It is written, or given up."""
        self._share.release()

    def __del__(self) -> None:
        self._share.release()
