"""Events and effects that the state machines of the partition, the quorum and the controller have in common."""

from __future__ import annotations

from tidelog.types import Millis
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class ClockTicked:
    """The time is now `at`: monotonic milliseconds, stamped by the driver."""

    at: Millis


@dataclass(frozen=True, slots=True)
class Report:
    """A message for operators."""

    text: str
