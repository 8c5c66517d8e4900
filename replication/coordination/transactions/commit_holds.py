"""Holds: for a moment, no transaction with certain topics is committed, while the ends of a topic snapshot are taken.

Invariants:
  1. From the decision on HoldCommits until the hold is released or expires, no transaction with one of its topics is
     decided as committed. A commit that arrives meanwhile is refused with ConcurrentTransactions, which every client
     repeats. Aborts and timeouts are not held: what they end is in no snapshot.
  2. A hold is answered as held only if it has not expired since it began. It is lost with the machine: a coordinator
     that was loaded again does not know it.
  3. A topic is in one hold at a time, and after a hold its commits go on for `REST_FACTOR` times as long (at most
     `REST_MS_MAX`) before another one begins. Without this, repeated requests for snapshots would stop its commits for
     most of the time, while a marker cannot be written.

Not here: who holds commits, and why that makes a cut consistent (node/requests/topic_snapshot_handlers.py,
decision 0034).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from replication.coordination.coordinator_machine import Instant
from replication.coordination.group_requests import NamedPartition
from replication.coordination.transaction_requests import HoldStep, LocalHold
from tidelog.errors import ConcurrentTransactions, PolicyViolation
from tidelog.types import Millis
from tidelog.values import dataclass

HOLD_MS_MAX: Final = 5_000
"""A hold ends by itself after this time, whatever was asked: a node that dies meanwhile must not stop all commits."""

HOLDS_MAX: Final = 10
"""At the same time: each is a snapshot that is being taken."""

REST_FACTOR: Final = 9
"""Commits wait for at most a tenth of the time."""

REST_MS_MAX: Final = 10_000
"""Shorter than an attempt to take a snapshot is repeated (`TAKE_MS`): a slow one does not make the next one fail."""


@dataclass(frozen=True, slots=True)
class _Hold:
    """One hold."""

    topics: frozenset[str]
    began: Millis
    until: Millis
    """Both monotonic."""


class CommitHolds:
    """The holds of a coordinator."""

    def __init__(self) -> None:
        self._holds: dict[UUID, _Hold] = {}
        self._rests: dict[str, Millis] = {}
        """Until when there is no further hold of a topic."""

    def step(self, request: LocalHold, now: Instant) -> bool:
        """Begin, look at or release a hold. Returns whether it has held until now; one that must not begin yet has not.
        Raises PolicyViolation if there are too many."""
        self._expire(now)
        if request.step is HoldStep.BEGIN and request.hold_id not in self._holds:
            if len(self._holds) >= HOLDS_MAX:
                raise PolicyViolation(f"{HOLDS_MAX} topic snapshots are being taken at the moment: try again later")
            topics = frozenset(request.topics)
            if topics.isdisjoint(self._rests) and all(topics.isdisjoint(hold.topics) for hold in self._holds.values()):
                until = Millis(now.monotonic_ms + max(0, min(request.hold_ms, HOLD_MS_MAX)))
                self._holds[request.hold_id] = _Hold(topics, now.monotonic_ms, until)
        elif request.step is HoldStep.RELEASE:
            released = self._holds.pop(request.hold_id, None)
            if released is not None:
                self._rest(released, now.monotonic_ms)
            return released is not None
        return request.hold_id in self._holds

    def ensure_free(self, transactional_id: str, partitions: Iterable[NamedPartition], now: Instant) -> None:
        """Raise ConcurrentTransactions if a transaction with these partitions must not be committed now."""
        if not self._holds:
            return
        self._expire(now)
        held = {topic for hold in self._holds.values() for topic in hold.topics}
        if any(each.topic in held for each in partitions):
            raise ConcurrentTransactions(
                f"the commit of {transactional_id!r} waits: a snapshot of its topics is being taken; retry"
            )

    def _expire(self, now: Instant) -> None:
        for key, hold in list(self._holds.items()):
            if now.monotonic_ms >= hold.until:
                del self._holds[key]
                self._rest(hold, hold.until)
        self._rests = {topic: until for topic, until in self._rests.items() if now.monotonic_ms < until}

    def _rest(self, ended: _Hold, at: Millis) -> None:
        until = Millis(at + min(REST_FACTOR * (at - ended.began), REST_MS_MAX))
        self._rests |= dict.fromkeys(ended.topics, until)
