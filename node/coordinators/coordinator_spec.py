"""What distinguishes one kind of coordinator from another: its topic, machine, formats and effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from replication.coordination.coordinator_machine import CoordinatorMachine
from replication.coordination.coordinator_record import CoordinatorRecord
from tidelog.types import PartitionIndex


@dataclass(frozen=True, slots=True)
class CoordinatorSpec:
    """A kind of coordinator.

    name: for log lines and metrics. topic: the internal topic. new_machine: the empty machine of a partition.
    encode: key and value of a record; decode: the inverse, which raises UnreadableCoordinatorRecord for a malformed or
    unknown record.
    carry_out: called on the loop with each effect of a committed decision; it must not wait.
    unloaded: called when the machine of a partition is dropped: its effects in progress are void.
    """

    name: str
    topic: str
    new_machine: Callable[[PartitionIndex], CoordinatorMachine[Any, Any]]
    encode: Callable[[CoordinatorRecord[Any, Any]], tuple[bytes, bytes | None]]
    decode: Callable[[bytes | None, bytes | None], CoordinatorRecord[Any, Any]]
    carry_out: Callable[[PartitionIndex, object], None]
    unloaded: Callable[[PartitionIndex], None]
