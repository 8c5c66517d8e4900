"""One real node among 200 clients that ask for as much as they may, some of which never read: its memory stays within
256 MiB, and every reader is served."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster, LocalNode
from tests.integration.greedy import MIB, Greedy

pytestmark = pytest.mark.integration

PARTITIONS = 8
BUDGET = 64 * MIB
RESIDENT_MAX = 256 * MIB
CLIENTS = {"unary": 60, "stream": 60, "stuck": 40, "produce": 40}
ROUNDS = {"unary": 200, "stream": 600, "produce": 200}
"""Answers of each kind by which all of them have had several."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[LocalCluster, LocalNode]]:
    with LocalCluster(tmp_path, nodes=1, settings={"memory.max.bytes": BUDGET}) as cluster:
        cluster.wait_healthy()
        yield cluster, cluster.nodes[0]


def resident_peak(node: LocalNode) -> int:
    """The most memory that the process ever had (bytes)."""
    (line,) = (line for line in Path(f"/proc/{node.pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def metric(node: LocalNode, name: str) -> float:
    with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


@pytest.mark.alone
@pytest.mark.deep
async def test_a_node_among_greedy_clients_stays_within_its_memory(node: tuple[LocalCluster, LocalNode]) -> None:
    """Greedy clients must come up to the limits of the node."""
    cluster, process = node
    small = {"durability": "page-cache", "retention_bytes": "60000000", "segment_bytes": "20000000"}
    topic_id = cluster.create_topic("large", PARTITIONS, replicas=1, **small)
    cluster.wait_healthy()
    greedy = Greedy(str(process.address), topic_id, PARTITIONS)
    used = []

    def served() -> bool:
        used.append(metric(process, "tidelog_memory_used_bytes"))
        return all(greedy.answers[kind] >= count for kind, count in ROUNDS.items())

    async def until_served() -> None:
        await asyncio.to_thread(cluster.wait_until, served, within_s=120, what="every reader is served")

    await greedy.fill(16)
    await greedy.run(CLIENTS, until_served)
    assert metric(process, "tidelog_memory_limit_bytes") == BUDGET
    assert max(used) <= BUDGET
    peak = resident_peak(process)
    assert peak < RESIDENT_MAX, f"{peak >> 20} MiB"
