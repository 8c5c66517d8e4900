"""A group at three real nodes whose members change from the classic protocol to that of KIP-848 one by one, and back:
librdkafka speaks the one, our consumer the other."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka
import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tests.kafka_nodes import QUICK_FAILOVER, QUICK_GROUPS, kafka_cluster

pytestmark = pytest.mark.integration

PARTITIONS = 4
RECORDS = 40
"""Written at each stage."""
WAIT_S = 30.0
UNOWNED_S = 15.0
"""A rebalance, on a machine that does much else: far below the session timeout of a member that was lost."""

Place = tuple[str, int]


cluster = kafka_cluster(
    QUICK_FAILOVER,
    QUICK_GROUPS,
    {
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.min.heartbeat.interval.ms": 100,
    },
)


class Rolling:
    """A group, its members of both protocols, and what they have read."""

    def __init__(self, cluster: LocalCluster, name: str, strategy: str) -> None:
        self.cluster, self.name, self.strategy = cluster, name, strategy
        self.classic: list[confluent_kafka.Consumer] = []
        self.ours: list[tidelog.Consumer] = []
        self.read: set[bytes] = set()
        self.written: set[bytes] = set()
        self._owned_at = dict.fromkeys(((name, each) for each in range(PARTITIONS)), 0.0)
        self.longest = 0.0
        """For how long a partition has had no owner, at most."""

    def write(self) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.kafka_bootstrap, "log_level": 0})
        start = len(self.written)
        for number in range(start, start + RECORDS):
            producer.produce(self.name, b"%d" % number, partition=number % PARTITIONS)
            self.written.add(b"%d" % number)
        assert producer.flush(WAIT_S) == 0

    def join_classic(self) -> confluent_kafka.Consumer:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.cluster.kafka_bootstrap,
            "log_level": 0,
            "group.id": self.name,
            "group.protocol": "classic",
            "partition.assignment.strategy": self.strategy,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 45_000,
        }
        member = confluent_kafka.Consumer(settings)
        member.subscribe([self.name])
        self.classic.append(member)
        return member

    async def join(self) -> tidelog.Consumer:
        member = tidelog.Consumer(
            self.cluster.bootstrap,
            group=self.name,
            topics=[self.name],
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
        )
        await member.start()
        self.ours.append(member)
        return member

    async def leave(self, member: confluent_kafka.Consumer | tidelog.Consumer) -> None:
        if isinstance(member, tidelog.Consumer):
            self.ours.remove(member)
            await member.close()
        else:
            self.classic.remove(member)
            await asyncio.to_thread(member.close)

    def owners(self) -> list[set[Place]]:
        classic = [{(each.topic, each.partition) for each in member.assignment()} for member in self.classic]
        return [*classic, *({(each.topic, int(each.partition)) for each in member.assignment} for member in self.ours)]

    async def settle(self) -> None:
        """All read until each partition has one owner, each member has some, and everything is read."""
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(WAIT_S):
            while True:
                for member in self.classic:
                    message = await asyncio.to_thread(member.poll, 0.02)
                    if message is None:
                        continue
                    error = message.error()
                    if error is None:
                        self.read.add(message.value() or b"")
                    else:  # librdkafka tells of each attempt while a new coordinator begins
                        assert error.code() == confluent_kafka.KafkaError.NOT_COORDINATOR, error
                for ours in self.ours:
                    self.read.update(record.value or b"" for record in await ours.poll(timeout=0.01))
                owned = self.owners()
                everyone = set().union(*owned)
                assert sum(map(len, owned)) == len(everyone), f"two owners: {owned}"
                self._owned_at.update(dict.fromkeys(everyone, clock()))
                gaps = [clock() - at for at in self._owned_at.values() if at]
                self.longest = max(self.longest, *gaps, 0.0)
                if len(everyone) == PARTITIONS and all(owned) and self.read >= self.written:
                    return

    async def described(self) -> tuple[str, int]:
        """The type of the group, and how many members it has."""
        async with tidelog.Admin(self.cluster.bootstrap) as admin:
            found = (await admin.describe_groups([self.name]))[self.name]
            assert not isinstance(found, tidelog.TidelogError), found
            return found.type, len(found.members)


@pytest.mark.parametrize("strategy", ["range", pytest.param("cooperative-sticky", marks=pytest.mark.deep)])
async def test_a_group_rolls_to_the_new_protocol_and_back(cluster: LocalCluster, strategy: str) -> None:
    """Eager members give everything up in each rebalance, cooperative ones read on. All is read, no partition has two
    owners, and none is without one for longer than a rebalance takes.

    Above 10 s: seven rebalances, each of which librdkafka learns of by its next heartbeat."""
    group = Rolling(cluster, f"rolling-{strategy}", strategy)
    await asyncio.to_thread(cluster.create_topic, group.name, PARTITIONS)
    stages: list[tuple[str, int]] = []

    async def settled() -> None:
        await asyncio.to_thread(group.write)
        await group.settle()
        stages.append(await group.described())

    first, second = group.join_classic(), group.join_classic()
    await settled()
    third = await group.join()
    await settled()
    await group.leave(first)
    fourth = await group.join()
    await settled()
    await group.leave(second)
    await settled()
    fifth = group.join_classic()
    await settled()
    await group.leave(third)
    await settled()
    await group.leave(fourth)
    await settled()
    assert stages == [
        ("classic", 2),
        ("consumer", 3),
        ("consumer", 3),
        ("consumer", 2),
        ("consumer", 3),
        ("consumer", 2),
        ("classic", 1),
    ]
    assert group.longest < UNOWNED_S
    await group.leave(fifth)
