"""A histogram of numbers of any size whose percentiles are within 1 %, and which can be merged. Pure.

Bucket 0 has the value 0; bucket i has the values above GAMMA**(i-1), up to GAMMA**i.
Source: DDSketch (Masson, Rim, Lee: "DDSketch: a fast and fully-mergeable quantile sketch with relative-error
guarantees", VLDB 2019).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

ERROR: Final = 0.01
GAMMA: Final = (1 + ERROR) / (1 - ERROR)
_LOG: Final = math.log(GAMMA)
_SLACK: Final = 1e-9
"""Keeps a power of GAMMA in its own bucket although logarithms are rounded."""


class LogHistogram:
    """Counts of whole numbers of 0 and above."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.sum, self.max = 0, 0

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return self._buckets.total()

    def add(self, value: int, times: int = 1) -> None:
        """Count a number. Raises ValueError for a negative one."""
        if value < 0:
            raise ValueError(f"{value} is negative")
        self._buckets[math.ceil(math.log(value) / _LOG - _SLACK) if value else 0] += times
        self.sum += value * times
        self.max = max(self.max, value)

    def add_all(self, values: Any) -> None:
        """Count the numbers of an Arrow array of integers, which has no nulls and no negative numbers."""
        pc: Any = import_module("pyarrow.compute")
        if not len(values):
            return
        positive = values.filter(pc.greater(values, 0))
        self._buckets[0] += len(values) - len(positive)
        logarithms = pc.ln(positive.cast("float64", safe=False))
        buckets = pc.ceil(pc.subtract(pc.divide(logarithms, _LOG), _SLACK)).cast("int32")
        for each in pc.value_counts(buckets):
            self._buckets[each["values"].as_py()] += each["counts"].as_py()
        # In halves: the sum of large numbers exceeds 64 bits.
        high, low = pc.shift_right(values, 32), pc.bit_wise_and(values, 0xFFFFFFFF)
        self.sum += (pc.sum(high).as_py() << 32) + pc.sum(low).as_py()
        self.max = max(self.max, pc.max(values).as_py())

    def merge(self, other: LogHistogram) -> None:
        """Count the numbers of another histogram as well."""
        self._buckets.update(other._buckets)
        self.sum += other.sum
        self.max = max(self.max, other.max)

    def percentile(self, percent: float) -> int:
        """The number that `percent` of all numbers do not exceed, within 1 %; 0 if there are none."""
        wanted, seen = percent / 100 * self.count, 0
        for bucket, times in sorted(self._buckets.items()):
            seen += times
            if seen >= wanted:
                return min(self.max, self._middle(bucket))
        return self.max

    def mean(self) -> float:
        """The mean, exactly; 0 if there are no numbers."""
        return self.sum / self.count if self.count else 0.0

    def shares(self) -> list[tuple[int, float]]:
        """For each bucket with numbers: its value, and the share of all numbers up to it."""
        found, seen, count = [], 0, self.count
        for bucket, times in sorted(self._buckets.items()):
            seen += times
            found.append((self._middle(bucket), seen / count))
        return found

    def to_json(self) -> dict[str, Any]:
        """The histogram as JSON."""
        return {"sum": self.sum, "max": self.max, "buckets": dict(self._buckets)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LogHistogram:
        """The histogram of `to_json`."""
        found = cls()
        found.sum, found.max = document["sum"], document["max"]
        found._buckets.update({int(bucket): times for bucket, times in document["buckets"].items()})
        return found

    @staticmethod
    def _middle(bucket: int) -> int:
        return round(2 * GAMMA**bucket / (GAMMA + 1)) if bucket else 0
