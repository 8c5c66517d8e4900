"""Metrics of a node for Prometheus, in a registry per node, so that several nodes fit in one process.

Disk work is recorded when it happens. The counters of requests and topics (`meters/`) and state (in-sync sets, high
watermarks, directories) are collected when the metrics are read. All of it runs on the node's loop. docs/operations.md
lists the names.
Not here: serving the metrics (metrics_server.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from node.coordinators.group_lag import NO_GROUPS, GroupsCollected
from node.observability import coordinator_metrics, directory_metrics
from node.observability.coordinator_metrics import CoordinationFigures, groups_text
from node.observability.directory_metrics import DirectoryFigures
from node.observability.partition_metrics import PartitionFigures, partition_text
from node.observability.request_metrics import RequestCollector
from node.observability.topic_metrics import topic_text
from node.runtime.memory_budget import MemoryFigures
from node.runtime.request_meter import RequestMeters
from node.runtime.topic_meter import TopicMeter
from replication.controller.node_state import NodeCause

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """State of one node."""

    ready: bool
    metadata_offset: int
    is_controller: bool
    offline_directories: tuple[str, ...]
    directories: tuple[str, ...]
    working_directories: tuple[DirectoryFigures, ...] = ()
    unclean_elections: int = 0
    fencings: Mapping[NodeCause, int] = field(default_factory=dict)
    memory: MemoryFigures | None = None
    """None while the node starts."""
    producers_forgotten: int = 0
    coordination: CoordinationFigures | None = None
    """None while the node starts."""


class NodeMetrics:
    """The metrics of one node."""

    def __init__(self, requests: RequestMeters) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(RequestCollector(requests))
        self._partitions: Callable[[], Iterator[PartitionFigures]] = lambda: iter(())
        self._topics: Callable[[], Iterator[tuple[str, TopicMeter]]] = lambda: iter(())
        self._groups: Callable[[], Awaitable[GroupsCollected]] = _no_groups
        self._disk_seconds = Histogram(
            "tidelog_directory_work_seconds",
            "Time of one piece of work on a log directory's writer; directory with suffix ' sync': of one fsync of a "
            "log; ' maintenance': of compaction, the scrub or the removal of files; ' quorum': of one fsync of the "
            "metadata log, a vote or a snapshot; ' read': of a read from disk",
            ("directory",),
            buckets=_SECONDS,
            registry=self.registry,
        )

    def directory_worker(self, directory: str) -> Callable[[float], None]:
        """A callback that records the duration of each piece of work on that directory's threads (seconds)."""
        return self._disk_seconds.labels(directory).observe

    def watch(
        self,
        look: Callable[[], NodeFigures],
        partitions: Callable[[], Iterator[PartitionFigures]],
        topics: Callable[[], Iterator[tuple[str, TopicMeter]]],
        groups: Callable[[], Awaitable[GroupsCollected]] | None = None,
    ) -> None:
        """Collect the node's state, its partitions and topics one by one, and its groups, whenever the metrics are
        read."""
        self.registry.register(_NodeCollector(look))
        self._partitions, self._topics, self._groups = partitions, topics, groups or _no_groups

    async def text(self, turn: Callable[[], Awaitable[None]]) -> bytes:
        """All metrics in Prometheus' text format. turn: yields to the other tasks of the event loop."""
        return b"".join(
            (
                generate_latest(self.registry),
                await partition_text(self._partitions(), turn),
                await topic_text(self._topics(), turn),
                await groups_text(await self._groups(), turn),
            )
        )


async def _no_groups() -> GroupsCollected:
    return NO_GROUPS


class _NodeCollector(Collector):
    def __init__(self, look: Callable[[], NodeFigures]) -> None:
        self._look = look

    def describe(self) -> Iterable[Metric]:
        return ()  # registering must not collect: the node may not exist yet

    def collect(self) -> Iterator[Metric]:
        now = self._look()
        yield _gauge("tidelog_ready", "1 while registered, unfenced and not being stopped", float(now.ready))
        yield _gauge("tidelog_metadata_offset", "Offset up to which the metadata log is applied", now.metadata_offset)
        yield _gauge("tidelog_active_controller", "1 on the active controller", float(now.is_controller))
        yield CounterMetricFamily(
            "tidelog_unclean_elections",
            "Elections of a leader that may lack committed records, by this node's controller",
            value=now.unclean_elections,
        )
        fencings = CounterMetricFamily(
            "tidelog_fencings", "Nodes that this node's controller fenced because of a failure", labels=("cause",)
        )
        for cause, count in now.fencings.items():
            fencings.add_metric((cause.name.lower(),), count)
        yield fencings
        offline = GaugeMetricFamily(
            "tidelog_directory_offline", "1 where a log directory is offline", labels=("directory",)
        )
        for directory in now.directories:
            offline.add_metric((directory,), float(directory in now.offline_directories))
        yield offline
        yield from directory_metrics.collect(now.working_directories)
        yield from _memory(now)
        if now.coordination is not None:
            yield from coordinator_metrics.collect(now.coordination)


def _memory(now: NodeFigures) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "tidelog_producers_forgotten",
        "Producer states dropped before their expiration because there were too many",
        value=now.producers_forgotten,
    )
    if now.memory is None:
        return
    yield _gauge("tidelog_memory_limit_bytes", "Memory limit for records in transit", now.memory.limit)
    used = GaugeMetricFamily("tidelog_memory_used_bytes", "Memory in use for records in transit", labels=("kind",))
    for kind, size in now.memory.used.items():
        used.add_metric((kind.value,), size)
    yield used
    waiting = GaugeMetricFamily("tidelog_memory_waiting", "Requests that wait for memory", labels=("kind",))
    for kind, count in now.memory.waiting.items():
        waiting.add_metric((kind.value,), count)
    yield waiting


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)
