"""Every metric of a node, with its name, its meaning, its labels, and how it is read.

They are read when a scraper asks, on the node's loop. docs/operations.md lists them for operators.
Not here: counting (request_meter.py, topic_meter.py and their like), the text (metric_text.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from node.coordinators.coordinator_figures import CoordinatorFigures
from node.coordinators.group_lag import NO_GROUPS, GroupFigures, GroupsCollected
from node.coordinators.transactions.transaction_coordinators import TransactionFigures
from node.observability.metric_text import Distribution, Metric, MetricTable
from node.quotas.open_calls import OpenCalls
from node.quotas.throttle import Quotas
from node.replicas.replica import Replica
from node.requests.incremental_sessions import SessionCache
from node.runtime.memory_budget import MemoryFigures
from node.runtime.request_meter import BOUNDS_MS, RequestMeter
from node.runtime.topic_meter import TopicMeter
from node.security.audit_log import AuditLog
from node.security.certificate_expiry import CertificateExpiry
from node.security.sasl_authenticator import SaslAuthenticator
from replication.controller.image import PartitionState
from replication.controller.node_state import NodeCause
from replication.coordination.group_requests import FetchedOffset
from storage.directory.directory_cleaning import DirectoryCleaning
from storage.directory.load_progress import LoadProgress
from storage.directory.log_directory import LogDirectory
from storage.directory.scrub import Scrub

_SECONDS: Final = 1e-9
_WORK_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

QUOTAS_NAMED_MAX: Final = 20
"""Entities whose waits are read. They are named as in their quotas, never by a client that only a default holds for:
clients choose their ids. The log names those (node/quotas/throttle_log.py)."""


# --- sources ----------------------------------------------------------------------------------------------------------


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
        """True if this node leads it with fewer in-sync replicas than replicas."""
        if self.replica.leader is None or self.state is None:
            return False
        return len(self.state.isr) < len(self.state.replicas)


class WorkTimes:
    """Durations of the pieces of work of one executor."""

    def __init__(self, executor: str) -> None:
        self.executor = executor
        self.counts = [0] * (len(_WORK_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count a piece of work."""
        self.counts[bisect_left(_WORK_S, seconds)] += 1
        self.total_s += seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSources:
    """All that a scrape reads. While a node starts, much of it does not exist yet."""

    ready: bool = False
    metadata_offset: int = 0
    is_controller: bool = False
    unclean_elections: int = 0
    fencings: Mapping[NodeCause, int] = field(default_factory=dict)
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
    groups: GroupsCollected = NO_GROUPS
    work: Iterable[WorkTimes] = ()
    requests: Iterable[RequestMeter] = ()
    quotas: Quotas | None = None
    calls: OpenCalls | None = None
    audit: AuditLog | None = None
    sasl: SaslAuthenticator | None = None
    certificates: Sequence[CertificateExpiry] = ()


async def metrics_text(now: MetricSources, turn: Callable[[], Awaitable[None]]) -> bytes:
    """All metrics in Prometheus' text format. turn: yields to the other tasks of the event loop."""
    groups = now.groups
    pieces = [
        await NODE.text([now], turn),
        await DIRECTORY.text(now.directories, turn),
        await UPKEEP.text(now.upkeep, turn),
        await WORK.text(now.work, turn),
        await MEMORY.text(_present(now.memory), turn),
        await REQUESTS.text(filter(_is_used, now.requests), turn),
        await QUOTAS.text(_present(now.quotas), turn),
        await SASL.text(_present(now.sasl), turn),
        await CERTIFICATES.text(now.certificates, turn),
        await PARTITIONS.text(now.partitions, turn),
        await TOPICS.text(now.topics, turn),
        await COORDINATORS.text(now.coordinators, turn),
        await TRANSACTIONS.text(_present(now.transactions), turn),
        await GROUPS.text(groups.groups, turn),
        await GROUP_OFFSETS.text(((each, offset) for each in groups.groups for offset in each.offsets), turn),
    ]
    return b"".join(pieces)


T = TypeVar("T")


def _present(source: T | None) -> Sequence[T]:
    return () if source is None else (source,)


def _no_labels(_source: object) -> Mapping[str, str]:
    return {}


