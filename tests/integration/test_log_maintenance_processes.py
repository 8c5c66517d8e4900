"""What a real node does to its logs from time to time, on its own threads, while it is written to."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster, LocalNode
from tests.integration.grpc_client import Client
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Millis, Offset

pytestmark = pytest.mark.integration

OFTEN = {
    "log.cleaner.backoff.ms": 200,
    "log.retention.check.interval.ms": 200,
    "log.segment.delete.delay.ms": 500,
    "log.scrub.interval.ms": 0,
    "log.flush.offset.checkpoint.interval.ms": 500,
}
KEYS = 20


def figure(node: LocalNode, name: str) -> float:
    """The sum of a metric over its labels."""
    with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def produce(cluster: LocalCluster, topic_id: bytes, batches: int) -> None:
    """Batches of ten records, over and over of the same keys."""

    async def send() -> None:
        client = Client(cluster, topic_id)
        now = Millis(time.time_ns() // 1_000_000)
        for number in range(batches):
            records = [
                Record(Offset(index), now, b"key %d" % ((number * 10 + index) % KEYS), b"v" * 500)
                for index in range(10)
            ]
            await client.produce(build_batch(records), epoch=-1)
        await client.close()

    asyncio.run(send())


def test_logs_are_compacted_deleted_and_scrubbed_during_writes(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, nodes=1, settings=OFTEN) as cluster:
        cluster.wait_healthy()
        (node,) = cluster.nodes
        table = cluster.create_topic(
            "table",
            partitions=1,
            replicas=1,
            cleanup_policy="compact",
            segment_bytes="20000",
            segment_index_bytes="16384",
        )
        stream = cluster.create_topic(
            "stream",
            partitions=1,
            replicas=1,
            retention_bytes="60000",
            segment_bytes="20000",
            segment_index_bytes="16384",
        )
        for _ in range(4):
            produce(cluster, table, 40)
            produce(cluster, stream, 40)
        cluster.wait_until(
            lambda: figure(node, "tidelog_cleaner_rounds_total") >= 1, within_s=30, what="a log was compacted"
        )
        cluster.wait_until(
            lambda: figure(node, "tidelog_partition_size_bytes") < 300_000,
            within_s=30,
            what="both logs are small again",
        )
        cluster.wait_until(
            lambda: figure(node, "tidelog_scrub_segments_total") >= 1, within_s=30, what="a segment was read again"
        )
        cluster.wait_until(
            lambda: not any(path.suffix == ".deleted" for path in (node.data / "stream-0").iterdir()),
            within_s=30,
            what="files that are out of their logs are gone",
        )
        for name in ("tidelog_scrub_findings_total", "tidelog_directory_logs_damaged", "tidelog_cleaner_uncleanable"):
            assert figure(node, name) == 0
        produce(cluster, table, 5)
        cluster.stop()
        assert (node.data / ".kafka_cleanshutdown").exists()
        cluster.start()
        cluster.wait_healthy()
        produce(cluster, table, 5)
        assert figure(node, "tidelog_directory_logs_damaged") == 0
