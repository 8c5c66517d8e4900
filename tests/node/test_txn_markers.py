"""Markers of transaction coordinators, and the tools against hanging transactions: WriteTxnMarkers, DescribeProducers,
AbortTransaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from storage.isolation import FetchIsolation
from tests.node.marker_requests import PRODUCER, batch, request_of, sent
from tests.node.wires import CALLER, TOPIC, Cluster
from tidelog.errors import (
    ClusterAuthorizationFailed,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTxnState,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OutOfOrderSequenceNumber,
    TidelogError,
    TransactionCoordinatorFenced,
    UnknownTopicId,
)
from tidelog.protocol.v1 import data_pb2
from tidelog.records import EndTxnMarker, decode_control, iter_batches


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(partitions=2)
    cluster.set(0, leader=1)
    cluster.set(1, leader=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def markers(cluster: Cluster, index: int = 0) -> list[tuple[int, EndTxnMarker]]:
    """The markers in a log, each with its producer epoch."""
    found = []
    for each in iter_batches(cluster.contents(1, index)):
        if each.is_control:
            [record] = each.records()
            control = decode_control(record)
            assert isinstance(control, EndTxnMarker)
            found.append((each.producer_epoch, control))
    return found


def test_a_marker_is_answered_when_every_in_sync_replica_has_it(cluster: Cluster) -> None:
    cluster.produce(1, batch(0))
    for number in (2, 3):
        cluster.machines[number].executor.holding = True
    task = cluster.loop.create_task(cluster.service(1).write_txn_markers(request_of(), CALLER))
    cluster.run(0.5)
    assert not task.done()
    assert cluster.log(1).log_end_offset == 2
    for number in (2, 3):
        cluster.machines[number].executor.release()
    cluster.until(task.done)
    assert task.result().markers[0].partitions[0].error.code == 0
    assert cluster.watermark(1) == 2
    assert cluster.log(1).last_stable_offset == 2, "one offset for the marker, as in Kafka"


def test_each_partition_is_answered_by_itself(cluster: Cluster) -> None:
    cluster.set(1, leader=2, isr=(1, 2, 3))
    request = request_of(0, 1, 7)
    request.markers[0].partitions.add(topic_id=UUID(int=5).bytes, partition=0)
    codes = sent(cluster, request)
    assert codes[:2] == [0, NotLeaderOrFollower.code]
    assert codes[3] == UnknownTopicId.code
    assert codes[2] not in (0, NotLeaderOrFollower.code)
    assert len(markers(cluster)) == 1


def test_an_answer_names_the_leader_to_send_to(cluster: Cluster) -> None:
    cluster.set(0, leader=2, isr=(1, 2, 3))
    answer = cluster.wait(cluster.service(1).write_txn_markers(request_of(), CALLER))
    assert answer.markers[0].partitions[0].error.leader.node_id == 2


def test_a_repeated_marker_of_the_same_coordinator_is_fine_and_one_of_an_older_is_refused(cluster: Cluster) -> None:
    cluster.produce(1, batch(0))
    assert sent(cluster, request_of(coordinator=3)) == [0]
    assert sent(cluster, request_of(coordinator=3)) == [0]
    assert sent(cluster, request_of(coordinator=2)) == [TransactionCoordinatorFenced.code]
    assert {control.coordinator_epoch for _, control in markers(cluster)} == {3}


def test_a_late_batch_of_a_transaction_that_has_ended_is_refused(cluster: Cluster) -> None:
    """KIP-890: the marker has the next epoch, and the next transaction begins with sequence 0 in it."""
    cluster.produce(1, batch(0))
    assert sent(cluster, request_of(epoch=1, commit=False)) == [0]
    [late] = cluster.produce(1, batch(1))
    assert late.error.code == InvalidProducerEpoch.code
    [gap] = cluster.produce(1, batch(1, epoch=1))
    assert gap.error.code == OutOfOrderSequenceNumber.code
    [following] = cluster.produce(1, batch(0, epoch=1))
    assert (following.error.code, following.base_offset) == (0, 2)


def test_a_late_copy_of_a_marker_does_not_end_the_next_transaction(cluster: Cluster) -> None:
    """Version 2: its epoch must be above the transaction's. With version 1 nothing tells them apart."""
    cluster.produce(1, batch(0))
    assert sent(cluster, request_of(epoch=1)) == [0]
    cluster.produce(1, batch(0, epoch=1))
    assert sent(cluster, request_of(epoch=1)) == [InvalidProducerEpoch.code]
    assert cluster.log(1).last_stable_offset == 2
    assert sent(cluster, request_of(epoch=2)) == [0]
    assert cluster.log(1).last_stable_offset == 4
    cluster.produce(1, batch(0, epoch=2))
    assert sent(cluster, request_of(epoch=2, version=1)) == [0]
    assert cluster.log(1).last_stable_offset == 6


def test_a_marker_of_an_older_epoch_is_refused(cluster: Cluster) -> None:
    cluster.produce(1, batch(0, epoch=4))
    assert sent(cluster, request_of(epoch=3, version=1)) == [InvalidProducerEpoch.code]


def test_markers_of_several_transactions_keep_their_order(cluster: Cluster) -> None:
    request = request_of(0, 1, epoch=1)
    request.markers.extend(request_of(0, epoch=2, commit=False).markers)
    answer = cluster.wait(cluster.service(1).write_txn_markers(request, CALLER))
    assert [[part.partition for part in marker.partitions] for marker in answer.markers] == [[0, 1], [0]]
    assert [(epoch, control.committed) for epoch, control in markers(cluster)] == [(1, True), (2, False)]


