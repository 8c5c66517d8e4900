"""The text of all metrics of a node. They are read when a scraper asks, on the node's loop.

Not here: the metrics (*_families.py), counting (request_meter.py, topic_meter.py and their like), their format
(metric_text.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeVar

from node.observability import (
    cluster_families,
    coordinator_families,
    disk_families,
    partition_families,
    process_families,
    request_families,
    tier_families,
)
from node.observability.cluster_families import ClusterFigures
from node.observability.metric_sources import MetricSources
from node.observability.metric_text import AT_ONCE, MetricTable
from replication.controller.elections import wants_preferred
from replication.controller.image import ClusterImage, PartitionState
from tidelog.types import NO_NODE

TABLES: Final[tuple[MetricTable[Any], ...]] = (
    cluster_families.NODE,
    cluster_families.CLUSTER,
    cluster_families.CONTROLLER,
    cluster_families.QUORUM,
    partition_families.PARTITIONS,
    partition_families.ISR_CHANGES,
    partition_families.TOPICS,
    disk_families.OFFLINE,
    disk_families.DIRECTORY,
    disk_families.WORK,
    disk_families.UPKEEP,
    disk_families.EXECUTORS,
    request_families.REQUESTS,
    request_families.LISTENERS,
    request_families.QUOTAS,
    coordinator_families.GROUPS,
    coordinator_families.GROUP_OFFSETS,
    coordinator_families.GROUP_LIMITS,
    coordinator_families.COORDINATORS,
    coordinator_families.TRANSACTIONS,
    tier_families.TIER,
    request_families.AUDIT,
    request_families.SASL,
    request_families.CERTIFICATES,
    process_families.LOOP,
    process_families.GARBAGE,
    process_families.MEMORY,
    process_families.PROCESS,
)
"""All metrics, in the order of docs/metrics.md."""

T = TypeVar("T")


async def metrics_text(now: MetricSources, turn: Callable[[], Awaitable[None]]) -> bytes:
    """All metrics in Prometheus' text format. turn: yields to the other tasks of the event loop."""
    groups = now.groups.groups
    cluster = None if now.cluster is None else await cluster_figures(now.cluster, turn)
    pieces = [
        await cluster_families.NODE.text([now], turn),
        await cluster_families.CLUSTER.text(_present(cluster), turn),
        await cluster_families.CONTROLLER.text(_present(now.controller), turn),
        await cluster_families.QUORUM.text(_present(now.quorum), turn),
        await partition_families.PARTITIONS.text(now.partitions, turn),
        await partition_families.ISR_CHANGES.text(_present(now.isr_changes), turn),
        await partition_families.TOPICS.text(now.topics, turn),
        await disk_families.OFFLINE.text([now.offline], turn),
        await disk_families.DIRECTORY.text(now.directories, turn),
        await disk_families.WORK.text(chain.from_iterable(now.disks), turn),
        await disk_families.UPKEEP.text(now.upkeep, turn),
        await disk_families.EXECUTORS.text(now.executors.items(), turn),
        await request_families.REQUESTS.text(filter(request_families.is_used, now.requests), turn),
        await request_families.LISTENERS.text([now], turn),
        await request_families.QUOTAS.text(_present(now.quotas), turn),
        await coordinator_families.GROUPS.text(groups, turn),
        await coordinator_families.GROUP_OFFSETS.text(((each, at) for each in groups for at in each.offsets), turn),
        await coordinator_families.GROUP_LIMITS.text([now], turn),
        await coordinator_families.COORDINATORS.text(now.coordinators, turn),
        await coordinator_families.TRANSACTIONS.text(_present(now.transactions), turn),
        await tier_families.TIER.text(_present(now.tier), turn),
        await request_families.AUDIT.text(_present(now.audit), turn),
        await request_families.SASL.text(_present(now.sasl), turn),
        await request_families.CERTIFICATES.text(now.certificates, turn),
        await process_families.LOOP.text(_present(now.loop), turn),
        await process_families.GARBAGE.text(_present(now.gc), turn),
        await process_families.MEMORY.text(_present(now.memory), turn),
        await process_families.PROCESS.text(_present(now.process), turn),
    ]
    return b"".join(pieces)


def _present(source: T | None) -> Sequence[T]:
    return () if source is None else (source,)


async def cluster_figures(image: ClusterImage, turn: Callable[[], Awaitable[None]]) -> ClusterFigures:
    """Count the partitions and nodes of an image. turn: awaited between two lots of partitions."""
    found = ClusterFigures(topics=len(image.topics), topic_snapshots=len(image.topic_snapshots))
    for node in image.nodes.values():
        found.cordoned_nodes += node.gets_no_replicas
        found.cordoned_log_dirs += len(node.directories) - len(node.open_directories)
        if node.fenced:
            found.fenced_nodes += 1
        elif node.draining:
            found.draining_nodes += 1
        else:
            found.active_nodes += 1
    partitions = image.partitions()
    while lot := list(islice(partitions, AT_ONCE)):
        for state in lot:
            _count(found, state, image.min_insync(state))
        await turn()
    return found


def _count(found: ClusterFigures, state: PartitionState, min_insync: int) -> None:
    found.partitions += 1
    found.without_leader += state.leader == NO_NODE
    found.under_replicated += any(each not in state.isr and each not in state.adding for each in state.replicas)
    found.under_min_isr += len(state.isr) < min_insync
    found.reassigning += bool(state.adding or state.removing)
    found.queued_moves += bool(state.queued)
    found.not_preferred += wants_preferred(state)
