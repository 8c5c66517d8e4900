"""Messages of Kafka's transactions and their values: every offered version, and the error that each version knows."""

from __future__ import annotations

from typing import Any

import pytest

from node.api.marker_requests import (
    ANY_TRANSACTION,
    AbortTransactionAnswer,
    AbortTransactionRequest,
    DescribedProducers,
    DescribeProducersAnswer,
)
from node.api.produce import ProduceAnswer, ProducedBatch
from node.api.producers import InitProducerIdAnswer, InitProducerIdRequest
from node.api.table import DATA_INIT_PRODUCER_ID, TRANSACTIONS_INIT_PRODUCER_ID
from node.listeners.kafka.exchange import Exchange, KafkaApi, head_of
from node.listeners.kafka.kafka_produce import PRODUCE
from node.listeners.kafka.kafka_transaction_tools import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from node.listeners.kafka.kafka_transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.group_requests import (
    CommittedPartition,
    CommittedPartitions,
    ListedCoordinator,
    NamedPartition,
)
from replication.coordination.transaction_requests import (
    AddOffsetsToTxn,
    AddOffsetsToTxnAnswer,
    AddPartitionsToTxn,
    DescribedTransaction,
    DescribeTransactionsAnswer,
    EndTxn,
    InitTransactionalProducer,
    ListedTransaction,
    ListTransactionsAnswer,
)
from tests.node.kafka_exchanges import answered, begun, exchanged, name_of, read, request
from tests.node.kafka_frames import request_frame
from tidelog.cluster_descriptions import KnownProducer
from tidelog.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    IllegalGeneration,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    NotController,
    NotCoordinator,
    OperationNotAttempted,
    ProducerFenced,
    RequestTimedOut,
    TidelogError,
    TransactionAbortable,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
    UnreadableCoordinatorRecord,
)
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, Millis, Offset, PartitionIndex, ProducerId

P = PartitionIndex
FENCED, OLD_EPOCH, LOOK_UP, LOADING = 90, 47, 15, 14
AGAIN, NOT_ENOUGH_REPLICAS, INVALID_STATE, ABORTABLE = 51, 19, 48, 120
PRODUCER = ("t1", ProducerId(12), 3)


def each_version(kafka: KafkaApi) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", kafka.versions)


# --- InitProducerId -----------------------------------------------------------------------------------------------


@each_version(INIT_PRODUCER_ID)
def test_a_producer_id_is_asked_for_with_and_without_a_transactional_id(version: int) -> None:
    """They are different requests to the node: one has a coordinator, and each its own permission."""
    module = request("InitProducerId")
    for name, api, value in (
        (None, DATA_INIT_PRODUCER_ID, InitProducerIdRequest(ProducerId(-1), -1)),
        ("t1", TRANSACTIONS_INIT_PRODUCER_ID, InitTransactionalProducer("t1", 9_000, ProducerId(-1), -1, 1)),
        ("", TRANSACTIONS_INIT_PRODUCER_ID, InitTransactionalProducer("", 9_000, ProducerId(-1), -1, 1)),
    ):
        message = module.InitProducerIdRequest(name, 9_000)
        frame = memoryview(request_frame("InitProducerId", version, message, 7))[4:]
        assert INIT_PRODUCER_ID.api_of is not None
        assert INIT_PRODUCER_ID.api_of(frame, version, 11 + (version >= 2)) is api
        assert begun(INIT_PRODUCER_ID, version, message)[1] == value


@each_version(INIT_PRODUCER_ID)
@pytest.mark.parametrize("given", [InitProducerIdAnswer(ProducerId(12), 3), TransactionalProducer(ProducerId(12), 3)])
def test_it_is_answered(version: int, given: Any) -> None:
    answer = exchanged(INIT_PRODUCER_ID, version, request("InitProducerId").InitProducerIdRequest(None, 1_000), given)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 12, 3)


@each_version(INIT_PRODUCER_ID)
@pytest.mark.parametrize(
    ("name", "error", "code"),
    [
        (None, NotController, LOADING),
        (None, RequestTimedOut, LOADING),
        ("t1", NotController, LOADING),
        ("t1", RequestTimedOut, LOOK_UP),
    ],
)
def test_a_producer_asks_again_while_the_controller_gives_no_ids(
    version: int, name: str | None, error: type[TidelogError], code: int
) -> None:
    """One without a transactional id has no coordinator to look up, and aiokafka's ended."""
    exchange, _ = begun(INIT_PRODUCER_ID, version, request("InitProducerId").InitProducerIdRequest(name, 1_000))
    assert answered(INIT_PRODUCER_ID, version, exchange.refuse(error("no controller"))).error_code == code


