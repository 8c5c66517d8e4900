"""Transactional producers over real connections: what applications see of transactions and their failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.memory_cluster import CLOCK, MemoryCluster, cluster_in_a_thread, memory_cluster, start, until
from tests.client.transactional import committed, ends, transactional
from tidelog import sync
from tidelog.client.consumer import Consumer
from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.producer import Producer
from tidelog.errors import (
    BufferExhausted,
    CommitFailed,
    ConcurrentTransactions,
    CorruptRecord,
    InvalidConfig,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NotCoordinator,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordTooLarge,
    RequestTimedOut,
    StaleMemberEpoch,
    TransactionAborted,
    TransactionOutcomeUnknown,
    UnknownMemberId,
    UnsupportedForMessageFormat,
)
from tidelog.protocol.v1 import groups_pb2, transactions_pb2
from tidelog.records import RecordBatch
from tidelog.types import Acks, Offset, PartitionIndex, TopicPartition

P0 = TopicPartition("out", PartitionIndex(0))


async def test_leaving_the_block_commits_and_an_exception_aborts() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("out", 3)
        async with transactional(cluster) as producer:
            async with producer.transaction() as txn:
                sent = await txn.send("out", b"1", key=b"k", headers=[("h", b"x")], timestamp=7)
                await txn.enqueue("out", b"2")
                await producer.send("out", b"3")
                await txn.enqueue_many("out", [b"4", b"5"], partition=2)
                assert await committed(cluster) == []
            assert sent.timestamp == 7
            assert await committed(cluster) == [b"1", b"2", b"3", b"4", b"5"]
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction() as txn:
                    await txn.send("out", b"never")
                    _ = 1 / 0
            async with producer.transaction() as txn:
                await txn.send("out", b"never")
                await txn.abort()
                with pytest.raises(InvalidTxnState, match="has ended"):
                    await txn.send("out", b"late")
            async with producer.transaction() as txn:
                await txn.send("out", b"6")
        assert await committed(cluster) == [b"1", b"2", b"3", b"4", b"5", b"6"]
        assert ends(cluster) == [True, False, False, True]
        epochs = {
            (batch.producer_epoch, batch.base_sequence)
            for partition in cluster.topics["out"].partitions
            for batch in map(RecordBatch, partition.batches)
            if not batch.is_control and batch.is_transactional
        }
        assert {epoch for epoch, _ in epochs} == {0, 1, 2, 3}, "each transaction has its own epoch"
        assert {(epoch, 0) for epoch, _ in epochs} <= epochs, "and begins with sequence 0"


async def test_records_outside_of_a_transaction_are_refused() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster) as producer:
            await producer.partitions("out")
            for call in (
                producer.send("out", b"v"),
                producer.enqueue("out", b"v"),
                producer.enqueue_many("out", [b"v"]),
            ):
                with pytest.raises(InvalidTxnState, match="no transaction is open"):
                    await call
            with pytest.raises(InvalidTxnState, match="no transaction is open"):
                producer.send_nowait("out", b"v")
            async with producer.transaction() as txn:
                await txn.send("out", b"v")
            with pytest.raises(InvalidTxnState, match="no transaction is open"):
                await producer.send("out", b"v")
            with pytest.raises(InvalidTxnState, match="has ended"):
                await txn.send_offsets({P0: 1}, "g")
            with pytest.raises(InvalidTxnState, match="opened before"):
                await txn.__aenter__()
        assert await committed(cluster) == [b"v"]
        async with Producer(cluster.bootstrap) as plain:
            with pytest.raises(InvalidTxnState, match="has no transactional_id"):
                plain.transaction()


async def test_one_transaction_of_a_producer_is_open_at_a_time() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster) as producer:
            async with producer.transaction() as txn:
                with pytest.raises(InvalidTxnState, match="one at a time"):
                    async with producer.transaction():
                        raise AssertionError
                await txn.send("out", b"still open")
            opening = [start(producer.transaction().__aenter__()) for _ in range(2)]
            results = await asyncio.gather(*opening, return_exceptions=True)
            assert [type(result).__name__ for result in results] == ["Transaction", "InvalidTxnState"]
            await producer.close()
        assert await committed(cluster) == [b"still open"]


async def test_a_transaction_without_records_asks_no_coordinator() -> None:
    async with memory_cluster() as cluster, transactional(cluster) as producer:
        for _ in range(3):
            async with producer.transaction():
                pass
        assert len(cluster.transactions.asked) == 1


@pytest.mark.parametrize("how", ["awaited", "queued"])
async def test_a_failed_record_aborts_its_transaction(how: str) -> None:
    """Whether the application waits for the record or not: one typed error, with the failure as its cause."""
    async with memory_cluster(2) as cluster:
        cluster.create("out", 2)
        async with transactional(cluster) as producer:
            with pytest.raises(TransactionAborted, match="bad checksum") as caught:
                async with producer.transaction() as txn:
                    await txn.send("out", b"good", partition=0)
                    cluster.nodes[1].on_produce = lambda entry: CorruptRecord("bad checksum")
                    if how == "awaited":
                        await txn.send("out", b"bad", partition=1)
                    else:
                        await txn.enqueue("out", b"bad", partition=1)
                        await txn.enqueue("out", b"good", partition=0)
            assert isinstance(caught.value.__cause__, CorruptRecord)
            cluster.nodes[1].on_produce = lambda entry: None
            async with producer.transaction() as txn:
                await txn.send("out", b"again", partition=1)
        assert await committed(cluster) == [b"again"]
        assert ends(cluster) == [False, True]


async def test_after_a_failed_record_further_records_are_refused_with_its_error() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        cluster.nodes[0].on_produce = lambda entry: OutOfOrderSequenceNumber("a batch is missing")
        async with transactional(cluster) as producer:
            with pytest.raises(TransactionAborted):
                async with producer.transaction() as txn:
                    with pytest.raises(OutOfOrderSequenceNumber):
                        await txn.send("out", b"1")
                    with pytest.raises(TransactionAborted, match="a batch is missing"):
                        await txn.send("out", b"2")
                    with pytest.raises(TransactionAborted):
                        await txn.send_offsets({P0: 1}, "g")
        assert ends(cluster) == [False]


async def test_a_record_that_was_not_queued_does_not_spoil_the_transaction() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster, record_bytes_max=1000) as producer, producer.transaction() as txn:
            with pytest.raises(RecordTooLarge):
                await txn.send("out", bytes(2000))
            await txn.send("out", b"small")
        assert await committed(cluster) == [b"small"]


async def test_a_call_that_still_waits_when_the_block_ends_aborts_the_transaction() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster, buffer_bytes=5_000, record_bytes_max=4_000) as producer:
            waiting = None
            with pytest.raises(TransactionAborted, match="await each call"):
                async with producer.transaction() as txn:
                    await producer.partitions("out")
                    cluster.nodes[0].on_produce = lambda entry: InvalidProducerEpoch("not reached")
                    producer.send_nowait("out", bytes(3_000))
                    waiting = start(txn.enqueue("out", bytes(3_000)))
                    await CLOCK.sleep_ms(0)
            assert waiting is not None
            with pytest.raises((InvalidTxnState, TransactionAborted, BufferExhausted)):
                await waiting


async def test_a_commit_is_asked_for_again_until_its_outcome_is_known() -> None:
    """The first answer is lost, the coordinator moves, and is completing the transaction: one commit in the end."""
    async with memory_cluster(2) as cluster:
        cluster.create("out")
        answers: list[object] = ["lose", ConcurrentTransactions("completing"), NotCoordinator("moved"), None]

        def wish(request: Any) -> object:
            if not isinstance(request, transactions_pb2.EndTxnRequest):
                return None
            if len(answers) == 2:
                cluster.transactions.node = cluster.groups.node = 1
            return answers.pop(0)

        cluster.transactions.wish = wish
        async with transactional(cluster) as producer:
            async with producer.transaction() as txn:
                await txn.send("out", b"1")
            async with producer.transaction() as txn:
                answers.append(None)
                await txn.send("out", b"2")
        assert await committed(cluster) == [b"1", b"2"]
        assert ends(cluster) == [True] * 5


async def test_a_commit_whose_outcome_stays_unknown_says_so_and_ends_the_producer() -> None:
    """It was committed; the application could not know. A new producer of the same id finds it so."""
    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster, transaction_timeout_ms=300) as producer:
            with pytest.raises(TransactionOutcomeUnknown, match="same transactional id"):
                async with producer.transaction() as txn:
                    await txn.send("out", b"1")
                    cluster.transactions.wish = lambda request: "lose"
            cluster.transactions.wish = lambda request: None
            with pytest.raises(TransactionOutcomeUnknown):
                async with producer.transaction():
                    raise AssertionError
        async with transactional(cluster) as producer, producer.transaction() as txn:
            await txn.send("out", b"2")
        assert await committed(cluster) == [b"1", b"2"]


async def test_a_newer_producer_fences_the_older_one() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster) as old, transactional(cluster) as new:
            with pytest.raises(ProducerFenced, match="'t' is fenced"):
                async with old.transaction() as txn:
                    await txn.send("out", b"zombie")
                    async with new.transaction() as theirs:
                        await theirs.send("out", b"new")
                    await txn.send("out", b"zombie")
            with pytest.raises(ProducerFenced):
                async with old.transaction():
                    raise AssertionError
            with pytest.raises(ProducerFenced):
                old.send_nowait("out", b"zombie")
            async with new.transaction() as theirs:
                await theirs.send("out", b"newer")
        assert await committed(cluster) == [b"new", b"newer"]


async def test_a_transaction_that_the_coordinator_timed_out_is_aborted_and_the_producer_goes_on() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster) as producer:
            with pytest.raises(TransactionAborted):
                async with producer.transaction() as txn:
                    await txn.send("out", b"slow")
                    cluster.transactions.end_by_itself("t")
            async with producer.transaction() as txn:
                await txn.send("out", b"fast")
        assert await committed(cluster) == [b"fast"]


async def test_an_abort_does_not_wait_for_a_coordinator_that_is_away() -> None:
    """The exception leaves the block after max_block_ms; the next transaction ends what is left of this one."""
    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster, max_block_ms=600) as producer:  # the first call has to be answered in it
            with pytest.raises(KeyError):
                async with producer.transaction() as txn:
                    await txn.send("out", b"never")
                    cluster.transactions.wish = lambda request: RequestTimedOut("away")
                    raise KeyError
            with pytest.raises(RequestTimedOut):
                async with producer.transaction():
                    raise AssertionError
            cluster.transactions.wish = lambda request: None
            async with producer.transaction() as txn:
                await txn.send("out", b"1")
        assert await committed(cluster) == [b"1"]


async def test_a_cancelled_block_aborts_and_a_cancelled_commit_goes_on() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        reached = asyncio.Event()
        async with transactional(cluster) as producer:

            async def never_ends() -> None:
                async with producer.transaction() as txn:
                    await txn.send("out", b"cancelled")
                    reached.set()
                    await asyncio.get_running_loop().create_future()

            async def commits() -> None:
                async with producer.transaction() as txn:
                    await txn.send("out", b"kept")

            work = start(never_ends())
            await reached.wait()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            cluster.transactions.wish = lambda request: ConcurrentTransactions("completing")
            work = start(commits())
            await until(lambda: ends(cluster)[1:])
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            cluster.transactions.wish = lambda request: None
            async with producer.transaction() as txn:
                await txn.send("out", b"next")
        assert await committed(cluster) == [b"kept", b"next"]


async def test_a_cancelled_opening_leaves_no_transaction_open() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        cluster.transactions.wish = lambda request: ConcurrentTransactions("completing")
        async with transactional(cluster) as producer:
            opening = start(producer.transaction().__aenter__())
            await until(lambda: cluster.transactions.asked)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            cluster.transactions.wish = lambda request: None
            async with producer.transaction() as txn:
                await txn.send("out", b"1")
        assert await committed(cluster) == [b"1"]


async def test_closing_the_producer_aborts_its_open_transaction() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        producer = transactional(cluster)
        await producer.start()
        txn = await producer.transaction().__aenter__()
        await txn.send("out", b"1")
        await producer.close()
        assert ends(cluster) == [False]
        assert await committed(cluster) == []
        with pytest.raises(InvalidRequest, match="closed"):
            async with producer.transaction():
                raise AssertionError


# --- offsets ----------------------------------------------------------------------------------------------------


def stored(cluster: MemoryCluster) -> dict[tuple[str, int], int]:
    return {key: each.offset for key, each in sorted(cluster.groups.groups["g"].offsets.items())}


async def test_offsets_are_committed_with_the_transaction_or_not_at_all() -> None:
    async with memory_cluster() as cluster:
        cluster.create("in")
        cluster.create("out")
        async with transactional(cluster) as producer:
            async with producer.transaction() as txn:
                await txn.send_offsets({("in", 0): 5}, "g")
                assert stored(cluster) == {}
            assert stored(cluster) == {("in", 0): 5}
            async with producer.transaction() as txn:
                await txn.send_offsets({("in", 0): CommittedOffset(Offset(9))}, GroupMetadata("g"))
                await txn.abort()
            assert stored(cluster) == {("in", 0): 5}
            async with producer.transaction() as txn:
                with pytest.raises(TypeError, match="need a group"):
                    await txn.send_offsets({("in", 0): 1})
                with pytest.raises(TypeError, match="a consumer with a group"):
                    await txn.send_offsets(P0, "g")  # type: ignore[arg-type]
                with pytest.raises(InvalidRequest):
                    await txn.send_offsets({("in", 0): -1}, "g")


def a_member(cluster: MemoryCluster) -> Consumer:
    return Consumer(cluster.bootstrap, group="g", topics=["in"], auto_commit=False, max_wait_ms=20)


async def test_what_a_consumer_has_read_is_committed_exactly_with_what_was_made_of_it() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("in", 2)
        cluster.create("out", 2)
        async with Producer(cluster.bootstrap) as source:
            await (await source.enqueue_many("in", [b"%d" % number for number in range(60)]))
        consumer = a_member(cluster)
        made, failures = 0, 3
        async with consumer, transactional(cluster) as producer:
            while made < 60:
                records = await consumer.poll(max_records=7)
                try:
                    async with producer.transaction() as txn:
                        for record in records:
                            await txn.enqueue("out", record.value)
                        if failures:
                            failures -= 1
                            raise KeyError
                        await txn.send_offsets(consumer)
                except KeyError:
                    await consumer.rewind()
                else:
                    made += len(records)
            assert stored(cluster) == {("in", index): cluster.topics["in"].partitions[index].end for index in range(2)}
        assert await committed(cluster) == sorted(b"%d" % number for number in range(60))


async def test_a_member_that_lost_partitions_cannot_commit_what_it_read_of_them() -> None:
    """The other member reads them again, from the committed offset: this one's output must not be visible."""
    async with memory_cluster() as cluster:
        cluster.create("in")
        cluster.create("out")
        async with Producer(cluster.bootstrap) as source:
            await source.send("in", b"1")
        consumer = a_member(cluster)
        async with consumer, transactional(cluster) as producer:
            with pytest.raises(TransactionAborted) as caught:
                async with producer.transaction() as txn:
                    (record,) = await consumer.poll()
                    await txn.enqueue("out", record.value)
                    (member,) = cluster.groups.groups["g"].members
                    await cluster.groups.fence("g", member)
                    await until(lambda: cluster.groups.groups["g"].members)
                    await until(lambda: consumer.assignment)
                    await txn.send_offsets(consumer)
            assert isinstance(caught.value.__cause__, CommitFailed | UnknownMemberId)
            await consumer.rewind()
            async with producer.transaction() as txn:
                (record,) = await consumer.poll()
                await txn.enqueue("out", record.value)
                await txn.send_offsets(consumer)
        assert await committed(cluster) == [b"1"]
        assert stored(cluster) == {("in", 0): 1}


