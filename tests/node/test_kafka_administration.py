"""Kafka's messages of administration and their values: every offered version, and what tools stumble over."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.api.admin_requests import (
    ChangedPartitions,
    ChangedTopics,
    DescribeQuorumAnswer,
    DescribeReplicaLogsAnswer,
    ListReassignmentsAnswer,
    QuorumReplica,
    TopicPartitionId,
)
from node.api.config_requests import (
    DescribeConfigsAnswer,
    ListConfigResourcesAnswer,
    ListConfigResourcesRequest,
    SettingChange,
)
from node.api.metadata import GetMetadataAnswer, TopicMetadata
from node.listeners.kafka.exchange import KafkaApi
from node.listeners.kafka.kafka_configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
from node.listeners.kafka.kafka_log_dirs import DESCRIBE_LOG_DIRS
from node.listeners.kafka.kafka_metadata import DESCRIBE_CLUSTER, METADATA
from node.listeners.kafka.kafka_partitions import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from node.listeners.kafka.kafka_quorum import DESCRIBE_QUORUM
from node.listeners.kafka.kafka_topics import CREATE_PARTITIONS
from replication.controller.events import ChangedTopic, CreatePartitions, ElectionType, ReplicaAssignment
from tests.node.kafka_exchanges import answered, begun, exchanged, request
from tidelog.cluster_descriptions import (
    ConfigInForce,
    ConfigResource,
    ConfigSource,
    ConfigValue,
    PartitionResult,
    ReassignmentDescription,
    ReplicaLog,
    ReplicaLogDir,
    ResourceConfigs,
)
from tidelog.errors import (
    ClusterAuthorizationFailed,
    ElectionNotNeeded,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaStorageError,
    NodeNotAvailable,
    NoReassignmentInProgress,
    NotController,
    ThrottlingQuotaExceeded,
    TidelogError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tidelog.security.acls import AclOperation
from tidelog.settings import SettingType
from tidelog.types import (
    NO_NODE,
    DirectoryId,
    Endpoint,
    LeaderEpoch,
    Millis,
    NodeAddress,
    NodeId,
    Offset,
    PartitionIndex,
    TopicPartition,
)

TOPIC, NODE, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""Kafka's numbers of resources."""


def place(topic: str, partition: int) -> TopicPartitionId:
    return TopicPartitionId(topic, PartitionIndex(partition))


def assigned(*replicas: int) -> ReplicaAssignment:
    return ReplicaAssignment(tuple(map(NodeId, replicas)))


def refused(kafka: KafkaApi, version: int, message: Any, error: TidelogError) -> Any:
    """The message that answers a refused request."""
    return answered(kafka, version, begun(kafka, version, message)[0].refuse(error))


# --- partitions of topics -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", CREATE_PARTITIONS.versions)
def test_topics_get_partitions_each_with_its_own_outcome(version: int) -> None:
    """A list of assigned replicas that is empty is refused without those beside it."""
    module = request("CreatePartitions")
    topics = (
        module.CreatePartitionsTopic("a", 6, None),
        module.CreatePartitionsTopic("by-hand", 5, tuple(map(module.CreatePartitionsAssignment, ((1, 2), (2, 1))))),
        module.CreatePartitionsTopic("nowhere", 2, ()),
        module.CreatePartitionsTopic("none", -(2**31), (module.CreatePartitionsAssignment((1, 2)),)),
        module.CreatePartitionsTopic("fewer", 1, None),
        module.CreatePartitionsTopic("busy", 9, None),
    )
    message = module.CreatePartitionsRequest(topics, 1_000, validate_only=True)
    _, value = begun(CREATE_PARTITIONS, version, message)
    assert value.topics == (
        CreatePartitions("a", 6, validate_only=True),
        CreatePartitions("by-hand", 0, validate_only=True, assignments=(assigned(1, 2), assigned(2, 1)), first=3),
        CreatePartitions("none", -(2**31), validate_only=True),
        CreatePartitions("fewer", 1, validate_only=True),
        CreatePartitions("busy", 9, validate_only=True),
    )
    outcomes = ChangedTopics(
        (
            ChangedTopic("a"),
            ChangedTopic("by-hand"),
            ChangedTopic("none", InvalidPartitions("use more")),
            ChangedTopic("fewer", InvalidPartitions("use more")),
            ChangedTopic("busy", ThrottlingQuotaExceeded("wait", throttle_time_ms=70)),
        )
    )
    answer = exchanged(CREATE_PARTITIONS, version, message, outcomes)
    found = [(each.name, each.error_code) for each in answer.results]
    expected = [("a", 0), ("by-hand", 0), ("nowhere", 39), ("none", 37), ("fewer", 37), ("busy", 89)]
    assert found == expected
    assert (answer.results[4].error_message, answer.throttle_time_ms) == ("use more", 70)
    every = refused(CREATE_PARTITIONS, version, message, NotController("none"))
    assert [each.error_code for each in every.results] == [41] * 6


