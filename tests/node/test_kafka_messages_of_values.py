"""Kafka's messages and the values of requests: every offered version of each, and what clients stumble over."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.api.admin_requests import (
    ChangedTopics,
    ConfigInForce,
    ConfigSource,
    DescribeConfigsAnswer,
    TopicConfigs,
)
from node.api.metadata import GetMetadataAnswer, PartitionMetadata, SharedPartitions, TopicMetadata
from node.api.offsets import EpochAnswer, ListedOffset, ListOffsetsAnswer, OffsetForLeaderEpochAnswer
from node.api.produce import ProduceAnswer, ProducedBatch
from node.api.producers import InitProducerIdAnswer
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import Exchange, KafkaApi, head_of
from node.listeners.kafka.kafka_apis import KAFKA_APIS
from node.listeners.kafka.kafka_configs import DESCRIBE_CONFIGS
from node.listeners.kafka.kafka_fetch import FETCH
from node.listeners.kafka.kafka_metadata import METADATA
from node.listeners.kafka.kafka_offsets import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from node.listeners.kafka.kafka_produce import INIT_PRODUCER_ID, PRODUCE
from node.listeners.kafka.kafka_topics import CREATE_TOPICS, DELETE_TOPICS
from replication.controller.events import ChangedTopic
from replication.controller.image import PartitionState
from tests.node.kafka_frames import both_ways, decoded, request_frame
from tidelog.errors import (
    KAFKA_CODE_MAX,
    CorruptRecord,
    DiskFull,
    LeadershipLost,
    NodeShuttingDown,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    TidelogError,
    TooFewNodes,
    TopicExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
    all_errors,
)
from tidelog.record_exchange import AbortedStart, FetchAnswer, FetchedPartition
from tidelog.types import (
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    DirectoryId,
    Endpoint,
    EpochEnd,
    LeaderEpoch,
    Millis,
    NodeAddress,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    ProducerId,
    RecordError,
    TopicId,
)

EACH = [
    pytest.param(kafka, version, id=f"{kafka.request.message.__name__}-{version}")
    for kafka in KAFKA_APIS
    for version in kafka.versions
]


def name_of(kafka: KafkaApi) -> str:
    return kafka.request.message.__name__.removesuffix("Request")


def exchanged(kafka: KafkaApi, version: int, message: Any, answer: Any) -> Any:
    """The message of an answer to a message, after both have been bytes."""
    exchange, _ = begun(kafka, version, message)
    return answered(kafka, version, exchange.encode(answer, 0))


def begun(kafka: KafkaApi, version: int, message: Any) -> tuple[Exchange, Any]:
    frame = memoryview(request_frame(name_of(kafka), version, message, 7))[4:]
    body_at = 11 + (version >= kafka.request.flexible_from)
    exchange = Exchange(kafka, head_of(frame), body_at)
    return exchange, exchange.decode(frame)


def answered(kafka: KafkaApi, version: int, answer: Any) -> Any:
    data = b"".join(answer.pieces)
    assert len(data) == len(answer) == 4 + int.from_bytes(data[:4], "big")
    correlation_id, message = decoded(name_of(kafka), version, data[4:])
    assert correlation_id == 7
    return message


def read(kafka: KafkaApi, version: int, **fields: Any) -> Any:
    """The value of a request."""
    return begun(
        kafka, version, both_ways(f"{name_of(kafka)}Request").module.__dict__[f"{name_of(kafka)}Request"](**fields)
    )[1]


def request(name: str) -> Any:
    return both_ways(f"{name}Request").module


# --- all versions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kafka", "version"), EACH)
@settings(max_examples=20)
@given(data=st.data())
def test_any_request_is_a_value_or_refused_and_every_refusal_has_bytes(
    kafka: KafkaApi, version: int, data: st.DataObject
) -> None:
    message = data.draw(both_ways(kafka.request.message.__name__).instances(version))
    error: TidelogError = data.draw(st.sampled_from(all_errors()))("what failed, and why")
    exchange = None
    try:
        exchange, _ = begun(kafka, version, message)
    except TidelogError as refused:
        error = refused
    if exchange is not None and (refusal := exchange.refuse(error)) is not None:
        answered(kafka, version, refusal)


# --- produce ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", PRODUCE.versions)
def test_batches_are_answered_with_what_the_version_can_say(version: int) -> None:
    """The records are a view of the frame, the answer names the next leader from version 10 on (KIP-951)."""
    module = request("Produce")
    topics = tuple(
        module.TopicProduceData(
            name=name, partition_data=tuple(module.PartitionProduceData(each, b"batch") for each in (0, 1))
        )
        for name in ("a", "b")
    )
    message = module.ProduceRequest(None, -1, 30_000, topics)
    _, value = begun(PRODUCE, version, message)
    assert [(each.topic_id, each.partition, bytes(each.records)) for each in value.partitions] == [
        (name, index, b"batch") for name in ("a", "b") for index in (0, 1)
    ]
    assert isinstance(value.partitions[0].records, memoryview)
    assert (value.acks, value.timeout_ms, value.transactional_id) == (-1, 30_000, "")

    leader = NodeAddress(NodeId(2), Endpoint("host", 9094), "rack", LeaderEpoch(5))
    bad = CorruptRecord("the record is corrupt", record_errors=(RecordError(3, "why"),))
    outcomes = [
        ProducedBatch(None, Offset(7), Millis(8), Offset(1), LeaderEpoch(4)),
        ProducedBatch(
            NotLeaderOrFollower("moved", leader=leader), Offset(-1), NO_TIMESTAMP, Offset(-1), LeaderEpoch(4)
        ),
        ProducedBatch(bad, Offset(-1), NO_TIMESTAMP, Offset(1), LeaderEpoch(4)),
        ProducedBatch(UnknownTopicOrPartition("gone"), Offset(-1), NO_TIMESTAMP, Offset(-1), NO_LEADER_EPOCH),
    ]
    answer = exchanged(PRODUCE, version, message, ProduceAnswer(outcomes))
    partitions = [each for topic in answer.responses for each in topic.partition_responses]
    assert [(each.error_code, each.base_offset, each.log_append_time_ms) for each in partitions] == [
        (0, 7, 8),
        (6, -1, -1),
        (2, -1, -1),
        (3, -1, -1),
    ]
    if version >= 8:
        assert [(each.batch_index, each.batch_index_error_message) for each in partitions[2].record_errors] == [
            (3, "why")
        ]
        assert partitions[2].error_message == "the record is corrupt"
    if version >= 10:
        assert (partitions[1].current_leader.leader_id, partitions[1].current_leader.leader_epoch) == (2, 5)
        assert [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints] == [
            (2, "host", 9094, "rack")
        ]


def test_transactions_are_refused_until_the_listener_has_them() -> None:
    message = request("InitProducerId").InitProducerIdRequest("orders", 1_000)
    frame = memoryview(request_frame("InitProducerId", 4, message, 7))[4:]
    exchange = Exchange(INIT_PRODUCER_ID, head_of(frame), 12)
    with pytest.raises(TidelogError) as refused:
        exchange.decode(frame)
    answer = exchange.refuse(refused.value)
    assert answered(INIT_PRODUCER_ID, 4, answer).error_code == 35


@pytest.mark.parametrize("version", INIT_PRODUCER_ID.versions)
def test_an_idempotent_producer_gets_an_id(version: int) -> None:
    message = request("InitProducerId").InitProducerIdRequest(None, 1_000)
    answer = exchanged(INIT_PRODUCER_ID, version, message, InitProducerIdAnswer(ProducerId(12), 0))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 12, 0)


# --- fetch --------------------------------------------------------------------------------------------------------


def fetch_message(**fields: Any) -> Any:
    module = request("Fetch")
    topic = module.FetchTopic(
        topic="orders", partitions=tuple(module.FetchPartition(each, 5, 1 << 20) for each in (3, 1))
    )
    given = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "topics": (topic,)}
    return module.FetchRequest(**{**given, **fields})


@pytest.mark.parametrize("version", FETCH.versions)
def test_every_asked_partition_is_answered_in_order(version: int) -> None:
    """A full answer without one of them is dropped by Java. Errors have the watermark where it is known."""
    records = memoryview(b"batches")
    fetched = [
        FetchedPartition(
            "orders", 3, LeaderEpoch(2), Offset(9), Offset(8), Offset(4),
            aborted=(AbortedStart(ProducerId(1), Offset(6)),), records=records,
            diverging=EpochEnd(LeaderEpoch(1), Offset(3)), preferred_read_replica=2,
        ),
        FetchedPartition(
            "orders", 1, LeaderEpoch(2), Offset(9), Offset(8), Offset(7), OffsetOutOfRange("5 is below 7")
        ),
    ]  # fmt: skip
    message = fetch_message(isolation_level=1)
    exchange, _ = begun(FETCH, version, message)
    encoded = exchange.encode(FetchAnswer(fetched), 0)
    assert any(piece is records for piece in encoded.pieces), "records are not copied"
    answer = answered(FETCH, version, encoded)
    (topic,) = answer.responses
    first, second = topic.partitions
    assert (topic.topic, first.partition_index, first.error_code, bytes(first.records)) == ("orders", 3, 0, b"batches")
    assert (first.high_watermark, first.last_stable_offset) == (9, 8)
    assert [(each.producer_id, each.first_offset) for each in first.aborted_transactions] == [(1, 6)]
    assert (second.partition_index, second.error_code, second.high_watermark, second.last_stable_offset) == (1, 1, 9, 8)
    assert (answer.session_id, bytes(second.records)) == (0, b"")
    if version >= 5:
        assert second.log_start_offset == 7
    if version >= 11:
        assert (first.preferred_read_replica, second.preferred_read_replica) == (2, -1)
    if version >= 12:
        assert (first.diverging_epoch.epoch, first.diverging_epoch.end_offset) == (1, 3)


def test_answers_are_limited_as_asked_and_by_at_least_a_byte() -> None:
    """0 stands for the limit of the node inside it."""
    module = request("Fetch")
    for sent, asked in ((1_000, 1_000), (0, 1), (-1, 1)):
        topic = module.FetchTopic(topic="orders", partitions=(module.FetchPartition(0, 5, sent),))
        value = begun(FETCH, 12, fetch_message(max_bytes=sent, topics=(topic,)))[1]
        assert (value.max_bytes, value.partitions[0].max_bytes) == (asked, asked)


def test_a_session_is_not_continued_and_a_broker_is_refused() -> None:
    """Clients name all partitions in each request then (KIP-227)."""
    for fields, code in (
        ({"session_id": 4, "session_epoch": 1}, 70),
        ({"replica_id": 1}, 31),
        ({"isolation_level": 7}, 42),
    ):
        frame = memoryview(request_frame("Fetch", 12, fetch_message(**fields), 7))[4:]
        exchange = Exchange(FETCH, head_of(frame), 12)
        with pytest.raises(TidelogError) as refused:
            exchange.decode(frame)
        assert answered(FETCH, 12, exchange.refuse(refused.value)).error_code == code


def test_a_partition_that_is_asked_twice_is_answered_twice() -> None:
    module = request("Fetch")
    topic = module.FetchTopic(topic="orders", partitions=(module.FetchPartition(0, 5, 100),) * 2)
    fetched = FetchedPartition("orders", 0, LeaderEpoch(2), Offset(9), Offset(8), Offset(4))
    (answer,) = exchanged(FETCH, 12, fetch_message(topics=(topic,)), FetchAnswer([fetched])).responses
    assert [each.partition_index for each in answer.partitions] == [0, 0]


# --- offsets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LIST_OFFSETS.versions)
def test_timestamps_without_a_meaning_in_the_version_are_refused_one_by_one(version: int) -> None:
    module = request("ListOffsets")
    partitions = tuple(module.ListOffsetsPartition(number, Millis(at)) for number, at in enumerate((-1, -3, 1_000, -4)))
    message = module.ListOffsetsRequest(-1, (module.ListOffsetsTopic("orders", partitions),))
    _, value = begun(LIST_OFFSETS, version, message)
    known = [0, 1, 2] if version >= 7 else [0, 2]
    assert [each.partition for each in value.partitions] == known
    listed = tuple(ListedOffset("orders", each, None, Offset(10 + each), Millis(5), LeaderEpoch(3)) for each in known)
    (topic,) = exchanged(LIST_OFFSETS, version, message, ListOffsetsAnswer(listed)).topics
    found = {each.partition_index: (each.error_code, each.offset, each.timestamp) for each in topic.partitions}
    unknown = (35, -1, -1)
    assert found == {0: (0, 10, 5), 1: (0, 11, 5) if version >= 7 else unknown, 2: (0, 12, 5), 3: unknown}
    assert {each.leader_epoch for each in topic.partitions if not each.error_code} == {3 if version >= 4 else -1}


@pytest.mark.parametrize("version", OFFSET_FOR_LEADER_EPOCH.versions)
def test_ends_of_epochs(version: int) -> None:
    module = request("OffsetForLeaderEpoch")
    partitions = tuple(module.OffsetForLeaderPartition(each, 4, LeaderEpoch(2)) for each in (0, 1))
    message = module.OffsetForLeaderEpochRequest((module.OffsetForLeaderTopic("orders", partitions),))
    ends = (EpochAnswer("orders", 0, None, EpochEnd(LeaderEpoch(2), Offset(9))), EpochAnswer("orders", 1))
    (topic,) = exchanged(OFFSET_FOR_LEADER_EPOCH, version, message, OffsetForLeaderEpochAnswer(ends)).topics
    assert [(each.partition, each.leader_epoch, each.end_offset) for each in topic.partitions] == [
        (0, 2, 9),
        (1, -1, -1),
    ]


# --- metadata -----------------------------------------------------------------------------------------------------


def metadata_answer(leader: int, controller: int = 1) -> GetMetadataAnswer:
    replicas = (NodeId(1), NodeId(2))
    state = PartitionState(
        topic_id=TopicId(TOPIC_ID),
        partition=PartitionIndex(0),
        replicas=replicas,
        isr=replicas,
        leader=NodeId(leader),
        leader_epoch=LeaderEpoch(3),
        partition_epoch=PartitionEpoch(1),
        directories=(DirectoryId(UUID(int=1)), DirectoryId(UUID(int=2))),
        elr=(),
        last_known_elr=(),
    )
    topic = TopicMetadata("orders", TOPIC_ID.bytes, None, SharedPartitions([PartitionMetadata(state, (NodeId(2),))]))
    gone = TopicMetadata(topic_id=bytes(15) + b"\1", error=UnknownTopicId("gone"))
    nodes = tuple(NodeAddress(NodeId(each), Endpoint("host", 9000 + each)) for each in (1, 2))
    return GetMetadataAnswer("a-cluster", NodeId(controller), nodes, (topic, gone), Offset(0))


TOPIC_ID = UUID(int=77)


@pytest.mark.parametrize("version", METADATA.versions)
def test_a_partition_without_a_reachable_leader_has_an_error(version: int) -> None:
    """Without it, some clients stop at a leader -1. The epoch stays: others see it go backwards."""
    module = request("Metadata")
    topics = (module.MetadataRequestTopic(name="orders"),)
    for leader, code, shown in ((1, 0, 1), (-1, 5, -1), (7, 5, -1)):
        answer = exchanged(METADATA, version, module.MetadataRequest(topics), metadata_answer(leader))
        orders, gone = answer.topics
        (partition,) = orders.partitions
        assert (partition.error_code, partition.leader_id, partition.replica_nodes) == (code, shown, (1, 2))
        assert [(each.node_id, each.host, each.port) for each in answer.brokers] == [
            (1, "host", 9001),
            (2, "host", 9002),
        ]
        assert (gone.error_code, gone.name) == (100, None if version >= 12 else "")
        if version >= 7:
            assert partition.leader_epoch == 3
        if version >= 10:
            assert (orders.topic_id, gone.topic_id) == (TOPIC_ID, UUID(int=1))


@pytest.mark.parametrize(
    ("version", "topics", "all_topics"), [(0, (), True), (1, (), False), (1, None, True), (12, None, True)]
)
def test_all_topics_are_asked_for_in_the_way_of_the_version(version: int, topics: Any, all_topics: bool) -> None:
    assert read(METADATA, version, topics=topics).all_topics is all_topics


def test_topics_are_asked_for_by_name_and_by_id() -> None:
    module = request("Metadata")
    topics = (module.MetadataRequestTopic(name="a"), module.MetadataRequestTopic(name=None, topic_id=TOPIC_ID))
    value = read(METADATA, 12, topics=topics)
    assert (value.topics, value.topic_ids, value.all_topics) == (("a",), (TOPIC_ID.bytes,), False)


@pytest.mark.parametrize("controller", [-1, 9])
def test_there_is_always_a_controller_that_can_be_reached(controller: int) -> None:
    """Programs show -1 as a broken cluster; every node forwards what is for the controller."""
    module = request("Metadata")
    answer = exchanged(METADATA, 12, module.MetadataRequest(()), metadata_answer(1, controller))
    assert (answer.controller_id, answer.cluster_id) == (1, "a-cluster")


# --- topics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", CREATE_TOPICS.versions)
def test_topics_are_created_each_with_its_own_outcome(version: int) -> None:
    """-1 stands for the default; what is impossible is refused without those beside it."""
    module = request("CreateTopics")
    config, hand = module.CreatableTopicConfig, module.CreatableReplicaAssignment(0, (1, 2))
    topics = (
        module.CreatableTopic("a", -1, -1, (), (config("retention.ms", "-1"), config("cleanup.policy", "compact"))),
        module.CreatableTopic("by-hand", -1, -1, (hand,), ()),
        module.CreatableTopic("taken", 3, 2, (), ()),
        module.CreatableTopic("no-value", 3, 2, (), (config("retention.ms", None),)),
    )
    message = module.CreateTopicsRequest(topics, 1_000, validate_only=True)
    _, value = begun(CREATE_TOPICS, version, message)
    assert [(each.name, each.partitions, each.replication_factor, each.validate_only) for each in value.topics] == [
        ("a", 1, 1, True),
        ("taken", 3, 2, True),
    ]
    assert value.topics[0].configs == {"retention.ms": "-1", "cleanup.policy": "compact"}
    outcomes = ChangedTopics(
        (ChangedTopic("a", None, TopicId(TOPIC_ID)), ChangedTopic("taken", TopicExists("it exists")))
    )
    answer = exchanged(CREATE_TOPICS, version, message, outcomes)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("a", 0),
        ("by-hand", 39),
        ("taken", 36),
        ("no-value", 40),
    ]
    assert answer.topics[2].error_message == "it exists"
    if version >= 5:
        assert (answer.topics[0].num_partitions, answer.topics[0].replication_factor) == (1, 1)
    if version >= 7:
        assert answer.topics[0].topic_id == TOPIC_ID


@pytest.mark.parametrize("version", DELETE_TOPICS.versions)
def test_topics_are_deleted_by_name_and_later_by_id(version: int) -> None:
    module = request("DeleteTopics")
    if version >= 6:
        named = (module.DeleteTopicState("a", UUID(int=0)), module.DeleteTopicState(None, TOPIC_ID))
        message = module.DeleteTopicsRequest(1_000, named)
    else:
        message = module.DeleteTopicsRequest(1_000, topic_names=("a", "b"))
    _, value = begun(DELETE_TOPICS, version, message)
    second = ("", TOPIC_ID) if version >= 6 else ("b", None)
    assert [(each.name, each.topic_id) for each in value.topics] == [("a", None), second]
    outcomes = ChangedTopics((ChangedTopic("a"), ChangedTopic("", UnknownTopicId("gone"))))
    answer = exchanged(DELETE_TOPICS, version, message, outcomes)
    assert [each.error_code for each in answer.responses] == [0, 100]
    if version >= 6:
        assert [(each.name, each.topic_id) for each in answer.responses] == [("a", UUID(int=0)), (None, TOPIC_ID)]


@pytest.mark.parametrize("version", DESCRIBE_CONFIGS.versions)
def test_settings_have_their_source(version: int) -> None:
    """A default that is told as set by somebody misleads programs that compare topics."""
    module = request("DescribeConfigs")
    every, some = (module.DescribeConfigsResource(2, "a", keys) for keys in (None, ("retention.ms",)))
    message = module.DescribeConfigsRequest((every, module.DescribeConfigsResource(4, "0", None), some), True)  # noqa: FBT003
    _, value = begun(DESCRIBE_CONFIGS, version, message)
    assert value.topics == ("a", "a")
    settings = (
        ConfigInForce("cleanup.policy", "delete", ConfigSource.DEFAULT),
        ConfigInForce("retention.ms", "7", ConfigSource.TOPIC),
        ConfigInForce("segment.bytes", "9", ConfigSource.NODE),
    )
    described = DescribeConfigsAnswer((TopicConfigs("a", None, settings),) * 2)
    first, broker, second = exchanged(DESCRIBE_CONFIGS, version, message, described).results
    found = [(each.name, each.value, each.config_source) for each in first.configs]
    assert found == [("cleanup.policy", "delete", 5), ("retention.ms", "7", 1), ("segment.bytes", "9", 4)]
    assert [each.source for each in first.configs[1].synonyms] == [1]
    assert [each.name for each in second.configs] == ["retention.ms"]
    assert (broker.error_code, broker.resource_type, broker.resource_name) == (42, 4, "0")


# --- errors -------------------------------------------------------------------------------------------------------


def test_every_error_has_a_number_that_clients_of_kafka_know() -> None:
    assert {code_of(each("why")) for each in all_errors()} <= set(range(-1, KAFKA_CODE_MAX)) - {0}
    assert code_of(None) == 0
    likened = {TooFewNodes: 38, LeadershipLost: 6, NodeShuttingDown: 6, DiskFull: 56, CorruptRecord: 2}
    assert {each: code_of(each("why")) for each in likened} == likened