# --- the node ---------------------------------------------------------------------------------------------------------

NODE: Final = MetricTable[MetricSources](
    _no_labels,
    Metric("tidelog_ready", "1 while registered, unfenced and not being stopped", lambda n: n.ready),
    Metric("tidelog_metadata_offset", "Offset up to which the metadata log is applied", lambda n: n.metadata_offset),
    Metric("tidelog_active_controller", "1 on the active controller", lambda n: n.is_controller),
    Metric(
        "tidelog_unclean_elections_total",
        "Elections of a leader that may lack committed records, by this node's controller",
        lambda n: n.unclean_elections,
    ),
    Metric(
        "tidelog_fencings_total",
        "Nodes that this node's controller fenced because of a failure",
        lambda n: {cause.name.lower(): count for cause, count in n.fencings.items()},
        by=("cause",),
    ),
    Metric("tidelog_directory_offline", "1 where a log directory is offline", lambda n: n.offline, by=("directory",)),
    Metric(
        "tidelog_producers_forgotten_total",
        "Producer states dropped before their expiration because there were too many",
        lambda n: n.producers_forgotten,
    ),
    Metric("tidelog_group_member_streams", "Open heartbeat streams of group members", lambda n: n.member_streams),
    Metric(
        "tidelog_fetch_sessions",
        "Incremental fetch sessions of clients of Kafka",
        lambda n: None if n.fetch_sessions is None else len(n.fetch_sessions),
    ),
    Metric(
        "tidelog_fetch_session_partitions",
        "Partitions of these sessions",
        lambda n: None if n.fetch_sessions is None else n.fetch_sessions.partitions,
    ),
    Metric(
        "tidelog_fetch_session_evictions_total",
        "Fetch sessions that were ended to make place for others",
        lambda n: None if n.fetch_sessions is None else n.fetch_sessions.evictions,
    ),
    Metric(
        "tidelog_group_lag_unknown",
        "Groups and offsets that are left out of these metrics, and all partitions whose lag is not known",
        lambda n: n.groups.unknown,
    ),
    Metric(
        "tidelog_calls_refused_total",
        "Calls and streams refused by a limit of open calls per address or principal",
        lambda n: None if n.calls is None else n.calls.refused,
    ),
    Metric(
        "tidelog_audit_events_total",
        "Events for the audit log, also those that were only counted there",
        lambda n: None if n.audit is None else n.audit.counts,
        by=("event",),
    ),
)

MEMORY: Final = MetricTable[MemoryFigures](
    _no_labels,
    Metric("tidelog_memory_limit_bytes", "Memory limit for records in transit", lambda m: m.limit),
    Metric(
        "tidelog_memory_used_bytes",
        "Memory in use for records in transit",
        lambda m: {kind.value: size for kind, size in m.used.items()},
        by=("kind",),
    ),
    Metric(
        "tidelog_memory_waiting",
        "Requests that wait for memory",
        lambda m: {kind.value: count for kind, count in m.waiting.items()},
        by=("kind",),
    ),
)

WORK: Final = MetricTable[WorkTimes](
    lambda w: {"directory": w.executor},
    Metric(
        "tidelog_directory_work_seconds",
        "Time of one piece of work on a log directory's writer; directory with suffix ' sync': of one fsync of a "
        "log; ' maintenance': of compaction, the scrub or the removal of files; ' quorum': of one fsync of the "
        "metadata log, a vote or a snapshot; ' read': of a read from disk",
        lambda w: Distribution(w.counts, w.total_s),
        bounds=_WORK_S,
    ),
)

# --- log directories --------------------------------------------------------------------------------------------------