# --- settings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DESCRIBE_CONFIGS.versions)
def test_settings_have_their_source(version: int) -> None:
    """A default that is told as set by somebody misleads programs that compare topics."""
    module = request("DescribeConfigs")
    every, some = (module.DescribeConfigsResource(TOPIC, "a", keys) for keys in (None, ("retention.ms",)))
    node = module.DescribeConfigsResource(NODE, "0", None)
    message = module.DescribeConfigsRequest((every, node, some), include_synonyms=True)
    _, value = begun(DESCRIBE_CONFIGS, version, message)
    assert value.resources == (ConfigResource(TOPIC, "a"), ConfigResource(NODE, "0"), ConfigResource(TOPIC, "a"))
    policy = ConfigValue("log.cleanup.policy", "delete", ConfigSource.DEFAULT)
    by_topic = ConfigValue("retention.ms", "7", ConfigSource.TOPIC)
    by_node = ConfigValue("log.retention.ms", "9", ConfigSource.NODE)
    settings = (
        ConfigInForce("cleanup.policy", (policy,), SettingType.LIST),
        ConfigInForce("retention.ms", (by_topic, by_node), SettingType.LONG),
    )
    unset = ConfigInForce("metrics.listener", (ConfigValue("x", None, ConfigSource.DEFAULT),), is_read_only=True)
    described = DescribeConfigsAnswer(
        (ResourceConfigs(None, settings), ResourceConfigs(None, (unset,)), ResourceConfigs(None, settings))
    )
    first, second, third = exchanged(DESCRIBE_CONFIGS, version, message, described).results
    found = [(each.name, each.value, each.config_source, each.read_only) for each in first.configs]
    assert found == [("cleanup.policy", "delete", 5, False), ("retention.ms", "7", 1, False)]
    synonyms = [(each.name, each.value, each.source) for each in first.configs[1].synonyms]
    assert synonyms == [("retention.ms", "7", 1), ("log.retention.ms", "9", 4)]
    assert [(each.name, each.value, each.read_only) for each in second.configs] == [("metrics.listener", None, True)]
    assert [each.name for each in third.configs] == ["retention.ms"]
    if version >= 3:
        assert [each.config_type for each in (*first.configs, *second.configs)] == [7, 5, 2]
    every = refused(DESCRIBE_CONFIGS, version, message, NotController("none"))
    assert [(each.error_code, each.resource_name) for each in every.results] == [(41, "a"), (41, "0"), (41, "a")]


CHANGES = [
    pytest.param(kafka, version, id=f"{kafka.request.message.__name__}-{version}")
    for kafka in (ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)
    for version in kafka.versions
]


