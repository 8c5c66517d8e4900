"""Consumer groups (KIP-848) at three real nodes: librdkafka shares them with our consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient

import tidelog
from node.process.local_cluster import LocalCluster
from tests.kafka_nodes import QUICK_FAILOVER, QUICK_GROUPS, kafka_cluster

pytestmark = pytest.mark.integration

PARTITIONS = 4
WAIT_S = 20.0
NOT_A_MEMBER = (confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID, confluent_kafka.KafkaError.STALE_MEMBER_EPOCH)


cluster = kafka_cluster(
    QUICK_FAILOVER,
    QUICK_GROUPS,
    {
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.session.timeout.ms": 3_000,
        "group.consumer.min.session.timeout.ms": 1_000,
    },
)


@contextmanager
def consumer(cluster: LocalCluster, group: str, *topics: str, **settings: Any) -> Iterator[confluent_kafka.Consumer]:
    """A member of the protocol of KIP-848, until the block ends or it is closed."""
    member = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap,
            "log_level": 0,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    try:
        if topics:
            member.subscribe(list(topics))
        yield member
    finally:
        member.close()


def write(cluster: LocalCluster, topic: str, count: int = 40) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def read(member: confluent_kafka.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        message = member.poll(WAIT_S)
        assert message is not None, f"{len(found)} of {count} records came"
        assert message.error() is None, message.error()
        found.append(message.value() or b"")
    return found


async def until_shared(member: confluent_kafka.Consumer, other: tidelog.Consumer, counts: tuple[int, int]) -> None:
    """Poll both until they have so many partitions, none of which both have."""
    async with asyncio.timeout(WAIT_S):
        while True:
            await asyncio.to_thread(member.poll, 0.05)
            await other.poll(timeout=0.01)
            theirs = {(each.topic, each.partition) for each in member.assignment()}
            ours = {(each.topic, each.partition) for each in other.assignment}
            assert not theirs & ours
            if (len(theirs), len(ours)) == counts:
                return


async def until_assigned(member: confluent_kafka.Consumer, topics: set[str], count: int) -> None:
    """Poll until it has so many partitions, which are of these topics."""
    async with asyncio.timeout(WAIT_S):
        while (len(member.assignment()), {each.topic for each in member.assignment()}) != (count, topics):
            await asyncio.to_thread(member.poll, 0.05)


async def test_librdkafka_and_our_consumer_share_a_group(cluster: LocalCluster) -> None:
    """One reads alone and commits; the other one comes, gets half of the partitions and goes on where they were
    committed; each gets the rest when the other one leaves."""
    await asyncio.to_thread(cluster.create_topic, "shared", PARTITIONS)
    await asyncio.to_thread(write, cluster, "shared")
    with consumer(cluster, "readers", "shared") as member, consumer(cluster, "readers") as late:
        assert sorted(await asyncio.to_thread(read, member, 40)) == sorted(b"%d" % each for each in range(40))
        await asyncio.to_thread(member.commit, asynchronous=False)
        async with tidelog.Consumer(cluster.bootstrap, group="readers", topics=["shared"]) as other:
            await until_shared(member, other, (2, 2))
            for partition in other.assignment:
                assert await other.position(partition) == 10
            async with tidelog.Admin(cluster.bootstrap) as admin:
                described = (await admin.describe_groups(["readers"]))["readers"]
                assert not isinstance(described, tidelog.TidelogError)
                assert (described.type, described.state, len(described.members)) == ("consumer", "Stable", 2)
            await asyncio.to_thread(member.close)
            async with asyncio.timeout(WAIT_S):
                while len(other.assignment) < PARTITIONS:
                    await other.poll(timeout=0.05)
            late.subscribe(["shared"])
            await until_shared(late, other, (2, 2))
        await until_assigned(late, {"shared"}, PARTITIONS)


async def test_who_was_removed_commits_nothing(cluster: LocalCluster) -> None:
    """A member of librdkafka whose program is stuck leaves the group: our consumer has its partitions, and its commit
    is refused."""
    await asyncio.to_thread(cluster.create_topic, "fenced", PARTITIONS)
    await asyncio.to_thread(write, cluster, "fenced")
    late = [TopicPartition("fenced", each, 10) for each in range(PARTITIONS)]
    with consumer(cluster, "stuck", "fenced", **{"max.poll.interval.ms": 1_000}) as stuck:
        await asyncio.to_thread(read, stuck, 40)
        async with tidelog.Consumer(cluster.bootstrap, group="stuck", topics=["fenced"], auto_commit=False) as other:
            async with asyncio.timeout(WAIT_S):
                while len(other.assignment) < PARTITIONS:
                    await other.poll(timeout=0.05)
            with pytest.raises(confluent_kafka.KafkaException) as refused:
                await asyncio.to_thread(stuck.commit, offsets=late, asynchronous=False)
            assert refused.value.args[0].code() in NOT_A_MEMBER
            assert set((await other.committed(other.assignment)).values()) == {None}


async def test_the_topics_of_a_pattern_are_found_by_the_coordinator(cluster: LocalCluster) -> None:
    """Also those that are created later."""
    await asyncio.to_thread(cluster.create_topic, "logs-a", 1)
    with consumer(cluster, "patterns", "^logs-.*") as member:
        await until_assigned(member, {"logs-a"}, 1)
        await asyncio.to_thread(cluster.create_topic, "logs-b", 1)
        await until_assigned(member, {"logs-a", "logs-b"}, 2)


async def test_a_bad_pattern_is_told_to_its_member(cluster: LocalCluster) -> None:
    """RE2 has no references to groups; the client's own expressions have."""
    with consumer(cluster, "bad-patterns", r"^(logs)-\1") as member:
        message = await asyncio.to_thread(member.poll, WAIT_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert "regular expression is not valid" in error.str()


async def test_offsets_of_assigned_partitions_are_committed_under_the_id_of_a_consumer(cluster: LocalCluster) -> None:
    """librdkafka has a member id before it is a member of anything."""
    await asyncio.to_thread(cluster.create_topic, "assigned", PARTITIONS)
    await asyncio.to_thread(write, cluster, "assigned", 8)

    def story() -> None:
        with consumer(cluster, "alone") as alone:
            alone.assign([TopicPartition("assigned", 0, 0)])
            assert read(alone, 2) == [b"0", b"4"]
            alone.commit(asynchronous=False)
            (committed,) = alone.committed([TopicPartition("assigned", 0)], WAIT_S)
            assert committed.offset == 2

    await asyncio.to_thread(story)


async def test_groups_of_both_protocols_are_listed_described_and_deleted(cluster: LocalCluster) -> None:
    """By the administration of librdkafka, as our own sees them."""
    await asyncio.to_thread(cluster.create_topic, "tools", PARTITIONS)
    await asyncio.to_thread(write, cluster, "tools")
    admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0})
    members = ("tools-new", "tools-old")

    def listed(**filters: Any) -> dict[str, tuple[Any, Any]]:
        found = admin.list_consumer_groups(request_timeout=WAIT_S, **filters).result(WAIT_S)
        assert not found.errors
        return {each.group_id: (each.type, each.state) for each in found.valid if each.group_id.startswith("tools-")}

    def looked_at() -> None:
        stable = ConsumerGroupState.STABLE
        both = {"tools-new": (ConsumerGroupType.CONSUMER, stable), "tools-old": (ConsumerGroupType.CLASSIC, stable)}
        assert listed() == both
        assert listed(types={ConsumerGroupType.CLASSIC}).keys() == {"tools-old"}
        assert listed(states={ConsumerGroupState.EMPTY}) == {}
        for name, waited in admin.describe_consumer_groups(list(members), request_timeout=WAIT_S).items():
            described = waited.result(WAIT_S)
            assert described.state is stable
            (member,) = described.members
            assert (member.client_id, member.host) == (name.removeprefix("tools-"), "127.0.0.1")
            assert {(each.topic, each.partition) for each in member.assignment.topic_partitions} == {
                ("tools", each) for each in range(PARTITIONS)
            }
        refused = admin.delete_consumer_groups(["tools-old"], request_timeout=WAIT_S)["tools-old"].exception(WAIT_S)
        assert refused is not None
        assert refused.args[0].code() == confluent_kafka.KafkaError.NON_EMPTY_GROUP
        asked = [ConsumerGroupTopicPartitions("tools-old")]
        offsets = admin.list_consumer_group_offsets(asked, require_stable=True)["tools-old"].result(WAIT_S)
        assert {each.partition: each.offset for each in offsets.topic_partitions} == dict.fromkeys(
            range(PARTITIONS), 10
        )

    with (
        consumer(cluster, "tools-new", "tools", **{"client.id": "new"}) as new,
        consumer(cluster, "tools-old", "tools", **{"client.id": "old", "group.protocol": "classic"}) as old,
    ):
        for member in (new, old):
            await asyncio.to_thread(read, member, 40)
            await asyncio.to_thread(member.commit, asynchronous=False)
        await asyncio.to_thread(looked_at)
        async with tidelog.Admin(cluster.bootstrap) as ours:
            for name in members:
                lag = await ours.group_lag(name)
                assert {(each.client_id, each.lag) for each in lag} == {(name.removeprefix("tools-"), 0)}

    def changed() -> None:
        moved = [ConsumerGroupTopicPartitions("tools-new", [TopicPartition("tools", 1, 3)])]
        admin.alter_consumer_group_offsets(moved)["tools-new"].result(WAIT_S)
        deleted = admin.delete_consumer_groups(list(members), request_timeout=WAIT_S)
        assert [each.result(WAIT_S) for each in deleted.values()] == [None, None]
        assert listed() == {}

    await asyncio.to_thread(changed)
