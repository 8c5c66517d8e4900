"""Topics with a remote tier at node processes: segments leave the nodes as soon as they are copied."""

from __future__ import annotations

from typing import Any, Final

from node.process.local_cluster import LocalCluster, LocalNode

START_S: Final = 240
"""Longer than the busiest machine takes."""


def tiering_settings(url: str) -> dict[str, Any]:
    """Of nodes with this store."""
    return {
        "remote.log.storage.url": url,
        "remote.log.metadata.topic.num.partitions": 1,
        "log.retention.check.interval.ms": 300,
    }


def create_tiered_topic(
    cluster: LocalCluster, topic: str, partitions: int = 1, replicas: int = 3, *, segment_bytes: int
) -> None:
    """Wait for the nodes, create it, and wait for its replicas."""
    cluster.wait_healthy(START_S)
    cluster.create_topic(
        topic,
        partitions,
        replicas,
        min_insync_replicas=str(min(replicas, 2)),
        remote_storage_enable="true",
        segment_bytes=str(segment_bytes),
        local_retention_bytes="0",
        file_delete_delay_ms="0",
    )
    cluster.wait_healthy(START_S)


def first_on_disk(node: LocalNode, topic: str, partition: int = 0) -> int:
    """The offset with which the first segment on a node begins; -1 while files come and go."""
    return min((int(file.stem) for file in (node.data / f"{topic}-{partition}").glob("*.log")), default=-1)
