"""Commits of consumers in a group over real connections: only what was processed, in order, by its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.client.group_story import fill, group_of, place, settled, stored
from tests.client.memory_cluster import memory_cluster, start, until
from tests.client.memory_groups import is_settled
from tidelog.client.consumer import CommittedOffset, Consumer, GroupMetadata
from tidelog.errors import (
    CommitFailed,
    CoordinatorLoadInProgress,
    FencedInstanceId,
    IllegalGeneration,
    InvalidRequest,
    NotCoordinator,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownServerError,
)
from tidelog.protocol.v1 import groups_pb2 as pb
from tidelog.types import LeaderEpoch, Offset


async def test_a_record_whose_processing_failed_is_not_committed() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 6)
        with pytest.raises(ZeroDivisionError):
            async with group_of(cluster) as consumer:
                async for record in consumer:
                    if record.offset == 3:
                        1 / 0  # noqa: B018
        assert stored(cluster) == {0: 3}
        with pytest.raises(ZeroDivisionError):
            async with group_of(cluster) as consumer:
                assert [record.offset for record in await consumer.poll(2, timeout=5)] == [3, 4]
                raise ZeroDivisionError
        assert stored(cluster) == {0: 3}
        async with group_of(cluster) as consumer:
            assert [record.offset for record in await consumer.poll(2, timeout=5)] == [3, 4]


async def test_commits_follow_the_processing_and_never_precede_it() -> None:
    """Records of a poll are committed by themselves only once the next poll has begun, by rows as by objects."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 10)
        async with group_of(cluster, auto_commit_interval_ms=5) as consumer:
            assert len(await consumer.poll(4, timeout=5)) == 4
            await until(lambda: stored(cluster) == {0: 0})
            seen = len(cluster.groups.commits)
            await asyncio.sleep(0.05)  # noqa: TID251 - several intervals without a step
            assert stored(cluster) == {0: 0}
            assert len(cluster.groups.commits) == seen, "nothing new is committed again"
            assert (await consumer.poll_arrow(3, timeout=5)).num_rows == 3
            await until(lambda: stored(cluster) == {0: 4})
            assert len(await consumer.poll(2, timeout=5)) == 2
            await until(lambda: stored(cluster) == {0: 7})
            await consumer.commit()
            assert stored(cluster) == {0: 9}, "commit() counts everything that was returned"


async def test_offsets_have_epochs_and_metadata() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        cluster.lead("orders", 0, 0)
        fill(cluster, "orders", 0, 4)
        async with group_of(cluster, auto_commit=False) as consumer:
            assert len(await consumer.poll(timeout=5)) == 4
            assert await consumer.position(("orders", 1)) == 0, "it is empty, and may become known later"
            await consumer.commit()
            found = await consumer.committed([("orders", 0), ("orders", 1)])
            assert found[place("orders", 0)] == CommittedOffset(Offset(4), LeaderEpoch(1))
            assert consumer.offsets_to_commit() == found
            marked = CommittedOffset(Offset(2), LeaderEpoch(1), "half of it")
            await consumer.commit({("orders", 0): marked, ("orders", 1): 0})
            assert (await consumer.committed([("orders", 0)])) == {place("orders", 0): marked}
        async with group_of(cluster) as consumer:
            assert [record.offset for record in await consumer.poll(timeout=5)] == [2, 3]


