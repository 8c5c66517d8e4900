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
from tidelog import Admin, Consumer, TopicPartition

pytestmark = pytest.mark.integration

SOURCE, TARGET, GROUP, PARTITIONS = "orders", "invoices", "billing", 6
ROOT = Path(__file__).resolve().parents[2]


SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": 10_000,
    "group.consumer.session.timeout.ms": 10_000,
    "group.consumer.min.heartbeat.interval.ms": 2_000,
    "group.consumer.heartbeat.interval.ms": 2_000,
}
"""The partitions of a killed member wait for its session: by default 45 s, which would be most of the test."""


@contextmanager
def made(directory: Path, settings: dict[str, int]) -> Iterator[LocalCluster]:
    with LocalCluster(directory, settings=settings) as cluster:
        cluster.wait_healthy()
        for topic in (SOURCE, TARGET):
            cluster.create_topic(topic, PARTITIONS, min_insync_replicas="2")
        yield cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with made(tmp_path, {}) as cluster:
        yield cluster


@pytest.fixture
def cluster_with_short_sessions(tmp_path: Path) -> Iterator[LocalCluster]:
    with made(tmp_path, SHORT_SESSIONS) as cluster:
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
    """What TARGET holds once it has that many records. They are read twice: by a reader that was there while they came,
    and by one that reads all of them."""
    async with asyncio.timeout(120), Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        consumer.assign(await consumer.partitions(TARGET))
        seen: Counter[bytes] = Counter()
        while seen.total() < count:
            seen.update(record.value or b"" for record in await consumer.poll())
    found = await everything(cluster.bootstrap, TARGET)
    assert seen - found == Counter(), "what a reader got is not there any more"
    return found


@pytest.mark.deep
def test_a_pipeline_is_exactly_once_while_its_coordinators_members_and_leaders_are_killed(
    cluster_with_short_sessions: LocalCluster, tmp_path: Path
) -> None:
    """Each of three nodes is killed twice while two workers transform, which are killed too."""
    cluster = cluster_with_short_sessions
    load = Load(cluster.bootstrap, SOURCE, PARTITIONS, pause_ms=40)
    victims: list[Callable[[], int]] = [
        lambda: coordinator_of(cluster, "__consumer_offsets", GROUP),
        lambda: coordinator_of(cluster, "__transaction_state", f"{GROUP}-b"),
        lambda: leader_of(cluster, TARGET),
        lambda: leader_of(cluster, SOURCE),
    ]

    async def story(workers: Workers) -> None:
        async with load.running():
            await load.wait_more(1_000)
            await transformed(cluster, 500)
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


INTERRUPTION_SECONDS_MAX = 15.0
"""Far above a failover, far below the session timeout of 45 s: no member has to wait for another one's session."""


@dataclass
class Reader:
    """A member of a group: what it was given, when, and which partitions it had to give up."""

    found: Counter[bytes] = field(default_factory=Counter)
    longest_pause: float = 0.0
    given_up: list[TopicPartition] = field(default_factory=list)
    holds: int = 0
    """Partitions."""

    async def read(self, bootstrap: str, stop: asyncio.Event, *, instance_id: str | None = None) -> None:
        """Until `stop`; commits by itself."""
        loop = asyncio.get_running_loop()
        async with Consumer(
            bootstrap,
            group=GROUP,
            topics=[SOURCE],
            auto_commit_interval_ms=200,
            instance_id=instance_id,
            on_revoked=self.given_up.extend,
            on_lost=self.given_up.extend,
        ) as consumer:
            last = None
            while not stop.is_set():
                records = await consumer.poll(timeout=0.2)
                self.holds = len(consumer.assignment)
                now = loop.time()
                if records:
                    self.longest_pause = max(self.longest_pause, now - (last or now))
                    last = now
                self.found.update(record.value or b"" for record in records)
            given_up, self.given_up = list(self.given_up), []
        self.given_up = given_up  # without what the end of the block gave up


@pytest.mark.deep
async def test_a_rolling_restart_of_the_nodes_moves_no_partition_between_members_and_repeats_no_record(
    cluster: LocalCluster,
) -> None:
    """Each of three nodes is stopped and comes back before the next."""
    load = Load(cluster.bootstrap, SOURCE, PARTITIONS, pause_ms=20)
    readers = [Reader() for _ in range(3)]
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(reader.read(cluster.bootstrap, stop))
        async with load.running():
            await load.wait_more(500)
            async with asyncio.timeout(60):
                # Until each has its share: a member that has read may still give partitions to one that joined later.
                while any(reader.holds != PARTITIONS // 3 or not reader.found for reader in readers):
                    await load.wait_more(100)
            for reader in readers:
                reader.longest_pause = 0.0
                reader.given_up.clear()
            for node in cluster.nodes:
                assert await asyncio.to_thread(cluster.stop_node, node.node_id) == 0
                cluster.start_node(node.node_id)
                await asyncio.to_thread(cluster.wait_healthy, 60)
                await load.wait_more(300)
        async with asyncio.timeout(60):
            while sum(reader.found.total() for reader in readers) < len(load.acknowledged):
                await load_turn()
        stop.set()
    committed = await committed_offsets(cluster.bootstrap)
    ends = {index: max(offset for at, offset in load.acknowledged if at == index) + 1 for index in range(PARTITIONS)}
    assert committed == ends, "what was read is not what is committed"
    found = sum((reader.found for reader in readers), Counter[bytes]())
    assert found == Counter(load.acknowledged.values()), "records were read twice, or not at all"
    assert [reader.given_up for reader in readers] == [[], [], []], "a member lost its partitions"
    assert max(reader.longest_pause for reader in readers) < INTERRUPTION_SECONDS_MAX


async def load_turn() -> None:
    """Let the readers continue."""
    await asyncio.sleep(0.05)


async def committed_offsets(bootstrap: str) -> dict[int, int]:
    async with Admin(bootstrap) as admin:
        found = await admin.list_group_offsets(GROUP)
    return {int(at.partition): int(place.offset) for at, place in found.items() if place is not None}


async def test_members_that_are_restarted_one_after_the_other_lose_and_repeat_no_record(cluster: LocalCluster) -> None:
    """Each member closes, which commits, and starts again."""
    load = Load(cluster.bootstrap, SOURCE, PARTITIONS, pause_ms=20)
    readers: list[Reader] = []
    stops = [asyncio.Event() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:

        def start(number: int) -> asyncio.Task[None]:
            stops[number] = asyncio.Event()
            readers.append(Reader())
            return tasks.create_task(readers[-1].read(cluster.bootstrap, stops[number]))

        running = [start(number) for number in range(3)]
        async with load.running():
            for number in range(3):
                await load.wait_more(500)
                stops[number].set()
                await running[number]
                running[number] = start(number)
            await load.wait_more(500)
        async with asyncio.timeout(60):
            while sum(reader.found.total() for reader in readers) < len(load.acknowledged):
                await load_turn()
        for stop in stops:
            stop.set()
    assert sum((reader.found for reader in readers), Counter[bytes]()) == Counter(load.acknowledged.values())
