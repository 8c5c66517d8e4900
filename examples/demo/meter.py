"""What is measured while records flow: acknowledgements, their latency, in-sync replicas, and a failover's length.

Times are seconds since the demo began, by a monotonic clock that the caller reads. Latency runs from the moment a
record was due to be handed to the producer until its acknowledgement, so a stalled producer does not hide in it.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InSync:
    """In-sync replicas of a topic: of its worst partition, of all together, and how many there should be."""

    smallest: int
    total: int
    full: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One point of the timeline, over the time since the one before; None where there was nothing to measure."""

    at: float
    acks_per_second: float
    acks: dict[int, int]
    """By partition."""
    p50_ms: float | None
    p99_ms: float | None
    in_sync_smallest: int | None
    in_sync_total: int | None
    waiting: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles in milliseconds over `records` acknowledgements."""

    records: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share (0 to 1) of the ordered values do not exceed."""
    assert ordered, "nothing to take a percentile of"
    return ordered[max(0, -int(-len(ordered) * share // 1) - 1)]


class Meter:
    """Counts acknowledgements as they come; `sample` closes one interval of the timeline."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.timeline: list[Sample] = []
        self.in_sync: InSync | None = None
        self._acks: Counter[int] = Counter()
        self._at = array("d")  # when each acknowledgement came, ascending
        self._latency_ms = array("f")
        self._sampled = 0
        self._sampled_at = 0.0

    @property
    def waiting(self) -> int:
        """Records handed to the producer that have no outcome yet."""
        return self.sent - self.acknowledged

    def acknowledge(self, partition: int, due: float, at: float) -> None:
        """A record of that partition, due at `due`, was acknowledged at `at`."""
        self.acknowledged += 1
        self._acks[partition] += 1
        self._at.append(at)
        self._latency_ms.append((at - due) * 1000)

    def sample(self, at: float) -> Sample:
        """Close the interval that ends now."""
        fresh = sorted(self._latency_ms[self._sampled :])
        elapsed = max(at - self._sampled_at, 1e-9)
        sample = Sample(
            at=at,
            acks_per_second=len(fresh) / elapsed,
            acks=dict(sorted(self._acks.items())),
            p50_ms=percentile(fresh, 0.5) if fresh else None,
            p99_ms=percentile(fresh, 0.99) if fresh else None,
            in_sync_smallest=self.in_sync.smallest if self.in_sync else None,
            in_sync_total=self.in_sync.total if self.in_sync else None,
            waiting=self.waiting,
        )
        self.timeline.append(sample)
        self._sampled, self._sampled_at = len(self._latency_ms), at
        self._acks.clear()
        return sample

    def latency(self, start: float = 0.0, end: float = float("inf")) -> Latency | None:
        """Percentiles of what was acknowledged in [start, end); None where nothing was."""
        ordered = sorted(self._latency_ms[bisect_left(self._at, start) : bisect_left(self._at, end)])
        if not ordered:
            return None
        p50, p90, p99, p999 = (percentile(ordered, share) for share in (0.5, 0.9, 0.99, 0.999))
        return Latency(len(ordered), p50, p90, p99, p999, ordered[-1])

    def throughput(self, start: float, end: float) -> float:
        """Acknowledgements per second in [start, end)."""
        return (bisect_left(self._at, end) - bisect_left(self._at, start)) / max(end - start, 1e-9)


class Failover:
    """From the kill of a leader until each of its partitions acknowledges again a record sent after the kill.

    What was sent before may have been acknowledged by the dead leader, its answer already under way: it proves nothing.
    """

    def __init__(self, partitions: Iterable[int], killed_at: float) -> None:
        self.killed_at = killed_at
        self.recovered_at: dict[int, float] = {}
        self._waiting = set(partitions)
        self._over = asyncio.Event()

    @property
    def missing(self) -> list[int]:
        """Partitions that have not acknowledged yet."""
        return sorted(self._waiting)

    @property
    def seconds(self) -> float:
        """The longest any partition took."""
        assert not self._waiting, "not over yet"
        return max(self.recovered_at.values()) - self.killed_at

    def acknowledge(self, partition: int, sent_at: float, at: float) -> None:
        """A record of that partition, handed to the producer at `sent_at`, was acknowledged at `at`."""
        if partition in self._waiting and sent_at >= self.killed_at:
            self._waiting.remove(partition)
            self.recovered_at[partition] = at
            if not self._waiting:
                self._over.set()

    async def wait_over(self) -> None:
        """Return once every partition acknowledges again."""
        await self._over.wait()