DIRECTORY: Final = MetricTable[DirectoryLogs](
    lambda d: {"directory": d.directory.path},
    Metric("tidelog_directory_logs", "Logs in the directory", lambda d: len(d.directory.logs)),
    Metric(
        "tidelog_directory_free_bytes", "Free space of the directory's file system", lambda d: d.directory.reserve.free
    ),
    Metric(
        "tidelog_directory_reserve_bytes", "Free space that appends do not use", lambda d: d.directory.reserve.required
    ),
    Metric(
        "tidelog_directory_below_reserve",
        "1 while appends are rejected because free space is below the reserve",
        lambda d: d.directory.reserve.low,
    ),
    Metric(
        "tidelog_directory_logs_loaded",
        "Logs loaded so far at the start",
        lambda d: 0 if d.progress is None else d.progress.done,
    ),
    Metric(
        "tidelog_directory_logs_to_load",
        "Logs to load at the start",
        lambda d: 0 if d.progress is None else d.progress.total,
    ),
    Metric(
        "tidelog_directory_open_segments", "Closed segments with open files", lambda d: len(d.directory.open_segments)
    ),
    Metric(
        "tidelog_directory_logs_missing", "Logs that had records and are missing", lambda d: len(d.directory.missing)
    ),
    Metric(
        "tidelog_directory_logs_damaged",
        "Logs that have lost records",
        lambda d: sum(log.damage is not None for log in list(d.directory.logs.values())),
    ),
)

UPKEEP: Final = MetricTable[DirectoryUpkeep](
    lambda u: {"directory": u.directory.path},
    Metric("tidelog_cleaner_dirty_share", "Largest dirty share of a log", lambda u: u.cleaning.cleaner.dirty_share),
    Metric(
        "tidelog_cleaner_uncleanable", "Logs that cannot be compacted", lambda u: len(u.cleaning.cleaner.uncleanable)
    ),
    Metric("tidelog_cleaner_bytes_total", "Bytes read and written by compaction", lambda u: u.cleaning.bytes_processed),
    Metric("tidelog_cleaner_rounds_total", "Completed rounds of compaction", lambda u: u.cleaning.rounds),
    Metric("tidelog_scrub_segments_waiting", "Segments that the scrub has to read", lambda u: u.scrub.waiting),
    Metric("tidelog_scrub_bytes_total", "Bytes read by the scrub", lambda u: u.scrub.bytes_read),
    Metric("tidelog_scrub_segments_total", "Segments read by the scrub", lambda u: u.scrub.segments_read),
    Metric(
        "tidelog_scrub_findings_total",
        "Damage found, by kind",
        lambda u: {kind.value: count for kind, count in u.scrub.findings.items()},
        by=("kind",),
    ),
)

# --- requests ---------------------------------------------------------------------------------------------------------


def _is_used(meter: RequestMeter) -> bool:
    """True if the API has had requests; others have no samples."""
    return bool(meter.request_bytes or meter.answered or meter.failed or meter.streams_open or meter.streams_ended)


REQUESTS: Final = MetricTable[RequestMeter](
    lambda m: {"method": m.api},
    Metric(
        "tidelog_requests_total",
        "Requests answered: calls, and messages of streams",
        lambda m: {"ok": m.answered, **m.failed} if m.answered else m.failed,
        by=("outcome",),
    ),
    Metric(
        "tidelog_request_errors_total", "Errors in answers, of requests and entries", lambda m: m.errors, by=("error",)
    ),
    Metric(
        "tidelog_request_seconds",
        "Time from the arrival of a request to its answer",
        lambda m: Distribution(m.times, (m.queue_ns + m.local_ns + m.remote_ns) * _SECONDS),
        bounds=tuple(bound / 1_000 for bound in BOUNDS_MS),
    ),
    Metric(
        "tidelog_request_phase_seconds_total",
        "Time of requests by its parts",
        lambda m: {
            "queue": m.queue_ns * _SECONDS,
            "local": m.local_ns * _SECONDS,
            "remote": m.remote_ns * _SECONDS,
            "send": m.send_ns * _SECONDS,
        },
        by=("phase",),
    ),
    Metric("tidelog_request_bytes_total", "Bytes of requests", lambda m: m.request_bytes),
    Metric("tidelog_response_bytes_total", "Bytes of answers", lambda m: m.response_bytes),
    Metric(
        "tidelog_streams_open",
        "Streams open now",
        lambda m: m.streams_open if m.streams_open or m.streams_ended else None,
    ),
    Metric("tidelog_streams_ended_total", "Streams that ended", lambda m: m.streams_ended, by=("outcome",)),
)


