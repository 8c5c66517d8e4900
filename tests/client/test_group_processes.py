"""Groups against real node processes: members share, leave, are killed; coordinators are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.client.memory_cluster import CLOCK, start, until
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.client.producer import Producer
from tidelog.errors import GroupIdNotFound, NonEmptyGroup
from tidelog.types import PartitionIndex, TopicPartition

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent.parent
SESSION_MS = 3_000
SETTINGS = {
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}
SAFE = {"min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("groups"), 3, settings=SETTINGS) as made:
        made.wait_healthy()
        yield made


@pytest.fixture
def healed(cluster: LocalCluster) -> Iterator[LocalCluster]:
    yield cluster
    for node in cluster.nodes:
        if node.running:
            os.kill(node.pid, signal.SIGCONT)
    cluster.start()
    cluster.wait_healthy()


async def topic_of(cluster: LocalCluster, name: str, partitions: int = 4) -> list[TopicPartition]:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(name, partitions=partitions, replication_factor=3, configs=SAFE)
    return [TopicPartition(name, PartitionIndex(index)) for index in range(partitions)]


async def fill(cluster: LocalCluster, places: list[TopicPartition], values: range) -> None:
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for number in values:
            place = places[number % len(places)]
            await producer.enqueue(place.topic, b"%d" % number, partition=place.partition)
        await producer.flush()


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


async def collect(consumer: Consumer, into: list[ConsumerRecord]) -> None:
    async for record in consumer:
        into.append(record)  # noqa: PERF401 - the story looks at it meanwhile


def worker(cluster: LocalCluster, group: str, topic: str) -> subprocess.Popen[bytes]:
    """A member in a process of its own that prints the records that it reads."""
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog.cli", "consume", topic, "--group", group, "-f", "-b", cluster.bootstrap],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_members_share_a_topic_and_a_closed_ones_partitions_move_at_once(healed: LocalCluster) -> None:
    async def story() -> None:
        places = await topic_of(healed, "shared")
        await fill(healed, places, range(200))
        one, two = list[ConsumerRecord](), list[ConsumerRecord]()
        first = Consumer(healed.bootstrap, group="shared", topics=["shared"], client_id="first")
        async with Consumer(healed.bootstrap, group="shared", topics=["shared"], client_id="second") as second:
            async with first:
                tasks = [start(collect(first, one)), start(collect(second, two))]
                await until(lambda: len(first.assignment) == len(second.assignment) == 2)
                await until(lambda: len(one) + len(two) >= 200)
                assert numbers([*one, *two]) == list(range(200))
                async with Admin(healed.bootstrap) as admin:
                    described = (await admin.describe_groups(["shared"]))["shared"]
                    assert not isinstance(described, Exception)
                    assert described.state == "Stable"
                    assert {member.client_id: len(member.assignment) for member in described.members} == {
                        "first": 2,
                        "second": 2,
                    }
                tasks[0].cancel()
            closed = CLOCK.monotonic_ms()
            await until(lambda: len(second.assignment) == 4)
            moved_ms = CLOCK.monotonic_ms() - closed
            assert moved_ms < 100, f"the coordinator pushes the assignment: {moved_ms} ms"
            await fill(healed, places, range(200, 220))
            await until(lambda: len(one) + len(two) >= 220)
            tasks[1].cancel()
        assert numbers([*one, *two]) == list(range(220)), "each once"
        async with Admin(healed.bootstrap) as admin:
            lags = await admin.group_lag("shared")
            assert [(each.partition, each.lag) for each in lags] == [(place, 0) for place in places]

    asyncio.run(asyncio.wait_for(story(), 60))
