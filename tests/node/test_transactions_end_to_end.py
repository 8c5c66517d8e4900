"""Transactions on real nodes, over gRPC: coordinators, leaders, markers, and the failures between them. The client is
written out: it repeats what may be repeated, and shows what a leader or coordinator refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from replication.controller.image import PartitionState
from replication.coordination.partitioning import partition_of
from testbed.topic_requests import changed_by, creating
from tests.node.real_nodes import RealNodes, real_nodes, repeated
from tidelog.clock import MachineClock
from tidelog.errors import (
    ConcurrentTransactions,
    ConnectionFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NodeNotAvailable,
    NodeShuttingDown,
    NotCoordinator,
    NotLeaderOrFollower,
    ProducerFenced,
    RequestTimedOut,
    TidelogError,
    TransactionAbortable,
)
from tidelog.protocol import methods, status
from tidelog.protocol.rpc import Method
from tidelog.protocol.v1 import data_pb2, groups_pb2, transactions_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import RecordBatch, RecordBatchBuilder, iter_batches
from tidelog.types import NO_NODE, TRANSACTIONS_TOPIC

T = TypeVar("T")

SETTINGS = CoordinatorSettings(
    GroupSettings(partitions=3),
    replace(
        TransactionSettings(),
        partitions=6,
        min_isr=1,
        abort_timed_out_interval_ms=200,  # type: ignore[arg-type]
    ),
)

TOPIC = "orders"
AGAIN = (
    ConcurrentTransactions,
    ConnectionFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NodeNotAvailable,
    NodeShuttingDown,
    NotCoordinator,
    NotLeaderOrFollower,
    RequestTimedOut,
)


async def persistently(attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of an attempt that is repeated while it may be."""
    async with asyncio.timeout(40):
        while True:
            try:
                return await attempt()
            except AGAIN:
                await MachineClock().sleep_ms(20)


@dataclass
class Producer:
    """One transactional producer. epoch, sequences: of the present transaction."""

    cluster: Transactional
    name: str
    version: int = 2
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)

    async def init(self, timeout_ms: int = 60_000) -> Producer:
        request = transactions_pb2.InitTransactionalProducerRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
            transaction_version=self.version,
        )
        answer = await self.cluster.ask(self.name, methods.TRANSACTIONS_INIT_PRODUCER_ID, request)
        self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return self

    async def add(self, *partitions: int) -> None:
        """Version 1: before the first write."""
        request = transactions_pb2.AddPartitionsToTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch
        )
        for each in partitions:
            request.partitions.add(topic=TOPIC, partition=each)
        answer = await self.cluster.ask(self.name, methods.TRANSACTIONS_ADD_PARTITIONS_TO_TXN, request)
        assert [each.error.code for each in answer.partitions] == [0] * len(partitions)

    async def write(self, value: bytes, partition: int = 0) -> None:
        """Write one record in the transaction. Raises the error of the leader."""
        sequence = self.sequences.get(partition, 0)
        await self.send(value, partition, epoch=self.epoch, sequence=sequence)
        self.sequences[partition] = sequence + 1

    async def send(self, value: bytes, partition: int, *, epoch: int, sequence: int) -> None:
        builder = RecordBatchBuilder(
            producer_id=self.producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True
        )
        builder.append(key=None, value=value, timestamp=1_700_000_000_000)
        await persistently(lambda: self.cluster.produce(builder.build(), partition, self.name, self.version))

    async def end(self, *, commit: bool = True) -> None:
        request = transactions_pb2.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
            transaction_version=self.version,
        )
        answer = await self.cluster.ask(self.name, methods.TRANSACTIONS_END_TXN, request)
        if answer.producer_epoch != self.epoch or answer.producer_id != self.producer_id:
            self.sequences = {}
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch


