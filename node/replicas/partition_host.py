"""What a partition asks of the node around it. Left to others: doing it (replica_manager.py)."""

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
    """See the module's words."""

    def monotonic_ms(self) -> Millis: ...

    def want_fetch(self, partition: Partition) -> None:
        """The follower has a fetch to send."""
        ...

    def report_durable(self, partition: Partition, durable_offset: Offset) -> None:
        """The follower holds more, and its fetch waits."""
        ...

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        """The leader wants another in-sync set."""
        ...

    def attend(self, partition: Partition) -> None:
        """Give this partition the next tick."""
        ...

    def watch(self, partition: Partition) -> None:
        """Give this partition the next review."""
        ...

    def log_damaged(self, partition: Partition, error: TidelogError) -> None:
        """The partition's log has lost what it held."""
        ...

    def damage_found(self, log: Log, damage: Damage) -> None:
        """The log has lost this, and does not know it yet."""
        ...

    def truncation_ended(self, partition: Partition) -> None:
        """The log may be used again."""
        ...
