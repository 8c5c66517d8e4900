"""Verification of transactions by leaders (KIP-890): the first batch of a transaction waits for the coordinator; what
comes too late, or out of order, is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from node.config import GRPC_LISTENER
from node.coordinators.transactions import node_requests
from node.coordinators.transactions.transaction_location import TransactionLocation
from node.coordinators.transactions.transaction_verifier import RETRY_MS_MAX, TransactionVerifier
from node.listeners.grpc.grpc_peers import GrpcPeers
from node.replicas.replica_config import ReplicaConfig
from node.requests.data_handlers import DataHandlers
from node.requests.gate import Gate
from node.requests.producer_ids import ProducerIds
from node.security.authorizer import Authorizer
from replication.controller.image import TopicState
from replication.coordination.group_requests import CommittedPartition
from replication.coordination.partitioning import partition_of
from replication.coordination.transaction_requests import (
    AddOrVerifyPartitions,
    AddOrVerifyPartitionsAnswer,
    TransactionToVerify,
    VerifiedTransaction,
)
from testbed.sim.clock import SimClock
from tests.node.marker_requests import batch, request_of
from tests.node.marker_requests import sent as marked
from tests.node.message_services import MessageService
from tests.node.wires import CALLER, TOPIC, Cluster, endpoint_of, no_blocks
from tidelog.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTxnState,
    NotCoordinator,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    TidelogError,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import transactions_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import iter_batches
from tidelog.security.acls import AclOperation, ResourceType
from tidelog.types import TRANSACTIONS_TOPIC, NodeId, TopicId

ID = "t1"
STATE_TOPIC = TopicId(UUID(int=71))


@dataclass(frozen=True)
class Asked:
    """What the coordinator was asked about one producer."""

    transactional_id: str
    epoch: int
    partitions: tuple[int, ...]
    verify_only: bool = False


class ScriptedCoordinator:
    """A coordinator that answers what the test says; at once, or when released."""

    def __init__(self) -> None:
        self.asked: list[list[Asked]] = []
        self.errors: list[TidelogError | None] = []
        """The errors of the next requests; afterwards everything is confirmed."""
        self.refused_partitions: dict[int, TidelogError] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def answer(self, request: AddOrVerifyPartitions) -> AddOrVerifyPartitionsAnswer:
        self.asked.append([self._noted(each) for each in request.transactions])
        error = self.errors.pop(0) if self.errors else None
        await self.gate.wait()
        if isinstance(error, NotCoordinator):
            raise error
        return AddOrVerifyPartitionsAnswer(tuple(self._verified(each, error) for each in request.transactions))

    @staticmethod
    def _noted(asked: TransactionToVerify) -> Asked:
        partitions = tuple(part.partition for part in asked.partitions)
        return Asked(asked.transactional_id, asked.producer_epoch, partitions, asked.verify_only)

    def _verified(self, asked: TransactionToVerify, error: TidelogError | None) -> VerifiedTransaction:
        return VerifiedTransaction(
            asked.transactional_id,
            tuple(
                CommittedPartition(part.topic, part.partition, error or self.refused_partitions.get(part.partition))
                for part in asked.partitions
            ),
        )


class World:
    """Node 1 leads partitions 0 to 2 and verifies."""

    def __init__(self, *, verifies_batches: bool = True) -> None:
        self.cluster = Cluster(partitions=3)
        for index in range(3):
            self.cluster.set(index, leader=1)
        self.coordinator = ScriptedCoordinator()
        cluster = self.cluster
        states = tuple(replace(each, leader=NodeId(1)) for each in cluster.image.topics[TOPIC].partitions[:1])
        self.internal = TopicState(TRANSACTIONS_TOPIC, STATE_TOPIC, {}, states)
        location = TransactionLocation(NodeId(1), self.image, GRPC_LISTENER)
        clock = SimClock(cluster.loop)
        self.verifier = TransactionVerifier(
            location,
            clock=clock,
            peers=GrpcPeers(cluster.wires),
            local=self.coordinator.answer,
            verifies_batches=verifies_batches,
        )
        self.running = cluster.loop.create_task(self.verifier.run())
        handlers = DataHandlers(
            cluster.manager(1),
            cluster.sessions(1),
            ProducerIds(no_blocks),
            clock=clock,
            config=ReplicaConfig(),
            inspectors=cluster.machines[1].inspectors,
            fetch_sessions=cluster.machines[1].fetch_sessions,
            verifier=self.verifier,
        )
        cluster.machines[1].service = MessageService(Gate("Data", handlers))
        cluster.run(0.001)

    def image(self) -> Any:
        image = self.cluster.image
        return replace(
            image,
            topics={**image.topics, self.internal.topic_id: self.internal},
            topic_ids={**image.topic_ids, TRANSACTIONS_TOPIC: self.internal.topic_id},
        )

    def begin(
        self, *batches: bytes, index: int = 0, version: int = 2, transactional_id: str = ID, context: Any = CALLER
    ) -> asyncio.Task[Any]:
        """Send batches, all for one partition, and do not wait."""
        return self.send([(index, each) for each in batches], version, transactional_id, context)

    def send(
        self, batches: list[tuple[int, bytes]], version: int = 2, transactional_id: str = ID, context: Any = CALLER
    ) -> asyncio.Task[Any]:
        entries = [
            ProduceBatch(correlation_id=i, topic_id=TOPIC.bytes, partition=index, records=records)
            for i, (index, records) in enumerate(batches)
        ]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            partitions=entries,
            transactional_id=transactional_id,
            transaction_version=version,
        )
        task = self.cluster.loop.create_task(self.cluster.service(1).produce(request, context))
        self.cluster.run(0.0001)
        return task

    def codes(self, task: asyncio.Task[Any]) -> list[int]:
        self.cluster.until(task.done)
        answers = sorted(task.result().partitions, key=lambda produced: produced.batch_id)
        return [answer.error.code for answer in answers]

    def produce(self, *batches: bytes, **options: Any) -> list[int]:
        """Send batches; returns their error codes."""
        return self.codes(self.begin(*batches, **options))


@pytest.fixture
def world() -> Iterator[World]:
    yield from _world()


@pytest.fixture
def unverified() -> Iterator[World]:
    """With `transaction.partition.verification.enable=false`."""
    yield from _world(verifies_batches=False)


def _world(**options: bool) -> Iterator[World]:
    world = World(**options)
    yield world
    world.cluster.loop.raise_defects()
    world.cluster.close()


def test_only_the_first_batch_of_a_transaction_asks(world: World) -> None:
    assert world.produce(batch(0), batch(1)) == [0, 0]
    assert world.produce(batch(2)) == [0]
    assert world.coordinator.asked == [[Asked(ID, 0, (0,))]]
    assert marked(world.cluster, request_of(epoch=1)) == [0]
    assert world.produce(batch(0, epoch=1)) == [0]
    assert world.coordinator.asked[1:] == [[Asked(ID, 1, (0,))]]


def test_with_version_1_the_coordinator_only_verifies(world: World) -> None:
    assert world.produce(batch(0), version=1) == [0]
    assert world.coordinator.asked == [[Asked(ID, 0, (0,), verify_only=True)]]


def test_partitions_are_added_with_version_2_where_nothing_is_verified(unverified: World) -> None:
    """Nobody else adds them: the transaction could not be ended, and would hang. As in Kafka."""
    assert unverified.produce(batch(0), version=1) == [0]
    assert unverified.coordinator.asked == []
    assert unverified.produce(batch(0), index=1) == [0]
    assert unverified.coordinator.asked == [[Asked(ID, 0, (1,))]]


def test_batches_outside_of_transactions_ask_nobody_and_do_not_wait(world: World) -> None:
    world.coordinator.gate.clear()
    waiting = world.begin(batch(0))
    other = world.cluster.produce(1, batch(0, txn=False), index=1)
    assert other[0].error.code == 0
    assert not waiting.done()
    world.coordinator.gate.set()
    assert world.codes(waiting) == [0]
    assert len(world.coordinator.asked) == 1


def test_all_partitions_of_a_request_are_asked_about_together(world: World) -> None:
    assert world.codes(world.send([(0, batch(0)), (1, batch(0)), (2, batch(0))])) == [0, 0, 0]
    assert world.coordinator.asked == [[Asked(ID, 0, (0, 1, 2))]]


def test_requests_that_come_while_one_waits_do_not_wait_for_it(world: World) -> None:
    world.coordinator.gate.clear()
    tasks = [world.begin(batch(0), index=index) for index in range(3)]
    world.coordinator.gate.set()
    assert [world.codes(task) for task in tasks] == [[0], [0], [0]]
    assert [[each.partitions for each in asked] for asked in world.coordinator.asked] == [[(0,)], [(1,)], [(2,)]]


def test_requests_that_come_while_many_are_under_way_share_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_requests, "REQUESTS_MAX", 1)
    world.coordinator.gate.clear()
    tasks = [world.begin(batch(0), index=index) for index in range(3)]
    world.coordinator.gate.set()
    assert [world.codes(task) for task in tasks] == [[0], [0], [0]]
    assert [[each.partitions for each in asked] for asked in world.coordinator.asked] == [[(0,)], [(1, 2)]]


def test_later_batches_of_the_same_producer_wait_in_order(world: World) -> None:
    world.coordinator.gate.clear()
    task = world.send([(0, batch(0)), (1, batch(0)), (0, batch(1)), (0, batch(2))])
    world.cluster.run(0.1)
    assert world.cluster.log(1).log_end_offset == 0
    world.coordinator.gate.set()
    assert world.codes(task) == [0, 0, 0, 0]
    assert world.cluster.log(1).log_end_offset == 3


def test_if_the_first_is_refused_the_later_ones_are_too(world: World) -> None:
    world.coordinator.refused_partitions = {0: TransactionAbortable("it was aborted")}
    codes = world.codes(world.send([(0, batch(0)), (1, batch(0)), (0, batch(1))]))
    assert codes == [TransactionAbortable.code, 0, TransactionAbortable.code]
    assert world.cluster.log(1).log_end_offset == 0
    assert len(world.coordinator.asked) == 1


def test_a_marker_between_question_and_answer_refuses_the_batch(world: World) -> None:
    """The late write of a transaction that was aborted meanwhile can neither hang nor enter the next transaction. With
    version 1 the epoch stays, so that only the guard tells them apart."""
    for version, epoch in ((1, 0), (2, 1)):
        world.coordinator.gate.clear()
        index = version
        task = world.begin(batch(0), index=index, version=version)
        assert marked(world.cluster, request_of(index, epoch=epoch, commit=False, version=version)) == [0]
        world.coordinator.gate.set()
        expected = InvalidTxnState if version == 1 else InvalidProducerEpoch
        assert world.codes(task) == [expected.code]
        assert world.cluster.log(1, index).log_end_offset == 1, "only the marker"
        assert world.cluster.log(1, index).last_stable_offset == 1


def test_a_late_batch_after_the_abort_is_refused_without_a_question(world: World) -> None:
    assert world.produce(batch(0)) == [0]
    assert marked(world.cluster, request_of(epoch=1, commit=False)) == [0]
    assert world.produce(batch(1)) == [InvalidProducerEpoch.code]
    assert len(world.coordinator.asked) == 1


def test_a_stale_answer_does_not_admit_a_batch_to_the_next_transaction(world: World) -> None:
    """Version 1: verified, ended, and begun again with the same epoch, all between question and answer."""
    world.coordinator.gate.clear()
    stale = world.begin(batch(5), version=1)
    assert marked(world.cluster, request_of(epoch=0, version=1)) == [0]
    world.coordinator.gate.set()
    assert world.codes(stale) == [InvalidTxnState.code]
    assert world.produce(batch(0), version=1) == [0]
    assert world.cluster.log(1).log_end_offset == 2


def test_while_the_end_of_the_transaction_before_is_written_the_leader_asks_again(world: World) -> None:
    world.coordinator.errors = [ConcurrentTransactions("being completed"), CoordinatorLoadInProgress("loading")]
    assert world.produce(batch(0)) == [0]
    assert len(world.coordinator.asked) == 3


def test_a_marker_during_the_retries_does_not_refuse_the_next_transaction(world: World) -> None:
    """The batch of the next transaction arrives before the marker of the last one. Each question takes a new guard."""
    assert world.produce(batch(0)) == [0]
    world.coordinator.errors = [ConcurrentTransactions("being completed")] * 3
    task = world.begin(batch(0, epoch=1))
    assert marked(world.cluster, request_of(epoch=1)) == [0]
    assert world.codes(task) == [0]


def test_with_version_1_a_marker_between_two_questions_leaves_the_second_answer_valid(world: World) -> None:
    """A transaction added the partition, wrote nothing to it and was committed. The first batch of the next one, with
    the same epoch, arrives before that marker: the first question is refused, then the marker is appended, then the
    second question is confirmed. One guard for all questions would end with the marker, and the batch be refused."""
    world.coordinator.errors = [ConcurrentTransactions("being completed")]
    task = world.begin(batch(0), version=1)
    assert marked(world.cluster, request_of(epoch=0, version=1)) == [0]
    assert world.codes(task) == [0]
    assert world.coordinator.asked == [[Asked(ID, 0, (0,), verify_only=True)]] * 2
    found = list(iter_batches(world.cluster.contents(1)))
    assert [each.is_control for each in found] == [True, False], "the marker came between the questions"
    assert world.cluster.log(1).last_stable_offset == 1, "the next transaction is open"


@pytest.mark.parametrize(
    ("error", "answered"),
    [
        (ConcurrentTransactions("being completed"), ConcurrentTransactions),
        (CoordinatorLoadInProgress("loading"), CoordinatorLoadInProgress),
        (NotCoordinator("moved"), CoordinatorNotAvailable),
    ],
)
def test_what_cannot_be_decided_for_long_is_returned_to_be_sent_again(
    world: World, error: TidelogError, answered: type[TidelogError]
) -> None:
    world.coordinator.errors = [error] * 1_000
    began = world.cluster.loop.time()
    assert world.produce(batch(0)) == [answered.code]
    assert RETRY_MS_MAX * 0.8 <= (world.cluster.loop.time() - began) * 1_000 <= RETRY_MS_MAX
    world.coordinator.errors = []
    assert world.produce(batch(0)) == [0]


def test_a_fenced_producer_gets_the_error_of_its_batches_in_the_log(world: World) -> None:
    world.coordinator.errors = [ProducerFenced("a newer one")]
    assert world.produce(batch(0)) == [InvalidProducerEpoch.code]


def test_after_a_refusal_a_later_sequence_is_not_appended_first(world: World) -> None:
    """The partition does not know the producer, so that any first sequence would do, but an earlier one was seen."""
    world.coordinator.errors = [TransactionAbortable("not now")]
    assert world.produce(batch(3), version=1) == [TransactionAbortable.code]
    assert world.produce(batch(4), version=1) == [OutOfOrderSequenceNumber.code]
    assert world.produce(batch(3), version=1) == [0]


def test_with_version_2_an_unknown_producer_begins_with_sequence_0(world: World) -> None:
    assert world.produce(batch(4)) == [OutOfOrderSequenceNumber.code]
    assert world.produce(batch(0)) == [0]


def test_a_duplicate_is_answered_after_the_transaction_has_ended(world: World) -> None:
    assert world.produce(batch(0), version=1) == [0]
    assert marked(world.cluster, request_of(epoch=0, version=1)) == [0]
    assert world.produce(batch(0), version=1) == [0]
    assert world.cluster.log(1).log_end_offset == 2
    assert len(world.coordinator.asked) == 1


@pytest.mark.parametrize(
    ("transactional_id", "version", "error"),
    [("", 2, InvalidRequest), (ID, 0, UnsupportedVersion), (ID, 3, UnsupportedVersion)],
)
def test_a_transactional_batch_needs_its_id_and_a_known_version(
    world: World, transactional_id: str, version: int, error: type[TidelogError]
) -> None:
    assert world.produce(batch(0), transactional_id=transactional_id, version=version) == [error.code]
    assert world.coordinator.asked == []
    assert world.cluster.log(1).log_end_offset == 0


def test_writing_with_a_transactional_id_needs_permission(world: World) -> None:
    class OnlyOther(Authorizer):
        def resource_refusal(
            self, context: Any, api: Any, operation: AclOperation, resource_type: ResourceType, name: str
        ) -> TidelogError | None:
            assert (operation, resource_type) == (AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
            return None if name == "other" else TransactionalIdAuthorizationFailed(name)

    context = replace(CALLER, authorizer=OnlyOther())
    assert world.produce(batch(0), context=context) == [TransactionalIdAuthorizationFailed.code]
    assert world.produce(batch(0), context=context, transactional_id="other") == [0]


def test_without_a_coordinator_the_batch_is_to_be_sent_again(world: World) -> None:
    world.internal = replace(world.internal, partitions=())
    assert world.produce(batch(0)) == [CoordinatorNotAvailable.code]


def test_another_node_is_asked_over_the_wires(world: World) -> None:
    cluster = world.cluster
    state = replace(world.internal.partitions[0], leader=NodeId(3))
    world.internal = replace(world.internal, partitions=(state,))

    class Transactions:
        async def add_or_verify_partitions(
            self, request: transactions_pb2.AddOrVerifyPartitionsRequest, _context: Any
        ) -> transactions_pb2.AddOrVerifyPartitionsResponse:
            [asked] = request.transactions
            answer = transactions_pb2.AddOrVerifyPartitionsResponse()
            verified = answer.transactions.add(transactional_id=asked.transactional_id)
            for part in asked.partitions:
                verified.partitions.add(topic=part.topic, partition=part.partition)
            return answer

    cluster.wires.services[endpoint_of(3)][methods.TRANSACTIONS] = Transactions()
    assert world.produce(batch(0)) == [0]
    assert world.coordinator.asked == []
    cluster.wires.unreachable.add(endpoint_of(3))
    assert world.produce(batch(0), index=1) == [CoordinatorNotAvailable.code]


def test_a_caller_that_leaves_while_it_waits_writes_nothing(world: World) -> None:
    world.coordinator.gate.clear()
    task = world.begin(batch(0))
    task.cancel()
    world.cluster.run(0.1)
    world.coordinator.gate.set()
    world.cluster.run(0.1)
    assert world.cluster.log(1).log_end_offset == 0
    assert world.produce(batch(0)) == [0]


def test_when_the_verifier_stops_every_question_is_answered(world: World) -> None:
    world.coordinator.gate.clear()
    tasks = [world.begin(batch(0), index=index) for index in range(2)]
    world.running.cancel()
    assert [world.codes(task) for task in tasks] == [[CoordinatorNotAvailable.code]] * 2


def test_the_partition_of_an_id_is_that_of_kafka(world: World) -> None:
    location = TransactionLocation(NodeId(1), world.image, GRPC_LISTENER)
    assert location.partition_of("any") == 0
    world.internal = replace(world.internal, partitions=world.internal.partitions * 50)
    assert location.partition_of(ID) == partition_of(ID, 50)
