"""What distinguishes one kind of coordinator from another: its topic, machine, formats and effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from replication.coordination.coordinator_machine import CoordinatorMachine
from replication.coordination.coordinator_record import CoordinatorRecord
from tidelog.types import PartitionIndex
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class CoordinatorSpec:
    """A kind of coordinator."""

    name: str
    """The kind's name in log lines and metrics."""
    topic: str
    """The internal topic."""
    new_machine: Callable[[PartitionIndex], CoordinatorMachine[Any, Any]]
    """Makes the empty machine of a partition."""
    encode: Callable[[CoordinatorRecord[Any, Any]], tuple[bytes, bytes | None]]
    """Key and value of a record."""
    decode: Callable[[bytes | None, bytes | None], CoordinatorRecord[Any, Any]]
    """The inverse. Raises UnreadableCoordinatorRecord for a malformed or unknown record."""
    carry_out: Callable[[PartitionIndex, object], None]
    """Called on the loop with each effect of a committed decision; it must not wait."""
    unloaded: Callable[[PartitionIndex], None]
    """Called when the machine of a partition is dropped: its effects that are in progress must have no result."""
