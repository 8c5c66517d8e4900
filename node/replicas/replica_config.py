"""The settings and constants of partition replication on one node."""

from __future__ import annotations

from dataclasses import dataclass, field

from node.config import CLIENT_LISTENER, MEMORY_BYTES, ReplicationConfig
from storage.log_config import LogConfig


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """Sizes in bytes, times in milliseconds. The first three and `listener` are set by the node's configuration."""

    replication: ReplicationConfig = field(default_factory=ReplicationConfig)

    memory_bytes: int = MEMORY_BYTES
    """The memory budget for records (memory_budget.py)."""

    log_defaults: LogConfig = field(default_factory=LogConfig)
    """The settings of a log that its topic does not set."""

    fetch_patience_ms: int = 2_000
    """A stream is reconnected if its open fetches get no response for this long after their wait time."""

    reconnect_ms_min: int = 50
    reconnect_ms_max: int = 1_000
    """The pause before a stream to a leader is opened again doubles from the minimum to the maximum. Half of it is
    random."""

    response_bytes: int = 512 << 10
    """A fetch response of this size is sent; further partitions go into the next message."""

    max_wait_ms: int = 60_000
    """The longest wait of a consumer's fetch and of a producer's acknowledgement, whatever the request says."""

    outstanding_max: int = 2_000
    """The batches of one produce stream that may wait for their acknowledgement; the stream is not read beyond."""

    tick_ms: int = 50
    """The precision of deadlines. All waits use this one timer, which does not run on an idle node (ticker.py)."""

    applied_at_once: int = 50
    """The partitions to which one turn of the loop applies a new image: some 10 ms."""

    alter_timeout_ms: int = 3_000
    """A change of the in-sync set is sent to the controller again if there is no response for this long."""

    listener: str = CLIENT_LISTENER
    """The listener of the leader that followers use."""