@pytest.mark.parametrize(("kafka", "version"), CHANGES)
def test_settings_are_changed_one_by_one_or_replaced(kafka: KafkaApi, version: int) -> None:
    is_single = kafka is INCREMENTAL_ALTER_CONFIGS
    module = request("IncrementalAlterConfigs" if is_single else "AlterConfigs")
    if is_single:
        configs = tuple(
            module.AlterableConfig(f"k{number}", number, None if number == 1 else "v") for number in range(4)
        )
    else:
        configs = (module.AlterableConfig("k0", "v"), module.AlterableConfig("k1", None))
    resources = (module.AlterConfigsResource(TOPIC, "a", configs), module.AlterConfigsResource(NODE, "0", ()))
    message = module.__dict__[kafka.request.message.__name__](resources, validate_only=True)
    _, value = begun(kafka, version, message)
    topic, node = value.resources
    assert (topic.resource, node.resource) == (ConfigResource(TOPIC, "a"), ConfigResource(NODE, "0"))
    assert (topic.name, topic.validate_only, topic.replaces_all) == ("a", True, not is_single)
    single = tuple(SettingChange(f"k{number}", None if number == 1 else "v", number) for number in range(4))
    assert topic.changes == (single if is_single else (SettingChange("k0", "v"), SettingChange("k1", None)))
    outcomes = ChangedTopics((ChangedTopic("a"), ChangedTopic("0", InvalidRequest("restart it"))))
    answer = exchanged(kafka, version, message, outcomes)
    found = [(each.error_code, each.error_message, each.resource_type, each.resource_name) for each in answer.responses]
    assert found == [(0, None, TOPIC, "a"), (42, "restart it", NODE, "0")]
    every = refused(kafka, version, message, NotController("none"))
    assert [each.error_code for each in every.responses] == [41, 41]


def test_the_first_version_lists_the_subscriptions_of_metrics_and_the_second_what_is_asked_for() -> None:
    module = request("ListConfigResources")
    _, value = begun(LIST_CONFIG_RESOURCES, 0, module.ListConfigResourcesRequest(()))
    assert value == ListConfigResourcesRequest((CLIENT_METRICS,)), "of which there are none"
    message = module.ListConfigResourcesRequest((GROUP, TOPIC))
    _, value = begun(LIST_CONFIG_RESOURCES, 1, message)
    assert value == ListConfigResourcesRequest((GROUP, TOPIC))
    named = ListConfigResourcesAnswer((ConfigResource(GROUP, "readers"), ConfigResource(TOPIC, "a")))
    answer = exchanged(LIST_CONFIG_RESOURCES, 1, message, named)
    found = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    assert (answer.error_code, found) == (0, [(GROUP, "readers"), (TOPIC, "a")])
    for error, code in ((ClusterAuthorizationFailed("no"), 31), (UnsupportedVersion("unknown type"), 35)):
        answer = refused(LIST_CONFIG_RESOURCES, 1, message, error)
        assert (answer.error_code, answer.config_resources) == (code, ())


# --- elections and reassignments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ELECT_LEADERS.versions)
def test_leaders_are_elected_for_some_partitions_or_all(version: int) -> None:
    """A partition that needs no election is an error only to a client that has named it."""
    module = request("ElectLeaders")
    kind = {"election_type": 1} if version >= 1 else {}
    topics = (module.TopicPartitions("a", (1, 0)), module.TopicPartitions("b", (0,)))
    some = module.ElectLeadersRequest(timeout_ms=1_000, topic_partitions=topics, **kind)
    _, value = begun(ELECT_LEADERS, version, some)
    assert value.type is (ElectionType.UNCLEAN if kind else ElectionType.PREFERRED)
    assert value.partitions == (place("a", 1), place("a", 0), place("b", 0))
    assert not value.validate_only

    results = (
        PartitionResult(place("a", 1)),
        PartitionResult(place("a", 0), ElectionNotNeeded("it leads")),
        PartitionResult(place("b", 0), UnknownTopicOrPartition("none")),
    )

    def codes(answer: Any) -> list[tuple[str, list[tuple[int, int]]]]:
        return [
            (topic.topic, [(each.partition_id, each.error_code) for each in topic.partition_result])
            for topic in answer.replica_election_results
        ]

    answer = exchanged(ELECT_LEADERS, version, some, ChangedPartitions(results))
    assert codes(answer) == [("a", [(1, 0), (0, 84)]), ("b", [(0, 3)])]
    assert codes(refused(ELECT_LEADERS, version, some, NotController("none"))) == [
        ("a", [(1, 41), (0, 41)]),
        ("b", [(0, 41)]),
    ]
    every = module.ElectLeadersRequest(timeout_ms=1_000, topic_partitions=None, **kind)
    assert begun(ELECT_LEADERS, version, every)[1].partitions == ()
    assert codes(exchanged(ELECT_LEADERS, version, every, ChangedPartitions(results))) == [
        ("a", [(1, 0)]),
        ("b", [(0, 3)]),
    ]
    if version >= 1:
        assert refused(ELECT_LEADERS, version, every, NotController("none")).error_code == 41


