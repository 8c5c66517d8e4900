"""Metrics of groups, transactions and their coordinators."""

from __future__ import annotations

from typing import Final

from node.coordinators.coordinator_figures import CoordinatorFigures
from node.coordinators.group_lag import GroupFigures
from node.coordinators.transactions.transaction_coordinators import TransactionFigures
from node.observability.metric_sources import MetricSources
from node.observability.metric_text import Alert, Metric, MetricTable, no_labels
from replication.coordination.group_requests import FetchedOffset

COORDINATORS: Final = MetricTable[CoordinatorFigures](
    "Coordinators",
    lambda e: {"coordinator": e.kind},
    Metric(
        "tidelog_coordinator_partitions",
        "Partitions of `__consumer_offsets` (coordinator `group`) and `__transaction_state` (`transaction`) that this "
        "node leads, by state: `loading`, `active`, `suspended` (it cannot append), `unreadable`",
        lambda e: {state.value: count for state, count in e.partitions.items()},
        "`unreadable`: the log names partition and offset, and operations.md what to do. `suspended` for long: too few "
        "in-sync replicas or a full disk, as the log says",
        by=("state",),
        alerts=(
            Alert(
                "TidelogCoordinatorUnreadable",
                'tidelog_coordinator_partitions{state="unreadable"} > 0',
                "{{ $value }} {{ $labels.coordinator }} coordinators of {{ $labels.instance }} cannot read their state",
                0,
                is_critical=True,
                command="tidelog partition why-unavailable",
            ),
            Alert(
                "TidelogCoordinatorSuspended",
                'tidelog_coordinator_partitions{state="suspended"} > 0',
                "{{ $value }} {{ $labels.coordinator }} coordinators of {{ $labels.instance }} cannot append",
                5,
                command="tidelog partition why-unavailable",
            ),
        ),
    ),
    Metric(
        "tidelog_coordinator_entries",
        "What coordinators have in memory, some hundred bytes each: `consumer_group` and `classic_group` (groups that "
        "have or had members), `group_with_offsets`, `offset` (committed), `transactional_id`",
        lambda e: e.entries,
        "grows without end: only permissions to use a group bound the number of groups and offsets, and "
        "`offsets.retention.minutes`, after which those of groups without members go; see operations.md",
        by=("kind",),
    ),
    Metric(
        "tidelog_coordinator_uncommitted",
        "Decisions that wait for their commit",
        lambda e: e.waiting,
        "grows: as `tidelog_partition_uncommitted` of the internal topics",
    ),
    Metric(
        "tidelog_coordinator_load_seconds_max",
        "The longest load since the start",
        lambda e: e.meter.load_ms_max / 1_000,
        "groups stand still that long after a failover: let the internal topics be compacted more often",
    ),
    Metric(
        "tidelog_coordinator_requests_total",
        "Requests that coordinators decided on",
        lambda e: e.meter.requests,
        "none: load",
    ),
    Metric(
        "tidelog_coordinator_batches_total",
        "Batches that coordinators appended",
        lambda e: e.meter.batches,
        "none: load",
    ),
    Metric(
        "tidelog_coordinator_suspensions_total",
        "How often a coordinator was dropped because it could not append",
        lambda e: e.meter.suspensions,
        "an append failed, or too few replicas were in sync: see `tidelog_under_min_isr`",
    ),
    Metric(
        "tidelog_coordinator_loads_total",
        "Partitions of internal topics that were loaded",
        lambda e: e.meter.loads,
        "one after each election; many: leaders of the internal topics move",
    ),
    Metric(
        "tidelog_coordinator_load_seconds_total",
        "Time of these loads together",
        lambda e: e.meter.load_ms / 1_000,
        "as `tidelog_coordinator_load_seconds_max`",
    ),
    Metric(
        "tidelog_coordinator_records_loaded_total",
        "Records that were replayed",
        lambda e: e.meter.records_loaded,
        "as `tidelog_coordinator_load_seconds_max`",
    ),
    names=("coordinator",),
)

