"""Metrics of the coordinators of a node, and of the groups that it coordinates.

The lag of groups is collected when the metrics are read, and its text is written in parts over several turns of the
loop, as that of partitions is (partition_metrics.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from node.coordinators.coordinator_figures import CoordinatorFigures, CoordinatorMeter
from node.coordinators.group_lag import GroupsCollected
from node.coordinators.transactions.transaction_coordinators import TransactionFigures

AT_ONCE: Final = 200
"""Offsets per turn of the loop: about 1 ms."""


@dataclass(frozen=True, slots=True)
class CoordinationFigures:
    """State of all coordinators of a node. member_streams: open heartbeat streams of group members."""

    coordinators: tuple[CoordinatorFigures, ...]
    member_streams: int
    transactions: TransactionFigures


_COUNTERS: Final[tuple[tuple[str, str, Callable[[CoordinatorMeter], float]], ...]] = (
    ("tidelog_coordinator_requests", "Requests that coordinators decided on", lambda meter: meter.requests),
    ("tidelog_coordinator_batches", "Batches that coordinators appended", lambda meter: meter.batches),
    (
        "tidelog_coordinator_suspensions",
        "How often a coordinator was dropped because it could not append",
        lambda meter: meter.suspensions,
    ),
    ("tidelog_coordinator_loads", "Partitions of internal topics that were loaded", lambda meter: meter.loads),
    ("tidelog_coordinator_load_seconds", "Time of these loads together", lambda meter: meter.load_ms / 1_000),
    ("tidelog_coordinator_records_loaded", "Records that were replayed", lambda meter: meter.records_loaded),
)


def collect(now: CoordinationFigures) -> Iterator[Metric]:
    """The metrics of the coordinators."""
    partitions = GaugeMetricFamily(
        "tidelog_coordinator_partitions", "Coordinators on this node", labels=("coordinator", "state")
    )
    waiting = GaugeMetricFamily(
        "tidelog_coordinator_uncommitted", "Decisions that wait for their commit", labels=("coordinator",)
    )
    longest = GaugeMetricFamily(
        "tidelog_coordinator_load_seconds_max", "The longest load since the start", labels=("coordinator",)
    )
    for each in now.coordinators:
        for state, count in each.partitions.items():
            partitions.add_metric((each.kind, state.value), count)
        waiting.add_metric((each.kind,), each.waiting)
        longest.add_metric((each.kind,), each.meter.load_ms_max / 1_000)
    yield from (partitions, waiting, longest)
    for name, help_text, value in _COUNTERS:
        counter = CounterMetricFamily(name, help_text, labels=("coordinator",))
        for each in now.coordinators:
            counter.add_metric((each.kind,), value(each.meter))
        yield counter
    yield _gauge("tidelog_group_member_streams", "Open heartbeat streams of group members", now.member_streams)
    found = now.transactions
    yield _gauge("tidelog_transactional_ids", "Transactional ids that this node coordinates", found.transactional_ids)
    yield _gauge("tidelog_transactions_open", "Transactions that are not complete", found.open_transactions)
    yield _gauge(
        "tidelog_transaction_oldest_seconds",
        "Age of the oldest transaction that is not complete; 0: there is none",
        found.oldest_age_ms / 1_000,
    )
    yield _gauge("tidelog_transaction_markers_waiting", "Markers that are not committed yet", found.markers_waiting)


async def groups_text(collected: GroupsCollected, turn: Callable[[], Awaitable[None]]) -> bytes:
    """The metrics of all groups. turn: awaited between two parts."""
    members: list[str] = []
    lags: list[str] = []
    deleted: list[str] = []
    partitions: list[str] = []
    offsets: list[str] = []
    for figures in collected.groups:
        group = _escaped(figures.group.group_id)
        members.append(
            f'tidelog_group_members{{group="{group}",state="{figures.group.state}"}} {figures.group.members}.0\n'
        )
        if figures.lag is not None:
            lags.append(f'tidelog_group_lag{{group="{group}"}} {figures.lag}.0\n')
            deleted.append(f'tidelog_group_lag_deleted{{group="{group}"}} {figures.deleted}.0\n')
        partitions.append(f'tidelog_group_unknown_partitions{{group="{group}"}} {figures.unknown}.0\n')
        for number, each in enumerate(figures.offsets):
            if number % AT_ONCE == 0:
                await turn()
            labels = f'group="{group}",partition="{each.partition}",topic="{_escaped(each.topic)}"'
            offsets.append(f"tidelog_group_committed_offset{{{labels}}} {each.offset}.0\n")
    unknown = f"tidelog_group_lag_unknown {collected.unknown}.0\n"
    return b"".join(
        (
            _text("tidelog_group_members", "Members of a group", members),
            _text("tidelog_group_lag", "Records that a group has still to read, where that is known", lags),
            _text("tidelog_group_lag_deleted", "Records that were deleted before a group read them", deleted),
            _text("tidelog_group_unknown_partitions", "Partitions of a group whose lag is not known", partitions),
            _text("tidelog_group_committed_offset", "Offset that a group has committed", offsets),
            _text(
                "tidelog_group_lag_unknown",
                "Groups and offsets that are left out of these metrics, and all partitions whose lag is not known",
                [unknown],
            ),
        )
    )


def _text(name: str, help_text: str, samples: list[str]) -> bytes:
    return "".join((f"# HELP {name} {help_text}\n# TYPE {name} gauge\n", *samples)).encode()


def _escaped(label: str) -> str:
    """The value of a label: a group id may have any character, and the format escapes these three."""
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)