async def test_a_commit_of_a_former_membership_is_not_sent_in_the_next_one() -> None:
    """The coordinator loads while it is asked to commit; meanwhile the member is fenced and joins again."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 5)
        async with group_of(cluster, auto_commit=False) as consumer:
            assert len(await consumer.poll(timeout=5)) == 5
            is_loading = True
            cluster.groups.refuse = lambda request: (
                CoordinatorLoadInProgress("loading")
                if is_loading and isinstance(request, pb.OffsetCommitRequest)
                else None
            )
            commit = start(consumer.commit())
            await until(lambda: cluster.groups.commits)
            (member_id,) = cluster.groups.groups["g"].members
            await cluster.groups.fence("g", member_id)
            await until(lambda: is_settled(cluster.groups, "g", 1))
            is_loading = False
            with pytest.raises(CommitFailed, match="not the member that it was"):  # fenced, or already joined again
                await commit
            assert stored(cluster) == {}


@pytest.mark.parametrize("auto_commit", [False, True])
@pytest.mark.parametrize("given", [None, {("orders", 0): 4}], ids=["positions", "offsets"])
async def test_no_commit_returns_after_the_records_were_lost_until_the_program_polls(
    given: Mapping[Any, int] | None, auto_commit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Four records are returned; the member is removed, as after a long pause, joins again and has its partition."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 5)
        async with group_of(cluster, auto_commit=auto_commit, auto_commit_interval_ms=60_000) as consumer:
            assert len(await consumer.poll(4, timeout=5)) == 4
            before = consumer.assigned_cursors()
            (member_id,) = cluster.groups.groups["g"].members
            await cluster.groups.fence("g", member_id)
            await until(lambda: consumer.assignment and consumer.assigned_cursors() != before)
            await settled(cluster, 1)
            for _ in range(2):
                with pytest.raises(CommitFailed, match=r"removed from the group, with records of orders-0.*discard"):
                    await consumer.commit(given)
            assert stored(cluster) == {}
            assert [record.offset for record in await consumer.poll(4, timeout=5)] == [0, 1, 2, 3], "read again"
            await consumer.commit(given)
            assert stored(cluster) == {0: 4}
    assert "records of orders-0 were returned and not committed" in caplog.text


async def test_a_loss_that_no_commit_has_told_is_told_by_the_next_one() -> None:
    """Without auto_commit the program commits now and then: it polls on after the loss, which `commit` reports once;
    given offsets of partitions that were not lost are committed meanwhile. With auto_commit a poll ends the matter."""
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, 2)
        for auto_commit in (False, True):
            async with group_of(cluster, auto_commit=auto_commit, auto_commit_interval_ms=60_000) as consumer:
                assert len(await consumer.poll(timeout=5)) == 2
                (member_id,) = cluster.groups.groups["g"].members
                await cluster.groups.fence("g", member_id)
                assert len(await consumer.poll(timeout=5)) == 2
                if not auto_commit:
                    await consumer.commit({("orders", 1): 0})
                    with pytest.raises(CommitFailed, match="removed from the group"):
                        await consumer.commit()
                    await consumer.poll(timeout=0)
                    assert stored(cluster) == {1: 0}
                    await consumer.close()
                else:
                    await consumer.commit()
                    assert stored(cluster) == {0: 2, 1: 0}


@pytest.mark.parametrize(
    ("given", "by_itself"),
    [(None, False), ({("orders", 0): 2}, False), (None, True)],
    ids=["positions", "offsets", "by itself"],
)
async def test_what_was_committed_before_is_not_lost_with_the_membership(
    given: Mapping[Any, int] | None, by_itself: bool
) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 2)
        async with group_of(cluster, auto_commit=by_itself, auto_commit_interval_ms=5) as consumer:
            assert len(await consumer.poll(2, timeout=5)) == 2
            if by_itself:
                await consumer.poll(1, timeout=0)
                await until(lambda: stored(cluster) == {0: 2})
            else:
                await consumer.commit(given)
            before = consumer.assigned_cursors()
            (member_id,) = cluster.groups.groups["g"].members
            await cluster.groups.fence("g", member_id)
            await until(lambda: consumer.assignment and consumer.assigned_cursors() != before)
            await consumer.commit()
            assert stored(cluster) == {0: 2}


async def test_a_replaced_static_member_learns_it_at_once_and_commits_nothing() -> None:
    """The first process is paused beyond its session, and a second one takes its place."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 5)
        first = group_of(cluster, auto_commit=False, instance_id="one")
        await first.start()
        assert len(await first.poll(3, timeout=5)) == 3
        group = cluster.groups.groups["g"]
        (member_id,) = group.members
        is_paused = True
        cluster.groups.refuse = lambda request: (
            CoordinatorLoadInProgress("its process does not run")
            if is_paused and isinstance(request, pb.ConsumerGroupHeartbeatRequest) and request.member_id == member_id
            else None
        )
        del group.members[member_id]
        second = group_of(cluster, instance_id="one")
        await second.start()
        await settled(cluster, 1)
        is_paused = False
        with pytest.raises(FencedInstanceId, match="this member was replaced"):
            while True:
                await first.poll(timeout=5)
        positions: tuple[Mapping[Any, int] | None, ...] = (None, {("orders", 0): 3})
        for given in positions:
            with pytest.raises(CommitFailed):
                await first.commit(given)
        assert stored(cluster) == {}
        await first.close()
        assert [record.offset for record in await second.poll(5, timeout=5)] == [0, 1, 2, 3, 4]
        await second.close()


