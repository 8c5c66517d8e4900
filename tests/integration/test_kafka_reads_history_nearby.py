"""librdkafka with `client.rack`, unmodified: it reads history that is only in the store through the follower in its
rack (KIP-392)."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from node.process.local_cluster import LocalCluster, LocalNode
from tests.integration.tiered_cluster import START_S, create_tiered_topic, first_on_disk, tiering_settings
from tidelog import Producer

pytestmark = pytest.mark.integration

TOPIC, RECORDS = "orders", 400
SEGMENT_BYTES, RECORD_BYTES = 20_000, 1_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes, each in a rack of its own, and a topic whose first records are in the store only."""
    cluster = LocalCluster(tmp_path / "nodes", settings=tiering_settings(f"file://{tmp_path}/store"), kafka=True)
    for node in cluster.nodes:
        node.wrapper = ("env", f"TIDELOG_BROKER_RACK={rack_of(node)}")
    with cluster:
        create_tiered_topic(cluster, TOPIC, segment_bytes=SEGMENT_BYTES)
        asyncio.run(produce(cluster, range(RECORDS)))
        cluster.wait_until(
            lambda: (
                min(first_on_disk(node, TOPIC) for node in cluster.nodes) >= RECORDS - 3 * SEGMENT_BYTES // RECORD_BYTES
            ),
            within_s=START_S,
            what="copied segments leave all nodes",
        )
        yield cluster


def rack_of(node: LocalNode) -> str:
    return f"rack-{node.node_id}"


async def produce(cluster: LocalCluster, numbers: range) -> None:
    async with Producer(cluster.bootstrap, acks="all", delivery_timeout_ms=120_000, linger_ms=0) as producer:
        for number in numbers:
            await producer.send(TOPIC, (b"%d." % number).ljust(RECORD_BYTES, b"x"), partition=0)


def bytes_from_store(node: LocalNode) -> float:
    """What consumers have made a node read from the store."""
    with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("tidelog_remote_read_bytes_total"))


def read(consumer: confluent_kafka.Consumer, count: int) -> list[int]:
    """The numbers of the next records, in the order in which they come."""
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(START_S)
        assert message is not None, f"{len(found)} of {count} records came"
        error = message.error()
        if error is None:
            found.append(int((message.value() or b"").partition(b".")[0]))
        else:
            assert error.retriable() or error.code() == KafkaError._TRANSPORT, error
    return found


@pytest.mark.deep
def test_librdkafka_reads_history_through_the_follower_in_its_rack(cluster: LocalCluster) -> None:
    """Goal: an unmodified client of Kafka that names its rack is sent to the follower there for records that are on no
    node. Method: librdkafka begins at the first record, with small fetches, and goes on with what is produced later.
    Passed: every record comes once and in order, and only that follower has read from the store. Takes longer than
    10 s: three nodes, and followers ask every 10 s what was copied."""
    (topic,) = cluster.metadata(0, TOPIC).topics
    leader = topic.partitions[0].leader
    near = next(node for node in reversed(cluster.nodes) if node.node_id != leader)
    before = {node.node_id: bytes_from_store(node) for node in cluster.nodes}
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap,
            "client.rack": rack_of(near),
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 10_000,
            "queued.max.messages.kbytes": 20,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        assert read(consumer, RECORDS) == [*range(RECORDS)]
        asyncio.run(produce(cluster, range(RECORDS, RECORDS + 50)))
        assert read(consumer, 50) == [*range(RECORDS, RECORDS + 50)]
    finally:
        consumer.close()
    after = {node.node_id: bytes_from_store(node) for node in cluster.nodes}
    used = {number for number, size in after.items() if size > before[number]}
    assert used == {near.node_id}, "bytes that the nodes have read from the store"