def test_a_marker_is_not_written_with_too_few_replicas(cluster: Cluster) -> None:
    cluster.produce(1, batch(0))
    cluster.set(min_insync=3, isr=(1, 2))
    assert sent(cluster, request_of()) == [NotEnoughReplicas.code]
    assert markers(cluster) == []


def test_clients_and_impossible_producers_are_refused(cluster: Cluster) -> None:
    client = replace(CALLER, for_nodes=False)
    with pytest.raises(ClusterAuthorizationFailed):
        cluster.wait(cluster.service(1).write_txn_markers(request_of(), client))
    for field, value in (("producer_id", -1), ("producer_epoch", -1), ("producer_epoch", 1 << 15)):
        request = request_of()
        setattr(request.markers[0], field, value)
        with pytest.raises(InvalidRequest):
            cluster.wait(cluster.service(1).write_txn_markers(request, CALLER))
    assert cluster.wait(cluster.service(1).write_txn_markers(data_pb2.WriteTxnMarkersRequest(), CALLER)).markers == []
    assert cluster.log(1).log_end_offset == 0


def test_a_node_that_loses_its_leadership_answers_its_markers(cluster: Cluster) -> None:
    for number in (2, 3):
        cluster.machines[number].executor.holding = True
    task: asyncio.Task[data_pb2.WriteTxnMarkersResponse] = cluster.loop.create_task(
        cluster.service(1).write_txn_markers(request_of(), CALLER)
    )
    cluster.run(0.1)
    cluster.set(0, leader=2, isr=(1, 2, 3))
    cluster.until(task.done)
    assert task.result().markers[0].partitions[0].error.code != 0


# --- tools ---


def described(
    cluster: Cluster, index: int = 0, node: int = 1, *, of_any_replica: bool = False
) -> data_pb2.DescribedProducers:
    request = data_pb2.DescribeProducersRequest(of_any_replica=of_any_replica)
    request.partitions.add(topic_id=TOPIC.bytes, partition=index)
    answer = cluster.wait(cluster.service(node).describe_producers(request, CALLER))
    [partition] = answer.partitions
    assert isinstance(partition, data_pb2.DescribedProducers)
    return partition


def abort(cluster: Cluster, **changes: int) -> None:
    fields = {"partition": 0, "producer_id": PRODUCER, "producer_epoch": 0, "transaction_start": 1, **changes}
    request = data_pb2.AbortTransactionRequest(topic_id=TOPIC.bytes, **fields)
    cluster.wait(cluster.service(1).abort_transaction(request, CALLER))


def test_producers_are_described_with_their_open_transactions(cluster: Cluster) -> None:
    cluster.produce(1, batch(0, txn=False))
    cluster.produce(1, batch(1))
    partition = described(cluster)
    [producer] = partition.producers
    assert partition.last_stable_offset == 1
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (PRODUCER, 0, 1)
    assert (producer.transaction_start, producer.coordinator_epoch) == (1, -1)
    sent(cluster, request_of(coordinator=5))
    [producer] = described(cluster).producers
    assert (producer.producer_epoch, producer.transaction_start, producer.coordinator_epoch) == (1, -1, 5)
    assert producer.last_sequence == -1
    assert described(cluster, node=2).error.code == NotLeaderOrFollower.code
    follower = described(cluster, node=2, of_any_replica=True)
    assert [(each.producer_id, each.producer_epoch, each.transaction_start) for each in follower.producers] == [
        (PRODUCER, 1, -1)
    ]


def test_a_hanging_transaction_is_aborted_in_one_partition(cluster: Cluster) -> None:
    cluster.produce(1, batch(0, txn=False))
    cluster.produce(1, batch(1))
    cluster.produce(1, batch(0), index=1)
    abort(cluster)
    log = cluster.log(1)
    assert (log.last_stable_offset, log.log_end_offset) == (3, 3)
    assert [each.producer_id for each in log.aborted_transactions(0, 3)] == [PRODUCER]
    assert cluster.log(1, 1).last_stable_offset == 0, "the other partition is not touched"
    assert log.end_for(FetchIsolation.LAST_STABLE_OFFSET) == 3


def test_whichever_transaction_is_open_is_aborted_if_none_is_named(cluster: Cluster) -> None:
    """Kafka's tools name the producer and its epoch alone."""
    cluster.produce(1, batch(0))
    abort(cluster, transaction_start=-1)
    assert (cluster.log(1).last_stable_offset, cluster.log(1).log_end_offset) == (2, 2)
    with pytest.raises(InvalidTxnState, match=f"producer {PRODUCER} has no open transaction in "):
        abort(cluster, transaction_start=-1)
    assert cluster.log(1).log_end_offset == 2


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"transaction_start": 0}, InvalidTxnState),
        ({"producer_id": 4}, InvalidTxnState),
        ({"producer_epoch": 1}, InvalidProducerEpoch),
        ({"producer_epoch": -1}, InvalidRequest),
    ],
)
def test_another_transaction_than_the_named_one_is_not_aborted(
    cluster: Cluster, changes: dict[str, int], error: type[TidelogError]
) -> None:
    cluster.produce(1, batch(0, txn=False))
    cluster.produce(1, batch(1))
    with pytest.raises(error):
        abort(cluster, **changes)
    assert cluster.log(1).log_end_offset == 2


def test_an_aborted_transaction_keeps_the_coordinator_epoch(cluster: Cluster) -> None:
    """A higher one would fence the coordinator, a lower one be refused."""
    cluster.produce(1, batch(0))
    sent(cluster, request_of(coordinator=6, epoch=1))
    cluster.produce(1, batch(0, epoch=1))
    abort(cluster, producer_epoch=1, transaction_start=2)
    assert [control.coordinator_epoch for _, control in markers(cluster)] == [6, 6]
    assert cluster.log(1).last_stable_offset == 4