class Transactional:
    """A cluster with one topic, and what its clients do."""

    def __init__(self, nodes: RealNodes) -> None:
        self.nodes = nodes

    def partition(self, index: int, topic: str = TOPIC) -> PartitionState:
        """The state of a partition, by the newest image of all nodes."""
        images = [found.node.image for found in self.nodes.nodes.values() if found.node.image is not None]
        image = max(images, key=lambda image: image.offset)
        found = image.topic(topic)
        assert found is not None, f"topic {topic} does not exist"
        return found.partitions[index]

    def leader(self, index: int, topic: str = TOPIC) -> int:
        return int(self.partition(index, topic).leader)

    def coordinator(self, transactional_id: str) -> int:
        """The node of the coordinator; NO_NODE if there is none."""
        return self.leader(partition_of(transactional_id, 6), TRANSACTIONS_TOPIC)

    async def call(self, node: int, method: Method[Any, Any], request: Any) -> Any:
        if node not in self.nodes.nodes:
            raise ConnectionFailed(f"node {node} is down")
        return await self.nodes.call(node, method, request)

    async def create_topic(self, partitions: int, replicas: int) -> None:
        request = creating(name=TOPIC, partitions=partitions, replication_factor=replicas)
        await repeated(lambda: changed_by(self.nodes.call(0, methods.ADMIN_CREATE_TOPICS, request)))

        def all_led() -> bool:
            for found in self.nodes.nodes.values():
                topic = None if found.node.image is None else found.node.image.topic(TOPIC)
                if topic is None or any(each.leader == NO_NODE for each in topic.partitions):
                    return False
            return True

        await self.nodes.wait_until(all_led)

    async def find(self, transactional_id: str) -> int:
        """The node of the coordinator, found as a client finds it."""
        request = groups_pb2.FindCoordinatorRequest(
            type=groups_pb2.COORDINATOR_TYPE_TRANSACTION, keys=[transactional_id]
        )
        [found] = (await self.call(min(self.nodes.nodes), methods.COORDINATORS_FIND_COORDINATOR, request)).coordinators
        if found.HasField("error"):
            raise status.from_proto(found.error)
        return int(found.node.node_id)

    async def ask(self, transactional_id: str, method: Method[Any, Any], request: Any) -> Any:
        """The answer of the coordinator."""

        async def attempt() -> Any:
            return await self.call(await self.find(transactional_id), method, request)

        return await persistently(attempt)

    async def produce(self, batch: bytes, partition: int, transactional_id: str, version: int) -> None:
        state = self.partition(partition)
        entry = ProduceBatch(correlation_id=0, topic_id=state.topic_id.bytes, partition=partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5_000,
            partitions=[entry],
            transactional_id=transactional_id,
            transaction_version=version,
        )
        [answer] = (await self.call(int(state.leader), methods.DATA_PRODUCE, request)).partitions
        if answer.HasField("error"):
            raise status.from_proto(answer.error)

    async def committed(self, partition: int = 0) -> list[bytes]:
        """The values that a reader with read_committed gets."""

        return await persistently(lambda: self._read(partition))

    async def _read(self, partition: int) -> list[bytes]:
        state = self.partition(partition)
        values: list[bytes] = []
        aborting: set[int] = set()
        offset = 0
        while True:
            request = data_pb2.FetchRequest(
                max_wait_ms=0, min_bytes=0, isolation_level=data_pb2.ISOLATION_LEVEL_READ_COMMITTED
            )
            request.partitions.add(
                fetch_id=1,
                topic_id=state.topic_id.bytes,
                partition=partition,
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                durable_offset=-1,
                log_start_offset=-1,
                max_bytes=1 << 20,
            )
            [answer] = (await self.call(int(state.leader), methods.DATA_FETCH, request)).partitions
            if answer.error is not None:
                raise answer.error
            aborted = {(each.producer_id, each.first_offset) for each in answer.aborted}
            for batch in iter_batches(answer.records):
                offset = batch.header.last_offset + 1
                values += _decided(batch, aborted, aborting)
            if not answer.records:
                return values

    async def wait_committed(self, *values: bytes, partition: int = 0) -> None:
        """Until a reader with read_committed gets exactly these values."""
        found: list[bytes] = []
        try:
            async with asyncio.timeout(40):
                while (found := await self.committed(partition)) != list(values):
                    await MachineClock().sleep_ms(20)
        except TimeoutError:
            raise AssertionError(f"committed: {found}, not {values}") from None

    async def state(self, transactional_id: str) -> transactions_pb2.DescribedTransaction:
        request = transactions_pb2.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = await self.ask(transactional_id, methods.TRANSACTIONS_DESCRIBE_TRANSACTIONS, request)
        [described] = answer.transactions
        assert isinstance(described, transactions_pb2.DescribedTransaction)
        return described

    async def wait_state(self, transactional_id: str, wanted: str) -> None:
        async with asyncio.timeout(40):
            while (await self.state(transactional_id)).state != wanted:
                await MachineClock().sleep_ms(20)


