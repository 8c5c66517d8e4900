"""Requests to transaction coordinators: what is refused before a coordinator gets it, and how answers are composed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from node.api.marker_requests import WriteTxnMarkersAnswer, WriteTxnMarkersRequest
from node.config import GRPC_LISTENER
from node.coordinators.transactions.transaction_coordinators import TransactionCoordinators
from node.coordinators.transactions.transaction_location import TransactionLocation
from node.listeners.grpc.grpc_peers import GrpcPeers
from node.requests.transaction_handlers import TransactionHandlers
from node.security.authorizer import Authorizer
from replication.controller.image import EMPTY, TopicState
from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.group_requests import CommittedPartitions, ListedCoordinator, NamedPartition
from replication.coordination.transaction_requests import (
    AddOffsetsToTxn,
    AddOrVerifyPartitions,
    AddPartitionsToTxn,
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsAnswer,
    EndTxn,
    InitTransactionalProducer,
    InitWithProducerId,
    ListedTransaction,
    ListTransactions,
    ListTransactionsAnswer,
    MarkersWritten,
    ProducerIdNeeded,
    TransactionToVerify,
    WriteMarkers,
)
from replication.coordination.transactions.transaction_config import TransactionConfig
from testbed.sim.clock import SimClock
from tests.node.wires import CALLER, TOPIC, Cluster
from tidelog.errors import (
    ClusterAuthorizationFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    InvalidRegularExpression,
    InvalidRequest,
    NotController,
    NotCoordinator,
    OperationNotAttempted,
    TidelogError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnreadableCoordinatorRecord,
    UnsupportedVersion,
)
from tidelog.security.acls import ResourceType
from tidelog.types import TRANSACTIONS_TOPIC, Millis, NodeId, PartitionIndex, ProducerId

P = PartitionIndex


class World:
    """Handlers of node 1, whose coordinators answer what the test says."""

    def __init__(self) -> None:
        self.cluster = Cluster(partitions=4)
        image = self.cluster.image
        topic = TopicState(TRANSACTIONS_TOPIC, TOPIC, {}, image.topics[TOPIC].partitions)
        self.image = replace(EMPTY, topics={TOPIC: topic}, topic_ids={TRANSACTIONS_TOPIC: TOPIC}, nodes=image.nodes)
        self.producer_ids: list[int | TidelogError] = [1000, 1001]
        self.coordinators = TransactionCoordinators(
            self.cluster.manager(1),
            TransactionLocation(NodeId(1), lambda: self.image, GRPC_LISTENER),
            clock=SimClock(self.cluster.loop),
            peers=GrpcPeers(self.cluster.wires),
            call_soon=self.cluster.loop.call_soon,
            why_no_lease=str,
            config=TransactionConfig(),
            take_producer_id=self.take,
            write_markers=self.write_markers,
        )
        self.asked: list[tuple[int, Any]] = []
        self.answers: Callable[[int, Any], Any] = lambda _partition, _request: None
        runtime: Any = self.coordinators.runtime
        runtime.submit = self.submit
        self.no_offsets_topic: TidelogError | None = None
        """Why the internal topic of groups cannot be created."""
        self.handlers = TransactionHandlers(self.coordinators, self.ensure_offsets_topic)

    async def write_markers(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersAnswer:
        raise AssertionError(f"no transaction ends here: {request}")

    async def submit(self, partition: int, request: Any) -> Any:
        self.asked.append((partition, request))
        answer = self.answers(partition, request)
        if isinstance(answer, TidelogError):
            raise answer
        return answer

    async def take(self) -> ProducerId:
        taken = self.producer_ids.pop(0)
        if isinstance(taken, TidelogError):
            raise taken
        return ProducerId(taken)

    async def ensure_offsets_topic(self) -> None:
        self.asked.append((-1, "the internal topic of groups"))
        if self.no_offsets_topic is not None:
            raise self.no_offsets_topic

    def call(self, name: str, request: Any, context: Any = CALLER) -> Any:
        return self.cluster.wait(getattr(self.handlers, name)(request, context))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.cluster.loop.raise_defects()
    world.cluster.close()


def init(**changes: Any) -> InitTransactionalProducer:
    return replace(InitTransactionalProducer("t1", 60_000, ProducerId(-1), -1, 2), **changes)


def end(**changes: Any) -> EndTxn:
    return replace(EndTxn("t1", ProducerId(5), 0, committed=True, transaction_version=2), **changes)


def add(*places: tuple[str, int], **changes: Any) -> AddPartitionsToTxn:
    partitions = tuple(NamedPartition(topic, P(index)) for topic, index in places)
    return replace(AddPartitionsToTxn("t1", ProducerId(5), 0, partitions), **changes)


@pytest.mark.parametrize(
    ("name", "request_", "error"),
    [
        ("init_producer_id", init(transactional_id=""), InvalidRequest),
        ("init_producer_id", init(transactional_id="x" * 2_000), InvalidRequest),
        ("init_producer_id", init(producer_id=ProducerId(4)), InvalidRequest),
        ("init_producer_id", init(producer_epoch=4), InvalidRequest),
        ("end_txn", end(transactional_id=""), InvalidRequest),
        ("end_txn", end(producer_id=ProducerId(-1)), InvalidRequest),
        ("end_txn", end(producer_epoch=1 << 15), InvalidRequest),
        ("end_txn", end(transaction_version=3), UnsupportedVersion),
        ("add_partitions_to_txn", add(("a", 0), ("a", 0)), InvalidRequest),
        ("add_partitions_to_txn", add(("a", 0), producer_epoch=-1), InvalidRequest),
        ("add_partitions_to_txn", add(*[("a", index) for index in range(10_001)]), InvalidRequest),
        ("add_offsets_to_txn", AddOffsetsToTxn("t1", ProducerId(5), 0, ""), InvalidGroupId),
        ("add_offsets_to_txn", AddOffsetsToTxn("", ProducerId(5), 0, "g"), InvalidRequest),
        ("list_transactions", ListTransactions(states=("x" * 1_000,)), InvalidRequest),
        ("describe_transactions", DescribeTransactions(("t",) * 1_001), InvalidRequest),
    ],
)
def test_what_no_client_sends_reaches_no_coordinator(
    world: World, name: str, request_: Any, error: type[TidelogError]
) -> None:
    with pytest.raises(error):
        world.call(name, request_)
    assert world.asked == []


def test_a_producer_id_is_taken_when_the_coordinator_needs_one(world: World) -> None:
    def answers(_partition: int, request: Any) -> Any:
        if isinstance(request, InitWithProducerId):
            return TransactionalProducer(request.fresh, 0)
        return ProducerIdNeeded()

    world.answers = answers
    assert world.call("init_producer_id", init()) == TransactionalProducer(ProducerId(1000), 0)
    assert [request for _, request in world.asked] == [init(), InitWithProducerId(init(), ProducerId(1000))]


def test_without_a_producer_id_the_producer_tries_again(world: World) -> None:
    """Trap 17: the error must be one that clients repeat."""
    world.answers = lambda _partition, _request: ProducerIdNeeded()
    world.producer_ids = [NotController("none")]
    with pytest.raises(CoordinatorNotAvailable):
        world.call("init_producer_id", init())


def test_without_the_internal_topic_the_producer_looks_the_coordinator_up(world: World) -> None:
    """Trap 17: the error must be one on which clients look the coordinator up again."""
    world.image = EMPTY
    with pytest.raises(CoordinatorNotAvailable):
        world.call("init_producer_id", init())


def test_a_producer_may_be_the_first_that_names_a_group(world: World) -> None:
    """It looks the group's coordinator up only after it has added the group: the topic must be there by then."""
    request = AddOffsetsToTxn("t1", ProducerId(5), 0, "readers")
    world.call("add_offsets_to_txn", request)
    assert [asked for _, asked in world.asked] == ["the internal topic of groups", request]
    world.no_offsets_topic = CoordinatorNotAvailable("too few nodes")
    with pytest.raises(CoordinatorNotAvailable):
        world.call("add_offsets_to_txn", request)
    assert len(world.asked) == 3


