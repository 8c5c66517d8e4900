"""All that a scrape reads. Not here: what is read from it (*_families.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from node.coordinators.coordinator_figures import CoordinatorFigures
from node.coordinators.group_lag import NO_GROUPS, GroupsCollected
from node.coordinators.transactions.transaction_coordinators import TransactionFigures
from node.quotas.open_calls import OpenCalls
from node.quotas.throttle import Quotas
from node.replicas.isr_changes import IsrChanges
from node.replicas.replica import Replica
from node.requests.incremental_sessions import SessionCache
from node.runtime.disk_times import DiskTimes
from node.runtime.gc_watch import GcWatch
from node.runtime.histogram import Histogram
from node.runtime.loop_watch import LoopWatch
from node.runtime.memory_budget import MemoryFigures
from node.runtime.process_usage import ProcessUsage
from node.runtime.request_meter import RequestMeter
from node.runtime.topic_meter import TopicMeter
from node.security.audit_log import AuditLog
from node.security.certificate_expiry import CertificateExpiry
from node.security.sasl_authenticator import SaslAuthenticator
from node.tiering.remote_tier import TierFigures
from replication.controller.events import ElectionCause
from replication.controller.image import ClusterImage, PartitionState
from replication.controller.node_state import NodeCause
from storage.directory.directory_cleaning import DirectoryCleaning
from storage.directory.load_progress import LoadProgress
from storage.directory.log_directory import LogDirectory
from storage.directory.scrub import Scrub
from tidelog.types import NodeId
from tidelog.values import dataclass


class DirectoryLogs(NamedTuple):
    """A log directory."""

    directory: LogDirectory
    progress: LoadProgress | None
    """None: loading has not begun."""


class DirectoryUpkeep(NamedTuple):
    """The maintenance of a log directory."""

    directory: LogDirectory
    scrub: Scrub
    cleaning: DirectoryCleaning


class HostedPartition(NamedTuple):
    """A replica on this node, and its partition in the newest image."""

    replica: Replica
    state: PartitionState | None

    @property
    def is_under_replicated(self) -> bool:
        """True if this node leads it, and a replica is not in sync. One that a reassignment is adding is not missing:
        it was never there."""
        if self.replica.leader is None or self.state is None:
            return False
        return any(each not in self.state.isr and each not in self.state.adding for each in self.state.replicas)

    @property
    def is_under_min_isr(self) -> bool:
        """True if this node leads it, and the in-sync set is too small for acks=all."""
        return self.replica.leader is not None and not self.replica.leader.core.in_sync.is_enough

    @property
    def is_at_min_isr(self) -> bool:
        """True if this node leads it, and one more loss makes the in-sync set too small. A topic that keeps as many
        in-sync replicas as it has replicas is so all the time, and does not count."""
        if self.replica.leader is None or self.state is None:
            return False
        least = self.replica.leader.core.in_sync.min_insync
        return len(self.state.isr) == least < len(self.state.replicas)

    @property
    def replica_lag(self) -> dict[str, float]:
        """The records that each follower has not fetched, where its position is known; only the leader knows them."""
        if self.replica.leader is None or self.state is None:
            return {}
        core, end = self.replica.leader.core, self.replica.log.log_end_offset
        found = {node: core.in_sync.positions(node) for node in self.state.replicas}
        return {str(node): max(0, end - each.log_end) for node, each in found.items() if each is not None}


class BuildInfo(NamedTuple):
    """What runs."""

    version: str
    python: str
    loop: str
    """The event loop's implementation: `uvloop` or `asyncio`."""


@dataclass(frozen=True, slots=True)
class QuorumFigures:
    """The metadata quorum as this node sees it."""

    leader_id: NodeId
    """-1: unknown."""
    epoch: int
    end: int
    high_watermark: int
    silence_ms: int
    """Since a leader was heard from."""
    voters: int
    is_voter: bool
    lag: Mapping[str, int]
    """On the leader, by node: the records that each other voter has not confirmed as durable."""


@dataclass(frozen=True, slots=True)
class ControllerFigures:
    """The controller of this process, active or not."""

    unclean_elections: int
    fencings: Mapping[NodeCause, int]
    elections: Mapping[ElectionCause, int]
    times: Histogram
    """From the arrival of a request to its answer."""
    waiting: int
    """Requests without an answer."""
    oldest_ms: int
    """How long the oldest of them has waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """All that a scrape reads. While a node starts, much of it does not exist yet."""

    ready: bool = False
    metadata_offset: int = 0
    is_controller: bool = False
    build: BuildInfo | None = None
    cluster_id: str = ""
    quorum: QuorumFigures | None = None
    controller: ControllerFigures | None = None
    cluster: ClusterImage | None = None
    """On the active controller: what it decides on."""
    isr_changes: IsrChanges | None = None
    loop: LoopWatch | None = None
    gc: GcWatch | None = None
    process: ProcessUsage | None = None
    offline: Mapping[str, bool] = field(default_factory=dict)
    """By log directory."""
    producers_forgotten: int = 0
    directories: Sequence[DirectoryLogs] = ()
    upkeep: Sequence[DirectoryUpkeep] = ()
    memory: MemoryFigures | None = None
    partitions: Iterable[HostedPartition] = ()
    topics: Iterable[tuple[str, TopicMeter]] = ()
    coordinators: Sequence[CoordinatorFigures] = ()
    member_streams: int | None = None
    fetch_sessions: SessionCache | None = None
    transactions: TransactionFigures | None = None
    tier: TierFigures | None = None
    groups: GroupsCollected = NO_GROUPS
    disks: Iterable[DiskTimes] = ()
    executors: Mapping[str, Histogram] = field(default_factory=dict)
    """By name: the work of threads that is not on a log directory."""
    requests: Iterable[RequestMeter] = ()
    quotas: Quotas | None = None
    calls: OpenCalls | None = None
    connections: Mapping[str, int] = field(default_factory=dict)
    """By listener; without those whose number is not known."""
    audit: AuditLog | None = None
    sasl: SaslAuthenticator | None = None
    certificates: Sequence[CertificateExpiry] = ()
