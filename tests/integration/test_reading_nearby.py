"""Consumers that say where they are (KIP-392), against real processes: they read nearby, lose nothing where that ends,
and see no aborted record there either."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster, LocalNode
from storage.append_info import Origin
from storage.directory.log_directory import LogDirectory
from storage.files.os_files import OsFiles
from storage.log.log import Log
from storage.log_config import LogConfig
from tests.fakes.log_start import latest_epoch
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.records.v2.control import EndTxnMarker, control_batch
from tidelog.types import LeaderEpoch, Millis, PartitionIndex, ProducerId, TopicPartition

pytestmark = pytest.mark.integration

TOPIC = "orders"
PLACE = (TOPIC, 0)
NOW = Millis(1_700_000_000_000)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes, each in a rack of its own, and a topic of one partition."""
    cluster = LocalCluster(tmp_path)
    for node in cluster.nodes:
        node.wrapper = ("env", f"TIDELOG_BROKER_RACK={rack_of(node)}")
    with cluster:
        cluster.wait_healthy()
        cluster.create_topic(TOPIC, 1, min_insync_replicas="2")
        cluster.wait_healthy()
        yield cluster


def rack_of(node: LocalNode) -> str:
    return f"rack-{node.node_id}"


def a_follower(cluster: LocalCluster) -> LocalNode:
    """One that is not the only one to tell of the metadata (`cluster.metadata`)."""
    (topic,) = cluster.metadata(0, TOPIC).topics
    return next(node for node in reversed(cluster.nodes) if node.node_id != topic.partitions[0].leader)


def fetch_streams(node: LocalNode) -> int:
    """How many streams of fetches are open at a node. One that leads nothing has those of consumers only."""
    with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith("tidelog_streams_open") and "FetchStream" in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in found)


async def send(cluster: LocalCluster, first: int, end: int) -> None:
    async with Producer(cluster.bootstrap, acks="all", delivery_timeout_ms=60_000) as producer:
        waiting = [await producer.enqueue(TOPIC, b"%d" % number, partition=0) for number in range(first, end)]
        for delivery in waiting:
            await delivery


async def receive(consumer: Consumer, count: int) -> list[bytes]:
    """So many records, in the order in which they come."""
    values: list[bytes] = []
    async with asyncio.timeout(40):
        while len(values) < count:
            values += [record.value or b"" for record in await consumer.poll(timeout=1)]
    return values


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


@pytest.mark.parametrize("trouble", ["dies", pytest.param("lags", marks=pytest.mark.deep)])
async def test_a_consumer_reads_from_its_rack_and_elsewhere_when_that_has_trouble(
    cluster: LocalCluster, trouble: str
) -> None:
    """The nearest replica is killed or hangs without notice: each record is read once, in order."""
    near = a_follower(cluster)
    async with Consumer(cluster.bootstrap, rack=rack_of(near), isolation="read_committed") as consumer:
        consumer.assign([PLACE])
        await send(cluster, 0, 200)
        assert await receive(consumer, 200) == numbers(0, 200)
        await send(cluster, 200, 300)
        assert await receive(consumer, 100) == numbers(200, 300)
        assert await asyncio.to_thread(fetch_streams, near) == 1
        if trouble == "dies":
            await asyncio.to_thread(cluster.kill, near.node_id)
        else:
            os.kill(near.pid, signal.SIGSTOP)
        try:
            await send(cluster, 300, 400)
            assert await receive(consumer, 100) == numbers(300, 400)
        finally:
            if trouble == "dies":
                cluster.start_node(near.node_id)
            else:
                os.kill(near.pid, signal.SIGCONT)
        await asyncio.to_thread(cluster.wait_healthy, 60, in_sync=True)
        await send(cluster, 400, 500)
        assert await receive(consumer, 100) == numbers(400, 500)


async def test_a_consumer_elsewhere_reads_from_the_leader(cluster: LocalCluster) -> None:
    async with Consumer(cluster.bootstrap, rack="rack-without-nodes") as consumer:
        consumer.assign([PLACE])
        await send(cluster, 0, 100)
        assert await receive(consumer, 100) == numbers(0, 100)
        assert await asyncio.to_thread(fetch_streams, a_follower(cluster)) == 0


@pytest.mark.deep
def test_aborted_records_are_not_shown_by_a_follower(cluster: LocalCluster) -> None:
    """Nobody appends markers yet but nodes, which have no coordinator: the logs of all replicas are given transactions
    while the cluster is down, one that is aborted and one that is committed."""
    asyncio.run(send(cluster, 0, 10))
    assert [cluster.stop_node(node.node_id) for node in cluster.nodes] == [0, 0, 0]
    epoch = max(epoch_of(node) for node in cluster.nodes)  # the node that stopped first may not know the last one
    logs = {append_transactions(node, epoch) for node in cluster.nodes}
    assert len(logs) == 1, "the replicas are alike"
    cluster.start()
    cluster.wait_healthy()
    near = a_follower(cluster)

    async def story() -> None:
        async with Consumer(cluster.bootstrap, rack=rack_of(near), isolation="read_committed") as consumer:
            consumer.assign([PLACE])
            assert await receive(consumer, 11) == [*numbers(0, 10), b"kept"]
            assert await asyncio.to_thread(fetch_streams, near) >= 1
        async with Consumer(cluster.bootstrap, rack=rack_of(near)) as consumer:
            consumer.assign([PLACE])
            assert await receive(consumer, 12) == [*numbers(0, 10), b"given up", b"kept"], "they are there"

    asyncio.run(story())


class _Clock:
    def wall_ms(self) -> Millis:
        return NOW


@contextlib.contextmanager
def log_of(node: LocalNode) -> Iterator[Log]:
    """The replica of a node that is down."""
    directory = LogDirectory(str(node.data), files=OsFiles(), clock=_Clock(), rng=random.Random(1))
    try:
        yield directory.load_logs(lambda *_: LogConfig())[TopicPartition(TOPIC, PartitionIndex(0))]
    finally:
        directory.close_clean()


def epoch_of(node: LocalNode) -> LeaderEpoch:
    with log_of(node) as log:
        return latest_epoch(log)


def append_transactions(node: LocalNode, epoch: LeaderEpoch) -> bytes:
    """Append to the replica of a node that is down. Returns all batches of its log."""
    with log_of(node) as log:
        append_to(log, epoch)
        return contents(log)


def append_to(log: Log, epoch: LeaderEpoch) -> None:
    for producer_id, value, commit in ((900, b"given up", False), (901, b"kept", True)):
        builder = RecordBatchBuilder(
            producer_id=ProducerId(producer_id), producer_epoch=0, base_sequence=0, is_transactional=True
        )
        builder.append(key=None, value=value, timestamp=NOW)
        log.append(builder.build(), assign_offsets=True, leader_epoch=epoch)
        marker = control_batch(
            EndTxnMarker(commit, coordinator_epoch=0),
            timestamp=NOW,
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
        )
        log.append(marker, assign_offsets=True, leader_epoch=epoch, origin=Origin.COORDINATOR)


def contents(log: Log) -> bytes:
    pieces, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, up_to=log.log_end_offset)
        pieces.append(bytes(read.records))
        offset = read.next_offset
    return b"".join(pieces)