async def test_a_consumer_that_commits_by_itself_is_refused() -> None:
    async with memory_cluster() as cluster:
        cluster.create("in")
        async with (
            Consumer(cluster.bootstrap, group="g", topics=["in"]) as consumer,
            transactional(cluster) as producer,
        ):
            with pytest.raises(InvalidRequest, match="auto_commit=False"):
                async with producer.transaction() as txn:
                    await txn.send_offsets(consumer)
        async with Consumer(cluster.bootstrap) as plain, transactional(cluster) as producer:
            with pytest.raises(InvalidRequest, match="has no group"):
                async with producer.transaction() as txn:
                    await txn.send_offsets(plain)


async def test_a_member_whose_epoch_grows_meanwhile_commits_with_the_new_one() -> None:
    """Another member joins the group: the epoch grows, and this one keeps a partition that it has read."""
    async with memory_cluster() as cluster:
        cluster.create("in", 2)
        async with Producer(cluster.bootstrap) as source:
            await source.send("in", b"1", partition=0)
        epochs: list[int] = []
        stale = [StaleMemberEpoch("the epoch is growing")]

        def refuse(request: Any) -> Any:
            if not isinstance(request, groups_pb2.TxnOffsetCommitRequest):
                return None
            epochs.append(request.member_epoch)
            return stale.pop() if stale else None

        cluster.groups.refuse = refuse
        async with a_member(cluster) as consumer, transactional(cluster) as producer:
            async with producer.transaction() as txn:
                assert await consumer.poll()
                before = consumer.group_metadata().member_epoch
                sending = start(txn.send_offsets(consumer))
                await until(lambda: epochs)
                await cluster.groups.changed("g")
                await sending
            assert epochs[0] == before
            assert epochs[-1] == before + 1
        assert stored(cluster)["in", 0] == 1