def test_an_election_of_no_partition_is_not_one_of_all() -> None:
    module = request("ElectLeaders")
    with pytest.raises(InvalidRequest, match="names no partition"):
        begun(ELECT_LEADERS, 2, module.ElectLeadersRequest(timeout_ms=1_000, election_type=1, topic_partitions=()))
    with pytest.raises(InvalidRequest, match="election type 2"):
        begun(ELECT_LEADERS, 2, module.ElectLeadersRequest(timeout_ms=1_000, election_type=2, topic_partitions=None))


@pytest.mark.parametrize("version", ALTER_PARTITION_REASSIGNMENTS.versions)
def test_replicas_are_moved_and_moves_are_cancelled(version: int) -> None:
    module = request("AlterPartitionReassignments")
    first = (module.ReassignablePartition(0, (2, 1)), module.ReassignablePartition(1, None))
    topics = (module.ReassignableTopic("a", first), module.ReassignableTopic("b", (first[0],)))
    message = module.AlterPartitionReassignmentsRequest(timeout_ms=1_000, topics=topics)
    _, value = begun(ALTER_PARTITION_REASSIGNMENTS, version, message)
    assert [(each.partition, each.replicas, each.cancel) for each in value.partitions] == [
        (place("a", 0), (2, 1), False),
        (place("a", 1), (), True),
        (place("b", 0), (2, 1), False),
    ]
    outcomes = ChangedPartitions(
        (
            PartitionResult(place("a", 0)),
            PartitionResult(place("a", 1), NoReassignmentInProgress("none")),
            PartitionResult(place("b", 0), UnknownTopicOrPartition("no topic")),
        )
    )
    answer = exchanged(ALTER_PARTITION_REASSIGNMENTS, version, message, outcomes)
    found = [
        (topic.name, [(each.partition_index, each.error_code) for each in topic.partitions])
        for topic in answer.responses
    ]
    assert (answer.error_code, found) == (0, [("a", [(0, 0), (1, 85)]), ("b", [(0, 3)])])
    whole = refused(ALTER_PARTITION_REASSIGNMENTS, version, message, NotController("none"))
    assert (whole.error_code, whole.error_message, whole.responses) == (41, "none", ())


def test_a_move_may_forbid_another_number_of_replicas() -> None:
    module = request("AlterPartitionReassignments")
    topic = module.ReassignableTopic("a", (module.ReassignablePartition(0, (2, 1)),))
    message = module.AlterPartitionReassignmentsRequest(
        timeout_ms=1_000, allow_replication_factor_change=False, topics=(topic,)
    )
    _, value = begun(ALTER_PARTITION_REASSIGNMENTS, 1, message)
    assert [(each.replicas, each.replacements) for each in value.partitions] == [((), (2, 1))]
    outcome = PartitionResult(place("a", 0), InvalidReplicationFactor("it has 3"))
    answer = exchanged(ALTER_PARTITION_REASSIGNMENTS, 1, message, ChangedPartitions((outcome,)))
    assert not answer.allow_replication_factor_change
    assert [each.error_code for each in answer.responses[0].partitions] == [38]
    assert not refused(ALTER_PARTITION_REASSIGNMENTS, 1, message, NotController("none")).allow_replication_factor_change