def _decided(batch: RecordBatch, aborted: set[tuple[int, int]], aborting: set[int]) -> list[bytes]:
    """The values of a batch, none if it belongs to an aborted transaction. aborting: producers that are in one."""
    if (batch.producer_id, batch.base_offset) in aborted:
        aborting.add(batch.producer_id)
    if batch.is_control:
        aborting.discard(batch.producer_id)
        return []
    if batch.is_transactional and batch.producer_id in aborting:
        return []
    return [record.value or b"" for record in batch.records()]


@asynccontextmanager
async def cluster(
    home: Path, count: int = 1, *, partitions: int = 2, replicas: int = 1
) -> AsyncIterator[Transactional]:
    async with real_nodes(home, count, coordinators=SETTINGS) as nodes:
        found = Transactional(nodes)
        await found.create_topic(partitions, replicas)
        yield found
        assert [defect for node in nodes.past for defect in node.defects] == []


async def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    """Begun by the first write, committed and aborted, on two partitions; the next epoch each time."""
    async with cluster(tmp_path) as world:
        producer = await Producer(world, "t1").init()
        epoch = producer.epoch
        await producer.write(b"a")
        await producer.write(b"b", 1)
        await producer.write(b"c")
        assert await world.committed(0) == await world.committed(1) == []
        described = await world.state("t1")
        assert described.state == "Ongoing"
        assert [(each.topic, each.partition) for each in described.partitions] == [(TOPIC, 0), (TOPIC, 1)]
        await producer.end()
        assert producer.epoch == epoch + 1
        await producer.write(b"aborted")
        await world.wait_committed(b"a", b"c")
        await world.wait_committed(b"b", partition=1)
        await producer.end(commit=False)
        await producer.write(b"d")
        await producer.end()
        await world.wait_committed(b"a", b"c", b"d")
        await world.wait_state("t1", "CompleteCommit")
        figures = world.nodes.nodes[0].node.metric_sources().transactions
        assert figures is not None
        assert (figures.transactional_ids, figures.markers_waiting) == (1, 0)


async def test_version_1_adds_partitions_and_keeps_the_epoch(tmp_path: Path) -> None:
    async with cluster(tmp_path) as world:
        producer = await Producer(world, "t1", version=1).init()
        epoch = producer.epoch
        with pytest.raises(TransactionAbortable):
            await producer.write(b"not added")
        for value in (b"a", b"b"):
            await producer.add(0)
            await producer.write(value)
            await producer.end()
        assert producer.epoch == epoch
        await world.wait_committed(b"a", b"b")


async def test_a_zombie_is_fenced_and_what_it_left_open_is_aborted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as world:
        zombie = await Producer(world, "t1").init()
        await zombie.write(b"left open")
        successor = await Producer(world, "t1").init()
        assert successor.epoch > zombie.epoch or successor.producer_id != zombie.producer_id
        with pytest.raises(InvalidProducerEpoch):
            await zombie.write(b"of a zombie")
        with pytest.raises(InvalidProducerEpoch):
            await zombie.send(b"to a partition that it did not use", 1, epoch=zombie.epoch, sequence=0)
        with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
            await zombie.end()
        await successor.write(b"new")
        await successor.end()
        await world.wait_committed(b"new")
        assert await world.committed(1) == []


async def test_a_late_write_after_the_abort_is_refused(tmp_path: Path) -> None:
    """To a partition of the transaction, and to one that it did not have: neither hangs (KIP-890)."""
    async with cluster(tmp_path) as world:
        producer = await Producer(world, "t1").init()
        late = producer.epoch
        await producer.write(b"a")
        await producer.end(commit=False)
        await world.wait_state("t1", "CompleteAbort")
        for partition, sequence in ((0, 1), (1, 0)):
            with pytest.raises(InvalidProducerEpoch):
                await producer.send(b"late", partition, epoch=late, sequence=sequence)
        await producer.write(b"b")
        await producer.end()
        await world.wait_committed(b"b")
        await world.wait_committed(partition=1)


