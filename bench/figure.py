"""One measured figure, and whether its target is met: the interface of all benchmarks.

A figure has a baseline measured in the same run: the raw limit of the machine, or a peer. Its target then applies to
the ratio; without a baseline it applies to the value. The report shows whether a target is met; no code and no test
asserts it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


class Better(Enum):
    """The direction in which a figure improves: higher for a rate, lower for a latency."""

    MORE = "at least"
    LESS = "at most"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `figure` is its unique name in the suite; `unit` is the unit of `value` and of `baseline`."""

    figure: str
    value: float
    unit: str
    baseline: float | None = None
    target: float | None = None
    better: Better = Better.MORE

    def __post_init__(self) -> None:
        for name, number in (("value", self.value), ("baseline", self.baseline), ("target", self.target)):
            assert number is None or math.isfinite(number), f"{self.figure}: {name} is {number}"
        assert self.baseline is None or self.baseline > 0, f"{self.figure}: a ratio to {self.baseline} has no meaning"

    @property
    def ratio(self) -> float | None:
        """Value divided by baseline; None without a baseline."""
        return None if self.baseline is None else self.value / self.baseline

    @property
    def met(self) -> bool | None:
        """Whether the ratio, or without a baseline the value, reaches the target; None without a target."""
        if self.target is None:
            return None
        reached = self.value if self.ratio is None else self.ratio
        return reached >= self.target if self.better is Better.MORE else reached <= self.target

    def to_json(self) -> str:
        """The line for `--json`: exactly these seven keys, `null` for missing values."""
        keys = ("figure", "value", "unit", "baseline", "ratio", "target", "met")
        return json.dumps({key: rounded(getattr(self, key)) for key in keys})


def rounded(value: object, digits: int = 5) -> object:
    """Numbers rounded to the precision of a measurement; anything else unchanged."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class Run:
    """The input of a suite: its own directory, removed afterwards, and a callback for progress."""

    scratch: Path
    quick: bool = False  # a smoke run: the same code paths, too short for reliable figures
    partitions: tuple[int, ...] = (6, 300, 1500)  # of the suite `cluster`, as the next two
    peers: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # parts to measure; all if empty
    gigabytes: float = 2.0  # of a log in the suite `tiering`
    others: list[float] = field(default_factory=list)  # cores that other programs took in each measurement, likewise
    versions: dict[str, str] = field(default_factory=dict)  # of the systems that were measured; the suite fills it
    say: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr, flush=True))


Suite = Callable[[Run], Iterator[Figure]]
"""The function `figures` of a module `bench/suite_NAME.py`: yields each figure as soon as it is measured."""