@pytest.mark.parametrize("version", [3, 4])
def test_a_producer_continues_with_what_it_has(version: int) -> None:
    value = read(
        INIT_PRODUCER_ID, version, transactional_id="t1", transaction_timeout_ms=5, producer_id=12, producer_epoch=3
    )
    assert (value.producer_id, value.producer_epoch) == (12, 3)


# --- requests in a transaction ------------------------------------------------------------------------------------


def partitions_message() -> Any:
    module = request("AddPartitionsToTxn")
    topics = tuple(module.AddPartitionsToTxnTopic(name, (P(1), P(0))) for name in ("b", "a"))
    return module.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t1",
        v3_and_below_producer_id=12,
        v3_and_below_producer_epoch=3,
        v3_and_below_topics=topics,
    )


@each_version(ADD_PARTITIONS_TO_TXN)
def test_partitions_are_added_each_with_its_outcome_in_the_order_of_the_request(version: int) -> None:
    named = tuple(NamedPartition(name, P(each)) for name in ("b", "a") for each in (1, 0))
    _, value = begun(ADD_PARTITIONS_TO_TXN, version, partitions_message())
    assert value == AddPartitionsToTxn(*PRODUCER, named)
    errors = (None, UnknownTopicOrPartition("gone"), OperationNotAttempted("not it"), None)
    outcomes = tuple(
        CommittedPartition(each.topic, each.partition, error) for each, error in zip(named, errors, strict=True)
    )
    answer = exchanged(ADD_PARTITIONS_TO_TXN, version, partitions_message(), CommittedPartitions(outcomes))
    assert [
        (topic.name, each.partition_index, each.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ] == [("b", 1, 0), ("b", 0, 3), ("a", 1, 55), ("a", 0, 0)]


@each_version(ADD_OFFSETS_TO_TXN)
def test_a_group_is_added(version: int) -> None:
    message = request("AddOffsetsToTxn").AddOffsetsToTxnRequest(*PRODUCER, "readers")
    assert begun(ADD_OFFSETS_TO_TXN, version, message)[1] == AddOffsetsToTxn(*PRODUCER, "readers")
    assert exchanged(ADD_OFFSETS_TO_TXN, version, message, AddOffsetsToTxnAnswer()).error_code == 0


@each_version(END_TXN)
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_is_ended(version: int, committed: bool) -> None:
    message = request("EndTxn").EndTxnRequest(*PRODUCER, committed)
    has_epochs = version >= 5
    assert begun(END_TXN, version, message)[1] == EndTxn(*PRODUCER, committed, 2 if has_epochs else 1)
    answer = exchanged(END_TXN, version, message, TransactionalProducer(ProducerId(12), 4))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, *((12, 4) if has_epochs else (-1, -1)))


def test_the_end_of_a_transaction_that_is_refused_names_no_producer() -> None:
    """A client that took its epoch from such an answer would continue with the wrong one."""
    exchange, _ = begun(END_TXN, 5, request("EndTxn").EndTxnRequest(*PRODUCER, committed=True))
    answer = answered(END_TXN, 5, exchange.refuse(ConcurrentTransactions("completing")))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (51, -1, -1)


def commit_message(version: int) -> Any:
    module = request("TxnOffsetCommit")
    offset = module.TxnOffsetCommitRequestPartition
    topics = (
        module.TxnOffsetCommitRequestTopic(
            "b", (offset(1, 8, "seen", committed_leader_epoch=4), offset(0, 9, None, committed_leader_epoch=4))
        ),
        module.TxnOffsetCommitRequestTopic("a", (offset(1, 7, "", committed_leader_epoch=-1),)),
    )
    member = {"generation_id": 5, "member_id": "m", "group_instance_id": "i"} if version >= 3 else {}
    return module.TxnOffsetCommitRequest("t1", "readers", ProducerId(12), 3, topics=topics, **member)


