"""Settings of replication and of the controller: heartbeats, sessions, in-sync sets, leaderships, moves."""

from __future__ import annotations

from tidelog.settings import choice, millis, number, setting, size
from tidelog.types import Millis
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """Times and sizes of replication."""

    heartbeat_ms: Millis = setting("broker.heartbeat.interval.ms", 400, millis(10, 60_000))
    """interval of the heartbeats to the controller"""
    session_ms: Millis = setting("broker.session.timeout.ms", 2_000, millis(50, 600_000))
    """without a heartbeat for this long the node is fenced; at least two heartbeat intervals"""
    lag_ms_max: Millis = setting("replica.lag.time.max.ms", 5_000, millis(50, 600_000))
    """a follower that has not caught up for this long leaves the in-sync set"""
    fetch_wait_ms: Millis = setting("replica.fetch.wait.max.ms", 500, millis(1, 60_000))
    """how long a fetch of a follower waits at the leader for new records"""
    fetch_bytes_max: int = setting("replica.fetch.max.bytes", 1 << 20, size(1024, 1 << 30))
    """limit for the records of one partition in a fetch response"""
    drain_ms_max: Millis = setting("controlled.shutdown.timeout.ms", 30_000, millis(0, 600_000))
    """how long a stopping node waits until its leaderships have moved to other nodes"""
    stop_wait_ms: Millis = setting("controlled.shutdown.wait.ms", 0, millis(0, 600_000))
    """Tidelog's own: how long a node to be stopped waits first while others need it (operations.md); 0: not at all"""
    imbalance_check_ms: Millis = setting(
        "leader.imbalance.check.interval.seconds", 300_000, number(0, 86_400, unit="s", scale=1_000)
    )
    """interval at which leaderships are moved back to preferred leaders; 0: only on command"""
    imbalance_percent: int = setting("leader.imbalance.per.broker.percentage", 10, number(0, 100, unit="%"))
    """the share of a node's preferred leaderships that other nodes may have before they are moved back"""
    throttled_rate: int = setting("follower.replication.throttled.rate", 0, number(0, 1 << 40, unit="bytes/s"))
    """limit for fetching replicas that are being moved to this node; 0: no limit"""
    alter_log_dirs_rate: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second", 0, number(0, 1 << 40, unit="bytes/s")
    )
    """limit for copying replicas that are being moved between log directories of this node; 0: no limit"""
    moves_per_node: int = setting("cluster.moves.per.node", 5, number(1, 1_000))
    """Tidelog's own: queued moves begin while each of their new nodes fetches fewer partitions than this, as many in
    a second"""
    rebalance: str = setting("cluster.rebalance", "off", choice({word: word for word in ("off", "auto")}))
    """Tidelog's own: `auto`: the active controller evens out the replicas when the nodes have had uneven numbers of
    them for a while, as after a node has joined (operations.md)"""
    rebalance_delay_ms: Millis = setting("cluster.imbalance.delay.ms", 300_000, millis(0, 86_400_000))
    """Tidelog's own: how long the cluster must have been uneven, with all nodes in service and all replicas in sync"""
