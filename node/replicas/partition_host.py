"""The services that a node provides to its partitions. Not here: the implementation (replica_manager.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from replication.partition.leader_events import ProposeIsr
from storage.log.log import Log
from storage.recovery.loaded import Damage
from tidelog.errors import TidelogError
from tidelog.types import Millis, Offset

if TYPE_CHECKING:
    from node.replicas.partition import Partition


class PartitionHost(Protocol):
    """The node, as a partition uses it."""

    def monotonic_ms(self) -> Millis: ...

    def want_fetch(self, partition: Partition) -> None:
        """Send a fetch for this follower."""
        ...

    def report_durable(self, partition: Partition, durable_offset: Offset) -> None:
        """Report the durable offset of a follower whose fetch waits."""
        ...

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        """Propose another in-sync set to the controller."""
        ...

    def attend(self, partition: Partition) -> None:
        """Include this partition in the next tick."""
        ...

    def watch(self, partition: Partition) -> None:
        """Include this partition in the next review."""
        ...

    def log_damaged(self, partition: Partition, error: TidelogError) -> None:
        """The log of the partition is damaged; it has recorded the damage."""
        ...

    def damage_found(self, log: Log, damage: Damage) -> None:
        """Damage was found that the log has not recorded yet."""
        ...

    def truncation_ended(self, partition: Partition) -> None:
        """The truncation of the log has ended; it may be used again."""
        ...