@each_version(TXN_OFFSET_COMMIT)
def test_offsets_are_committed_in_a_transaction_by_a_member_from_version_3_on(version: int) -> None:
    """Before, clients name no member, and are fenced by the epoch of their producer alone (KIP-447)."""
    _, value = begun(TXN_OFFSET_COMMIT, version, commit_message(version))
    member = ("m", 5, "i") if version >= 3 else ("", -1, None)
    assert (value.transactional_id, value.producer_id, value.producer_epoch, value.transaction_version) == (
        *PRODUCER,
        2 if version >= 5 else 1,
    )
    assert (value.group_id, value.member_id, value.member_epoch, value.instance_id) == ("readers", *member)
    epoch = 4 if version >= 2 else -1
    assert [
        (each.topic, each.partition, each.offset, each.leader_epoch, each.metadata) for each in value.partitions
    ] == [
        ("b", 1, 8, epoch, "seen"),
        ("b", 0, 9, epoch, ""),
        ("a", 1, 7, -1, ""),
    ]
    outcomes = (
        CommittedPartition("b", P(1)),
        CommittedPartition("b", P(0), UnknownTopicOrPartition("gone")),
        CommittedPartition("a", P(1), IllegalGeneration("old")),
    )
    answer = exchanged(TXN_OFFSET_COMMIT, version, commit_message(version), CommittedPartitions(outcomes))
    assert [
        (topic.name, each.partition_index, each.error_code) for topic in answer.topics for each in topic.partitions
    ] == [("b", 1, 0), ("b", 0, 3), ("a", 1, 22)]


# --- errors -------------------------------------------------------------------------------------------------------


def refused(kafka: KafkaApi, version: int, message: Any, error: TidelogError) -> set[int]:
    """The numbers of the error in the answer to a refused request."""
    exchange, _ = begun(kafka, version, message)
    answer = answered(kafka, version, exchange.refuse(error))
    if kafka is ADD_PARTITIONS_TO_TXN:
        topics = answer.results_by_topic_v3_and_below
        return {each.partition_error_code for topic in topics for each in topic.results_by_partition}
    if kafka is TXN_OFFSET_COMMIT:
        return {each.error_code for topic in answer.topics for each in topic.partitions}
    return {answer.error_code}


def messages(version: int) -> list[tuple[KafkaApi, Any]]:
    """A request of each kind that has this version to a coordinator of transactions."""
    asked = [
        (INIT_PRODUCER_ID, request("InitProducerId").InitProducerIdRequest("t1", 1_000)),
        (ADD_PARTITIONS_TO_TXN, partitions_message()),
        (ADD_OFFSETS_TO_TXN, request("AddOffsetsToTxn").AddOffsetsToTxnRequest(*PRODUCER, "readers")),
        (END_TXN, request("EndTxn").EndTxnRequest(*PRODUCER, committed=True)),
        (TXN_OFFSET_COMMIT, commit_message(version)),
    ]
    return [(kafka, message) for kafka, message in asked if version in kafka.versions]


@pytest.mark.parametrize("version", range(6))
def test_a_fenced_producer_is_told_as_its_version_knows_it(version: int) -> None:
    """PRODUCER_FENCED came with KIP-588: in version 2 of most requests, in version 4 of InitProducerId."""
    for kafka, message in messages(version):
        if kafka is TXN_OFFSET_COMMIT:  # its verification tells INVALID_PRODUCER_EPOCH
            continue
        known = version >= (4 if kafka is INIT_PRODUCER_ID else 2)
        assert refused(kafka, version, message, ProducerFenced("newer")) == {FENCED if known else OLD_EPOCH}


@pytest.mark.parametrize("version", range(6))
def test_the_errors_of_coordinators_are_those_on_which_clients_do_what_is_right(version: int) -> None:
    """With an unknown outcome, librdkafka would abort what is perhaps committed: it is told to look up and repeat."""
    for kafka, message in messages(version):
        is_commit = kafka is TXN_OFFSET_COMMIT
        for error, code in (
            (NotCoordinator("moved"), 16),
            (CoordinatorNotAvailable("later"), LOOK_UP),
            (RequestTimedOut("committed, or not"), LOOK_UP),
            (CoordinatorLoadInProgress("loading"), LOOK_UP if is_commit and version < 2 else 14),
            (ConcurrentTransactions("completing"), 51),
            (InvalidTxnState("nothing open"), 48),
            (InvalidProducerIdMapping("another"), 49),
            (InvalidProducerEpoch("old"), OLD_EPOCH),
        ):
            assert refused(kafka, version, message, error) == {code}, (kafka.request.message, error)


