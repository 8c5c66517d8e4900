"""Consumers in a group over real connections: members share partitions, and each record is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.client.group_story import AtTenSeconds, fill, group_of, place, reading, settled, stored
from tests.client.memory_cluster import memory_cluster, until
from tests.client.memory_groups import is_settled
from tidelog.client.consumer import Consumer, ConsumerRecord, GroupMetadata
from tidelog.errors import (
    CommitFailed,
    FencedInstanceId,
    GroupAuthorizationFailed,
    InvalidConfig,
    InvalidRequest,
    InvalidTopic,
    NoCommittedOffset,
    TidelogError,
    UnsupportedAssignor,
)
from tidelog.protocol.v1 import groups_pb2 as pb
from tidelog.types import TopicPartition


async def test_members_share_the_partitions_and_read_everything_once() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 4)
        one, two = list[ConsumerRecord](), list[ConsumerRecord]()
        async with group_of(cluster) as first, group_of(cluster) as second:
            async with reading(first, one), reading(second, two):
                await settled(cluster, 2)
                for index in range(4):
                    fill(cluster, "orders", index, 10)
                await until(lambda: len(one) + len(two) >= 40)
                assert sorted((*first.assignment, *second.assignment)) == [place("orders", i) for i in range(4)]
            assert len(first.assignment) == len(second.assignment) == 2
        seen = sorted((record.partition, record.offset) for record in (*one, *two))
        assert seen == [(index, offset) for index in range(4) for offset in range(10)]
        assert stored(cluster) == dict.fromkeys(range(4), 10)


async def test_a_closed_members_partitions_are_read_on_from_what_it_processed() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        for index in range(2):
            fill(cluster, "orders", index, 6)
        later = list[ConsumerRecord]()
        position: dict[int, int] = {}
        async with group_of(cluster) as first:
            async for record in first:
                if record.offset == 3:
                    break
            for key in first.assignment:
                position[key.partition] = await first.position(key)
        assert stored(cluster) == position, "leaving the block without an error: what was returned is processed"
        async with group_of(cluster) as second, reading(second, later):
            await until(lambda: len(later) == 12 - sum(position.values()))
        assert min(record.offset for record in later if record.partition == 0) == position[0]


async def test_a_partition_is_given_up_after_its_records_are_processed() -> None:
    """The second member waits until the first has processed the record that it has in hand, and nothing is read twice.
    Records that were fetched but not returned are never returned after on_revoked."""
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        for index in range(2):
            for _ in range(100):
                fill(cluster, "orders", index, 5)
        log: list[str] = []

        def note(what: str) -> Callable[[list[TopicPartition]], None]:
            return lambda partitions: log.append(f"{what} {[key.partition for key in partitions]}")

        async with group_of(cluster, on_assigned=note("assigned"), on_revoked=note("revoked")) as first:
            iterator = aiter(first)
            first_record = await anext(iterator)
            await until(lambda: log == ["assigned [0, 1]"])
            later = list[ConsumerRecord]()
            async with group_of(cluster) as second, reading(second, later):
                members = cluster.groups.groups["g"].members
                await until(lambda: len(members) == 2 and any(len(each.given) == 1 for each in members.values()))
                (kept,) = next({index for _, index in each.given} for each in members.values() if each.given)
                revoked = 1 - kept
                mine = [first_record]
                if first_record.partition == revoked:
                    await asyncio.sleep(0.05)  # noqa: TID251 - the record is being processed
                    assert log == ["assigned [0, 1]"]
                while f"revoked [{revoked}]" not in log:
                    fill(cluster, "orders", kept, 1)  # there is a next record, however late the revocation comes
                    mine.append(await anext(iterator))
                fill(cluster, "orders", kept, 20)
                after = [await anext(iterator) for _ in range(20)]
                assert {record.partition for record in after} == {kept}
                processed = [record.offset for record in mine if record.partition == revoked]
                await until(lambda: len(later) == 500 - len(processed))
                offsets = [record.offset for record in later]
                assert offsets == list(range(len(processed), 500)), "nothing is lost, nothing is read twice"


async def test_a_fenced_member_gives_up_everything_and_joins_again() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 1)
        fill(cluster, "orders", 0, 5)
        lost: list[list[TopicPartition]] = []
        refused: list[TidelogError] = []

        async def on_lost(partitions: list[TopicPartition]) -> None:
            lost.append(partitions)
            with pytest.raises(CommitFailed) as caught:
                await consumer.commit()
            refused.append(caught.value)

        async with group_of(cluster, on_lost=on_lost, auto_commit=False) as consumer:
            assert len(await consumer.poll(3, timeout=5)) == 3
            await consumer.commit({place("orders", 0): 2})
            assert len(await consumer.poll(2, timeout=5)) == 2
            (member_id,) = cluster.groups.groups["g"].members
            await cluster.groups.fence("g", member_id)
            await until(lambda: lost)
            assert lost == [[place("orders", 0)]]
            assert [record.offset for record in await consumer.poll(timeout=5)] == [2, 3, 4], "read again"
            assert "not the member that it was" in refused[0].message
            assert stored(cluster) == {0: 2}
            with pytest.raises(CommitFailed, match="not assigned"):
                await consumer.commit({place("orders", 7): 2})


@pytest.mark.parametrize("is_iterating", [False, True], ids=["poll", "iteration"])
async def test_a_stuck_program_loses_its_partitions_until_it_asks_again(
    is_iterating: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 1)
        fill(cluster, "orders", 0, 5)
        lost, revoked = list[list[TopicPartition]](), list[list[TopicPartition]]()
        later = list[ConsumerRecord]()
        async with group_of(cluster, on_lost=lost.append, on_revoked=revoked.append, max_poll_interval_ms=400) as stuck:
            iterator = aiter(stuck)
            assert [(await anext(iterator)).offset, (await anext(iterator)).offset] == [0, 1]
            async with group_of(cluster) as other, reading(other, later):
                await until(lambda: bool(lost))
                with pytest.raises(CommitFailed, match="max_poll_interval_ms"):
                    await stuck.commit()
                await until(lambda: len(later) == 5)
            assert (lost, revoked) == ([[place("orders", 0)]], [])
            fill(cluster, "orders", 0, 1)
            if is_iterating:
                assert (await anext(iterator)).offset == 5
            else:
                assert [record.offset for record in await stuck.poll(timeout=5)] == [5]
        assert stored(cluster) == {0: 6}
    assert "raise max_poll_interval_ms" in caplog.text


async def test_a_program_that_waits_for_records_is_not_stuck() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 1)
        lost = list[list[TopicPartition]]()
        found = list[ConsumerRecord]()
        async with group_of(cluster, on_lost=lost.append, max_poll_interval_ms=300) as consumer:
            async with reading(consumer, found):
                await asyncio.sleep(0.8)  # noqa: TID251 - longer than the interval
                fill(cluster, "orders", 0, 1)
                await until(lambda: len(found) == 1)
            assert await consumer.poll(timeout=0.8) == []
            assert lost == []


async def test_a_moved_coordinator_is_found_and_the_member_stays() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        log: list[str] = []
        async with group_of(
            cluster, on_assigned=lambda _: log.append("assigned"), on_revoked=lambda _: log.append("revoked")
        ) as consumer:
            await consumer.poll(timeout=0)
            await settled(cluster, 1)
            epoch = consumer.group_metadata().member_epoch
            cluster.groups.node = 1
            beats = len(cluster.groups.heartbeats)
            await until(lambda: len(cluster.groups.heartbeats) > beats + 2)
            fill(cluster, "orders", 1, 1)
            assert len(await consumer.poll(timeout=5)) == 1
            await consumer.commit()
            assert stored(cluster) == {0: 0, 1: 1}
            assert consumer.group_metadata().member_epoch == epoch
            assert log == ["assigned"]
            await cluster.nodes[1].stop()
            cluster.groups.node = 0
            await until(lambda: stored(cluster) == {0: 0, 1: 1} and is_settled(cluster.groups, "g", 1))
            assert log == ["assigned"]
        assert not cluster.groups.groups["g"].members


async def test_new_topics_and_partitions_of_a_pattern_are_read() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders-eu", 1)
        found = list[ConsumerRecord]()
        consumer = Consumer(cluster.bootstrap, group="g", topic_pattern="orders-.*", max_wait_ms=100)
        async with consumer, reading(consumer, found):
            await settled(cluster, 1)
            cluster.create("orders-us", 1)
            cluster.create("payments", 1)
            for topic in ("orders-us", "payments", "orders-eu"):
                fill(cluster, topic, 0, 1)
            await cluster.groups.changed("g")
            await until(lambda: len(found) == 2)
            assert {record.topic for record in found} == {"orders-eu", "orders-us"}
            cluster.delete("orders-eu")
            await cluster.groups.changed("g")
            await until(lambda: consumer.assignment == [place("orders-us", 0)])
            cluster.create("orders-eu", 1)
            fill(cluster, "orders-eu", 0, 1)
            await cluster.groups.changed("g")
            await until(lambda: len(found) == 3)
            assert found[2].offset == 0, "the offset that was committed for the deleted topic does not count"


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("latest", 10), ("by_duration:PT5S", 5), ("by_duration:P1D", 0)]
)
async def test_a_group_without_offsets_begins_where_it_is_told(reset: str, first: int) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 10)
        async with group_of(cluster, auto_offset_reset=reset, clock=AtTenSeconds()) as consumer:
            await settled(cluster, 1)
            await until(lambda: consumer.assignment)
            assert await consumer.position(place("orders", 0)) == first
        assert stored(cluster) == {0: first}


async def test_a_group_without_offsets_raises_if_it_is_told_so() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 10)
        async with group_of(cluster, auto_offset_reset="none") as consumer:
            with pytest.raises(NoCommittedOffset, match="auto_offset_reset"):
                await consumer.poll(timeout=5)
            await consumer.seek(place("orders", 0), 7)
            assert [record.offset for record in await consumer.poll(timeout=5)] == [7, 8, 9]
        assert stored(cluster) == {0: 10}

        async def from_five(partitions: list[TopicPartition]) -> None:
            for partition in partitions:
                await consumer.seek(partition, 5)

        cluster.groups.groups.clear()
        async with group_of(cluster, auto_offset_reset="none", on_assigned=from_five) as consumer:
            assert [record.offset for record in await consumer.poll(timeout=5)] == [5, 6, 7, 8, 9]


async def test_a_paused_partition_is_not_read_until_it_is_resumed() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        for index in range(2):
            fill(cluster, "orders", index, 3)
        consumer: Consumer = group_of(cluster, on_assigned=lambda keys: consumer.pause(keys[:1]))
        async with consumer:
            assert {record.partition for record in await consumer.poll(timeout=5)} == {1}
            assert consumer.paused == [place("orders", 0)]
            assert await consumer.poll(timeout=0.05) == []
            assert (await consumer.poll_arrow(timeout=0.05)).num_rows == 0
            consumer.resume([place("orders", 0)])
            assert {record.partition for record in await consumer.poll(timeout=5)} == {0}
            with pytest.raises(InvalidRequest, match="not assigned"):
                consumer.pause([("orders", 9)])


async def test_a_pause_stops_what_is_fetched_already_and_the_fetching() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        for index in range(2):
            fill(cluster, "orders", index, 50)
        async with group_of(cluster) as consumer:
            await until(lambda: consumer.assignment)
            await until(
                lambda: (
                    len(consumer._core.cursors) == 2 and all(each.batches for each in consumer._core.cursors.values())
                )
            )
            iterator = aiter(consumer)
            first = await anext(iterator)
            consumer.pause([first.topic_partition])
            other = [await anext(iterator) for _ in range(50)]
            assert {record.partition for record in other} == {1 - first.partition}
            assert (await consumer.poll_arrow(timeout=0.05)).num_rows == 0
            fetches = len(cluster.nodes[0].fetches)
            fill(cluster, "orders", first.partition, 1)
            await asyncio.sleep(0.3)  # noqa: TID251 - a fetch of the paused partition would be answered at once
            topic_id = cluster.topics["orders"].topic_id.bytes
            again = [(each.topic_id, each.partition) for each in cluster.nodes[0].fetches[fetches + 1 :]]
            assert again.count((topic_id, first.partition)) <= 1, "an open fetch may be answered, no other follows"
            consumer.resume([first.topic_partition])
            assert (await anext(iterator)).offset == first.offset + 1


async def test_nothing_is_returned_while_a_partition_is_given_up() -> None:
    """on_revoked takes its time, and the consumer has unread records of the partition in its memory."""
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        revoked: list[TopicPartition] = []
        is_over = asyncio.Event()

        async def on_revoked(partitions: list[TopicPartition]) -> None:
            revoked.extend(partitions)
            for index in range(2):
                fill(cluster, "orders", index, 5)
            await is_over.wait()

        async with group_of(cluster, on_revoked=on_revoked) as first:
            await until(lambda: len(first.assignment) == 2)
            for index in range(2):
                fill(cluster, "orders", index, 5)
            await until(lambda: all(each.batches for each in first._core.cursors.values()))
            async with group_of(cluster):
                await until(lambda: revoked)
                iterated = aiter(first)
                found = [(await anext(iterated)).topic_partition for _ in range(8)]
                found += [record.topic_partition for record in await first.poll(timeout=0.2)]
                assert (await first.poll_arrow(timeout=0.05)).num_rows == 0
                assert len(found) == 10
                assert revoked[0] in first.assignment
                assert revoked[0] not in found
                is_over.set()
                await settled(cluster, 2)
                assert revoked[0] not in first.assignment


async def test_a_topic_that_is_created_again_is_read_without_an_error() -> None:
    """The metadata show the new topic before the coordinator assigns it."""
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        cluster.groups.interval_ms = 60_000
        fill(cluster, "orders", 0, 3)
        async with group_of(cluster) as consumer:
            assert len(await consumer.poll(timeout=5)) == 3
            cluster.delete("orders")
            cluster.create("orders", 2)
            fill(cluster, "orders", 1, 2)
            assert await consumer.poll(timeout=0.7) == []
            await cluster.groups.changed("g")
            found = await consumer.poll(timeout=5)
            assert [(record.partition, record.offset) for record in found] == [(1, 0), (1, 1)]


async def test_a_static_member_keeps_its_place_unless_it_leaves_for_good() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, 2)
        async with group_of(cluster, instance_id="one") as consumer:
            assert len(await consumer.poll(timeout=5)) == 2
        (member,) = cluster.groups.groups["g"].members.values()
        assert (member.is_away, len(member.given)) == (True, 2)
        assert stored(cluster) == {0: 2, 1: 0}
        async with group_of(cluster, instance_id="one") as consumer:
            await settled(cluster, 1)
            (again,) = cluster.groups.groups["g"].members.values()
            assert again.member_id != member.member_id
            await until(lambda: len(consumer.assignment) == 2)
            assert consumer.group_metadata() == GroupMetadata("g", again.member_id, again.epoch, "one")
            await consumer.close(leave_group=True)
        assert cluster.groups.groups["g"].members == {}


@pytest.mark.parametrize("error", [FencedInstanceId, UnsupportedAssignor, InvalidRequest])
async def test_a_refusal_that_does_not_go_away_is_raised_by_every_poll(error: type[TidelogError]) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        lost: list[TopicPartition] = []
        async with group_of(cluster, on_lost=lost.extend) as consumer:
            await until(lambda: consumer.assignment)
            cluster.groups.refuse = lambda _request: error("because; do this")
            for _ in range(2):
                with pytest.raises(error, match="because; do this"):
                    await consumer.poll(timeout=5)
            with pytest.raises(CommitFailed):
                await consumer.commit({("orders", 0): 0})
            assert lost == [place("orders", 0)]


async def test_a_member_that_may_not_read_the_group_learns_it_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.client.group_core.REFUSED_MS", 300)
    async with memory_cluster() as cluster:
        cluster.create("orders")
        cluster.groups.refuse = lambda request: (
            GroupAuthorizationFailed("alice may not read group 'g'")
            if isinstance(request, pb.ConsumerGroupHeartbeatRequest)
            else None
        )
        async with group_of(cluster) as consumer:
            with pytest.raises(GroupAuthorizationFailed):
                await consumer.poll(timeout=5)
        assert len(cluster.groups.heartbeats) > 1, "a node may not know a new rule yet"


@pytest.mark.parametrize("which", ["on_assigned", "on_revoked"])
async def test_an_error_of_a_callback_is_raised_by_the_next_poll(which: str) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, 1)
        fill(cluster, "orders", 1, 1)

        def fail(_partitions: list[TopicPartition]) -> None:
            raise ZeroDivisionError("mine")

        async with group_of(cluster, **{which: fail}) as consumer:
            if which == "on_revoked":
                await until(lambda: is_settled(cluster.groups, "g", 1))
                async with group_of(cluster):
                    await settled(cluster, 2)
            with pytest.raises(ZeroDivisionError, match="mine"):
                while True:
                    await consumer.poll(timeout=5)


async def test_arguments_are_checked() -> None:
    for options, error, says in (
        ({"topics": ["a"]}, InvalidConfig, 'name it with group="'),
        ({"group": "g", "topics": ["a"], "topic_pattern": "b"}, InvalidConfig, "not to both"),
        ({"group": "g", "topics": []}, InvalidConfig, "subscribes to nothing"),
        ({"instance_id": "i"}, InvalidConfig, 'instance_id= is for members of a group: name it with group="...'),
        ({"on_revoked": print}, InvalidConfig, r"topic_pattern= or subscribe\(\)"),
        ({"group": "", "topics": ["a"]}, InvalidConfig, "group=''"),
        ({"group": "g", "topics": "a"}, TypeError, "list of names"),
        ({"group": "g", "topics": ["a b"]}, InvalidTopic, "a b"),
        ({"group": "g", "topics": ["a"], "auto_commit": "false"}, InvalidConfig, "True or False"),
        ({"group": "g", "topics": ["a"], "auto_offset_reset": "now"}, InvalidConfig, "by_duration:PT1H"),
        ({"group": "g", "topics": ["a"], "auto_offset_reset": "by_duration:1h"}, InvalidConfig, "ISO 8601"),
        ({"group": "g", "topics": ["a"], "on_revoked": 3}, TypeError, "on_revoked must be a function"),
        ({"group": "g", "topics": ["a"], "max_poll_interval_ms": 0}, InvalidConfig, "max_poll_interval_ms=0"),
    ):
        with pytest.raises(error, match=says):
            Consumer("127.0.0.1:1", **options)
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with group_of(cluster) as consumer:
            with pytest.raises(InvalidRequest, match="the group assigns the partitions"):
                consumer.assign([("orders", 0)])
            with pytest.raises(TypeError, match="mapping of partitions"):
                await consumer.commit([("orders", 0)])  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="offset=-1"):
                await consumer.commit({("orders", 0): -1})
