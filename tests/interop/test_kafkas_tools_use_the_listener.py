"""Apache Kafka's own clients, in Java, at real nodes: its tools make a topic, write, read as a group, look at it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from node.process.local_cluster import LocalCluster
from tests.interop.kafka_tools import run

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
RECORDS = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), kafka=True) as started:
        started.wait_healthy(60)
        yield started


def tool(cluster: LocalCluster, name: str, *arguments: str) -> str:
    printed, _ = run(f"{TOOLS}.{name}", "--bootstrap-server", cluster.kafka_bootstrap, *arguments, is_silent=True)
    return printed


def test_a_topic_is_made_written_and_read(cluster: LocalCluster) -> None:
    """By an idempotent producer with acks=all, and by a member of a classic group that commits where it ends."""
    made = ("--create", "--topic", "orders", "--partitions", "3", "--replication-factor", "3")
    assert "Created topic orders." in tool(cluster, "TopicCommand", *made, "--config", "retention.ms=900000")
    shown = tool(cluster, "TopicCommand", "--describe", "--topic", "orders")
    assert "PartitionCount: 3" in shown
    assert "ReplicationFactor: 3" in shown
    assert "Configs: retention.ms=900000" in shown  # what is a default is not shown
    assert tool(cluster, "TopicCommand", "--list").split() == ["orders"]

    written = tool(cluster, "VerifiableProducer", "--topic", "orders", "--max-messages", str(RECORDS), "--acks", "-1")
    events = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
    assert [each["acked"] for each in events if each["name"] == "tool_data"] == [RECORDS]
    ends = dict(line.rsplit(":", 1) for line in tool(cluster, "GetOffsetShell", "--topic", "orders").split())
    assert sum(map(int, ends.values())) == RECORDS

    for count in (RECORDS - 100, 100):  # the second one goes on where the first one has ended
        bounds = ("--group", "readers", "--max-messages", str(count), "--timeout-ms", "30000")
        start = ("--consumer-property", "auto.offset.reset=earliest")
        read = tool(cluster, "consumer.ConsoleConsumer", "--topic", "orders", *bounds, *start)
        assert len(read.split()) == count
    tool(cluster, "TopicCommand", "--delete", "--topic", "orders")
    assert tool(cluster, "TopicCommand", "--list").split() == ["__consumer_offsets"]
