"""Transactions that one process prepares and another one ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tests.client.transactional import committed, ends, transactional
from tidelog.client.admin import Admin
from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.transaction_core import PreparedTransaction, TransactionCore, TransactionPolicy
from tidelog.errors import (
    ConcurrentTransactions,
    InvalidTxnState,
    ProducerFenced,
    RecordTooLarge,
    RequestTimedOut,
    TransactionAbortable,
    TransactionAborted,
)
from tidelog.protocol.v1 import transactions_pb2
from tidelog.types import Offset, PartitionIndex, TopicPartition

P0 = TopicPartition("out", PartitionIndex(0))


@asynccontextmanager
async def two_partitions() -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(2) as cluster:
        cluster.create("out", 2)
        yield cluster


async def prepared(cluster: MemoryCluster, value: bytes, position: int) -> PreparedTransaction:
    """A transaction with a record and an offset, whose producer is closed."""
    async with transactional(cluster) as producer, producer.transaction() as txn:
        await txn.enqueue("out", value)
        await txn.send_offsets({P0: CommittedOffset(Offset(position), metadata=f"at {position}")}, "g")
        return await txn.prepare()


async def test_another_process_commits_or_aborts_what_was_prepared() -> None:
    async with two_partitions() as cluster:
        first = await prepared(cluster, b"1", 11)
        assert ends(cluster) == [], "closing the producer ends nothing"
        assert await committed(cluster) == []
        async with Admin(cluster.bootstrap) as admin:
            await admin.end_prepared_transaction(first, committed=True)
            await admin.end_prepared_transaction(first, committed=True)  # as after a lost answer
            with pytest.raises(InvalidTxnState, match="committed"):
                await admin.end_prepared_transaction(first, committed=False)
            assert await admin.list_group_offsets("g") == {P0: CommittedOffset(Offset(11), metadata="at 11")}
            second = await prepared(cluster, b"2", 12)
            await admin.end_prepared_transaction(second, committed=False)
            with pytest.raises(TransactionAbortable):
                await admin.end_prepared_transaction(second, committed=True)
        assert await committed(cluster) == [b"1"]


async def test_the_next_producer_of_the_id_aborts_what_was_prepared() -> None:
    async with two_partitions() as cluster:
        first = await prepared(cluster, b"1", 11)
        await prepared(cluster, b"2", 12)
        async with Admin(cluster.bootstrap) as admin:
            with pytest.raises(ProducerFenced):
                await admin.end_prepared_transaction(first, committed=True)
        assert await committed(cluster) == []


async def test_an_end_whose_answer_is_lost_or_late_is_asked_for_again() -> None:
    async with two_partitions() as cluster:
        first = await prepared(cluster, b"1", 11)
        wishes: list[object] = [
            "lose",
            ConcurrentTransactions("markers are being written"),
            RequestTimedOut("no answer"),
        ]
        cluster.transactions.wish = lambda request: (
            wishes.pop(0) if wishes and isinstance(request, transactions_pb2.EndTxnRequest) else None
        )
        async with Admin(cluster.bootstrap) as admin:
            await admin.end_prepared_transaction(first, committed=True)
        assert not wishes
        assert await committed(cluster) == [b"1"]


async def test_a_transaction_that_has_failed_or_has_nothing_is_not_prepared() -> None:
    async with two_partitions() as cluster:
        async with transactional(cluster, record_bytes_max=1000, batch_bytes=2000) as producer:
            with pytest.raises(InvalidTxnState, match="neither records nor offsets"):
                async with producer.transaction() as txn:
                    await txn.prepare()
            for node in cluster.nodes:
                node.on_produce = lambda _entry: RecordTooLarge("the topic allows 10 bytes")
            with pytest.raises(TransactionAborted):
                async with producer.transaction() as txn:
                    await txn.enqueue("out", b"large", partition=0)
                    await txn.prepare()
        assert await committed(cluster) == []
        assert ends(cluster) == [False]


async def test_a_producer_that_has_left_its_transaction_opens_no_other_one() -> None:
    async with two_partitions() as cluster:
        async with transactional(cluster) as producer:
            async with producer.transaction() as txn:
                await txn.enqueue("out", b"1")
                await txn.prepare()
                with pytest.raises(InvalidTxnState):
                    await txn.send("out", b"late")
                with pytest.raises(InvalidTxnState):
                    await producer.send("out", b"late")
            with pytest.raises(InvalidTxnState, match="left its transaction to another process"):
                async with producer.transaction():
                    pass
        core = TransactionCore(TransactionPolicy("t", 1, 1, 1, 1), Random(1))
        with pytest.raises(InvalidTxnState, match="no open transaction"):
            core.prepare(has_written=True)


async def test_a_transaction_reads_what_the_ones_before_it_committed() -> None:
    async with two_partitions() as cluster, transactional(cluster) as producer:
        async with producer.transaction() as txn:
            assert await txn.committed_offsets("g") == {}
            await txn.send_offsets({P0: CommittedOffset(Offset(5), metadata="five")}, "g")
        async with producer.transaction() as txn:
            assert await txn.committed_offsets("g") == {P0: CommittedOffset(Offset(5), metadata="five")}
            assert await txn.committed_offsets("other", require_stable=False) == {}
