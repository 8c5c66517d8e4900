"""Apache Kafka's own clients, in Java, at real nodes: its tools make a topic, write, read as a group, look at it, and
administrate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from node.process.local_cluster import LocalCluster
from replication.controller.features import LATEST
from tests.interop.kafka_tools import run
from tests.kafka_nodes import kafka_cluster

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
RECORDS = 500


cluster = kafka_cluster()


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


def configs(cluster: LocalCluster, *arguments: str) -> str:
    """ConfigCommand, which is not among the other tools."""
    printed, _ = run(
        "kafka.admin.ConfigCommand", "--bootstrap-server", cluster.kafka_bootstrap, *arguments, is_silent=True
    )
    return printed


def made(cluster: LocalCluster, topic: str, partitions: int = 1) -> str:
    """A topic whose replicas are all in sync. Returns its name."""
    cluster.create_topic(topic, partitions)
    return topic


def test_partitions_and_settings_are_changed(cluster: LocalCluster) -> None:
    """Each of the ten commands starts a Java virtual machine."""
    topic = made(cluster, "changed")
    tool(cluster, "TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tool(cluster, "TopicCommand", "--describe", "--topic", topic)
    by_hand = ("--partitions", "4", "--replica-assignment", "0:1:2,0:1:2,0:1:2,2:0:1")  # the first three are skipped
    tool(cluster, "TopicCommand", "--alter", "--topic", topic, *by_hand)
    assert "Partition: 3\tLeader: 2\tReplicas: 2,0,1" in tool(cluster, "TopicCommand", "--describe", "--topic", topic)

    entity = ("--entity-type", "topics", "--entity-name", topic)
    change = ("--alter", "--add-config", "retention.ms=7000,cleanup.policy=[compact,delete]")
    assert f"Completed updating config for topic {topic}." in configs(cluster, *entity, *change)
    shown = configs(cluster, *entity, "--describe")
    assert (
        "retention.ms=7000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7000, "
        "DEFAULT_CONFIG:log.retention.ms=604800000}" in shown
    )
    assert "segment.bytes" not in shown, "what is a default is shown by --all only"
    assert "segment.bytes=1073741824" in configs(cluster, *entity, "--describe", "--all")
    configs(cluster, *entity, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in configs(cluster, *entity, "--describe")

    node = ("--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    shown = configs(cluster, *node)
    assert "node.id=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:node.id=1, DEFAULT_CONFIG:node.id=" in shown
    assert "auto.create.topics.enable=false" in shown


def test_groups_have_settings_of_their_own(cluster: LocalCluster) -> None:
    entity = ("--entity-type", "groups", "--entity-name", "slow")
    change = ("--alter", "--add-config", "consumer.session.timeout.ms=60000,consumer.heartbeat.interval.ms=7000")
    assert "Completed updating config for group slow." in configs(cluster, *entity, *change)
    shown = configs(cluster, *entity, "--describe")
    assert "consumer.session.timeout.ms=60000 sensitive=false synonyms={DYNAMIC_GROUP_CONFIG:" in shown
    assert "consumer.heartbeat.interval.ms=7000" in shown
    every = configs(cluster, "--entity-type", "groups", "--describe")
    assert "slow" in every, "groups that do not exist are listed by their settings (ListConfigResources)"
    configs(
        cluster, *entity, "--alter", "--delete-config", "consumer.session.timeout.ms,consumer.heartbeat.interval.ms"
    )
    assert "60000" not in configs(cluster, *entity, "--describe")


def test_features_are_described(cluster: LocalCluster) -> None:
    """Clients look at this one before they use version 2 of transactions."""
    shown = tool(cluster, "FeatureCommand", "describe").split()
    names = shown[::2]
    assert dict(zip(names, shown[1::2], strict=True)) == {
        "Feature:": "transaction.version",
        "SupportedMinVersion:": "0",
        "SupportedMaxVersion:": "2",
        "FinalizedVersionLevel:": "2",
        "Epoch:": str(LATEST),
    }


def test_features_are_upgraded_and_not_downgraded(cluster: LocalCluster) -> None:
    named = ("--feature", "transaction.version=2")
    assert "transaction.version was upgraded to 2." in tool(cluster, "FeatureCommand", "upgrade", *named)
    assert "transaction.version can be upgraded to 2." in tool(
        cluster, "FeatureCommand", "upgrade", *named, "--dry-run"
    )
    with pytest.raises(AssertionError, match=r"Could not downgrade transaction\.version to 1\. .*nothing lowers"):
        tool(cluster, "FeatureCommand", "downgrade", "--feature", "transaction.version=1")
    with pytest.raises(AssertionError, match=r"Could not disable transaction\.version\. .*nothing lowers"):
        tool(cluster, "FeatureCommand", "disable", "--feature", "transaction.version")


def test_a_node_that_runs_is_not_unregistered(cluster: LocalCluster) -> None:
    """Kafka's tool says what the node refuses; tests/node/test_kafka_nodes.py removes one that is gone."""
    with pytest.raises(AssertionError, match="node 2 is alive and would register again"):
        unregister(cluster, 2)
    with pytest.raises(AssertionError, match="there is no node 7"):
        unregister(cluster, 7)


