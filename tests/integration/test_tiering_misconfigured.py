"""A node process that cannot use its S3 server at the start: wrong credentials, no bucket, no server."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.integration.tiered_cluster import START_S, create_tiered_topic, first_on_disk, tiering_settings
from tests.tiering.s3_gateway import BUCKET, S3Gateway
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer

pytestmark = pytest.mark.integration

TOPIC, RECORDS = "orders", 100
SEGMENT_BYTES, RECORD_BYTES = 20_000, 1_000
SETTINGS = tiering_settings(f"s3://{BUCKET}/tide")
CREDENTIALS, NO_BUCKET, NO_SERVER = "wrong credentials", "no bucket", "no server"
SAID = {
    CREDENTIALS: "give this process credentials that may read, write, list and delete there",
    NO_BUCKET: "create the bucket, or correct the URL",
    NO_SERVER: "it is tried again: look at the store and the network to it",
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[S3Gateway]:
    gateway = S3Gateway(tmp_path / "s3")
    try:
        yield gateway
    finally:
        gateway.kill()


def figure(cluster: LocalCluster, metric: str) -> float:
    with urllib.request.urlopen(f"http://{cluster.nodes[0].metrics}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))


async def produce(cluster: LocalCluster, first: int) -> None:
    async with Producer(cluster.bootstrap, acks="all", delivery_timeout_ms=120_000, linger_ms=0) as producer:
        for number in range(first, first + RECORDS):
            await producer.send(TOPIC, (b"%d." % number).ljust(RECORD_BYTES, b"x"), partition=0)


async def read(cluster: LocalCluster, count: int) -> list[int]:
    found: list[int] = []
    async with Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(TOPIC, 0)])
        while len(found) < count:
            found += [int((record.value or b"").partition(b".")[0]) for record in await consumer.poll()]
    return found


def ensure_it_works_without_the_store(cluster: LocalCluster, gateway: S3Gateway, trouble: str) -> None:
    create_tiered_topic(cluster, TOPIC, replicas=1, segment_bytes=SEGMENT_BYTES)
    asyncio.run(produce(cluster, 0))
    node = cluster.nodes[0]
    cluster.wait_until(lambda: SAID[trouble] in node.log.read_text(), within_s=START_S, what="the log says what to do")
    assert f"{TOPIC}-0: the remote tier waits for" in node.log.read_text()
    cluster.wait_until(
        lambda: figure(cluster, "tidelog_remote_failing_partitions") == 1, within_s=START_S, what="the metric shows it"
    )
    assert figure(cluster, "tidelog_remote_errors_total") >= 1
    assert figure(cluster, "tidelog_remote_waiting_bytes") >= SEGMENT_BYTES
    assert figure(cluster, "tidelog_remote_copied_segments_total") == 0
    asyncio.run(produce(cluster, RECORDS))
    assert first_on_disk(cluster.nodes[0], TOPIC) == 0, "local segments stay"
    assert asyncio.run(read(cluster, 2 * RECORDS)) == [*range(2 * RECORDS)]
    assert not [*gateway.folder.glob("root/**/*.segment")]


def ensure_segments_leave(cluster: LocalCluster) -> None:
    cluster.wait_healthy(START_S)
    cluster.wait_until(
        lambda: first_on_disk(cluster.nodes[0], TOPIC) >= 2 * RECORDS - 2 * SEGMENT_BYTES // RECORD_BYTES,
        within_s=START_S,
        what="copied segments leave the node",
    )
    cluster.wait_until(
        lambda: figure(cluster, "tidelog_remote_failing_partitions") == 0,
        within_s=START_S,
        what="the metric is 0 again",
    )
    assert asyncio.run(read(cluster, 2 * RECORDS)) == [*range(2 * RECORDS)]


@pytest.mark.deep
@pytest.mark.parametrize("trouble", [CREDENTIALS, NO_BUCKET, NO_SERVER])
def test_a_store_that_cannot_be_used_at_the_start_keeps_segments_on_the_node(
    tmp_path: Path, gateway: S3Gateway, trouble: str
) -> None:
    """Goal: a mistake in the configuration of the store harms only the copies. Method: a node starts with wrong
    credentials, without the bucket, or without a server; records are produced and read; then it is corrected: the node
    is started again with the right credentials, the bucket is created, the server is started. Passed: the log says what
    to do, the metrics count, local segments stay; then they are copied and leave, and all is read from the store. Takes
    longer than 10 s: a partition waits up to some seconds after each failure."""
    if trouble == NO_BUCKET:
        gateway.bucket.rmdir()
    if trouble != NO_SERVER:
        gateway.start()
    home, right = tmp_path / "nodes", gateway.environment()
    given = gateway.environment(secret="wrong") if trouble == CREDENTIALS else right
    with LocalCluster(home, 1, settings=SETTINGS, environment=given) as cluster:
        ensure_it_works_without_the_store(cluster, gateway, trouble)
        if trouble == NO_BUCKET:
            gateway.bucket.mkdir()
        elif trouble == NO_SERVER:
            gateway.start()
        if trouble != CREDENTIALS:
            ensure_segments_leave(cluster)
    if trouble == CREDENTIALS:
        with LocalCluster(home, 1, settings=SETTINGS, environment=right) as cluster:
            ensure_segments_leave(cluster)