def test_moves_in_progress_are_listed_for_some_partitions_or_all() -> None:
    module = request("ListPartitionReassignments")
    nodes = tuple(map(NodeId, range(3)))
    moving = [
        ReassignmentDescription(place(topic, each), nodes, nodes[2:], nodes[:1], nodes[:2])
        for topic, each in (("a", 0), ("a", 1), ("b", 0))
    ]

    def listed(topics: Any) -> list[tuple[str, list[int]]]:
        message = module.ListPartitionReassignmentsRequest(timeout_ms=1_000, topics=topics)
        answer = exchanged(LIST_PARTITION_REASSIGNMENTS, 0, message, ListReassignmentsAnswer(tuple(moving)))
        for topic in answer.topics:
            for each in topic.partitions:
                assert (each.replicas, each.adding_replicas, each.removing_replicas) == ((0, 1, 2), (2,), (0,))
        return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]

    assert listed(None) == [("a", [0, 1]), ("b", [0])]
    some = (
        module.ListPartitionReassignmentsTopics("a", (1, 7)),
        module.ListPartitionReassignmentsTopics("none", (0,)),
    )
    assert listed(some) == [("a", [1])]
    whole = refused(
        LIST_PARTITION_REASSIGNMENTS,
        0,
        module.ListPartitionReassignmentsRequest(timeout_ms=1_000, topics=None),
        NotController("none"),
    )
    assert whole.error_code == 41


# --- log directories ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DESCRIBE_LOG_DIRS.versions)
def test_logs_are_described_by_directory(version: int) -> None:
    module = request("DescribeLogDirs")
    every = module.DescribeLogDirsRequest(None)
    assert begun(DESCRIBE_LOG_DIRS, version, every)[1].partitions is None
    some = module.DescribeLogDirsRequest((module.DescribableLogDirTopic("a", (0, 1)),))
    asked = {TopicPartition("a", PartitionIndex(each)) for each in (0, 1)}
    assert begun(DESCRIBE_LOG_DIRS, version, some)[1].partitions == asked
    logs = tuple(
        ReplicaLog(TopicPartition(topic, PartitionIndex(each)), 100 + each, each)
        for topic, each in (("a", 0), ("a", 1), ("b", 0))
    )
    described = DescribeReplicaLogsAnswer(
        (
            ReplicaLogDir("/one", None, logs, 1_000, 600, cordoned=True),
            ReplicaLogDir("/two", KafkaStorageError("it failed")),
        )
    )
    one, two = exchanged(DESCRIBE_LOG_DIRS, version, every, described).results
    found = [
        (topic.name, [(each.partition_index, each.partition_size, each.offset_lag) for each in topic.partitions])
        for topic in one.topics
    ]
    assert found == [("a", [(0, 100, 0), (1, 101, 1)]), ("b", [(0, 100, 0)])]
    assert [(each.log_dir, each.error_code) for each in (one, two)] == [("/one", 0), ("/two", 56)]
    if version >= 4:
        assert [(each.total_bytes, each.usable_bytes) for each in (one, two)] == [(1_000, 600), (-1, -1)]
    assert [each.is_cordoned for each in (one, two)] == [version >= 5, False]
    whole = refused(DESCRIBE_LOG_DIRS, version, every, NotController("none"))
    assert whole.results == ()
    if version >= 3:
        assert whole.error_code == 41


