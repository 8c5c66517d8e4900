"""What the nodes of a cluster say of their remote tier, for the suite `tiering`."""

from __future__ import annotations

import re
import urllib.request
from typing import Final

from node.process.local_cluster import LocalCluster, LocalNode

COPIED_S_MAX: Final = 120.0
_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


def wait_copied(cluster: LocalCluster) -> None:
    """Until all closed segments are copied. Raises ClusterFailed."""
    cluster.wait_until(
        lambda: all(samples(node).get("tidelog_remote_waiting_segments", 0.0) == 0 for node in cluster.nodes),
        within_s=COPIED_S_MAX,
        what="all closed segments are copied",
    )


def copied_bytes(cluster: LocalCluster) -> float:
    """Bytes that all nodes have copied."""
    return sum(samples(node).get("tidelog_remote_copied_bytes_total", 0.0) for node in cluster.nodes)


def samples(node: LocalNode) -> dict[str, float]:
    """The metrics of a node, with their labels in their names."""
    with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {f"{name}{{{labels}}}" if labels else name: float(value) for name, labels, value in _SAMPLE.findall(text)}