@pytest.mark.parametrize("version", TXN_OFFSET_COMMIT.versions)
def test_offsets_outside_of_their_transaction_are_refused_as_the_version_knows_it(version: int) -> None:
    code = ABORTABLE if version >= 4 else INVALID_STATE
    assert refused(TXN_OFFSET_COMMIT, version, commit_message(version), TransactionAbortable("not in it")) == {code}


@pytest.mark.parametrize("version", PRODUCE.versions)
def test_a_batch_that_is_not_verified_is_sent_again_or_ends_the_transaction(version: int) -> None:
    """Producers know few errors of coordinators: NOT_ENOUGH_REPLICAS makes all of them send again (as Kafka). Those of
    transaction version 2 know CONCURRENT_TRANSACTIONS, which they get while the last transaction is completed."""
    module = request("Produce")
    errors = (
        (ConcurrentTransactions("completing"), AGAIN if version >= 12 else NOT_ENOUGH_REPLICAS),
        (CoordinatorLoadInProgress("loading"), NOT_ENOUGH_REPLICAS),
        (CoordinatorNotAvailable("later"), NOT_ENOUGH_REPLICAS),
        (TransactionAbortable("not in it"), ABORTABLE if version >= 11 else INVALID_STATE),
        (InvalidProducerEpoch("old"), OLD_EPOCH),
    )
    data = tuple(module.PartitionProduceData(each, b"batch") for each in range(len(errors)))
    message = module.ProduceRequest("t1", -1, 30_000, (module.TopicProduceData(name="a", partition_data=data),))
    value = begun(PRODUCE, version, message)[1]
    assert (value.transactional_id, value.transaction_version) == ("t1", 2 if version >= 12 else 1)
    batches = [ProducedBatch(error, Offset(-1), NO_TIMESTAMP, Offset(-1), NO_LEADER_EPOCH) for error, _code in errors]
    (topic,) = exchanged(PRODUCE, version, message, ProduceAnswer(batches)).responses
    assert [each.error_code for each in topic.partition_responses] == [code for _error, code in errors]


# --- tools --------------------------------------------------------------------------------------------------------


@each_version(LIST_TRANSACTIONS)
def test_transactions_are_listed_and_unknown_states_are_named(version: int) -> None:
    later: dict[str, Any] = {"duration_filter": 5} if version >= 1 else {}
    later |= {"transactional_id_pattern": "b.*"} if version >= 2 else {}
    message = request("ListTransactions").ListTransactionsRequest(("Ongoing", "Asleep"), (12,), **later)
    _, value = begun(LIST_TRANSACTIONS, version, message)
    assert (value.states, value.producer_ids) == (("Ongoing",), (12,))
    assert value.duration_ms_min == (5 if version >= 1 else -1)
    assert value.transactional_id_pattern == ("b.*" if version >= 2 else "")
    listed = ListTransactionsAnswer(
        (ListedTransaction("t1", ProducerId(12), "Ongoing", Millis(9)),), (ListedCoordinator(P(0)),), 1
    )
    answer = exchanged(LIST_TRANSACTIONS, version, message, listed)
    assert (answer.error_code, answer.unknown_state_filters) == (0, ("Asleep",))
    assert [
        (each.transactional_id, each.producer_id, each.transaction_state) for each in answer.transaction_states
    ] == [("t1", 12, "Ongoing")]


def test_unknown_states_alone_select_nothing_and_none_select_everything() -> None:
    assert read(LIST_TRANSACTIONS, 0, state_filters=("Asleep",), producer_id_filters=()).states == ("Dead",)
    assert read(LIST_TRANSACTIONS, 0, state_filters=(), producer_id_filters=()).states == ()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CoordinatorLoadInProgress("loading"), 14),
        (NotCoordinator("moves"), 14),
        (CoordinatorNotAvailable("cannot append"), 14),
        (UnreadableCoordinatorRecord("damaged"), -1),
    ],
)
def test_a_listing_that_lacks_a_coordinator_is_an_error(error: TidelogError, code: int) -> None:
    """Tools would take its transactions for hanging ones, and an operator would abort them."""
    message = request("ListTransactions").ListTransactionsRequest((), ())
    listed = ListTransactionsAnswer(
        (ListedTransaction("t1", ProducerId(12), "Ongoing", Millis(9)),),
        (ListedCoordinator(P(0)), ListedCoordinator(P(1), error)),
        2,
    )
    answer = exchanged(LIST_TRANSACTIONS, 1, message, listed)
    assert (answer.error_code, answer.transaction_states) == (code, ())