def test_another_node_is_named_if_it_coordinates(world: World) -> None:
    world.answers = lambda _partition, _request: NotCoordinator("not here")
    state = replace(world.image.topics[TOPIC].partitions[0], leader=NodeId(2))
    topic = replace(world.image.topics[TOPIC], partitions=(state,) * 4)
    world.image = replace(world.image, topics={TOPIC: topic})
    world.coordinators.runtime.on_image(world.image)
    with pytest.raises(NotCoordinator) as refused:
        world.call("end_txn", end())
    assert refused.value.leader is not None
    assert refused.value.leader.node_id == 2


class Limited(Authorizer):
    """Allows topic `mine` and transactional ids that begin with `t`."""

    def topic_refusal(self, context: Any, api: Any, topic: str, *, by_id: bool = False) -> TidelogError | None:
        return None if topic == "mine" else TopicAuthorizationFailed(topic)

    def resource_refusal(
        self,
        context: Any,
        api: Any,
        operation: Any,
        resource_type: ResourceType,
        name: str,
    ) -> TidelogError | None:
        return None if self._allows(resource_type, name) else TransactionalIdAuthorizationFailed(name)

    def allows(self, context: Any, operation: Any, resource_type: ResourceType, name: str) -> bool:
        return self._allows(resource_type, name)

    def allows_topic(self, context: Any, operation: Any, topic: str) -> bool:
        return topic == "mine"

    def _allows(self, resource_type: ResourceType, name: str) -> bool:
        assert resource_type is ResourceType.TRANSACTIONAL_ID
        return name.startswith("t")