TRANSACTIONS: Final = MetricTable[TransactionFigures](
    "Transactions",
    no_labels,
    Metric(
        "tidelog_transactional_ids",
        "Transactional ids that this node coordinates",
        lambda t: t.transactional_ids,
        "grows without end: clients choose a new id at each start; let them keep theirs",
    ),
    Metric(
        "tidelog_transactions_open",
        "Transactions that are not complete",
        lambda t: t.open_transactions,
        "none: load",
    ),
    Metric(
        "tidelog_transaction_oldest_seconds",
        "Age of the oldest transaction that is not complete; 0: there is none",
        lambda t: t.oldest_age_ms / 1_000,
        "above the transaction timeout: it is decided, and a leader does not append its marker; find the partition "
        "without leader",
        alerts=(
            Alert(
                "TidelogTransactionHangs",
                "tidelog_transaction_oldest_seconds > 1800",
                "a transaction has been open for {{ $value }} s: readers with read_committed wait for it",
                5,
                command="tidelog txn find-hanging",
            ),
        ),
    ),
    Metric(
        "tidelog_transaction_markers_waiting",
        "Markers that are not committed yet",
        lambda t: t.markers_waiting,
        "grows: a leader of a partition in a transaction does not answer",
    ),
)

GROUP_LIMITS: Final = MetricTable[MetricSources](
    "Limits of what is shown of groups",
    no_labels,
    Metric(
        "tidelog_group_lag_unknown",
        "Groups beyond 1,000 and offsets beyond 10,000 of a node, which these metrics leave out, and all partitions "
        "whose lag is not known. Collected when the metrics are read, at most every 5 s",
        lambda n: n.groups.unknown,
        "stays above 0 with few groups: leaders do not answer, or this node's principal lacks `Describe` for the "
        "topics",
    ),
    Metric(
        "tidelog_group_member_streams",
        "Open heartbeat streams of group members",
        lambda n: n.member_streams,
        "none: load",
    ),
)

GROUPS: Final = MetricTable[GroupFigures](
    "Groups",
    lambda e: {"group": e.group.group_id},
    Metric(
        "tidelog_group_members",
        "Members of a group that this node coordinates",
        lambda e: {e.group.state: e.group.members},
        "0 for a group that should run: its members have stopped. `PreparingRebalance` for minutes: a member does not "
        "poll",
        by=("state",),
    ),
    Metric(
        "tidelog_group_lag",
        "Records that a group has still to read, where that is known: from its committed offsets, or the log starts if "
        "these are higher, to the high watermarks",
        lambda e: e.lag,
        "rises: the consumers are slower than the producers; more members, at most one for each partition",
        unit="records",
        alerts=(
            Alert(
                "TidelogGroupLagRises",
                "min_over_time(tidelog_group_lag[30m]) > 10000 and delta(tidelog_group_lag[30m]) > 0",
                "group {{ $labels.group }} is {{ $value }} records behind, and falls back further",
                15,
                command="tidelog group lag GROUP",
            ),
        ),
    ),
    Metric(
        "tidelog_group_lag_deleted",
        "Records that were deleted before a group read them",
        lambda e: e.deleted,
        "longer retention, or faster consumers; the members continue as `on_out_of_range` says",
        unit="records",
        alerts=(
            Alert(
                "TidelogGroupLosesRecords",
                "tidelog_group_lag_deleted > 0",
                "retention deleted {{ $value }} records that group {{ $labels.group }} had not read",
                0,
                command="tidelog group lag GROUP",
            ),
        ),
    ),
    Metric(
        "tidelog_group_unknown_partitions",
        "Partitions of a group whose lag is not known: nothing is committed, an offset lies beyond the end, or the "
        "leader did not answer",
        lambda e: e.unknown,
        "stays above 0: members that never commit, or leaders that do not answer; `tidelog group lag GROUP` shows "
        "which",
    ),
    names=("group",),
)

GROUP_OFFSETS: Final = MetricTable[tuple[GroupFigures, FetchedOffset]](
    "Partitions of groups",
    lambda e: {"group": e[0].group.group_id, "partition": str(e[1].partition), "topic": e[1].topic},
    Metric(
        "tidelog_group_committed_offset",
        "Offset that a group has committed",
        lambda e: e[1].offset,
        "stands while the log end moves: the member of this partition does not process or commit",
        unit="offset",
    ),
    Metric(
        "tidelog_group_partition_lag",
        "Records of one partition that a group has still to read, where that is known",
        lambda e: e[0].lags.get((e[1].topic, e[1].partition)),
        "one partition far above the others: a key with most of the records, or a member that hangs",
        unit="records",
    ),
    names=("group", "topic", "partition"),
)