async def test_a_transaction_that_is_open_for_too_long_is_aborted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as world:
        producer = await Producer(world, "t1").init(timeout_ms=300)
        await producer.write(b"a")
        await world.wait_state("t1", "CompleteAbort")
        with pytest.raises(InvalidProducerEpoch):
            await producer.write(b"b")
        with pytest.raises(TidelogError):
            await producer.end()
        assert await world.committed() == []


async def test_a_hanging_transaction_is_found_and_aborted(tmp_path: Path) -> None:
    """KIP-664: one that no coordinator knows, as it was possible before verification."""
    async with cluster(tmp_path) as world:
        state = world.partition(0)
        replicas = world.nodes.nodes[0].node.replicas
        assert replicas is not None
        await world.nodes.wait_until(lambda: replicas.registry.find(state.topic_id.bytes, 0) is not None)
        found = replicas.registry.find(state.topic_id.bytes, 0)
        assert found is not None
        builder = RecordBatchBuilder(producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True)
        builder.append(key=None, value=b"hangs", timestamp=1_700_000_000_000)
        found.log.append(builder.build(), assign_offsets=True, leader_epoch=state.leader_epoch)
        producer = await Producer(world, "t1").init()
        await producer.write(b"behind it")
        await producer.end()
        await world.wait_state("t1", "CompleteCommit")
        assert await world.committed() == []
        asked = data_pb2.DescribeProducersRequest()
        asked.partitions.add(topic_id=state.topic_id.bytes, partition=0)
        [described] = (await world.call(0, methods.DATA_DESCRIBE_PRODUCERS, asked)).partitions
        [hanging] = [each for each in described.producers if each.transaction_start >= 0]
        request = data_pb2.AbortTransactionRequest(
            topic_id=state.topic_id.bytes,
            partition=0,
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_start=hanging.transaction_start,
        )
        await world.call(0, methods.DATA_ABORT_TRANSACTION, request)
        await world.wait_committed(b"behind it")
        with pytest.raises(InvalidTxnState):
            await world.call(0, methods.DATA_ABORT_TRANSACTION, request)


async def test_markers_reach_a_partition_when_it_has_a_leader_and_survive_their_coordinator(tmp_path: Path) -> None:
    """The only replica of partition P is down when the transaction is committed. The other partition gets its marker;
    P's coordinator restarts, and P gets its marker once its node is back."""
    async with cluster(tmp_path, 4, partitions=8) as world:
        there = next(index for index in range(8) if world.leader(index) == 3)
        here = next(index for index in range(8) if world.leader(index) != 3)
        await world.find("any")  # creates the topic
        await world.nodes.wait_until(lambda: all(world.coordinator(f"t{each}") != NO_NODE for each in range(20)))
        name = next(f"t{each}" for each in range(20) if world.coordinator(f"t{each}") not in (3, 0, world.leader(here)))
        producer = await Producer(world, name).init()
        await producer.write(b"here", here)
        await producer.write(b"there", there)
        await world.nodes.stop(3)
        await world.nodes.wait_until(lambda: world.leader(there) == NO_NODE)
        await producer.end()
        await world.wait_committed(b"here", partition=here)
        assert (await world.state(name)).state == "PrepareCommit"
        coordinator = world.coordinator(name)
        await world.nodes.stop(coordinator)
        await world.wait_state(name, "PrepareCommit")
        assert world.coordinator(name) != coordinator
        await world.nodes.start(coordinator)
        await world.nodes.start(3)
        await world.wait_committed(b"there", partition=there)
        await world.wait_state(name, "CompleteCommit")
        await producer.write(b"next", there)
        await producer.end()
        await world.wait_committed(b"there", b"next", partition=there)


async def test_a_leader_moves_between_the_first_write_and_the_end(tmp_path: Path) -> None:
    """The new leader knows the open transaction from its log, and gets the marker."""
    async with cluster(tmp_path, 3, partitions=1, replicas=3) as world:
        producer = await Producer(world, "t1").init()
        await producer.write(b"a")
        leader = world.leader(0)
        await world.nodes.stop(leader)
        await producer.write(b"b")
        await producer.end()
        await world.wait_committed(b"a", b"b")
        await world.nodes.start(leader)
        await producer.write(b"c")
        await producer.end()
        await world.wait_committed(b"a", b"b", b"c")
