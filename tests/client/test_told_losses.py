"""A loss of records that a failed commit has told of is over with the next poll."""

from __future__ import annotations

import pytest

from tests.client.group_story import fill, group_of, stored
from tests.client.memory_cluster import memory_cluster, run
from tidelog.errors import CommitFailed


@pytest.mark.parametrize("is_known", [False, True], ids=["refused by the coordinator", "known to the member"])
def test_a_commit_that_failed_at_once_tells_of_the_loss(is_known: bool) -> None:
    """The member is removed, and the commit fails before it has joined again. The program discards and polls on: what
    it then gets is committed."""

    async def story() -> None:
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

    run(story())
