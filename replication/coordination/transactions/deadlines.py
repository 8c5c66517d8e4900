"""When open transactions time out, by transactional id, and which began first."""

from __future__ import annotations

import heapq

from tidelog.types import Millis


class OpenTransactions:
    """The open transactions of a coordinator. A transaction that is decided stays open until it is complete, without a
    deadline.

    Invariant: `begin`, `decide` and `end` follow the state of the transactional id; repeating one changes nothing.
    """

    def __init__(self) -> None:
        self._starts: dict[str, Millis] = {}
        self._deadlines: dict[str, Millis] = {}
        self._heap: list[tuple[Millis, str]] = []  # with entries of transactions that have ended since

    def __len__(self) -> int:
        return len(self._starts)

    def begin(self, transactional_id: str, start: Millis, deadline: Millis | None) -> None:
        """A transaction is open. start: wall time. deadline: monotonic, kept until the transaction ends; None: it has
        none, or none yet."""
        self._starts[transactional_id] = start
        if deadline is not None and transactional_id not in self._deadlines:
            self._deadlines[transactional_id] = deadline
            heapq.heappush(self._heap, (deadline, transactional_id))

    def decide(self, transactional_id: str, start: Millis) -> None:
        """The transaction is decided and cannot time out any more."""
        self._starts[transactional_id] = start
        self._deadlines.pop(transactional_id, None)

    def end(self, transactional_id: str) -> None:
        """No transaction is open."""
        self._starts.pop(transactional_id, None)
        self._deadlines.pop(transactional_id, None)

    def earliest(self) -> Millis | None:
        """The next deadline, or None."""
        while self._heap and self._deadlines.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, monotonic_ms: Millis) -> list[str]:
        """The transactional ids whose deadline is reached, in order."""
        return [name for at, name in sorted((at, name) for name, at in self._deadlines.items() if at <= monotonic_ms)]

    def oldest_start(self) -> Millis | None:
        """Wall time at which the oldest open transaction began, or None."""
        return min(self._starts.values(), default=None)
