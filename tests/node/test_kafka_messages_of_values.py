"""Kafka's messages and the values of requests: every offered version of each, and what clients stumble over."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.api.admin_requests import ChangedTopics
from node.api.deletions import DeletedRecords, DeleteRecordsAnswer
from node.api.fetch import SessionFetch
from node.api.metadata import GetMetadataAnswer, PartitionMetadata, SharedPartitions, TopicMetadata
from node.api.offsets import EpochAnswer, ListedOffset, ListOffsetsAnswer, OffsetForLeaderEpochAnswer
from node.api.produce import ProduceAnswer, ProducedBatch
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import Exchange, KafkaApi, head_of
from node.listeners.kafka.kafka_apis import KAFKA_APIS
from node.listeners.kafka.kafka_deletions import DELETE_RECORDS
from node.listeners.kafka.kafka_fetch import FETCH
from node.listeners.kafka.kafka_group_offsets import OFFSET_COMMIT
from node.listeners.kafka.kafka_groups import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from node.listeners.kafka.kafka_metadata import METADATA
from node.listeners.kafka.kafka_offsets import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from node.listeners.kafka.kafka_produce import PRODUCE
from node.listeners.kafka.kafka_topics import CREATE_TOPICS, DELETE_TOPICS
from replication.controller.events import ChangedTopic
from replication.controller.image import PartitionState
from replication.coordination import classic_requests as classic
from replication.coordination.group_requests import (
    CommittedPartition,
    CommittedPartitions,
    FindCoordinatorAnswer,
    FoundCoordinator,
)
from tests.node.kafka_exchanges import answered, begun, exchanged, read, request
from tests.node.kafka_frames import both_ways, request_frame
from tests.protocol.kafka_messages import ROOT
from tidelog.errors import (
    KAFKA_CODE_MAX,
    CoordinatorNotAvailable,
    CorruptRecord,
    DiskFull,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InconsistentTopicId,
    InvalidFetchSessionEpoch,
    LeadershipLost,
    MemberIdRequired,
    NodeShuttingDown,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RequestTimedOut,
    ThrottlingQuotaExceeded,
    TidelogError,
    TooFewNodes,
    TopicExists,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    all_errors,
)
from tidelog.protocol.kafka.schemas.generate import versions_of
from tidelog.record_exchange import AbortedStart, FetchAnswer, FetchedPartition, TopicReference
from tidelog.types import (
    EARLIEST_LOCAL,
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

SCHEMAS = ROOT / "tidelog/protocol/kafka/schemas"
EACH = [
    pytest.param(kafka, version, id=f"{kafka.request.message.__name__}-{version}")
    for kafka in KAFKA_APIS
    for version in kafka.versions
]


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


def test_no_version_is_offered_that_brokers_of_kafka_do_not_offer() -> None:
    """The last version of some requests may still change, as OffsetCommit 10 and OffsetFetch 10 of Kafka 4.1."""
    for kafka in KAFKA_APIS:
        text = (SCHEMAS / f"{kafka.request.message.__name__}.json").read_text(encoding="utf-8")
        schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
        last = versions_of(schema["validVersions"])[-1]
        assert kafka.versions[-1] <= last - schema.get("latestVersionUnstable", False), schema["name"]


# --- produce ------------------------------------------------------------------------------------------------------


def id_of(name: str) -> UUID:
    return UUID(int=int.from_bytes(name.encode(), "big"))


def named(field: str, name: str, version: int) -> dict[str, Any]:
    """How a produce or fetch request names a topic: by its name, or from version 13 on by its id."""
    return {field: name} if version < 13 else {"topic_id": id_of(name)}


def reference(name: str, version: int) -> TopicReference:
    return name if version < 13 else id_of(name).bytes


@pytest.mark.parametrize("version", PRODUCE.versions)
def test_batches_are_answered_with_what_the_version_can_say(version: int) -> None:
    """The records are a view of the frame, the answer names the next leader from version 10 on (KIP-951). From version
    13 on topics have ids (KIP-516)."""
    module = request("Produce")
    topics = tuple(
        module.TopicProduceData(
            **named("name", name, version),
            partition_data=tuple(module.PartitionProduceData(each, b"batch") for each in (0, 1)),
        )
        for name in ("a", "b")
    )
    message = module.ProduceRequest(None, -1, 30_000, topics)
    _, value = begun(PRODUCE, version, message)
    assert [(each.topic_id, each.partition, bytes(each.records)) for each in value.partitions] == [
        (reference(name, version), index, b"batch") for name in ("a", "b") for index in (0, 1)
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
    assert [(each.name, each.topic_id) for each in answer.responses] == [(each.name, each.topic_id) for each in topics]
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


# --- fetch --------------------------------------------------------------------------------------------------------


def fetch_message(version: int = 12, **fields: Any) -> Any:
    module = request("Fetch")
    topic = module.FetchTopic(
        **named("topic", "orders", version),
        partitions=tuple(module.FetchPartition(each, 5, 1 << 20) for each in (3, 1)),
    )
    given = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "topics": (topic,)}
    return module.FetchRequest(**{**given, **fields})


@pytest.mark.parametrize("version", FETCH.versions)
def test_every_asked_partition_is_answered_in_order(version: int) -> None:
    """A full answer without one of them is dropped by Java. Errors have the watermark where it is known."""
    records = memoryview(b"batches" * 1_000)  # a small answer leaves in one piece
    orders = reference("orders", version)
    fetched = [
        FetchedPartition(
            orders, 3, LeaderEpoch(2), Offset(9), Offset(8), Offset(4),
            aborted=(AbortedStart(ProducerId(1), Offset(6)),), records=records,
            diverging=EpochEnd(LeaderEpoch(1), Offset(3)), preferred_read_replica=2,
        ),
        FetchedPartition(orders, 1, LeaderEpoch(2), Offset(9), Offset(8), Offset(7), OffsetOutOfRange("5 is below 7")),
    ]  # fmt: skip
    message = fetch_message(version, isolation_level=1)
    exchange, _ = begun(FETCH, version, message)
    encoded = exchange.encode(FetchAnswer(fetched), 0)
    assert any(piece is records for piece in encoded.pieces), "records are not copied"
    answer = answered(FETCH, version, encoded)
    (topic,) = answer.responses
    first, second = topic.partitions
    assert (topic.topic, topic.topic_id) == (message.topics[0].topic, message.topics[0].topic_id)
    assert (first.partition_index, first.error_code, bytes(first.records)) == (3, 0, bytes(records))
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


@pytest.mark.parametrize("version", FETCH.versions)
def test_a_consumer_learns_from_a_former_leader_which_node_leads(version: int) -> None:
    """Its address too, from version 16 on (KIP-951): the client needs no metadata before it continues there."""
    leader = NodeAddress(NodeId(2), Endpoint("host", 9094), "rack", LeaderEpoch(5))
    fetched = [
        FetchedPartition(
            reference("orders", version), index, LeaderEpoch(4), Offset(-1), Offset(-1), Offset(-1),
            NotLeaderOrFollower("moved", leader=leader),
        )
        for index in (3, 1)
    ]  # fmt: skip
    answer = exchanged(FETCH, version, fetch_message(version), FetchAnswer(fetched))
    hints = [
        (each.current_leader.leader_id, each.current_leader.leader_epoch) for each in answer.responses[0].partitions
    ]
    endpoints = [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]
    if version >= 16:
        assert (hints, endpoints) == ([(2, 5)] * 2, [(2, "host", 9094, "rack")])
    else:
        assert (hints, endpoints) == ([(-1, -1)] * 2, [])


def test_answers_are_limited_as_asked_and_by_at_least_a_byte() -> None:
    """0 stands for the limit of the node inside it."""
    module = request("Fetch")
    for sent, asked in ((1_000, 1_000), (0, 1), (-1, 1)):
        topic = module.FetchTopic(topic="orders", partitions=(module.FetchPartition(0, 5, sent),))
        value = begun(FETCH, 12, fetch_message(max_bytes=sent, topics=(topic,)))[1]
        assert (value.max_bytes, value.partitions[0].max_bytes) == (asked, asked)


@pytest.mark.parametrize("version", FETCH.versions)
def test_a_request_continues_a_session_and_names_what_it_forgets(version: int) -> None:
    """The answer names what has changed: topics that the request does not name, too."""
    module = request("Fetch")
    session: dict[str, Any] = {}
    if version >= 7:
        gone = module.ForgottenTopic(partitions=(4, 2**31 - 1), **named("topic", "lines", version))
        session = {"session_id": 17, "session_epoch": 2, "forgotten_topics_data": (gone,)}
    message = fetch_message(version, topics=(), **session)
    _, value = begun(FETCH, version, message)
    if version < 7:
        assert value.session is None
        return
    forgotten = [(reference("lines", version), each) for each in (4, 2**31 - 1)]
    assert value.session == SessionFetch(17, 2, version >= 13, forgotten)
    fetched = [
        FetchedPartition(reference(name, version), each, LeaderEpoch(2), Offset(9), Offset(8), Offset(4))
        for name, each in (("b", 1), ("a", 3), ("b", 2))
    ]
    answer = exchanged(FETCH, version, message, FetchAnswer(fetched, session_id=17))
    names = {name: {"topic": "", "topic_id": UUID(int=0), **named("topic", name, version)} for name in ("a", "b")}
    assert [
        ({"topic": topic.topic, "topic_id": topic.topic_id}, [each.partition_index for each in topic.partitions])
        for topic in answer.responses
    ] == [(names["b"], [1, 2]), (names["a"], [3])]
    assert answer.session_id == 17


@pytest.mark.parametrize(
    ("session_id", "epoch", "expected"),
    [
        (0, -1, None),
        (0, 0, SessionFetch(0, 0, by_id=False, forgotten=[])),
        (5, -1, SessionFetch(5, -1, by_id=False, forgotten=[])),
        (-(2**31), 2**31 - 1, SessionFetch(-(2**31), 2**31 - 1, by_id=False, forgotten=[])),
    ],
)
def test_a_client_may_want_no_session(session_id: int, epoch: int, expected: SessionFetch | None) -> None:
    value = begun(FETCH, 12, fetch_message(session_id=session_id, session_epoch=epoch))[1]
    assert value.session == expected


def test_a_session_that_cannot_continue_is_an_error_of_the_whole_answer() -> None:
    exchange, _ = begun(FETCH, 12, fetch_message(session_id=4, session_epoch=1))
    for error, code in (
        (FetchSessionIdNotFound("why"), 70),
        (InvalidFetchSessionEpoch("why"), 71),
        (FetchSessionTopicIdError("why"), 106),
    ):
        answer = answered(FETCH, 12, exchange.refuse(error))
        assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, ())


@pytest.mark.parametrize("version", FETCH.versions)
def test_a_broker_is_refused(version: int) -> None:
    """From version 15 on it says in another field that it is one."""
    module = request("Fetch")
    replica: dict[str, Any] = {"replica_id": 1}
    if version >= 15:
        replica = {"replica_state": module.ReplicaState(replica_id=1, replica_epoch=4)}
    for fields, code in ((replica, 31), ({"isolation_level": 7}, 42)):
        frame = memoryview(request_frame("Fetch", version, fetch_message(version, **fields), 7))[4:]
        exchange = Exchange(FETCH, head_of(frame), 11 + (version >= 12))
        with pytest.raises(TidelogError) as refused:
            exchange.decode(frame)
        answer = answered(FETCH, version, exchange.refuse(refused.value))
        codes = {each.error_code for topic in answer.responses for each in topic.partitions}
        assert (answer.error_code if version >= 7 else codes) == (code if version >= 7 else {code})


def test_a_partition_that_is_asked_twice_is_answered_twice() -> None:
    module = request("Fetch")
    topic = module.FetchTopic(topic="orders", partitions=(module.FetchPartition(0, 5, 100),) * 2)
    fetched = FetchedPartition("orders", 0, LeaderEpoch(2), Offset(9), Offset(8), Offset(4))
    (answer,) = exchanged(FETCH, 12, fetch_message(topics=(topic,)), FetchAnswer([fetched])).responses
    assert [each.partition_index for each in answer.partitions] == [0, 0]


# --- offsets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", LIST_OFFSETS.versions)
def test_timestamps_without_a_meaning_in_the_version_are_refused_one_by_one(version: int) -> None:
    """Those of the remote tier, -4 and -5, are asked as they are: only the replica knows them."""
    module = request("ListOffsets")
    times = (-1, -3, 1_000, -4, -5, -6)
    partitions = tuple(module.ListOffsetsPartition(number, Millis(at)) for number, at in enumerate(times))
    message = module.ListOffsetsRequest(-1, (module.ListOffsetsTopic("orders", partitions),))
    _, value = begun(LIST_OFFSETS, version, message)
    first_version = (1, 7, 1, 8, 9, 99)
    known = [each for each in range(6) if version >= first_version[each]]
    assert [each.partition for each in value.partitions] == known
    assert [each.timestamp_ms for each in value.partitions if each.partition == 3] == [EARLIEST_LOCAL] * (version >= 8)
    listed = tuple(ListedOffset("orders", each, None, Offset(10 + each), Millis(5), LeaderEpoch(3)) for each in known)
    (topic,) = exchanged(LIST_OFFSETS, version, message, ListOffsetsAnswer(listed)).topics
    found = {each.partition_index: (each.error_code, each.offset, each.timestamp) for each in topic.partitions}
    assert found == {each: (0, 10 + each, 5) if each in known else (35, -1, -1) for each in range(6)}
    epochs = {each.leader_epoch for each in topic.partitions if not each.error_code}
    assert epochs == {3 if version >= 4 else -1}


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


@pytest.mark.parametrize("version", DELETE_RECORDS.versions)
def test_a_deletion_that_timed_out_tells_the_low_watermark(version: int) -> None:
    module = request("DeleteRecords")
    topics = tuple(
        module.DeleteRecordsTopic(name, tuple(module.DeleteRecordsPartition(each, offset) for each, offset in deleted))
        for name, deleted in (("a", ((3, 40), (1, -1))), ("b", ((0, 7),)))
    )
    message = module.DeleteRecordsRequest(topics, 500)
    _, value = begun(DELETE_RECORDS, version, message)
    assert [(each.topic_id, each.partition, each.offset) for each in value.partitions] == [
        ("a", 3, 40),
        ("a", 1, -1),
        ("b", 0, 7),
    ]
    assert value.max_wait_ms == 500
    outcomes = (
        DeletedRecords("a", 3, None, Offset(40)),
        DeletedRecords("a", 1, RequestTimedOut("a replica lags"), Offset(12)),
        DeletedRecords("b", 0, OffsetOutOfRange("uncommitted")),
    )
    answer = exchanged(DELETE_RECORDS, version, message, DeleteRecordsAnswer(outcomes))
    assert [
        (topic.name, each.partition_index, each.error_code, each.low_watermark)
        for topic in answer.topics
        for each in topic.partitions
    ] == [("a", 3, 0, 40), ("a", 1, 7, 12), ("b", 0, 1, -1)]


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
    """-1 stands for the default; what is impossible is refused without those beside it. Replicas that are assigned by
    hand say both numbers."""
    module = request("CreateTopics")
    config = module.CreatableTopicConfig
    hand = tuple(module.CreatableReplicaAssignment(index, (index, 2)) for index in (1, 0))
    topics = (
        module.CreatableTopic("a", -1, -1, (), (config("retention.ms", "-1"), config("cleanup.policy", "compact"))),
        module.CreatableTopic("by-hand", -1, -1, hand, ()),
        module.CreatableTopic("a-gap", -1, -1, hand[:1], ()),
        module.CreatableTopic("taken", 3, 2, (), ()),
        module.CreatableTopic("no-value", 3, 2, (), (config("retention.ms", None),)),
    )
    message = module.CreateTopicsRequest(topics, 1_000, validate_only=True)
    _, value = begun(CREATE_TOPICS, version, message)
    assert [(each.name, each.partitions, each.replication_factor, each.validate_only) for each in value.topics] == [
        ("a", -1, -1, True),
        ("by-hand", -1, -1, True),
        ("taken", 3, 2, True),
    ]
    assert [each.replicas for each in value.topics[1].assignments] == [(0, 2), (1, 2)]
    assert value.topics[0].configs == {"retention.ms": "-1", "cleanup.policy": "compact"}
    outcomes = ChangedTopics(
        (
            ChangedTopic("a", None, TopicId(TOPIC_ID)),
            ChangedTopic("by-hand"),
            ChangedTopic("taken", TopicExists("it exists")),
        )
    )
    answer = exchanged(CREATE_TOPICS, version, message, outcomes)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("a", 0),
        ("by-hand", 0),
        ("a-gap", 39),
        ("taken", 36),
        ("no-value", 40),
    ]
    assert answer.topics[3].error_message == "it exists"
    if version >= 5:
        counts = [(each.num_partitions, each.replication_factor) for each in answer.topics[:2]]
        assert counts == [(-1, -1), (2, 2)], "which number the node has put for -1 is not known"
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


def test_changes_that_exceed_a_quota_say_when_to_repeat_them() -> None:
    refused = [ThrottlingQuotaExceeded("the quota is exceeded", throttle_time_ms=delay) for delay in (40, 70)]
    outcomes = ChangedTopics((ChangedTopic("a", refused[0]), ChangedTopic("b", refused[1])))
    to_create, to_delete = request("CreateTopics"), request("DeleteTopics")
    new = tuple(to_create.CreatableTopic(name, 1, 1, (), ()) for name in ("a", "b"))
    for kafka, version, message in (
        (CREATE_TOPICS, 7, to_create.CreateTopicsRequest(new, 1_000, validate_only=False)),
        (DELETE_TOPICS, 5, to_delete.DeleteTopicsRequest(1_000, topic_names=("a", "b"))),
    ):
        assert exchanged(kafka, version, message, outcomes).throttle_time_ms == 70
        exchange, _ = begun(kafka, version, message)
        for delay, told in ((60, 70), (90, 90)):
            answer = answered(kafka, version, exchange.encode(outcomes, delay))
            assert answer.throttle_time_ms == told, "the longer one"


# --- groups -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", FIND_COORDINATOR.versions)
def test_coordinators_are_found_by_one_key_and_later_by_many(version: int) -> None:
    module, node = request("FindCoordinator"), NodeAddress(NodeId(2), Endpoint("host", 9094))
    keys = {"coordinator_keys": ("a", "b")} if version >= 4 else {"key": "a"}
    kind = {"key_type": 1} if version >= 1 else {}
    message = module.FindCoordinatorRequest(**keys, **kind)
    _, value = begun(FIND_COORDINATOR, version, message)
    assert (value.type, value.keys) == (len(kind), ("a", "b") if version >= 4 else ("a",))
    found = (FoundCoordinator("a", None, node), FoundCoordinator("b", CoordinatorNotAvailable("none yet")))
    answer = exchanged(FIND_COORDINATOR, version, message, FindCoordinatorAnswer(found[: len(value.keys)]))
    shown = [(each.error_code, each.node_id, each.host, each.port) for each in answer.coordinators or (answer,)]
    assert shown == [(0, 2, "host", 9094), (15, -1, "", -1)][: len(value.keys)]


@pytest.mark.parametrize("version", JOIN_GROUP.versions)
def test_a_member_joins_as_its_version_knows_it(version: int) -> None:
    module = request("JoinGroup")
    protocols = (module.JoinGroupRequestProtocol("range", b"a"), module.JoinGroupRequestProtocol("sticky", b"b"))
    more: dict[str, Any] = {"rebalance_timeout_ms": 9_000} if version >= 1 else {}
    more |= {"group_instance_id": "one"} if version >= 5 else {}
    message = module.JoinGroupRequest("g", 6_000, "m", "consumer", protocols, **more)
    _, value = begun(JOIN_GROUP, version, message)
    assert (value.group_id, value.member_id, value.protocol_type) == ("g", "m", "consumer")
    assert [(each.name, each.metadata) for each in value.protocols] == [("range", b"a"), ("sticky", b"b")]
    assert (value.session_timeout_ms, value.rebalance_timeout_ms) == (6_000, 9_000 if version >= 1 else 6_000)
    assert (value.needs_member_id, value.skips_assignment) == (version >= 4, version >= 9)
    assert value.instance_id == ("one" if version >= 5 else None)

    members = (classic.JoinedMember("m", "one" if version >= 5 else None, b"a"),)
    joined = classic.JoinGroupAnswer("m", 4, "consumer", "range", "m", members, skip_assignment=version >= 9)
    answer = exchanged(JOIN_GROUP, version, message, joined)
    assert (answer.error_code, answer.generation_id, answer.protocol_name, answer.leader) == (0, 4, "range", "m")
    assert [(each.member_id, each.metadata) for each in answer.members] == [("m", b"a")]
    named = exchanged(JOIN_GROUP, version, message, classic.JoinGroupAnswer("new", error=MemberIdRequired("again")))
    assert (named.error_code, named.member_id, named.generation_id) == (79, "new", -1)


@pytest.mark.parametrize("version", SYNC_GROUP.versions)
def test_the_leader_assigns_and_all_get_their_part(version: int) -> None:
    module = request("SyncGroup")
    kind, name = ("consumer", "range") if version >= 5 else (None, None)
    brought = (module.SyncGroupRequestAssignment("m", b"0,1"),)
    message = module.SyncGroupRequest("g", 4, "m", brought, None, kind, name)
    _, value = begun(SYNC_GROUP, version, message)
    assert value == classic.SyncGroup("g", "m", 4, None, kind, name, (classic.MemberAssignment("m", b"0,1"),))
    answer = exchanged(SYNC_GROUP, version, message, classic.SyncGroupAnswer("consumer", "range", b"0,1"))
    assert (answer.error_code, answer.assignment) == (0, b"0,1")
    assert answer.protocol_name == ("range" if version >= 5 else None)


@pytest.mark.parametrize("version", HEARTBEAT.versions)
def test_heartbeats(version: int) -> None:
    message = request("Heartbeat").HeartbeatRequest("g", 4, "m")
    _, value = begun(HEARTBEAT, version, message)
    assert value == classic.ClassicHeartbeat("g", "m", 4)
    assert exchanged(HEARTBEAT, version, message, classic.ClassicHeartbeatAnswer()).error_code == 0


@pytest.mark.parametrize("version", LEAVE_GROUP.versions)
def test_members_leave_alone_and_later_together(version: int) -> None:
    module, unknown = request("LeaveGroup"), UnknownMemberId("no such member")
    if version >= 3:
        members = (module.MemberIdentity("m", None), module.MemberIdentity("", "one"))
        message = module.LeaveGroupRequest("g", members=members)
        left = classic.LeaveGroupAnswer((classic.LeftMember("m", None), classic.LeftMember("", "one", unknown)))
        answer = exchanged(LEAVE_GROUP, version, message, left)
        found = [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members]
        assert (answer.error_code, found) == (0, [("m", None, 0), ("", "one", 25)])
    else:
        message = module.LeaveGroupRequest("g", "m")
        answer = exchanged(
            LEAVE_GROUP, version, message, classic.LeaveGroupAnswer((classic.LeftMember("m", None, unknown),))
        )
        assert answer.error_code == 25


@pytest.mark.parametrize("version", OFFSET_COMMIT.versions)
def test_offsets_are_committed_in_the_order_of_the_request(version: int) -> None:
    module = request("OffsetCommit")
    more = {"committed_leader_epoch": 3} if version >= 6 else {}
    partitions = tuple(module.OffsetCommitRequestPartition(each, 70 + each, None, **more) for each in (5, 2))
    topics = tuple(module.OffsetCommitRequestTopic(name=name, partitions=partitions) for name in ("b", "a"))
    message = module.OffsetCommitRequest("g", 4, "m", topics)
    _, value = begun(OFFSET_COMMIT, version, message)
    assert [(each.topic, each.partition, each.offset, each.metadata) for each in value.partitions] == [
        (name, index, 70 + index, "") for name in ("b", "a") for index in (5, 2)
    ]
    assert {each.leader_epoch for each in value.partitions} == {3 if version >= 6 else -1}
    errors = (None, UnknownTopicOrPartition("gone"), None, None)
    outcomes = (CommittedPartition("", PartitionIndex(0), each) for each in errors)
    answer = exchanged(OFFSET_COMMIT, version, message, CommittedPartitions(tuple(outcomes)))
    found = [
        (topic.name, part.partition_index, part.error_code) for topic in answer.topics for part in topic.partitions
    ]
    assert found == [("b", 5, 0), ("b", 2, 3), ("a", 5, 0), ("a", 2, 0)]


# --- errors -------------------------------------------------------------------------------------------------------


def test_every_error_has_a_number_that_clients_of_kafka_know() -> None:
    assert {code_of(each("why")) for each in all_errors()} <= set(range(-1, KAFKA_CODE_MAX)) - {0}
    assert code_of(None) == 0
    likened = {TooFewNodes: 38, LeadershipLost: 6, NodeShuttingDown: 6, DiskFull: 56, CorruptRecord: 2}
    likened |= {InconsistentTopicId: 100, UnknownTopicId: 100}
    assert {each: code_of(each("why")) for each in likened} == likened


def test_an_error_of_a_module_that_is_imported_later_has_a_number() -> None:
    """The numbers were listed when the listener was imported: any other error was a defect."""
    sink_errors = importlib.import_module("tidelog.spark.sink.sink_errors")
    assert code_of(sink_errors.BatchNotCommitted("why")) == RequestTimedOut.code
