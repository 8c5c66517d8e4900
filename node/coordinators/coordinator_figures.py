"""Counters and figures of the coordinators of one kind on a node, for its metrics."""

from __future__ import annotations

from collections.abc import Mapping

from node.coordinators.coordinator_state import CoordinatorState
from tidelog.values import dataclass


@dataclass(slots=True)
class CoordinatorMeter:
    """Counters since the start of the node. Times in milliseconds."""

    requests: int = 0
    """Requests that were decided."""
    batches: int = 0
    """Batches that were appended."""
    suspensions: int = 0
    """How often an append failed or was not possible."""
    loads: int = 0
    """Partitions that were loaded."""
    load_ms: int = 0
    """Time of all loads together."""
    load_ms_max: int = 0
    """The longest load."""
    records_loaded: int = 0

    def loaded(self, ms: int, records: int) -> None:
        """Count a load."""
        self.loads += 1
        self.load_ms += ms
        self.load_ms_max = max(self.load_ms_max, ms)
        self.records_loaded += records


@dataclass(frozen=True, slots=True)
class CoordinatorFigures:
    """Present state of the coordinators of one kind."""

    kind: str
    partitions: Mapping[CoordinatorState, int]
    """The number of coordinators in each state."""
    waiting: int
    """Decisions that wait for their commit."""
    entries: Mapping[str, int]
    """What they have in memory, by kind."""
    meter: CoordinatorMeter
