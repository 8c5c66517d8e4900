"""Requests that wait until a position reaches their offset, or until their deadline.

Invariant: each ticket is returned exactly once, in the order of end offset, then of arrival.
Not here: which position is awaited (leader.py), the request behind a ticket (node/replicas/).
"""

from __future__ import annotations

import heapq
from typing import Final

from replication.partition.leader_events import Ticket
from tidelog.types import Millis, Offset

_NEVER: Final = Millis(1 << 62)
_END: Final = Offset(1 << 62)


class AckWaiters:
    """Tickets, ordered by the end offset that each waits for."""

    def __init__(self) -> None:
        self._heap: list[tuple[Offset, Ticket, Millis]] = []
        self._earliest = _NEVER

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def deadline(self) -> Millis:
        """No ticket has an earlier deadline."""
        return self._earliest

    def add(self, ticket: Ticket, end_offset: Offset, deadline: Millis) -> None:
        """Add a ticket. Callers number tickets in increasing order."""
        heapq.heappush(self._heap, (end_offset, ticket, deadline))
        self._earliest = min(self._earliest, deadline)

    def reached(self, position: Offset) -> tuple[Ticket, ...]:
        """Remove and return the tickets whose end offset is at or below `position`."""
        heap = self._heap
        if not heap or heap[0][0] > position:
            return ()
        done = []
        while heap and heap[0][0] <= position:
            done.append(heapq.heappop(heap)[1])
        if not heap:
            self._earliest = _NEVER
        return tuple(done)

    def expired(self, at: Millis, up_to: Offset = _END) -> tuple[Ticket, ...]:
        """Remove and return the tickets whose deadline is at or before `at`, and whose end offset is at or below
        `up_to`."""
        if at < self._earliest:
            return ()
        late = sorted(entry for entry in self._heap if entry[2] <= at and entry[0] <= up_to)
        self._heap = [entry for entry in self._heap if entry[2] > at or entry[0] > up_to]
        heapq.heapify(self._heap)
        self._earliest = min((entry[2] for entry in self._heap), default=_NEVER)
        return tuple(entry[1] for entry in late)

    def all(self) -> tuple[Ticket, ...]:
        """Remove and return every ticket."""
        tickets = tuple(entry[1] for entry in sorted(self._heap))
        self._heap, self._earliest = [], _NEVER
        return tickets