LIMITED = replace(CALLER, authorizer=Limited())


def test_no_partition_is_added_if_the_caller_may_not_write_to_one(world: World) -> None:
    answer = world.call("add_partitions_to_txn", add(("mine", 0), ("other", 1)), LIMITED)
    errors = [type(each.error) for each in answer.partitions]
    assert errors == [OperationNotAttempted, TopicAuthorizationFailed]
    assert world.asked == []
    world.answers = lambda _partition, _request: CommittedPartitions(())
    world.call("add_partitions_to_txn", add(("mine", 0)), LIMITED)
    assert len(world.asked) == 1


def lead(world: World, *partitions: int) -> None:
    """Let the node lead these partitions of the internal topic, according to its image, and node 2 the others."""
    former = world.image.topics[TOPIC]
    states = tuple(
        replace(state, leader=NodeId(1 if index in partitions else 2)) for index, state in enumerate(former.partitions)
    )
    world.image = replace(world.image, topics={TOPIC: replace(former, partitions=states)})
    world.coordinators.runtime.on_image(world.image)


def names_by_partition(**of: str) -> Callable[[int, Any], ListTransactionsAnswer]:
    """Coordinators with these ids, for example p0="a b"."""

    def answers(partition: int, _request: Any) -> ListTransactionsAnswer:
        names = of.get(f"p{partition}", "").split()
        return ListTransactionsAnswer(
            tuple(ListedTransaction(name, ProducerId(0), "Ongoing", Millis(5)) for name in names)
        )

    return answers


def test_all_coordinators_of_the_node_are_listed_without_what_is_hidden(world: World) -> None:
    lead(world, 0, 2)
    world.answers = names_by_partition(p0="t5 hidden", p1="t7", p2="t1")
    request = ListTransactions(states=("Ongoing",))
    listed = world.call("list_transactions", request, LIMITED)
    assert [each.transactional_id for each in listed.transactions] == ["t1", "t5"]
    assert listed.coordinators == (ListedCoordinator(P(0)), ListedCoordinator(P(2)))
    assert listed.partition_count == 4
    assert world.asked == [(0, request), (2, request)]


@pytest.mark.parametrize(
    "error",
    [
        NotCoordinator("it ends"),
        CoordinatorLoadInProgress("loading"),
        CoordinatorNotAvailable("suspended"),
        UnreadableCoordinatorRecord("offset 3 is malformed"),
    ],
)
def test_a_coordinator_that_cannot_list_is_named_beside_the_others(world: World, error: TidelogError) -> None:
    lead(world, 0, 2)
    listed_by = names_by_partition(p2="t1")
    world.answers = lambda partition, request: error if partition == 0 else listed_by(partition, request)
    listed = world.call("list_transactions", ListTransactions())
    assert [each.transactional_id for each in listed.transactions] == ["t1"]
    assert listed.coordinators == (ListedCoordinator(P(0), error), ListedCoordinator(P(2)))


def test_a_node_that_was_elected_and_has_not_begun_to_lead_says_so(world: World) -> None:
    """It has no coordinator of the partition yet: its answer must not look complete."""
    lead(world, 1)
    runtime: Any = world.coordinators.runtime
    del runtime.submit
    listed = world.call("list_transactions", ListTransactions())
    assert [(each.partition, type(each.error)) for each in listed.coordinators] == [(1, CoordinatorLoadInProgress)]


def test_a_wrong_request_is_refused_by_the_whole_listing(world: World) -> None:
    lead(world, 0, 2)
    world.answers = lambda _partition, _request: InvalidRequest("unknown transaction state")
    with pytest.raises(InvalidRequest, match="unknown transaction state"):
        world.call("list_transactions", ListTransactions())


def test_without_the_internal_topic_no_transactional_id_exists(world: World) -> None:
    world.coordinators.runtime.on_image(EMPTY)
    assert world.call("list_transactions", ListTransactions()) == ListTransactionsAnswer((), max_timeout_ms=900_000)


@pytest.mark.parametrize(("pattern", "found"), [("", "x-task-1 xa-task-1"), (r"x-task-\d+", "x-task-1"), ("x", "")])
def test_a_pattern_matches_the_whole_id(world: World, pattern: str, found: str) -> None:
    lead(world, 0)
    world.answers = names_by_partition(p0="xa-task-1 x-task-1")
    listed = world.call("list_transactions", ListTransactions(transactional_id_pattern=pattern))
    assert [each.transactional_id for each in listed.transactions] == found.split()


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "x" * 5_000])
def test_a_pattern_that_is_none_is_refused(world: World, pattern: str) -> None:
    lead(world, 0)
    with pytest.raises(InvalidRegularExpression):
        world.call("list_transactions", ListTransactions(transactional_id_pattern=pattern))
    assert world.asked == []


