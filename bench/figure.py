"""One measured figure, and whether its target is met: the bench contract.

A figure stands beside its baseline: the raw limit of the machine, or the peer, measured in the same run. Its target
then speaks of the ratio to that baseline; a figure without a baseline has its target in its own unit. A target is
reported as met or not; nothing here, and no test, asserts one.
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
    """Which way a figure improves: a rate is better when it is more, a latency when it is less."""

    MORE = "at least"
    LESS = "at most"


@dataclass(frozen=True, slots=True)
class Figure:
    """`figure` names what was measured, uniquely in its suite; `unit` is that of `value` and of `baseline`."""

    figure: str
    value: float
    unit: str
    baseline: float | None = None
    target: float | None = None
    better: Better = Better.MORE

    def __post_init__(self) -> None:
        for name, number in (("value", self.value), ("baseline", self.baseline), ("target", self.target)):
            assert number is None or math.isfinite(number), f"{self.figure}: {name} is {number}"
        assert self.baseline is None or self.baseline > 0, f"{self.figure}: a ratio to {self.baseline} says nothing"

    @property
    def ratio(self) -> float | None:
        """Value over baseline; None without a baseline."""
        return None if self.baseline is None else self.value / self.baseline

    @property
    def met(self) -> bool | None:
        """Whether the ratio, or without a baseline the value, reaches the target; None without a target."""
        if self.target is None:
            return None
        reached = self.value if self.ratio is None else self.ratio
        return reached >= self.target if self.better is Better.MORE else reached <= self.target

    def to_json(self) -> str:
        """The line that `--json` prints: exactly these seven keys, `null` where something does not apply."""
        keys = ("figure", "value", "unit", "baseline", "ratio", "target", "met")
        return json.dumps({key: rounded(getattr(self, key)) for key in keys})


def rounded(value: object, digits: int = 5) -> object:
    """Numbers with as many digits as a measurement has; anything else as it is."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


@dataclass(frozen=True, slots=True)
class Run:
    """What a suite is given: a directory of its own, removed afterwards, and a place to say how far it is."""

    scratch: Path
    quick: bool = False  # a smoke run: the same code paths, too short to believe the numbers
    say: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr, flush=True))


Suite = Callable[[Run], Iterator[Figure]]
"""What a module `bench/suite_NAME.py` exposes as `figures`: yields each figure as soon as it is measured."""