def _waits(quotas: Quotas) -> dict[tuple[str, ...], float]:
    longest: dict[tuple[str, ...], float] = {}
    for each in quotas.limits.throttled(QUOTAS_NAMED_MAX):  # the longest wait of an entity comes first
        key = each.quota.value, _entity(each.named.user), _entity(each.named.client_id)
        longest.setdefault(key, each.wait_ms / 1_000)
    return longest


def _entity(name: str | None) -> str:
    return "" if name is None else name or "(default)"


QUOTAS: Final = MetricTable[Quotas](
    _no_labels,
    Metric(
        "tidelog_quota_exceeded_total",
        "Charges that exceeded a client quota",
        lambda q: {quota.value: totals.exceeded for quota, totals in q.limits.totals.items()},
        by=("quota",),
    ),
    Metric(
        "tidelog_quota_throttle_seconds_total",
        "Waits that followed from exceeded quotas",
        lambda q: {quota.value: totals.wait_ms / 1_000 for quota, totals in q.limits.totals.items()},
        by=("quota",),
    ),
    Metric(
        "tidelog_quota_wait_seconds",
        f"How long the clients of a quota must wait now, the longest wait; of the {QUOTAS_NAMED_MAX} longest waits",
        _waits,
        by=("quota", "user", "client_id"),
    ),
    Metric("tidelog_quota_waiting", "Calls and streams that wait because of a quota", lambda q: q.waiting),
    Metric("tidelog_quota_entities", "Users and client ids whose use is tracked", lambda q: q.limits.tracked),
)

# --- security: no label comes from a caller ---------------------------------------------------------------------------

SASL: Final = MetricTable[SaslAuthenticator](
    _no_labels,
    Metric("tidelog_sasl_sessions", "SASL sessions that are valid", lambda s: len(s.sessions)),
    Metric(
        "tidelog_sasl_handshakes",
        "SASL handshakes under way, and failed ones whose answer is delayed",
        lambda s: s.handshakes_under_way,
    ),
)

CERTIFICATES: Final = MetricTable[CertificateExpiry](
    lambda c: {"listener": c.listener},
    Metric(
        "tidelog_certificate_not_after_seconds",
        "When the certificate of a listener expires, seconds since 1970",
        lambda c: c.not_after_s,
    ),
)

# --- partitions and topics --------------------------------------------------------------------------------------------

PARTITIONS: Final = MetricTable[HostedPartition](
    lambda e: {
        "partition": str(e.replica.name.partition),
        "role": "follower" if e.replica.leader is None else "leader",
        "topic": e.replica.name.topic,
    },
    Metric("tidelog_replicas", "Replicas on this node", lambda _each: 1, is_sum=True),
    Metric("tidelog_leaders", "Partitions that this node leads", lambda e: e.replica.leader is not None, is_sum=True),
    Metric(
        "tidelog_under_replicated",
        "Partitions led here with fewer in-sync replicas than replicas",
        lambda e: e.is_under_replicated,
        is_sum=True,
    ),
    Metric("tidelog_partition_isr", "In-sync replicas", lambda e: 0 if e.state is None else len(e.state.isr)),
    Metric("tidelog_partition_log_start", "Log start offset", lambda e: e.replica.log.log_start_offset),
    Metric(
        "tidelog_partition_log_end", "Log end offset, one past the last record", lambda e: e.replica.log.log_end_offset
    ),
    Metric(
        "tidelog_partition_high_watermark", "One past the last committed offset", lambda e: e.replica.log.high_watermark
    ),
    Metric(
        "tidelog_partition_uncommitted",
        "Records not committed yet: log end minus high watermark",
        lambda e: e.replica.log.log_end_offset - e.replica.log.high_watermark,
    ),
    Metric(
        "tidelog_partition_not_durable",
        "Records of this replica that are not durable yet: log end minus durable offset",
        lambda e: e.replica.log.log_end_offset - e.replica.log.durable_offset,
    ),
    Metric(
        "tidelog_partition_last_stable_offset_lag",
        "Committed records not visible to read_committed: high watermark minus last stable offset",
        lambda e: e.replica.log.high_watermark - e.replica.log.last_stable_offset,
    ),
    Metric("tidelog_partition_size_bytes", "Bytes of this replica's log", lambda e: e.replica.log.size),
    Metric("tidelog_partition_segments", "Segments of this replica's log", lambda e: len(e.replica.log.segments)),
)

