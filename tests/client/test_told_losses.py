"""A loss of records that a failed commit has told of is over with the next poll, and takes no other records along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.client.group_story import fill, group_of, stored
from tests.client.memory_cluster import memory_cluster, until
from tidelog.errors import CommitFailed


@pytest.mark.parametrize("is_known", [False, True], ids=["refused by the coordinator", "known to the member"])
async def test_a_commit_that_failed_at_once_tells_of_the_loss(is_known: bool) -> None:
    """The member is removed, and the commit fails before it has joined again. The program discards and polls on: what
    it then gets is committed."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 4)
        async with group_of(cluster, auto_commit=False) as consumer:
            assert len(await consumer.poll(4, timeout=5)) == 4
            (member_id,) = cluster.groups.groups["g"].members
            if is_known:
                await cluster.groups.fence("g", member_id)
            else:
                del cluster.groups.groups["g"].members[member_id]
            with pytest.raises(CommitFailed):
                await consumer.commit()
            assert [record.offset for record in await consumer.poll(4, timeout=5)] == [0, 1, 2, 3], "read again"
            await consumer.commit()
            assert stored(cluster) == {0: 4}


@pytest.mark.parametrize("given", [None, {("orders", 0): 4}], ids=["positions", "offsets"])
async def test_what_was_returned_between_the_loss_and_the_failed_commit_is_returned_again(
    given: Mapping[Any, int] | None,
) -> None:
    """The program commits every few polls: it learns late that the member was removed, and discards all that it has
    processed since its last commit. No other member reads these records."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 4)
        async with group_of(cluster, auto_commit=False) as consumer:
            assert len(await consumer.poll(3, timeout=5)) == 3
            (member_id,) = cluster.groups.groups["g"].members
            before = consumer.assigned_cursors()
            await cluster.groups.fence("g", member_id)
            await until(lambda: consumer.assignment and consumer.assigned_cursors() != before)
            assert [record.offset for record in await consumer.poll(4, timeout=5)] == [0, 1, 2, 3]
            for _ in range(2):
                with pytest.raises(CommitFailed, match="with records of orders-0"):
                    await consumer.commit(given)
            assert [record.offset for record in await consumer.poll(4, timeout=5)] == [0, 1, 2, 3], "again"
            await consumer.commit(given)
            assert stored(cluster) == {0: 4}