def test_transactions_are_described_with_their_partitions_by_topic() -> None:
    message = request("DescribeTransactions").DescribeTransactionsRequest(("t1", "t2"))
    assert begun(DESCRIBE_TRANSACTIONS, 0, message)[1].transactional_ids == ("t1", "t2")
    partitions = tuple(NamedPartition(topic, P(each)) for topic, each in (("a", 0), ("a", 2), ("b", 1)))
    described = (
        DescribedTransaction("t1", None, "Ongoing", ProducerId(12), 3, 60_000, Millis(9), partitions, 4),
        DescribedTransaction("t2", TransactionalIdNotFound("no such id")),
    )
    first, second = exchanged(
        DESCRIBE_TRANSACTIONS, 0, message, DescribeTransactionsAnswer(described)
    ).transaction_states
    assert (first.error_code, first.transactional_id, first.transaction_state) == (0, "t1", "Ongoing")
    assert (first.producer_id, first.producer_epoch) == (12, 3)
    assert (first.transaction_timeout_ms, first.transaction_start_time_ms) == (60_000, 9)
    assert [(each.topic, each.partitions) for each in first.topics] == [("a", (0, 2)), ("b", (1,))]
    assert (second.error_code, second.transactional_id) == (105, "t2")


def test_producers_are_described_partition_by_partition() -> None:
    module = request("DescribeProducers")
    message = module.DescribeProducersRequest((module.TopicRequest("a", (1, 0)), module.TopicRequest("b", (0,))))
    _, value = begun(DESCRIBE_PRODUCERS, 0, message)
    assert [(each.topic_id, each.partition) for each in value.partitions] == [("a", 1), ("a", 0), ("b", 0)]
    assert value.of_any_replica
    known = KnownProducer(ProducerId(12), 3, 7, Millis(8), 4, Offset(40))
    described = DescribeProducersAnswer(
        (
            DescribedProducers("a", 1, None, Offset(40), (known,)),
            DescribedProducers("a", 0, UnknownTopicOrPartition("gone")),
            DescribedProducers("b", 0, None, Offset(1)),
        )
    )
    first, second = exchanged(DESCRIBE_PRODUCERS, 0, message, described).topics
    (producer,) = first.partitions[0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (12, 3, 7)
    assert (producer.last_timestamp, producer.coordinator_epoch, producer.current_txn_start_offset) == (8, 4, 40)
    assert [(each.partition_index, each.error_code, each.error_message) for each in first.partitions] == [
        (1, 0, None),
        (0, 3, "gone"),
    ]
    assert [(each.partition_index, each.active_producers) for each in second.partitions] == [(0, ())]


def markers_message(*partitions: int, committed: bool = False) -> Any:
    module = request("WriteTxnMarkers")
    topics = (module.WritableTxnMarkerTopic("a", partitions),)
    return module.WriteTxnMarkersRequest((module.WritableTxnMarker(ProducerId(12), 3, committed, topics, 4),))


def test_an_operator_aborts_the_open_transaction_of_one_partition() -> None:
    """The first offset is not in the request, as in Kafka: what is open of this producer and epoch is aborted."""
    _, value = begun(WRITE_TXN_MARKERS, 1, markers_message(2))
    assert value == AbortTransactionRequest("a", 2, ProducerId(12), 3, ANY_TRANSACTION)
    (marker,) = exchanged(WRITE_TXN_MARKERS, 1, markers_message(2), AbortTransactionAnswer()).markers
    assert (marker.producer_id, marker.topics[0].name) == (12, "a")
    assert [(each.partition_index, each.error_code) for each in marker.topics[0].partitions] == [(2, 0)]


@pytest.mark.parametrize(
    "message",
    [markers_message(2, committed=True), markers_message(1, 2), markers_message()],
    ids=["commits", "two", "none"],
)
def test_only_coordinators_write_other_markers(message: Any) -> None:
    """A commit in one partition of a transaction that its coordinator aborts elsewhere would tear it apart."""
    frame = memoryview(request_frame(name_of(WRITE_TXN_MARKERS), 1, message, 7))[4:]
    exchange = Exchange(WRITE_TXN_MARKERS, head_of(frame), 12)
    with pytest.raises(InvalidRequest) as error:
        exchange.decode(frame)
    answer = answered(WRITE_TXN_MARKERS, 1, exchange.refuse(error.value))
    codes = {each.error_code for marker in answer.markers for topic in marker.topics for each in topic.partitions}
    assert codes <= {42}
