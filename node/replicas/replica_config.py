"""The settings and constants of partition replication on one node."""

from __future__ import annotations

from dataclasses import field

from node.config import GRPC_LISTENER, MEMORY_BYTES
from node.replication_settings import ReplicationConfig
from storage.log_config import LogConfig
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """Sizes in bytes, times in milliseconds."""

    # Set by the node's configuration:

    replication: ReplicationConfig = field(default_factory=ReplicationConfig)

    memory_bytes: int = MEMORY_BYTES
    """The memory budget for records (memory_budget.py)."""

    log_defaults: LogConfig = field(default_factory=LogConfig)
    """The settings of a log that its topic does not set."""

    listener: str = GRPC_LISTENER
    """The name of the listener at which followers connect to their leaders."""

    # Constants:

    fetch_patience_ms: int = 2_000
    """A follower reconnects its stream if open fetches get no response for this long after their wait time."""

    reconnect_ms_min: int = 50
    reconnect_ms_max: int = 1_000
    """The pause before a stream to a leader is opened again doubles from the minimum to the maximum. Half of it is
    random."""

    response_bytes: int = 512 << 10
    """A fetch response is sent as soon as it has this size; further partitions go into the next message."""

    max_wait_ms: int = 60_000
    """Limit of the wait times that requests ask for: of a consumer's fetch and of a producer's acknowledgement."""

    outstanding_max: int = 2_000
    """Batches of one produce stream that may wait for their acknowledgement. At this number the node stops reading from
    the stream."""

    tick_ms: int = 50
    """The precision of deadlines. All waits use this one timer, which does not run on an idle node (ticker.py)."""

    applied_at_once: int = 50
    """Partitions to which a new image is applied in one turn of the loop: some 10 ms."""

    alter_timeout_ms: int = 3_000
    """A change of the in-sync set is sent to the controller again if there is no response for this long."""
