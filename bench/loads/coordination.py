"""What the coordination loads of all clients share: counts, shares of members, and when each came back."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Hashable
from typing import Any


def ids(purpose: str, count: int) -> list[str]:
    """Group ids or transactional ids that were never used before."""
    run = uuid.uuid4().hex[:8]
    return [f"{purpose}-{run}-{number}" for number in range(count)]


class Tally:
    """Counts operations until a deadline, and keeps how long each took."""

    def __init__(self) -> None:
        self.began = self.ended = self.deadline = 0.0
        self._took: list[float] = []

    def begin(self, seconds: float) -> None:
        self.began = time.perf_counter()
        self.deadline = self.began + seconds

    def done(self, began: float) -> None:
        """An operation that began then has ended."""
        self._took.append((time.perf_counter() - began) * 1000)

    def end(self) -> None:
        self.ended = time.perf_counter()

    def result(self) -> dict[str, Any]:
        took = sorted(self._took) or [0.0]
        return {
            "records": len(self._took),
            "bytes": 0,
            "began": self.began,
            "ended": self.ended,
            "p50_ms": took[len(took) // 2],
            "p99_ms": took[min(len(took) - 1, len(took) * 99 // 100)],
        }


class Shares:
    """Which partitions each member has. Safe for threads."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._has: dict[Hashable, frozenset[int]] = {}
        self._changed = threading.Condition()

    @property
    def summary(self) -> str:
        """How many members have how many partitions."""
        counts = sorted(Counter(map(len, self._has.values())).items())
        found = ", ".join(f"{members} members with {partitions}" for partitions, members in counts) or "no members"
        return f"{found}, of {self._partitions} partitions"

    def has(self, member: Hashable, partitions: frozenset[int]) -> None:
        with self._changed:
            if self._has.get(member) != partitions:
                self._has[member] = partitions
                self._changed.notify_all()

    def are_shared(self, members: int) -> bool:
        """Whether so many members have all partitions, none twice, in shares that differ by at most one."""
        counts = [len(found) for found in self._has.values() if found]
        idle = max(0, members - self._partitions)
        complete = sum(counts) == self._partitions == len(frozenset().union(*self._has.values()))
        return complete and len(counts) == members - idle and max(counts) - min(counts) <= 1

    def wait_shared(self, members: int, seconds: float) -> float:
        """The time at which they are shared. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.are_shared(members), seconds):
                raise TimeoutError(f"after {seconds:g} s {members} members are to share: {self.summary}")
            return time.perf_counter()


class Watch:
    """When each of several clients committed for the first time after a kill. Safe for threads."""

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._killed_at = float("inf")
        self._before: set[int] = set()
        self._after: dict[int, float] = {}
        self._changed = threading.Condition()

    @property
    def complete(self) -> bool:
        return len(self._after) == self._clients

    def committed(self, client: int, began: float) -> None:
        """A commit that was begun then has succeeded."""
        with self._changed:
            self._before.add(client)
            if began > self._killed_at:
                self._after.setdefault(client, time.perf_counter())
            self._changed.notify_all()

    @property
    def all_committed(self) -> bool:
        return len(self._before) == self._clients

    def wait_all_committed(self, seconds: float) -> None:
        """Return when each has committed once. Raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.all_committed, seconds):
                raise TimeoutError(f"{len(self._before)} of {self._clients} clients have committed after {seconds:g} s")

    def begin_kill(self, pid: int) -> None:
        """Kill -9 a process."""
        os.kill(pid, 9)
        self._killed_at = time.perf_counter()

    @property
    def seconds(self) -> float:
        """From the kill until the last client had committed again."""
        return max(self._after.values()) - self._killed_at

    def kill(self, pid: int, seconds: float) -> float:
        """Kill -9 a process; the seconds until each client has committed again. Raises TimeoutError."""
        self.begin_kill(pid)
        with self._changed:
            if not self._changed.wait_for(lambda: self.complete, seconds):
                raise TimeoutError(f"{len(self._after)} of {self._clients} clients have committed {seconds:g} s after")
        return self.seconds
