"""What a node has done in the last minutes, as rates and latencies: for charts.

The node is sampled while somebody looks, and for `AFTER_MS` longer: an idle node does nothing for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

EVERY_MS: Final = 2_000
KEPT: Final = 150
"""Samples: five minutes."""
AFTER_MS: Final = 600_000
"""A person who comes back within ten minutes finds the chart without a gap."""


@dataclass(frozen=True, slots=True)
class NodeCounters:
    """Counters of a node since its start."""

    at_ms: int
    """When they were read, by a clock that does not jump."""
    records_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0
    errors: int = 0
    produce_times: tuple[int, ...] = ()
    """Produce requests by time: how many above one of `bounds` and not above the next."""
    fetch_times: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LiveSeries:
    """The values of one figure, the newest last; None where there was nothing to measure."""

    name: str
    unit: str
    values: tuple[float | None, ...]

    @property
    def last(self) -> float | None:
        """The newest value."""
        return self.values[-1] if self.values else None


class LiveFigures:
    """The last minutes of one node."""

    def __init__(self, read: Callable[[], NodeCounters], bounds_ms: Sequence[float]) -> None:
        """read: the counters now. bounds_ms: upper bounds of the histograms of times."""
        self._read, self._bounds_ms = read, tuple(bounds_ms)
        self._samples: deque[NodeCounters] = deque(maxlen=KEPT)
        self._seen_ms: int | None = None

    @property
    def is_watched(self) -> bool:
        """Whether somebody has looked in the last minutes."""
        return self._seen_ms is not None

    def look(self) -> None:
        """Somebody looks: the node is sampled from now on."""
        if self._seen_ms is None:
            self._samples.clear()
            self._samples.append(self._read())
        self._seen_ms = self._samples[-1].at_ms

    def sample(self) -> None:
        """Take a sample, unless nobody has looked for long; called every `EVERY_MS`."""
        if self._seen_ms is None:
            return
        found = self._read()
        if found.at_ms - self._seen_ms > AFTER_MS:
            self._seen_ms = None
            return
        self._samples.append(found)

    @property
    def span_ms(self) -> int:
        """The time that the values cover."""
        return self._samples[-1].at_ms - self._samples[0].at_ms if self._samples else 0

    def rates(self) -> list[LiveSeries]:
        """What happened each second."""
        return [
            LiveSeries("Records produced", "records/s", self._rate(lambda each: each.records_in)),
            LiveSeries("Bytes in", "bytes/s", self._rate(lambda each: each.bytes_in)),
            LiveSeries("Bytes out", "bytes/s", self._rate(lambda each: each.bytes_out)),
            LiveSeries("Requests", "requests/s", self._rate(lambda each: each.requests)),
            LiveSeries("Errors", "errors/s", self._rate(lambda each: each.errors)),
        ]

    def latencies(self) -> list[LiveSeries]:
        """The time that requests took in this node."""
        return [
            LiveSeries(f"{name}, {part}", "ms", self._percentiles(times, share))
            for name, times in (
                ("Produce requests", lambda each: each.produce_times),
                ("Fetch requests", lambda each: each.fetch_times),
            )
            for part, share in (("half below", 0.5), ("99 % below", 0.99))
        ]

    def _rate(self, of: Callable[[NodeCounters], int]) -> tuple[float | None, ...]:
        return tuple(
            (of(after) - of(before)) * 1_000 / (after.at_ms - before.at_ms) if after.at_ms > before.at_ms else None
            for before, after in pairwise(self._samples)
        )

    def _percentiles(self, of: Callable[[NodeCounters], tuple[int, ...]], share: float) -> tuple[float | None, ...]:
        return tuple(
            percentile(
                [late - early for early, late in zip(of(before), of(after), strict=True)], self._bounds_ms, share
            )
            for before, after in pairwise(self._samples)
        )


def percentile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """The upper bound below which this share of the values is; the highest bound for those above all; None without
    values. counts: by bound, at the end those above all."""
    total = sum(counts)
    if not total:
        return None
    for sofar, bound in zip(accumulate(counts), bounds, strict=False):
        if sofar >= share * total:
            return bound
    return bounds[-1]
