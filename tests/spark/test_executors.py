"""Executors that are real processes: they find what they need, and their ends and second attempts lose and repeat no
record, neither of a batch nor of a stream from topic to topic, while nodes and drivers die too."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from replication.coordination.partitioning import partition_of
from tests.spark.sink_runs import committed
from tests.spark.spark_processes import ExecutorJobRun, standalone_cluster
from tests.spark.stream_runs import consumed, produce

pytestmark = [pytest.mark.spark, pytest.mark.integration]

RECORDS = 3_000
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"broker.session.timeout.ms": 2000}
    with LocalCluster(tmp_path_factory.mktemp("executors"), settings=settings) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("numbers", PARTITIONS, min_insync_replicas="2")
        produce(cluster, "numbers", map(str, range(RECORDS)), partitions=PARTITIONS)
        yield cluster


def leader_of(cluster: LocalCluster, topic: str, partition: int) -> int:
    running = next(node.node_id for node in cluster.nodes if node.running)
    return int(cluster.metadata(running, topic).topics[0].partitions[partition].leader)


def coordinator_of_the_sink(cluster: LocalCluster, checkpoint: Path) -> int:
    """The node that keeps which batches the query's sink has written."""
    query = json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"]
    running = next(node.node_id for node in cluster.nodes if node.running)
    (topic,) = cluster.metadata(running, "__consumer_offsets").topics
    index = partition_of(f"spark-sink-{query}-driver", len(topic.partitions))
    return int(topic.partitions[index].leader)


def replace_node(cluster: LocalCluster, node: int) -> None:
    cluster.kill(node)
    cluster.start_node(node)
    cluster.wait_healthy(120)


def everything_once(cluster: LocalCluster, topic: str) -> None:
    found = committed(cluster, topic)
    assert found == Counter(map(str, range(RECORDS)))


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_a_batch_outlives_its_executor_and_a_leader(cluster: LocalCluster, tmp_path: Path) -> None:
    """The executor ends when its task has read a part of its records; then the leader of a partition."""
    cluster.create_topic("copy", PARTITIONS, min_insync_replicas="2")
    with ExecutorJobRun(cluster, tmp_path, "rows", "--trouble", "700=kill", source="numbers", sink="copy") as run:
        run.wait_for("700.first")
        replace_node(cluster, leader_of(cluster, "numbers", 0))
        rows = run.result()
    partitions = [("numbers", index) for index in range(PARTITIONS)]
    plain = consumed(cluster, *partitions)
    assert rows == [[topic, index, offset, (value or b"").decode()] for topic, index, offset, value in plain]
    everything_once(cluster, "copy")


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_a_stream_outlives_executors_a_leader_its_coordinator_and_its_driver(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """In this order: an executor, the leader of a partition that is read, the driver in the middle of a batch; after
    its restart from the checkpoint another executor, and the coordinator of the sink's progress."""
    cluster.create_topic("streamed", 2, min_insync_replicas="2")
    options = {"source": "numbers", "sink": "streamed"}
    trouble = ("--trouble", "700=kill", "1700=stuck", "2100=kill")
    with ExecutorJobRun(cluster, tmp_path, "stream", *trouble, **options) as run:
        run.wait_for("700.first")
        replace_node(cluster, leader_of(cluster, "numbers", 1))
        run.wait_for("1700.first", batches=3)
        run.kill()
    with ExecutorJobRun(cluster, tmp_path, "stream", *trouble, **options) as run:
        run.wait_for("2100.first")
        replace_node(cluster, coordinator_of_the_sink(cluster, tmp_path / "checkpoint"))
        run.result()
    assert run.batches >= RECORDS // 500
    everything_once(cluster, "streamed")


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_speculative_attempts_write_no_record_twice(cluster: LocalCluster, tmp_path: Path) -> None:
    """A task that hangs is overtaken by its second attempt; of another one both attempts come to their end together."""
    cluster.create_topic("speculated", 2, min_insync_replicas="2")
    with (
        standalone_cluster(tmp_path) as master,
        ExecutorJobRun(
            cluster,
            tmp_path,
            "stream",
            *("--speculation", "--trouble", "250=stuck", "1250=race", "2250=race"),
            master=master,
            source="numbers",
            sink="speculated",
        ) as run,
    ):
        for value in (1250, 2250):
            os.mkfifo(run.notes / f"{value}.pipe")
        run.result()
    assert {"250.second", "1250.second", "2250.second"} <= {each.name for each in run.notes.iterdir()}
    everything_once(cluster, "speculated")