def test_each_transactional_id_is_described_or_refused_in_its_place(world: World) -> None:
    def answers(_partition: int, request: Any) -> Any:
        [name] = request.transactional_ids
        if name == "t-elsewhere":
            return NotCoordinator("not here")
        partitions = (NamedPartition("mine", P(0)), NamedPartition("other", P(0)))
        return DescribeTransactionsAnswer((DescribedTransaction(name, None, "Ongoing", partitions=partitions),))

    world.answers = answers
    names = ("t1", "hidden", "", "t-elsewhere", "t1")
    described = world.call("describe_transactions", DescribeTransactions(names), LIMITED).transactions
    assert [each.transactional_id for each in described] == list(names)
    assert [type(each.error) for each in described] == [
        type(None),
        TransactionalIdAuthorizationFailed,
        InvalidRequest,
        NotCoordinator,
        type(None),
    ]
    assert described[0].partitions == (NamedPartition("mine", P(0)),)
    assert len(world.asked) == 2, "an id that is named twice is asked for once"


def test_only_nodes_ask_for_verification_and_get_an_answer_for_each_entry(world: World) -> None:
    entries = tuple(
        TransactionToVerify(name, ProducerId(5), 0, verify_only=False, partitions=(NamedPartition("mine", P(0)),))
        for name in ("t1", "t2")
    )
    with pytest.raises(ClusterAuthorizationFailed):
        world.call("add_or_verify_partitions", AddOrVerifyPartitions(entries), replace(CALLER, for_nodes=False))
    answer = world.call("add_or_verify_partitions", AddOrVerifyPartitions(entries))
    assert [each.transactional_id for each in answer.transactions] == ["t1", "t2"]
    assert all(isinstance(each.partitions[0].error, NotCoordinator) for each in answer.transactions)


def test_markers_are_reported_again_to_a_busy_coordinator(world: World) -> None:
    """It refuses what has waited for 5 s. Of 10,000 transactions that timed out together, some stayed prepared until
    the coordinator moved. To one that is suspended or has moved nothing is reported: its next load asks for the
    markers again."""
    reported: list[Any] = []
    answers: list[asyncio.Future[Any]] = []

    class Busy:
        def submit(self, asked: Any, *, needs_lease: bool) -> asyncio.Future[Any]:
            assert not needs_lease, "without one it would be refused, and reported again at once, until there is one"
            reported.append(asked)
            answers.append(world.cluster.loop.create_future())
            return answers[-1]

    found: list[Busy | TidelogError] = [*(Busy() for _ in range(3)), NotCoordinator("moved")]

    def coordinator(_partition: int) -> Busy:
        next_one = found.pop(0)
        if isinstance(next_one, TidelogError):
            raise next_one
        return next_one

    runtime: Any = world.coordinators.runtime
    runtime.coordinator = coordinator
    markers = WriteMarkers(
        "t1", ProducerId(5), 1, 0, committed=True, partitions=(NamedPartition("a", P(0)),), transaction_version=2
    )
    written = MarkersWritten(markers)
    world.coordinators._report_markers(P(0), written)
    for _ in range(2):
        answers[-1].set_exception(CoordinatorNotAvailable("waits for the commit of an earlier change"))
        world.cluster.run(0.001)
    assert reported == [written] * 3
    answers[-1].set_exception(CoordinatorNotAvailable("suspended"))
    world.cluster.run(0.001)
    assert found == []
    assert len(reported) == 3


def test_a_caller_that_leaves_ends_nothing(world: World) -> None:
    """The decision is made without it; its outcome is reported to nobody."""
    coordinator = FakeCoordinator(world.cluster.loop)
    runtime: Any = world.coordinators.runtime
    runtime.coordinator = lambda _partition: coordinator
    entry = TransactionToVerify("t1", ProducerId(5), 0, verify_only=False, partitions=(NamedPartition("mine", P(0)),))
    work = world.coordinators.add_or_verify(AddOrVerifyPartitions((entry,)))
    task: asyncio.Task[Any] = world.cluster.loop.create_task(work)
    world.cluster.run(0.01)
    task.cancel()
    world.cluster.run(0.01)
    coordinator.decision.set_exception(CoordinatorNotAvailable("suspended"))
    world.cluster.run(0.01)
    assert task.cancelled()


class FakeCoordinator:
    """A coordinator with one decision, which the test makes."""

    def __init__(self, loop: Any) -> None:
        self.decision: asyncio.Future[Any] = loop.create_future()

    def submit(self, _request: Any) -> asyncio.Future[Any]:
        return self.decision
