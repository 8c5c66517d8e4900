"""What a member commits while a partition moves to another member: never after the other one has it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.group_story import fill, group_of, place, settled, stored
from tests.client.memory_cluster import MemoryCluster, memory_cluster, start, until
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.errors import CommitFailed, CoordinatorLoadInProgress, InvalidRequest, StaleMemberEpoch, TransactionAborted
from tidelog.protocol.v1 import groups_pb2 as pb
from tidelog.types import TopicPartition

KEPT, MOVED = place("orders", 0), place("orders", 1)


async def is_within(condition: Any, seconds: float = 0.5) -> bool:
    """Whether the condition comes true in this time."""
    try:
        async with asyncio.timeout(seconds):
            await until(condition)
    except TimeoutError:
        return False
    return True


async def two_partitions(cluster: MemoryCluster, consumer: Consumer) -> set[TopicPartition]:
    """Read 5 records of each of the two partitions of a member. Returns which one will move to the next member."""
    await settled(cluster, 1)
    await until(lambda: len(consumer.assignment) == 2)
    found = 0
    while found < 10:
        found += len(await consumer.poll(timeout=1))
    return set(consumer.assignment)


def filled(cluster: MemoryCluster) -> None:
    cluster.create("orders", 2)
    fill(cluster, "orders", 0, 5)
    fill(cluster, "orders", 1, 5)


async def test_a_partition_is_given_up_only_after_the_commit_under_way() -> None:
    """Else the commit would be repeated with the epoch after the handover, and would go behind what the next owner has
    committed."""
    async with memory_cluster() as cluster:
        filled(cluster)
        async with group_of(cluster, auto_commit=False) as first:
            await two_partitions(cluster, first)
            is_loading = True
            cluster.groups.refuse = lambda request: (
                CoordinatorLoadInProgress("loading")
                if is_loading and isinstance(request, pb.OffsetCommitRequest)
                else None
            )
            commit = start(first.commit())
            await until(lambda: cluster.groups.commits)
            async with group_of(cluster, auto_commit=False) as second:
                await until(lambda: len(cluster.groups.groups["g"].members) == 2)
                assert not await is_within(lambda: second.assignment), "the commit is under way"
                is_loading = False
                await commit
                await settled(cluster, 2)
                await until(lambda: second.assignment)
                assert stored(cluster) == {0: 5, 1: 5}
                assert await second.position(second.assignment[0]) == 5


def transactional(cluster: MemoryCluster) -> Producer:
    return Producer(cluster.bootstrap, transactional_id="t", linger_ms=0, retry_backoff_ms=10)


async def test_what_was_returned_after_the_offsets_of_a_transaction_were_taken_is_not_settled_by_it() -> None:
    """A program that polls the next records while its transaction commits: their partition is not given up before they
    are part of a transaction, too."""
    async with memory_cluster() as cluster:
        filled(cluster)
        cluster.create("out")
        async with group_of(cluster, auto_commit=False) as first, transactional(cluster) as producer:
            await two_partitions(cluster, first)
            async with producer.transaction() as txn:
                await txn.send_offsets(first)
                fill(cluster, "orders", 0, 2)
                fill(cluster, "orders", 1, 2)
                ahead = 0
                while ahead < 4:
                    ahead += len(await first.poll(timeout=1))
            async with group_of(cluster, auto_commit=False) as second:
                await until(lambda: len(cluster.groups.groups["g"].members) == 2)
                assert not await is_within(lambda: second.assignment), "records are in no transaction yet"
                async with producer.transaction() as txn:
                    await txn.send_offsets(first)
                await until(lambda: second.assignment)
                assert stored(cluster) == {0: 7, 1: 7}
                await first.poll(timeout=0)
                await first.rewind()
                assert [await first.position(each) for each in first.assignment] == [7]


async def test_offsets_of_a_partition_that_was_given_up_meanwhile_are_not_sent_again() -> None:
    """Nothing was returned of the partition since the last transaction, so that it is given up at once; its next owner
    may have committed since then."""
    async with memory_cluster() as cluster:
        filled(cluster)
        async with group_of(cluster, auto_commit=False) as first, transactional(cluster) as producer:
            await two_partitions(cluster, first)
            async with producer.transaction() as txn:
                await txn.send_offsets(first)
            is_stale = True
            attempts: list[pb.TxnOffsetCommitRequest] = []

            def refuse(request: Any) -> Any:
                if not isinstance(request, pb.TxnOffsetCommitRequest):
                    return None
                attempts.append(request)
                return StaleMemberEpoch("the epoch is growing") if is_stale else None

            cluster.groups.refuse = refuse
            with pytest.raises(TransactionAborted) as caught:
                async with producer.transaction() as txn:
                    sending = start(txn.send_offsets(first))
                    await until(lambda: attempts)
                    async with group_of(cluster, auto_commit=False) as second:
                        await until(lambda: second.assignment)
                        (moved,) = second.assignment
                        fill(cluster, "orders", moved.partition, 2)
                        assert len(await second.poll(timeout=5)) == 2
                        await second.commit()
                        is_stale = False
                        await sending
            assert isinstance(caught.value.__cause__, CommitFailed)
            assert stored(cluster)[moved.partition] == 7
            await first.rewind()
            async with producer.transaction() as txn:
                await txn.send_offsets(first)


@pytest.mark.parametrize("which", ["on_assigned", "on_revoked"])
async def test_a_callback_that_closes_its_consumer_is_refused(which: str, caplog: pytest.LogCaptureFixture) -> None:
    """It would wait for itself. While the consumer closes, no poll raises the error: it is logged."""
    async with memory_cluster() as cluster:
        filled(cluster)
        consumers: list[Consumer] = []

        async def close(_: list[TopicPartition]) -> None:
            await consumers[0].close()

        async with group_of(cluster, **{which: close}) as consumer:
            consumers.append(consumer)
            if which == "on_assigned":
                with pytest.raises(InvalidRequest, match="cannot close its consumer"):
                    await consumer.poll(timeout=5)
            else:
                await consumer.poll(timeout=5)
        assert cluster.groups.groups["g"].members == {}
    assert ("a callback failed while the consumer closed" in caplog.text) is (which == "on_revoked")