TOPICS: Final = MetricTable[tuple[str, TopicMeter]](
    lambda t: {"topic": t[0]},
    Metric("tidelog_topic_bytes_in_total", "Bytes appended for producers", lambda t: t[1].bytes_in),
    Metric("tidelog_topic_bytes_out_total", "Bytes of records sent to consumers", lambda t: t[1].bytes_out),
    Metric("tidelog_topic_bytes_rejected_total", "Bytes rejected for their size", lambda t: t[1].bytes_rejected),
    Metric("tidelog_topic_messages_in_total", "Records appended for producers", lambda t: t[1].messages_in),
    Metric(
        "tidelog_topic_failed_produce_requests_total",
        "Entries of produce requests answered with an error",
        lambda t: t[1].failed_produces,
    ),
    Metric(
        "tidelog_topic_failed_fetch_requests_total",
        "Entries of fetch requests answered with an error",
        lambda t: t[1].failed_fetches,
    ),
    Metric(
        "tidelog_topic_produce_message_conversions_total",
        "Records of producers converted to the topic's format",
        lambda t: t[1].conversions,
    ),
)

# --- coordinators -----------------------------------------------------------------------------------------------------

COORDINATORS: Final = MetricTable[CoordinatorFigures](
    lambda e: {"coordinator": e.kind},
    Metric(
        "tidelog_coordinator_partitions",
        "Coordinators on this node",
        lambda e: {state.value: count for state, count in e.partitions.items()},
        by=("state",),
    ),
    Metric("tidelog_coordinator_uncommitted", "Decisions that wait for their commit", lambda e: e.waiting),
    Metric(
        "tidelog_coordinator_load_seconds_max",
        "The longest load since the start",
        lambda e: e.meter.load_ms_max / 1_000,
    ),
    Metric("tidelog_coordinator_requests_total", "Requests that coordinators decided on", lambda e: e.meter.requests),
    Metric("tidelog_coordinator_batches_total", "Batches that coordinators appended", lambda e: e.meter.batches),
    Metric(
        "tidelog_coordinator_suspensions_total",
        "How often a coordinator was dropped because it could not append",
        lambda e: e.meter.suspensions,
    ),
    Metric(
        "tidelog_coordinator_loads_total", "Partitions of internal topics that were loaded", lambda e: e.meter.loads
    ),
    Metric("tidelog_coordinator_load_seconds_total", "Time of these loads together", lambda e: e.meter.load_ms / 1_000),
    Metric("tidelog_coordinator_records_loaded_total", "Records that were replayed", lambda e: e.meter.records_loaded),
)

TRANSACTIONS: Final = MetricTable[TransactionFigures](
    _no_labels,
    Metric("tidelog_transactional_ids", "Transactional ids that this node coordinates", lambda t: t.transactional_ids),
    Metric("tidelog_transactions_open", "Transactions that are not complete", lambda t: t.open_transactions),
    Metric(
        "tidelog_transaction_oldest_seconds",
        "Age of the oldest transaction that is not complete; 0: there is none",
        lambda t: t.oldest_age_ms / 1_000,
    ),
    Metric("tidelog_transaction_markers_waiting", "Markers that are not committed yet", lambda t: t.markers_waiting),
)

GROUPS: Final = MetricTable[GroupFigures](
    lambda e: {"group": e.group.group_id},
    Metric("tidelog_group_members", "Members of a group", lambda e: {e.group.state: e.group.members}, by=("state",)),
    Metric("tidelog_group_lag", "Records that a group has still to read, where that is known", lambda e: e.lag),
    Metric("tidelog_group_lag_deleted", "Records that were deleted before a group read them", lambda e: e.deleted),
    Metric("tidelog_group_unknown_partitions", "Partitions of a group whose lag is not known", lambda e: e.unknown),
)

GROUP_OFFSETS: Final = MetricTable[tuple[GroupFigures, FetchedOffset]](
    lambda e: {"group": e[0].group.group_id, "partition": str(e[1].partition), "topic": e[1].topic},
    Metric("tidelog_group_committed_offset", "Offset that a group has committed", lambda e: e[1].offset),
)
