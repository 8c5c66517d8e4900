"""The numbers of partition replication on one node, each with the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.config import LogConfig


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """Sizes in bytes, times in milliseconds."""

    lag_ms_max: int = 5_000
    """replica.lag.time.max.ms: a follower that holds less than the leader had this long ago leaves the in-sync set."""

    fetch_wait_ms: int = 500
    """replica.fetch.wait.max.ms: how long a follower's fetch waits at the leader when there is nothing."""

    fetch_bytes: int = 1 << 20
    """replica.fetch.max.bytes: per partition and fetch."""

    throttled_rate: int = 0
    """follower.replication.throttled.rate: bytes per second fetched of replicas that are being moved here; 0: no
    limit."""

    fetch_patience_ms: int = 2_000
    """A stream whose open fetches were answered by nothing for this long behind their wait is broken and made anew."""

    reconnect_ms_min: int = 50
    reconnect_ms_max: int = 1_000
    """Pause before a stream to a leader is opened again: doubles from the one to the other, half of it by chance."""

    memory_bytes: int = 256 << 20
    """The node's memory for records on their way (memory_budget.py)."""

    response_bytes: int = 512 << 10
    """A fetch answer is sent once it holds so much: further partitions go into the next message."""

    max_wait_ms: int = 60_000
    """The longest that a consumer's fetch or a producer's acknowledgement is waited for, whatever was asked."""

    outstanding_max: int = 2_000
    """Batches of one produce stream that may wait for their acknowledgement; the stream is not read beyond that."""

    tick_ms: int = 50
    """How exact deadlines are. All waiting rests on this one timer, which an idle node sleeps through (ticker.py)."""

    applied_at_once: int = 50
    """Partitions of which one turn of the loop carries out what a new image says: some 10 ms."""

    alter_timeout_ms: int = 3_000
    """How long the controller may take to answer about an in-sync set before it is asked again."""

    listener: str = "client"
    """The listener of the leader's node that followers use."""

    log_defaults: LogConfig = field(default_factory=LogConfig)
    """What holds for a log where its topic says nothing."""
