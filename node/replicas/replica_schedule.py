"""When replicas act on the clock: at the next tick, or at the next review.

A tick serves deadlines and retries. A review, some 16 times per `replica.lag.time.max.ms`, checks what has changed
since the last one and what is not settled. Idle replicas have neither.
Not here: the timer (node/runtime/ticker.py), what a tick or a review does (leader_replica.py, follower_replica.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tidelog.types import Millis


class Ticked(Protocol):
    """A leader or a follower."""

    def tick(self) -> None: ...


class Reviewed(Protocol):
    """A leader, a follower, or a replica without a role."""

    def review(self) -> bool:
        """Check what depends on time. Returns True if another review is needed."""
        ...


class ReplicaSchedule:
    """The replicas of one node that act at the next tick, and at the next review."""

    def __init__(
        self,
        review_ms: int,
        *,
        wake_soon: Callable[[], None],
        wake_by: Callable[[Millis], None],
        reviewed: Callable[[], None],
    ) -> None:
        """review_ms: from one review to the next. wake_soon, wake_by: request a tick. reviewed: called after each
        review."""
        self._review_ms, self._wake_soon, self._wake_by, self._reviewed = review_ms, wake_soon, wake_by, reviewed
        self._attended: dict[Ticked, None] = {}
        self._watched: dict[Reviewed, None] = {}
        self.next_review = Millis(0)

    @property
    def has_attended(self) -> bool:
        """True if the next tick has an effect."""
        return bool(self._attended)

    @property
    def has_watched(self) -> bool:
        """True if the next review has an effect."""
        return bool(self._watched)

    def attend(self, replica: Ticked) -> None:
        """Include this replica in the next tick."""
        self._attended[replica] = None
        self._wake_soon()

    def watch(self, replica: Reviewed) -> None:
        """Include this replica in the next review."""
        self._watched[replica] = None
        self._wake_by(self.next_review)

    def tick(self, now: Millis) -> None:
        """Tick, and review if that is due."""
        attended, self._attended = self._attended, {}
        if now >= self.next_review:
            self.next_review = Millis(now + self._review_ms)
            self._review()
        for replica in attended:
            replica.tick()

    def _review(self) -> None:
        watched, self._watched = self._watched, {}
        for replica in watched:
            if replica.review():
                self._watched[replica] = None
            else:
                self._watched.pop(replica, None)
        self._reviewed()
