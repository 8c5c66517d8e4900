"""A producer that ends with a defect while a transaction is open: no call hangs, and the outcome is named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.memory_cluster import CLOCK, MemoryCluster, memory_cluster, until
from tidelog.client.connection import Service
from tidelog.client.delivery import Delivery
from tidelog.client.producer import Producer
from tidelog.client.transactions import ProducerTransactions
from tidelog.errors import CorruptRecord, InvalidRequest, TransactionAborted, TransactionOutcomeUnknown
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.types import PartitionIndex, TopicPartition

P0 = TopicPartition("out", PartitionIndex(0))
SECONDS_MAX = 10
"""Bound of each call: far above what it takes, far below the timeouts of requests."""


class DefectiveTransport(GrpcTransport):
    """A network that fails with a defect for these methods."""

    methods: tuple[Any, ...] = ()

    async def call(self, to: Any, method: Any, request: Any, *, timeout_ms: int) -> Any:
        if method in self.methods:
            raise ZeroDivisionError
        return await super().call(to, method, request, timeout_ms=timeout_ms)


def transactional(cluster: MemoryCluster, transport: GrpcTransport | None = None, **options: Any) -> Producer:
    return Producer(cluster.bootstrap, transactional_id="t", transport=transport, **options)


async def end_by_a_defect(producer: Service) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    producer._spawn(fail(), "a defect")
    await until(lambda: producer._tasks is None)


async def a_record_with_a_defect(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit two batches of one answer; the driver fails with a defect while it handles the first one."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with producer.transaction() as txn:
        await txn.enqueue("out", b"1", partition=0)
        await txn.enqueue("out", b"2", partition=1)
        monkeypatch.setattr(ProducerTransactions, "fail", broken)


async def test_a_commit_whose_records_nobody_sends_any_more_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the wait for the records of a transaction ends with the producer. Method: a defect between the outcomes of
    two batches, so that the second one would never be reported."""
    async with memory_cluster() as cluster:
        cluster.create("out", 2)
        cluster.nodes[0].on_produce = lambda entry: CorruptRecord("bad checksum")
        async with transactional(cluster, linger_ms=100) as producer, asyncio.timeout(SECONDS_MAX):
            await producer.partitions("out")
            with pytest.raises(TransactionAborted, match="defect") as caught:
                await a_record_with_a_defect(producer, monkeypatch)
            assert isinstance(caught.value.__cause__, InvalidRequest)


@pytest.mark.parametrize("how", ["leave", "raise", "abort", "offsets", "flush", "close", "send"])
async def test_a_transaction_of_a_producer_that_failed_by_a_defect_is_aborted(how: str) -> None:
    """The producer never asked for a commit: its coordinator aborts the transaction."""

    async def block(producer: Producer) -> None:
        async with producer.transaction() as txn:
            await txn.send("out", b"1")
            await end_by_a_defect(producer)
            match how:
                case "raise":
                    raise LookupError
                case "abort":
                    await txn.abort()
                case "offsets":
                    await txn.send_offsets({P0: 1}, "g")
                case "flush":
                    await txn.flush()
                case "close":
                    await producer.close()
                case "send":
                    await txn.send("out", b"2")

    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster) as producer, asyncio.timeout(SECONDS_MAX):
            match how:
                case "raise":
                    with pytest.raises(LookupError):
                        await block(producer)
                case "abort":
                    await block(producer)
                case _:
                    with pytest.raises(TransactionAborted, match=r"failed by a defect.*create a new one"):
                        await block(producer)
            with pytest.raises(InvalidRequest, match="failed by a defect"):
                await block(producer)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_defect_during_the_commit_leaves_the_outcome_unknown_and_one_during_an_abort_does_not(
    commits: bool,
) -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        transport = DefectiveTransport()
        async with transactional(cluster, transport) as producer, asyncio.timeout(SECONDS_MAX):
            with pytest.raises(TransactionOutcomeUnknown if commits else LookupError):
                async with producer.transaction() as txn:
                    await txn.send("out", b"1")
                    transport.methods = (methods.TRANSACTIONS_END_TXN,)
                    if not commits:
                        raise LookupError
            with pytest.raises(InvalidRequest, match="failed by a defect"):
                await producer.transaction().__aenter__()


async def test_a_callback_that_raises_ends_no_producer(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: an error of the application's callback reaches the log and nothing else."""

    def broken(_: Delivery) -> None:
        raise ZeroDivisionError

    async with memory_cluster() as cluster, Producer(cluster.bootstrap, linger_ms=0) as producer:
        cluster.create("out")
        delivery = await producer.enqueue("out", b"1")
        delivery.add_done_callback(broken)
        async with asyncio.timeout(SECONDS_MAX):
            assert (await delivery).offset == 0
            assert (await producer.send("out", b"2")).offset == 1
    assert "a callback of Delivery(out-0, acknowledged) failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


async def test_a_client_that_is_ending_starts_no_task(recwarn: pytest.WarningsRecorder) -> None:
    """Goal: no coroutine is left behind without being awaited. Method: start a task while the task group ends."""
    ran: list[str] = []

    async def work() -> None:
        ran.append("work")

    async with memory_cluster() as cluster, Producer(cluster.bootstrap) as producer:

        async def ending() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                producer._spawn(work(), "too late")

        producer._spawn(ending(), "ending")
        await CLOCK.sleep_ms(0)
        await producer.close()
        with pytest.raises(InvalidRequest, match="is closed"):
            producer._spawn(work(), "much too late")
    assert ran == []
    assert not [str(warning.message) for warning in recwarn if "never awaited" in str(warning.message)]
