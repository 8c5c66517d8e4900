"""Transactions against real node processes that are killed: all or nothing, and each input's output once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor  # noqa: TID251 - of the test
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.client.memory_cluster import CLOCK, start
from tidelog import sync
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.client.transaction_admin import TransactionDescription
from tidelog.errors import ProducerFenced, TransactionAborted
from tidelog.types import PartitionIndex, TopicPartition

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent.parent
SAFE = {"min.insync.replicas": "2"}
SESSION_MS = 3_000
"""After which others read the partitions of a member that was killed."""
SETTINGS = {
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("transactions"), 3, settings=SETTINGS) as made:
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


def committed(cluster: LocalCluster, topic: str) -> list[bytes | None]:
    """What a read_committed consumer gets of all partitions, once no transaction is open."""
    with (
        sync.Consumer(cluster.bootstrap, isolation="read_committed") as consumer,
        sync.Admin(cluster.bootstrap) as admin,
    ):
        places = consumer.partitions(topic)
        ends = admin.list_offsets(places)
        consumer.assign(places)
        found = []
        for place in places:
            while consumer.position(place) < ends[place]:
                found += [record.value for record in consumer.poll(timeout=0.2)]
        return found


async def a_coordinator(cluster: LocalCluster, name: str) -> int:
    async with Admin(cluster.bootstrap) as admin:
        described = (await admin.describe_transactions([name]))[name]
        assert isinstance(described, TransactionDescription)
        return int(described.coordinator)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.deep)])
async def test_the_coordinator_may_die_or_hang_at_any_moment(healed: LocalCluster, how: signal.Signals) -> None:
    """Transactions run one after the other while their coordinator is killed: each commit that returned is complete,
    and nothing of an aborted one is visible."""
    topic = f"coordinator-{how.name}".lower()
    kept: set[int] = set()
    async with Admin(healed.bootstrap) as admin:
        await admin.create_topic(topic, partitions=3, replication_factor=3, configs=SAFE)
    async with Producer(healed.bootstrap, transactional_id=topic) as producer:

        async def write(first: int, count: int) -> None:
            for number in range(first, first + count):
                try:
                    async with producer.transaction() as txn:
                        for partition in range(3):
                            await txn.enqueue(topic, b"%d" % number, partition=partition)
                        if number % 7 == 6:
                            await txn.abort()
                except TransactionAborted:
                    continue
                if number % 7 != 6:
                    kept.add(number)

        await write(0, 10)
        victim = await a_coordinator(healed, topic)
        writing = start(write(10, 200))
        await CLOCK.sleep_ms(300)
        os.kill(healed.nodes[victim].pid, how)
        await writing
    assert len(kept) > 100
    assert Counter(committed(healed, topic)) == Counter({b"%d" % number: 3 for number in kept})


@pytest.mark.deep
def test_a_listing_is_complete_while_coordinators_move(healed: LocalCluster) -> None:
    """Each node is killed and started again while the transactional ids are listed: no listing lacks one."""
    names = sorted(f"listed-{number}" for number in range(12))
    with sync.Admin(healed.bootstrap) as admin:
        admin.create_topic("listed", partitions=1, replication_factor=3, configs=SAFE)
    for name in names:
        with sync.Producer(healed.bootstrap, transactional_id=name) as producer, producer.transaction() as txn:
            txn.send("listed", b"1")
    listings: list[list[str]] = []
    ended = threading.Event()

    def ask() -> None:
        with sync.Admin(healed.bootstrap) as admin:
            while not ended.is_set():
                listings.append([each.transactional_id for each in admin.list_transactions(pattern="listed-.*")])

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        try:
            for node in healed.nodes:
                healed.kill(node.node_id)
                healed.start_node(node.node_id)
                healed.wait_healthy()
        finally:
            ended.set()
        asking.result(timeout=60)
    assert len(listings) > 10
    assert [listed for listed in listings if listed != names] == []


def test_a_restarted_process_ends_what_it_left_open_and_fences_its_former_self(cluster: LocalCluster) -> None:
    with sync.Admin(cluster.bootstrap) as admin:
        admin.create_topic("restarted", partitions=1, replication_factor=3, configs=SAFE)
    with (
        sync.Producer(cluster.bootstrap, transactional_id="r") as former,
        sync.Producer(cluster.bootstrap, transactional_id="r") as present,
        pytest.raises(ProducerFenced),
        former.transaction() as txn,
    ):
        txn.send("restarted", b"zombie")
        with present.transaction() as theirs:
            theirs.send("restarted", b"1")
        txn.send("restarted", b"zombie")
    assert committed(cluster, "restarted") == [b"1"]


def test_the_tools_find_whose_transaction_holds_the_last_stable_offset(cluster: LocalCluster) -> None:
    place = TopicPartition("held", PartitionIndex(0))
    with sync.Admin(cluster.bootstrap) as admin:
        admin.create_topic("held", partitions=1, replication_factor=3, configs=SAFE)
        with (
            sync.Producer(cluster.bootstrap, transactional_id="holder") as holder,
            pytest.raises(ProducerFenced),
            holder.transaction() as txn,
        ):
            txn.send("held", b"v")
            (found,) = admin.open_transactions([place])
            assert not found.is_hanging
            assert found.description is not None
            assert (found.description.transactional_id, found.start_offset) == ("holder", 0)
            assert admin.find_hanging_transactions(max_timeout_ms=0) == []
            assert admin.list_offsets([place], isolation="read_committed") == {place: 0}
            admin.abort_transaction("holder")
            txn.send("held", b"v")
        assert admin.open_transactions([place]) == []
        assert admin.list_offsets([place], isolation="read_committed") == {place: 2}


def test_the_example_transforms_each_record_once(cluster: LocalCluster) -> None:
    """The example runs as two processes; one is killed and runs again. It ends by itself if no record comes."""
    records = 3_000
    with sync.Admin(cluster.bootstrap) as admin:
        for topic in ("in", "out"):
            admin.create_topic(topic, partitions=3, replication_factor=3, configs=SAFE)
    with sync.Producer(cluster.bootstrap) as producer:
        producer.send_many("in", [b"record %d" % number for number in range(records)])

    def process(name: str, idle_s: int) -> subprocess.Popen[bytes]:
        program = f"import asyncio, sys, examples.transform as t; t.IDLE_SECONDS = {idle_s}; "
        run = "asyncio.run(t.main(*sys.argv[1:]))"
        return subprocess.Popen([sys.executable, "-c", program + run, cluster.bootstrap, "in", "out", name], cwd=ROOT)

    def until(count: int) -> None:
        cluster.wait_until(lambda: len(committed(cluster, "out")) >= count, within_s=90, what=f"{count} are written")

    processes = [process(name, 90) for name in ("1", "2")]
    try:
        until(1)
        processes[0].kill()
        processes[0].wait()
        processes[0] = process("1", 90)
        until(records)
        processes.append(process("3", 1))
        assert processes[2].wait(90) == 0
    finally:
        for each in processes:
            each.kill()
            each.wait()
    assert Counter(committed(cluster, "out")) == Counter(b"RECORD %d" % number for number in range(records))
