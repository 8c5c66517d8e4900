"""Administration by programs that use Kafka, unmodified, at three real nodes: the admin clients of librdkafka, aiokafka
and kafka-python.

Kafka's own tools run in `make interop`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka.admin
import confluent_kafka
import kafka.admin
import pytest
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka import ElectionType
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from node.process.local_cluster import LocalCluster
from tests.kafka_nodes import kafka_cluster

pytestmark = pytest.mark.integration

WAIT_S = 20.0
INVALID_UPDATE_VERSION = 95


cluster = kafka_cluster()


def rdkafka(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0})


def python_admin(cluster: LocalCluster) -> Any:
    return kafka.admin.KafkaAdminClient(bootstrap_servers=cluster.kafka_bootstrap.split(","))


def partitions_of(cluster: LocalCluster, topic: str) -> dict[int, Any]:
    return dict(rdkafka(cluster).list_topics(topic, timeout=WAIT_S).topics[topic].partitions)


def topic_of(name: str, *changes: ConfigEntry) -> ConfigResource:
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=list(changes))


def change(key: str, value: str | None, operation: AlterConfigOpType = AlterConfigOpType.SET) -> ConfigEntry:
    return ConfigEntry(key, value, incremental_operation=operation)


def code_of(future: Any) -> int:
    """The error with which a request of librdkafka ends."""
    error = future.exception(WAIT_S)
    assert isinstance(error, confluent_kafka.KafkaException), error
    code: int = error.args[0].code()
    return code


# --- partitions ---------------------------------------------------------------------------------------------------


def test_every_client_adds_partitions(cluster: LocalCluster) -> None:
    cluster.create_topic("grown", 1)
    admin = rdkafka(cluster)
    admin.create_partitions([NewPartitions("grown", 2)])["grown"].result(WAIT_S)
    fewer = admin.create_partitions([NewPartitions("grown", 1)])["grown"]
    assert code_of(fewer) == confluent_kafka.KafkaError.INVALID_PARTITIONS
    python = python_admin(cluster)
    python.create_partitions({"grown": 3})
    python.close()

    async def with_aiokafka() -> None:
        aio = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=cluster.kafka_bootstrap)
        await aio.start()
        await aio.create_partitions({"grown": aiokafka.admin.NewPartitions(4)})
        await aio.close()

    asyncio.run(with_aiokafka())
    cluster.wait_until(lambda: len(partitions_of(cluster, "grown")) == 4, within_s=WAIT_S, what="all nodes know them")


def test_replicas_are_assigned_by_hand(cluster: LocalCluster) -> None:
    admin = rdkafka(cluster)
    admin.create_topics([NewTopic("by-hand", 2, replica_assignment=[[2, 0], [1, 2]])])["by-hand"].result(WAIT_S)

    def replicas() -> list[list[int]]:
        return [each.replicas for _, each in sorted(partitions_of(cluster, "by-hand").items())]

    cluster.wait_until(lambda: replicas() == [[2, 0], [1, 2]], within_s=WAIT_S, what="all nodes know them")
    refused = admin.create_topics([NewTopic("nowhere", 1, replica_assignment=[[7]])])["nowhere"]
    assert code_of(refused) == confluent_kafka.KafkaError.INVALID_REPLICA_ASSIGNMENT
    for assignments in ([[0]], [[0, 7]], [[0, 1], [1, 2]]):
        further = admin.create_partitions([NewPartitions("by-hand", 3, assignments)])["by-hand"]
        assert code_of(further) == confluent_kafka.KafkaError.INVALID_REPLICA_ASSIGNMENT
    admin.create_partitions([NewPartitions("by-hand", 4, [[1, 0], [0, 2]])])["by-hand"].result(WAIT_S)
    everywhere = [[2, 0], [1, 2], [1, 0], [0, 2]]
    cluster.wait_until(lambda: replicas() == everywhere, within_s=WAIT_S, what="all nodes know the further ones")


# --- settings -----------------------------------------------------------------------------------------------------


def test_settings_are_changed_one_by_one_and_described(cluster: LocalCluster) -> None:
    cluster.create_topic("changed", 1)
    admin = rdkafka(cluster)
    changes = [change("retention.ms", "7000"), change("cleanup.policy", "compact", AlterConfigOpType.APPEND)]
    for future in admin.incremental_alter_configs([topic_of("changed", *changes)]).values():
        future.result(WAIT_S)
    asked = ConfigResource(ResourceType.TOPIC, "changed")
    found = admin.describe_configs([asked])[asked].result(WAIT_S)
    assert found["cleanup.policy"].value == "delete,compact"
    assert found["retention.ms"].value == "7000"
    assert ConfigSource(found["retention.ms"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert not found["retention.ms"].is_read_only
    synonyms = found["retention.ms"].synonyms
    assert [(each.name, each.value) for each in synonyms.values()] == [
        ("retention.ms", "7000"),
        ("log.retention.ms", "604800000"),
    ]
    taken = change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    for future in admin.incremental_alter_configs(
        [topic_of("changed", taken, change("retention.ms", None, AlterConfigOpType.DELETE))]
    ).values():
        future.result(WAIT_S)
    found = admin.describe_configs([asked])[asked].result(WAIT_S)
    assert (found["cleanup.policy"].value, found["retention.ms"].is_default) == ("compact", True)
    unknown = list(admin.incremental_alter_configs([topic_of("changed", change("no.such", "1"))]).values())
    assert code_of(unknown[0]) == confluent_kafka.KafkaError.INVALID_CONFIG
    missing = list(admin.incremental_alter_configs([topic_of("none", change("retention.ms", "1"))]).values())
    assert code_of(missing[0]) == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_settings_are_replaced_by_the_older_request(cluster: LocalCluster) -> None:
    cluster.create_topic("replaced", 1, retention_ms="1000")
    asked = ConfigResource(ResourceType.TOPIC, "replaced", set_config={"segment.bytes": "1000000"})
    admin = rdkafka(cluster)
    for future in admin.alter_configs([asked]).values():
        future.result(WAIT_S)

    async def with_aiokafka() -> dict[str, Any]:
        aio = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=cluster.kafka_bootstrap)
        await aio.start()
        resource = AioResource(AioResourceType.TOPIC, "replaced", configs={"retention.ms": "3000"})
        [answer] = await aio.alter_configs([resource])
        assert [each[0] for each in answer.resources] == [0]
        found: dict[str, Any] = {}
        async with asyncio.timeout(WAIT_S):
            while found.get("retention.ms") != ("3000", 1):  # the node that is asked may not have applied it yet
                [described] = await aio.describe_configs([AioResource(AioResourceType.TOPIC, "replaced")])
                [(code, _, _, _, entries)] = described.resources
                assert code == 0
                found = {entry[0]: (entry[1], entry[3]) for entry in entries}
        await aio.close()
        return found

    found = asyncio.run(with_aiokafka())
    assert found["segment.bytes"] == ("1073741824", 5), "it is reset: the request does not name it"


def test_a_node_describes_its_settings_and_refuses_their_change(cluster: LocalCluster) -> None:
    admin, asked = rdkafka(cluster), ConfigResource(ResourceType.BROKER, "1")
    found = admin.describe_configs([asked])[asked].result(WAIT_S)
    assert (found["node.id"].value, found["node.id"].is_read_only) == ("1", True)
    assert (found["auto.create.topics.enable"].value, found["log.retention.ms"].is_default) == ("false", True)
    refused = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[change("log.retention.ms", "1")])
    [future] = admin.incremental_alter_configs([refused]).values()
    assert code_of(future) == confluent_kafka.KafkaError.INVALID_REQUEST


def test_kafka_python_changes_and_resets_settings(cluster: LocalCluster) -> None:
    """It asks for what may be changed before it changes anything."""
    cluster.create_topic("python", 1)
    admin = python_admin(cluster)

    def modified() -> dict[str, str]:
        described = admin.describe_configs([kafka.admin.ConfigResource("topic", "python")])
        return {key: each["value"] for key, each in described["topic"]["python"].items()}

    admin.alter_configs([kafka.admin.ConfigResource("topic", "python", {"retention.ms": "5000"})])
    assert modified() == {"retention.ms": "5000"}
    admin.reset_configs([kafka.admin.ConfigResource("topic", "python", ["retention.ms"])])
    assert modified() == {}
    admin.close()


def test_callers_learn_what_they_may_do(cluster: LocalCluster) -> None:
    """There is no authorizer: everything."""
    cluster.create_topic("permitted", 1)
    admin = rdkafka(cluster)
    described = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert described.cluster_id == cluster.describe(0).cluster_id
    assert {AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE} <= set(described.authorized_operations)
    topics = confluent_kafka.TopicCollection(["permitted"])
    topic = admin.describe_topics(topics, include_authorized_operations=True)["permitted"].result(WAIT_S)
    assert {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE} <= set(topic.authorized_operations)


def test_groups_have_settings_of_their_own(cluster: LocalCluster) -> None:
    """Set before there is such a group, and shown as set by somebody until they are reset."""
    admin, python = rdkafka(cluster), python_admin(cluster)
    asked, key = ConfigResource(ResourceType.GROUP, "slow"), "consumer.session.timeout.ms"

    def must_show(value: str, source: ConfigSource) -> None:
        """Wait for it: the node that is asked may not have applied the change yet."""

        def is_shown() -> bool:
            entry = admin.describe_configs([asked])[asked].result(WAIT_S)[key]
            return (entry.value, entry.source) == (value, source.value)

        cluster.wait_until(is_shown, within_s=WAIT_S, what=f"{key} is {value}")

    def altered(entry: ConfigEntry) -> Any:
        [future] = admin.incremental_alter_configs(
            [ConfigResource(ResourceType.GROUP, "slow", incremental_configs=[entry])]
        ).values()
        return future

    must_show("45000", ConfigSource.DEFAULT_CONFIG)
    assert altered(change(key, "60000")).result(WAIT_S) is None
    must_show("60000", ConfigSource.GROUP_CONFIG)
    assert code_of(altered(change(key, "60001"))) == confluent_kafka.KafkaError.INVALID_CONFIG
    listed = {"group": ["slow"]}
    cluster.wait_until(
        lambda: python.list_config_resources(["GROUP"]) == listed, within_s=WAIT_S, what="the group is listed"
    )
    python.close()
    altered(change(key, None, AlterConfigOpType.DELETE)).result(WAIT_S)
    must_show("45000", ConfigSource.DEFAULT_CONFIG)


def test_the_version_of_transactions_is_raised_and_never_lowered(cluster: LocalCluster) -> None:
    admin = python_admin(cluster)
    assert admin.update_features({"transaction.version": 2}) == {"transaction.version": "OK"}
    for update in ({"transaction.version": ("SAFE_DOWNGRADE", 1)}, {"metadata.version": 27}):
        with pytest.raises(kafka.errors.BrokerResponseError) as refused:
            admin.update_features(update)
        assert refused.value.errno == INVALID_UPDATE_VERSION
    admin.close()


# --- replicas -----------------------------------------------------------------------------------------------------


def test_log_directories_show_what_is_in_them(cluster: LocalCluster) -> None:
    cluster.create_topic("sized", 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.kafka_bootstrap, "acks": "all"})
    producer.produce("sized", b"x" * 5_000, partition=1)
    assert producer.flush(WAIT_S) == 0
    admin = python_admin(cluster)
    described = admin.describe_log_dirs({"sized": [0, 1]})
    admin.close()
    assert [each["broker"] for each in described] == [0, 1, 2]
    for node in described:
        [directory] = node["log_dirs"]
        assert directory["error_code"] == 0
        assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
        [topic] = directory["topics"]
        sizes = {each["partition_index"]: each["partition_size"] for each in topic["partitions"]}
        assert sizes[0] == 0
        assert 5_000 < sizes[1] < 6_000
        assert not any(each["is_future_key"] for each in topic["partitions"])


def test_a_log_directory_is_cordoned_as_a_setting_of_its_broker(cluster: LocalCluster) -> None:
    """librdkafka sends the change to that node; kafka-python shows it. The node has one directory, so that topics with
    a replica on each node are refused."""
    admin, node = rdkafka(cluster), ConfigResource(ResourceType.BROKER, "1")

    def set_to(*changes: ConfigEntry) -> None:
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=list(changes))
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)

    def shown() -> tuple[list[bool], str]:
        reader = python_admin(cluster)
        described = reader.describe_log_dirs()
        reader.close()
        found = admin.describe_configs([node])[node].result(WAIT_S)["cordoned.log.dirs"]
        assert not found.is_read_only
        return [each["log_dirs"][0]["is_cordoned"] for each in described], found.value

    assert shown() == ([False, False, False], "")
    path = admin.describe_configs([node])[node].result(WAIT_S)["log.dirs"].value
    set_to(change("cordoned.log.dirs", path))
    assert shown() == ([False, True, False], path)
    [refused] = admin.create_topics([NewTopic("everywhere", 1, 3)]).values()
    assert code_of(refused) == confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR
    set_to(change("cordoned.log.dirs", None, AlterConfigOpType.DELETE))
    assert shown() == ([False, False, False], "")


def test_replicas_are_moved_and_leaders_elected(cluster: LocalCluster) -> None:
    cluster.create_topic("moved", 1)
    partition = kafka.TopicPartition("moved", 0)
    before = partitions_of(cluster, "moved")[0]
    target = before.replicas[::-1]

    def leader() -> int:
        return partitions_of(cluster, "moved")[0].leader  # type: ignore[no-any-return]

    def replicas() -> list[int]:
        return partitions_of(cluster, "moved")[0].replicas  # type: ignore[no-any-return]

    admin = python_admin(cluster)
    unknown = kafka.TopicPartition("none", 0)
    outcome = admin.alter_partition_reassignments({partition: target, unknown: [0]})
    assert outcome[partition] is None
    assert outcome[unknown] is kafka.errors.UnknownTopicOrPartitionError
    assert admin.list_partition_reassignments() == {}, "the same replicas in another order: nothing is copied"
    assert (
        admin.alter_partition_reassignments({partition: None})[partition] is kafka.errors.NoReassignmentInProgressError
    )
    assert admin.elect_leaders(0, {"moved": [0]}, raise_errors=False).error_code == 0
    cluster.wait_until(lambda: leader() == target[0], within_s=WAIT_S, what="the preferred leader leads")
    assert replicas() == target
    not_needed = admin.elect_leaders(0, {"moved": [0]}, raise_errors=False)
    [topic] = not_needed.replica_election_results
    assert [each.error_code for each in topic.partition_result] == [84]
    librdkafka = rdkafka(cluster)
    assert librdkafka.elect_leaders(ElectionType.PREFERRED).result(WAIT_S) == {}, "of all that need one: none"
    outcome = admin.alter_partition_reassignments({partition: target[:1]})
    assert outcome[partition] is None
    cluster.wait_until(lambda: replicas() == target[:1], within_s=WAIT_S, what="the move ends")
    admin.close()