# --- the metadata quorum ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", DESCRIBE_QUORUM.versions)
def test_the_replicas_of_the_metadata_log_are_described(version: int) -> None:
    """Another partition is unknown: there is one quorum."""
    module = request("DescribeQuorum")
    partitions = (module.PartitionData(0), module.PartitionData(1))
    topics = (module.TopicData("__cluster_metadata", partitions), module.TopicData("orders", partitions[:1]))
    message = module.DescribeQuorumRequest(topics)
    assert not begun(DESCRIBE_QUORUM, version, message)[1].is_forwarded
    directory = DirectoryId(UUID(int=7))
    at = {"controller": Endpoint("host", 9093)}
    leader = QuorumReplica(NodeId(0), directory, Offset(20), Millis(-1), Millis(900), at)
    observer = QuorumReplica(NodeId(3), directory, Offset(15), Millis(800), Millis(-1), {})
    described = DescribeQuorumAnswer(NodeId(0), LeaderEpoch(4), Offset(18), (leader,), (observer,))
    answer = exchanged(DESCRIBE_QUORUM, version, message, described)
    (known, second), (other,) = (each.partitions for each in answer.topics)
    assert (answer.error_code, known.error_code, second.error_code, other.error_code) == (0, 0, 3, 3)
    assert (known.leader_id, known.leader_epoch, known.high_watermark) == (0, 4, 18)
    replicas = (*known.current_voters, *known.observers)
    assert [(each.replica_id, each.log_end_offset) for each in replicas] == [(0, 20), (3, 15)]
    if version >= 1:
        times = [(each.last_fetch_timestamp, each.last_caught_up_timestamp) for each in replicas]
        assert times == [(-1, 900), (800, -1)]
    if version >= 2:
        assert [each.replica_directory_id for each in replicas] == [directory] * 2
        [node] = answer.nodes
        assert (node.node_id, [(each.name, each.host, each.port) for each in node.listeners]) == (
            0,
            [("CONTROLLER", "host", 9093)],
        )
    assert refused(DESCRIBE_QUORUM, version, message, NotController("none")).error_code == 41


# --- permitted operations -----------------------------------------------------------------------------------------

NOT_ASKED = -(2**31)
"""What a client takes for "not told"; 0 is "nothing"."""


@pytest.mark.parametrize("version", range(8, 11))
def test_metadata_tell_what_the_caller_may_do_if_it_asks(version: int) -> None:
    module = request("Metadata")
    topics = tuple(
        TopicMetadata(name, bytes(16), operations=operations)
        for name, operations in (("a", (AclOperation.READ, AclOperation.DESCRIBE)), ("b", ()), ("c", None))
    )
    node = NodeAddress(NodeId(0), Endpoint("host", 9093))
    answer = GetMetadataAnswer("id", NodeId(0), (node,), topics, Offset(0), (AclOperation.ALTER,))
    for of_topics, of_cluster in ((False, True), (True, False)):
        message = module.MetadataRequest(
            None,
            include_topic_authorized_operations=of_topics,
            include_cluster_authorized_operations=of_cluster,
        )
        value = begun(METADATA, version, message)[1]
        assert (value.with_topic_operations, value.with_cluster_operations) == (of_topics, of_cluster)
    told = exchanged(METADATA, version, message, answer)
    assert [each.topic_authorized_operations for each in told.topics] == [1 << 3 | 1 << 8, 0, NOT_ASKED]
    assert told.cluster_authorized_operations == 1 << 7


@pytest.mark.parametrize("version", METADATA.versions)
def test_no_metadata_are_told_while_no_node_is_in_service(version: int) -> None:
    """By an answer with a topic and without nodes librdkafka forgets all nodes that it knows."""
    topic = TopicMetadata("orders", bytes(16), error=UnknownTopicOrPartition("orders does not exist"))
    answer = GetMetadataAnswer("", NO_NODE, (), (topic,), Offset(0))
    exchange, _ = begun(METADATA, version, request("Metadata").MetadataRequest(()))
    with pytest.raises(NodeNotAvailable, match="no node is in service") as refusal:
        exchange.encode(answer, 0)
    assert exchange.refuse(refusal.value) is None, "the connection is closed"


@pytest.mark.parametrize("version", DESCRIBE_CLUSTER.versions)
def test_a_description_of_the_cluster_tells_what_the_caller_may_do(version: int) -> None:
    module = request("DescribeCluster")
    for asks, operations, bits in ((True, (AclOperation.CREATE,), 1 << 5), (False, None, NOT_ASKED)):
        message = module.DescribeClusterRequest(include_cluster_authorized_operations=asks)
        assert begun(DESCRIBE_CLUSTER, version, message)[1].with_cluster_operations is asks
        answer = GetMetadataAnswer("id", NodeId(0), (), (), Offset(0), operations)
        assert exchanged(DESCRIBE_CLUSTER, version, message, answer).cluster_authorized_operations == bits
