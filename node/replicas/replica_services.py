"""A replica as its roles have it, with the services of the node. Not here: the services (replica_manager.py)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import field

from node.replicas.isr_proposer import IsrProposer
from node.replicas.leadership_watch import LeadershipWatch
from node.replicas.remote_reads import RemoteReads
from node.replicas.remote_starts import RemoteStarts
from node.replicas.replica_meters import ReplicaMeters
from node.replicas.replica_schedule import ReplicaSchedule, Reviewed
from node.replicas.role_log import RoleLog
from node.replicas.turn_end import TurnEnd
from node.replicas.waiting_fetch import WaitingFetch
from node.runtime.failure_log import FailureLog
from node.runtime.topic_meter import TopicMeter
from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from storage.recovery.loaded import Damage
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.types import NodeId, Offset, PartitionKey, TopicPartition
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaServices:
    """One object for all replicas of a node."""

    me: NodeId
    lag_ms_max: int
    clock: Clock
    rng: random.Random
    schedule: ReplicaSchedule
    turn_end: TurnEnd
    proposer: IsrProposer
    resign: Callable[[PartitionKey], None]
    """Ask the controller for another leader of a partition that this node cannot serve."""
    log_damaged: Callable[[Log, TidelogError], None]
    """The log is damaged, and has recorded the damage."""
    damage_found: Callable[[Log, Damage], None]
    """Damage was found that the log has not recorded yet."""
    truncation_ended: Callable[[Log], None]
    """The log may be used again."""
    log_start_moved: Callable[[Log], None]
    """The log start offset of a log has advanced, durably."""
    leaderships: LeadershipWatch
    role_log: RoleLog = field(default_factory=RoleLog)
    meters: ReplicaMeters = field(default_factory=ReplicaMeters)
    remote_reads: RemoteReads | None = None
    """None: this node has no object store."""
    remote_starts: RemoteStarts | None = None
    """None likewise."""
    remote_start_failures: FailureLog
    """Of replicas that cannot go on behind the remote tier."""

    def sync(self, log: Log, directory: LogDirectory, user: Reviewed) -> bool:
        """Request an fsync of what was appended, if the topic requires one, and again at each review while a full disk
        rejects it. Returns True if some records are not durable."""
        if log.durable_offset >= log.log_end_offset:
            return False
        directory.commit.request(log)
        self.schedule.watch(user)
        return True

    def move_log_start(
        self, log: Log, directory: LogDirectory, offset: Offset, failed: Callable[[TidelogError], None]
    ) -> None:
        """Move a log start, and tell the present role of its replica once that is durable: a role may end meanwhile."""

        def done(error: TidelogError | None) -> None:
            if error is None:
                self.log_start_moved(log)
            else:
                failed(error)

        directory.move_log_start(log, offset, done)


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """A replica, as its roles have it."""

    key: PartitionKey
    name: TopicPartition
    log: Log
    directory: LogDirectory
    services: ReplicaServices
    readers: dict[WaitingFetch, None]
    """Consumers' fetches, to wake when the high watermark moves."""
    topic_meter: TopicMeter