async def test_a_group_without_a_subscription_commits_and_fetches_offsets() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, 5)
        async with Consumer(cluster.bootstrap, group="simple") as consumer:
            consumer.assign([("orders", 0)])
            assert await consumer.committed([("orders", 0)]) == {place("orders", 0): None}
            assert len(await consumer.poll(3, timeout=5)) == 3
            await consumer.commit()
            await consumer.commit({("orders", 1): 7})
            found = await consumer.committed([("orders", 0), ("orders", 1)])
            assert [each and each.offset for each in found.values()] == [3, 7]
            assert consumer.group_metadata() == GroupMetadata("simple")
            assert cluster.groups.heartbeats == []
            cluster.groups.refuse = lambda _request: UnknownMemberId("the group has members; stop them")
            with pytest.raises(CommitFailed, match=r"for group 'simple': the group has members; stop them\.$"):
                await consumer.commit({("orders", 1): 8})
        async with Consumer(cluster.bootstrap) as consumer:
            for call in (consumer.commit(), consumer.committed([("orders", 0)])):
                with pytest.raises(InvalidRequest, match='create it with group="'):
                    await call


async def test_a_refused_offset_is_raised_and_a_busy_coordinator_is_asked_again() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with group_of(cluster, auto_commit=False) as consumer:
            await until(lambda: consumer.assignment)
            assert await consumer.position(("orders", 0)) == 0, "commit() commits the positions that are known"
            cluster.groups.refuse = lambda request: (
                OffsetMetadataTooLarge("5000 bytes")
                if isinstance(request, pb.OffsetCommitRequest) and len(request.partitions[0].metadata) > 10
                else None
            )
            with pytest.raises(OffsetMetadataTooLarge, match=r"orders-0 was not committed for group 'g'"):
                await consumer.commit({("orders", 0): CommittedOffset(Offset(0), metadata="much too long")})
            cluster.groups.refuse = lambda request: (
                UnknownMemberId("it timed out") if isinstance(request, pb.OffsetCommitRequest) else None
            )
            with pytest.raises(CommitFailed, match=r"not the member that it was.*it timed out"):
                await consumer.commit()
            cluster.groups.refuse = lambda request: (
                IllegalGeneration("9 is committed since; fetch it first")
                if isinstance(request, pb.OffsetCommitRequest)
                else None
            )
            with pytest.raises(CommitFailed, match=r"for group 'g': 9 is committed since; fetch it first\.$"):
                await consumer.commit()
            busy = [CoordinatorLoadInProgress("loading"), NotCoordinator("elsewhere"), StaleMemberEpoch("old")]
            cluster.groups.refuse = lambda request: (
                busy.pop() if busy and isinstance(request, pb.OffsetCommitRequest) else None
            )
            await consumer.commit()
            assert (busy, stored(cluster)) == ([], {0: 0})


async def test_an_answer_that_leaves_a_partition_out_does_not_count_as_no_offset() -> None:
    """A partition without an offset would be read from its beginning, again."""
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        whole_fetch, whole_commit = cluster.groups.fetch, cluster.groups.commit

        def cut_fetch(request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
            return pb.OffsetFetchResponse(partitions=whole_fetch(request).partitions[:1])

        def cut_commit(request: pb.OffsetCommitRequest) -> pb.OffsetCommitResponse:
            return pb.OffsetCommitResponse(partitions=whole_commit(request).partitions[:1])

        cluster.groups.fetch, cluster.groups.commit = cut_fetch, cut_commit  # type: ignore[method-assign]
        async with Consumer(cluster.bootstrap, group="g", request_timeout_ms=300) as consumer:
            with pytest.raises(UnknownServerError, match="did not answer about orders-1"):
                await consumer.committed([("orders", 0), ("orders", 1)])
            with pytest.raises(UnknownServerError, match="did not answer about orders-1"):
                await consumer.commit({("orders", 0): 1, ("orders", 1): 1})


async def test_commits_are_stored_in_the_order_of_their_calls() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 10)
        async with group_of(cluster, auto_commit=False) as consumer:
            await consumer.poll(timeout=5)
            first = [CoordinatorLoadInProgress("loading")]
            cluster.groups.refuse = lambda request: (
                first.pop() if first and isinstance(request, pb.OffsetCommitRequest) else None
            )
            async with asyncio.TaskGroup() as tasks:
                for offset in range(1, 6):
                    tasks.create_task(consumer.commit({("orders", 0): offset}))
            assert [each.partitions[0].offset for each in cluster.groups.commits] == [1, 1, 2, 3, 4, 5]