def unregister(cluster: LocalCluster, node: int) -> None:
    """ClusterTool, which takes the nodes after the command."""
    where = ("--bootstrap-server", cluster.kafka_bootstrap)
    run(f"{TOOLS}.ClusterTool", "unregister", *where, "--id", str(node), is_silent=True)


def test_log_directories_are_described(cluster: LocalCluster) -> None:
    topic = made(cluster, "sized")
    printed = tool(cluster, "LogDirsCommand", "--describe", "--topic-list", topic)
    described: dict[str, Any] = json.loads(printed.splitlines()[-1])
    assert [each["broker"] for each in described["brokers"]] == [0, 1, 2]
    for node in described["brokers"]:
        [directory] = node["logDirs"]
        assert directory["error"] is None
        assert directory["partitions"] == [{"partition": f"{topic}-0", "size": 0, "offsetLag": 0, "isFuture": False}]


def test_replicas_are_moved_and_leaders_elected(cluster: LocalCluster, tmp_path: Path) -> None:
    """The preferred leader changes with the order of the replicas."""
    topic, replicas = "moved", [2, 1, 0]
    tool(cluster, "TopicCommand", "--create", "--topic", topic, "--replica-assignment", "0:1:2")
    cluster.wait_healthy(60)
    plan = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0}
    plan.write_text(json.dumps({"version": 1, "partitions": [{**partition, "replicas": replicas}]}))
    command = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
    fewer = tmp_path / "fewer.json"
    fewer.write_text(json.dumps({"version": 1, "partitions": [{**partition, "replicas": [2, 1]}]}))
    with pytest.raises(AssertionError, match="moved-0 has 3 replicas and cannot get 2"):
        tool(
            cluster,
            *(command[0], "--reassignment-json-file", str(fewer), "--execute", "--disallow-replication-factor-change"),
        )
    assert "Successfully started partition reassignment" in tool(cluster, *command, "--execute")
    assert "is completed." in tool(cluster, *command, "--verify")
    assert "No partition reassignments found." in tool(cluster, "reassign.ReassignPartitionsCommand", "--list")

    election = ("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in tool(cluster, *election)
    assert "Valid replica already elected" in tool(cluster, *election)
    shown = tool(cluster, "TopicCommand", "--describe", "--topic", topic)
    assert f"Leader: {replicas[0]}\tReplicas: {','.join(map(str, replicas))}" in shown


def test_records_are_deleted(cluster: LocalCluster, tmp_path: Path) -> None:
    """By kafka-delete-records; the console consumer begins behind them."""
    topic = made(cluster, "shortened")
    written = tool(cluster, "VerifiableProducer", "--topic", topic, "--max-messages", "10", "--acks", "-1")
    assert '"acked":10' in written
    asked = tmp_path / "offsets.json"
    places = [{"topic": topic, "partition": 0, "offset": 4}]
    asked.write_text(json.dumps({"partitions": places, "version": 1}), encoding="utf-8")
    answer = tool(cluster, "DeleteRecordsCommand", "--offset-json-file", str(asked))
    assert f"partition: {topic}-0\tlow_watermark: 4" in answer
    bounds = ("--max-messages", "6", "--timeout-ms", "30000", "--from-beginning")
    read = tool(cluster, "consumer.ConsoleConsumer", "--topic", topic, *bounds)
    assert read.split() == [str(number) for number in range(4, 10)]
    assert f"{topic}:0:4" in tool(cluster, "GetOffsetShell", "--topic", topic, "--time", "earliest")


def test_the_cluster_is_described(cluster: LocalCluster) -> None:
    printed, _ = run(f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", cluster.kafka_bootstrap)
    assert f"Cluster ID: {cluster.describe(0).cluster_id}" in printed
    shown = tool(cluster, "BrokerApiVersionsCommand")
    assert shown.count("IncrementalAlterConfigs(44): 0 to 1 [usable: 1]") == 3


def test_the_metadata_quorum_is_described(cluster: LocalCluster) -> None:
    described = (
        "org.apache.kafka.tools.MetadataQuorumCommand",
        "--bootstrap-server",
        cluster.kafka_bootstrap,
        "describe",
    )
    status, _ = run(*described, "--status", is_silent=True)
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert fields["ClusterId"].strip() == cluster.describe(0).cluster_id
    assert int(fields["LeaderId"]) in range(3)
    assert int(fields["HighWatermark"]) > 0
    assert fields["CurrentVoters"].count('"id"') == 3
    rows = run(*described, "--replication", is_silent=True)[0].splitlines()[1:]
    assert sorted(row.split()[-1] for row in rows if row) == ["Follower", "Follower", "Leader"]
