"""Groups and transactions on real processes: members, coordinators and leaders are killed in a pipeline under load."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from replication.coordination.partitioning import partition_of
from tests.integration.load import Load
from tidelog import Admin, Consumer

pytestmark = pytest.mark.integration

SOURCE, TARGET, GROUP, PARTITIONS = "orders", "invoices", "billing", 6
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path) as cluster:
        cluster.wait_healthy()
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, PARTITIONS, min_insync_replicas="2")
        yield cluster


@dataclass
class Workers:
    """Processes that transform SOURCE into TARGET, members of one group."""

    bootstrap: str
    directory: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.integration.transform_worker",
                    self.bootstrap,
                    GROUP,
                    SOURCE,
                    TARGET,
                    name,
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        worker = self.running.pop(name)
        worker.kill()
        worker.wait()


@contextmanager
def workers(cluster: LocalCluster, directory: Path, *names: str) -> Iterator[Workers]:
    found = Workers(cluster.bootstrap, directory)
    try:
        for name in names:
            found.start(name)
        yield found
    finally:
        for name in list(found.running):
            found.kill(name)


def coordinator_of(cluster: LocalCluster, topic: str, key: str) -> int:
    """The node that coordinates a group or transactional id."""
    node = next(node.node_id for node in cluster.nodes if node.running)
    (state,) = cluster.metadata(node, topic).topics
    return int(state.partitions[partition_of(key, len(state.partitions))].leader)


def leader_of(cluster: LocalCluster, topic: str) -> int:
    node = next(node.node_id for node in cluster.nodes if node.running)
    (state,) = cluster.metadata(node, topic).topics
    return int(state.partitions[0].leader)


async def replaced(cluster: LocalCluster, node: int, load: Load) -> None:
    """Kill a node under load, and start it again."""
    await asyncio.to_thread(cluster.kill, node)
    await load.wait_more(500)
    cluster.start_node(node)
    await asyncio.to_thread(cluster.wait_healthy, 60)
    await load.wait_more(500)


async def everything(bootstrap: str, topic: str) -> Counter[bytes]:
    """The values of all committed records of decided transactions."""
    found: Counter[bytes] = Counter()
    async with Consumer(bootstrap, isolation="read_committed") as consumer:
        places = await consumer.partitions(topic)
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        async with asyncio.timeout(60):
            while any([await consumer.position(place) < ends[place] for place in places]):
                found.update(record.value or b"" for record in await consumer.poll())
    return found


async def transformed(cluster: LocalCluster, count: int) -> Counter[bytes]:
    """What TARGET holds once it has that many records."""
    async with asyncio.timeout(120):
        while (found := await everything(cluster.bootstrap, TARGET)).total() < count:
            await asyncio.sleep(0.2)
    return found


def test_a_pipeline_is_exactly_once_while_its_coordinators_members_and_leaders_are_killed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    load = Load(cluster.bootstrap, SOURCE, PARTITIONS, pause_ms=10)
    victims: list[Callable[[], int]] = [
        lambda: coordinator_of(cluster, "__consumer_offsets", GROUP),
        lambda: coordinator_of(cluster, "__transaction_state", f"{GROUP}-b"),
        lambda: leader_of(cluster, TARGET),
        lambda: leader_of(cluster, SOURCE),
    ]

    async def story(workers: Workers) -> None:
        async with load.running():
            await load.wait_more(2_000)
            await transformed(cluster, 1_000)
            for number, victim in enumerate(victims):
                await replaced(cluster, victim(), load)
                workers.kill("ab"[number % 2])
                await load.wait_more(500)
                workers.start("ab"[number % 2])
        sent = Counter(b"done:" + value for value in load.acknowledged.values())
        found = await transformed(cluster, sent.total())
        assert sent - found == Counter(), "records were lost"
        assert found - sent == Counter(), "records were transformed twice, or never sent"

    with workers(cluster, tmp_path, "a", "b") as both:
        asyncio.run(story(both))