async def test_offsets_are_sent_again_while_the_group_moves() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("in")
        refusals = [NotCoordinator("moved"), RequestTimedOut("no answer")]

        def refuse(request: Any) -> Any:
            is_commit = isinstance(request, groups_pb2.TxnOffsetCommitRequest)
            return refusals.pop(0) if is_commit and refusals else None

        cluster.groups.refuse = refuse
        async with transactional(cluster) as producer, producer.transaction() as txn:
            await txn.send_offsets({("in", 0): 3}, "g")
        assert stored(cluster) == {("in", 0): 3}
        assert refusals == []


# --- options ----------------------------------------------------------------------------------------------------


def test_wrong_options_are_refused() -> None:
    for options in (
        {"transactional_id": ""},
        {"transactional_id": "t", "acks": 1},
        {"transactional_id": "t", "enable_idempotence": False},
        {"transactional_id": "t", "transaction_timeout_ms": 0},
    ):
        with pytest.raises(InvalidConfig):
            Producer("h:1", **options)
    with pytest.raises(TypeError):
        Producer("h:1", transactional_id=7)  # type: ignore[arg-type]
    assert Producer("h:1", transactional_id="t").acks is Acks.ALL


async def test_a_start_that_the_coordinator_refuses_is_reported() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out")
        cluster.transactions.wish = lambda request: InvalidTransactionTimeout("above transaction.max.timeout.ms")
        async with transactional(cluster) as producer:
            with pytest.raises(InvalidTransactionTimeout):
                async with producer.transaction():
                    raise AssertionError


