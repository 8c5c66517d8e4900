"""Client and command against real node processes: what the cluster in memory cannot show."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import ClusterFailed, LocalCluster
from tests.client.memory_cluster import start, until
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.client.delivery import SendResult
from tidelog.client.producer import Producer
from tidelog.errors import CommitUnknown, InconsistentTopicId
from tidelog.types import PartitionIndex, TopicPartition

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent.parent
SAFE = {"min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("client"), 3) as made:
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


async def a_partition_led_elsewhere(cluster: LocalCluster, topic: str) -> tuple[TopicPartition, int]:
    """Return a partition of a new topic whose leader is not the voter, and that leader."""
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(topic, partitions=3, replication_factor=3, configs=SAFE)
        found = await admin.describe_topic(topic)
    chosen = next(partition for partition in found.partitions if partition.leader > 0)
    return TopicPartition(topic, PartitionIndex(chosen.partition)), chosen.leader


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.deep)])
async def test_an_idempotent_producer_loses_nothing_if_a_leader_is_killed_or_hangs(
    healed: LocalCluster, how: signal.Signals
) -> None:
    """Several batches are in flight when their leader stops: all are acknowledged, and read once and in order."""
    place, leader = await a_partition_led_elsewhere(healed, f"idempotent-{how.name}")
    deliveries = []
    async with (
        Producer(healed.bootstrap, linger_ms=0, batch_bytes=400) as producer,
        Consumer(healed.bootstrap) as consumer,
    ):
        consumer.assign([place])
        for number in range(2_000):
            deliveries.append(await producer.enqueue(place.topic, b"%d" % number, partition=place.partition))
            if number == 500:
                await deliveries[0]
                os.kill(healed.nodes[leader].pid, how)
        await producer.flush()
        offsets = [delivery.result().offset for delivery in deliveries]
        read: list[int] = []
        while len(read) < 2_000:
            read += [int(record.value or b"") for record in await consumer.poll()]
    assert read == list(range(2_000))
    assert offsets == list(range(2_000))


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.deep)])
async def test_a_leader_that_is_killed_or_hangs_leaves_at_most_the_record_in_flight_unknown(
    healed: LocalCluster, how: signal.Signals
) -> None:
    """One writer, record by record, while its leader stops: every acknowledged record is read, once and in order; the
    outcome of the others is reported as unknown."""
    place, leader = await a_partition_led_elsewhere(healed, f"hit-by-{how.name}")
    acknowledged: list[int] = []
    unknown: list[int] = []
    refused: list[CommitUnknown] = []

    async def write(producer: Producer, numbers: range) -> None:
        for number in numbers:
            try:
                await producer.send(place.topic, str(number).encode(), partition=place.partition)
                acknowledged.append(number)
            except CommitUnknown as error:
                refused.append(error)
                unknown.append(number)

    async with (
        Producer(healed.bootstrap, linger_ms=0, enable_idempotence=False) as producer,
        Consumer(healed.bootstrap) as consumer,
    ):
        consumer.assign([place])
        await write(producer, range(50))
        writing = start(write(producer, range(50, 400)))
        await until(lambda: len(acknowledged) > 100)
        os.kill(healed.nodes[leader].pid, how)
        await writing
        read: list[int] = []
        while acknowledged[-1] not in read:
            read += [int(record.value or b"") for record in await consumer.poll()]
    assert read == sorted(set(read)), "once and in order"
    assert set(acknowledged) <= set(read) <= {*acknowledged, *unknown}
    assert len(unknown) <= 1
    assert [error.topic_partition for error in refused] == [place] * len(unknown)


async def test_every_codec_and_header_passes_through_real_nodes(healed: LocalCluster) -> None:
    async with Admin(healed.bootstrap) as admin:
        await admin.create_topic("codecs", replication_factor=3, configs={**SAFE, "retention.ms": "-1"})
    values = [f"value {number} ".encode() * 20 for number in range(100)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        async with Producer(healed.bootstrap, compression=codec) as producer:
            deliveries = [
                await producer.enqueue("codecs", value, codec.encode(), [("n", None), ("é", b"\0")], timestamp=1)
                for value in values
            ]
        assert all(isinstance(delivery.result(), SendResult) for delivery in deliveries)
    async with Consumer(healed.bootstrap) as consumer:
        consumer.assign([("codecs", 0)])
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            found: list[ConsumerRecord] = []
            while len(found) < 100:
                found += await consumer.poll(100 - len(found))
            assert [record.value for record in found] == values
            assert {(record.key, record.timestamp, record.headers) for record in found} == {
                (codec.encode(), 1, (("n", None), ("é", b"\0")))
            }


async def test_a_topic_deleted_and_created_again_is_noticed_by_its_readers(healed: LocalCluster) -> None:
    async with (
        Admin(healed.bootstrap) as admin,
        Producer(healed.bootstrap, linger_ms=0) as producer,
        Consumer(healed.bootstrap, max_wait_ms=100) as consumer,
    ):
        await admin.create_topic("twice", replication_factor=3)
        await producer.send("twice", b"first life")
        consumer.assign([("twice", 0)])
        assert [record.value for record in await consumer.poll(timeout=20)] == [b"first life"]
        await admin.delete_topic("twice")
        await admin.create_topic("twice", replication_factor=3)
        assert (await producer.send("twice", b"second life")).offset == 0
        with pytest.raises(InconsistentTopicId):
            await consumer.poll(timeout=20)


def test_the_examples_of_the_documentation_run(healed: LocalCluster) -> None:
    for example, expected in (("produce", "greetings-"), ("consume", "2001 records")):
        done = subprocess.run(
            [sys.executable, "-m", f"examples.{example}", healed.bootstrap],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in done.stdout


def test_the_command_works_from_up_to_the_end(tmp_path: Path) -> None:
    """The first commands of a user: start a cluster, create a topic, produce, consume; no process is left."""

    def tidelog(*arguments: str, typed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "tidelog.cli", *arguments],
            input=typed,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "TIDELOG_BOOTSTRAP": bootstrap, "PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )

    up = subprocess.Popen(
        [sys.executable, "-m", "tidelog.cli", "up", "--data", "here", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert up.stdout is not None
        reported = json.loads(up.stdout.readline())
        bootstrap = reported["bootstrap"]
        assert (reported["nodes"], reported["data"]) == (3, str(tmp_path / "here"))
        assert tidelog("topic", "create", "greetings", "-p", "2", "-r", "3").returncode == 0
        produced = tidelog("produce", "greetings", "-k", "=", typed=b"a=hello\nb=world\na=again\n")
        assert (produced.returncode, produced.stderr) == (0, b"3 records acknowledged\n")
        consumed = tidelog("consume", "greetings")
        assert (consumed.returncode, sorted(consumed.stdout.split())) == (0, [b"again", b"hello", b"world"])
        status = tidelog("cluster", "status", "--json")
        assert (status.returncode, json.loads(status.stdout)["problems"]) == (0, [])
        victim = reported["pids"][1]
        os.kill(victim, signal.SIGKILL)
        assert up.stderr is not None
        assert b"was ended by SIGKILL: it is restarted" in up.stderr.readline()
        assert tidelog("produce", "greetings", "--timeout", "60", typed=b"still here\n").returncode == 0
    finally:
        up.send_signal(signal.SIGINT)
        _, complaints = up.communicate(timeout=60)
    assert (up.returncode, complaints) == (0, b"stopping\n")
    refused = tidelog("cluster", "status")
    assert refused.returncode == 1
    assert b"Is a node running there" in refused.stderr


def test_an_interrupt_ends_produce_while_no_input_arrives(healed: LocalCluster) -> None:
    """A user at a terminal types a line, then Ctrl-C. The line is sent and reported as sent."""

    async def topic() -> None:
        async with Admin(healed.bootstrap) as admin:
            await admin.create_topic("typed", replication_factor=3)

    asyncio.run(topic())
    typing = subprocess.Popen(
        [sys.executable, "-m", "tidelog.cli", "produce", "typed", "-b", healed.bootstrap],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert typing.stdin is not None
    assert typing.stderr is not None
    typing.stdin.write(b"a line\n")
    typing.stdin.flush()

    async def read() -> None:
        async with Consumer(healed.bootstrap) as consumer:
            consumer.assign([("typed", 0)])
            assert [record.value for record in await consumer.poll(timeout=20)] == [b"a line"]

    asyncio.run(read())
    typing.send_signal(signal.SIGINT)
    assert typing.wait(timeout=60) == 130, "its standard input is still open"
    assert typing.stderr.read() == b"1 record acknowledged\n"
    typing.stdin.close()


def test_a_directory_does_not_keep_ports_at_which_its_first_start_failed(tmp_path: Path) -> None:
    """The second start, with other ports, kept those of the first, which another program has."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ClusterFailed, match=f"node 0 cannot listen at 127.0.0.1:{port}"):
            LocalCluster(tmp_path / "new", 2, first_port=port, kafka=True).start()
        assert not (tmp_path / "new").exists()
        again = LocalCluster(tmp_path / "new", 2, kafka=True)
        assert port not in {address.port for node in again.nodes for address in node.listeners.values()}


def test_up_rejects_the_ports_of_another_cluster(healed: LocalCluster, tmp_path: Path) -> None:
    port = healed.nodes[0].address.port
    for data, wanted in ((tmp_path / "new", port), (healed.directory, 0)):
        refused = subprocess.run(
            [sys.executable, "-m", "tidelog.cli", "up", "--nodes", "1", "--data", str(data), "--port", str(wanted)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"tidelog: node 0 cannot listen at 127.0.0.1:{port}")
        assert "up:" not in refused.stderr
