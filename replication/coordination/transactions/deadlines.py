"""When open transactions time out, by transactional id, and which began first."""

from __future__ import annotations

from collections.abc import Iterator

from replication.coordination.timers import Timers
from tidelog.types import Millis


class OpenTransactions:
    """The open transactions of a coordinator. A transaction that is decided stays open until it is complete, without a
    deadline.

    Invariant: `begin`, `decide` and `end` follow the state of the transactional id; repeating one changes nothing.
    """

    def __init__(self) -> None:
        self._starts: dict[str, Millis] = {}
        self._timers: Timers[str] = Timers()

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._starts)

    def begin(self, transactional_id: str, start: Millis, deadline: Millis | None) -> None:
        """A transaction is open. start: wall time. deadline: monotonic, kept until the transaction ends; None: it has
        none, or none yet."""
        self._starts[transactional_id] = start
        # Each added partition begins it again: the timeout counts from the first one.
        if deadline is not None and transactional_id not in self._timers:
            self._timers.schedule(transactional_id, deadline)

    def decide(self, transactional_id: str, start: Millis) -> None:
        """The transaction is decided and cannot time out any more."""
        self._starts[transactional_id] = start
        self._timers.cancel(transactional_id)

    def end(self, transactional_id: str) -> None:
        """No transaction is open."""
        self._starts.pop(transactional_id, None)
        self._timers.cancel(transactional_id)

    def earliest(self) -> Millis | None:
        """The next deadline, or None."""
        return self._timers.next()

    def due(self, monotonic_ms: Millis, limit: int) -> list[str]:
        """The transactional ids whose deadline is reached, by deadline, at most `limit`. Each stays due until it is
        decided."""
        due = self._timers.pop_due(monotonic_ms, limit)
        for transactional_id in due:
            self._timers.schedule(transactional_id, monotonic_ms)
        return due

    def oldest_start(self) -> Millis | None:
        """Wall time at which the oldest open transaction began, or None."""
        return min(self._starts.values(), default=None)