async def test_topics_without_transactions_are_refused() -> None:
    async with memory_cluster() as cluster:
        cluster.create("out", configs={"message.format": "v1"})
        async with transactional(cluster) as producer:
            with pytest.raises(UnsupportedForMessageFormat):
                async with producer.transaction() as txn:
                    await txn.send("out", b"v")


# --- without asyncio --------------------------------------------------------------------------------------------


def test_a_synchronous_producer_has_transactions() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("in")
        cluster.create("out")
        with sync.Producer(cluster.bootstrap) as source:
            source.send_many("in", [b"%d" % number for number in range(10)])
        with (
            sync.Consumer(cluster.bootstrap, group="g", topics=["in"], auto_commit=False) as consumer,
            sync.Producer(cluster.bootstrap, transactional_id="t", linger_ms=0) as producer,
            sync.Consumer(cluster.bootstrap, isolation="read_committed") as reader,
        ):
            with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
                txn.enqueue_many("out", [record.value for record in consumer.poll(max_records=3)])
                txn.send_offsets(consumer)
                _ = 1 / 0
            consumer.rewind()
            records = iter(consumer)
            with producer.transaction() as txn:
                for _ in range(4):
                    txn.enqueue("out", next(records).value, headers=[("h", b"1")])
                assert txn.send("out", b"4").offset > 0
                txn.flush()
                txn.send_offsets(consumer)
            assert stored(cluster) == {("in", 0): 4}, "what the iteration has polled and not yielded is not committed"
            with producer.transaction() as txn:
                txn.send("out", b"never")
                txn.abort()
            with pytest.raises(TransactionAborted), producer.transaction() as txn:
                cluster.nodes[0].on_produce = lambda entry: CorruptRecord("bad checksum")
                txn.enqueue("out", b"bad")
            reader.assign([P0])
            assert [record.value for record in reader.poll(timeout=1)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_synchronous_transaction_takes_arrow_batches_from_a_reader() -> None:
    pa = pytest.importorskip("pyarrow")
    with cluster_in_a_thread() as cluster:
        cluster.create("out")
        with (
            sync.Producer(cluster.bootstrap, transactional_id="t") as producer,
            sync.Consumer(cluster.bootstrap, isolation="read_committed") as reader,
        ):
            batch = pa.RecordBatch.from_pydict({"value": [b"1", b"2"]})
            with producer.transaction() as txn:

                def rows() -> Iterator[Any]:
                    txn.send("out", b"0")  # the caller's thread may use the transaction meanwhile
                    yield batch

                txn.enqueue_arrow("out", pa.RecordBatchReader.from_batches(batch.schema, rows()))
            reader.assign([P0])
            assert [record.value for record in reader.poll(timeout=1)] == [b"0", b"1", b"2"]


def test_a_synchronous_member_that_lost_its_partitions_aborts_the_transaction() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("in")
        cluster.create("out")
        with sync.Producer(cluster.bootstrap) as source:
            source.send("in", b"1")
        with (
            sync.Consumer(cluster.bootstrap, group="g", topics=["in"], auto_commit=False) as consumer,
            sync.Producer(cluster.bootstrap, transactional_id="t") as producer,
        ):
            with pytest.raises(TransactionAborted) as caught, producer.transaction() as txn:
                (record,) = consumer.poll()
                txn.enqueue("out", record.value)
                cluster.groups.refuse = lambda request: UnknownMemberId("fenced")
                txn.send_offsets(consumer)
            assert isinstance(caught.value.__cause__, CommitFailed | UnknownMemberId)
            cluster.groups.refuse = lambda request: None
        assert cluster.groups.groups["g"].offsets == {}
