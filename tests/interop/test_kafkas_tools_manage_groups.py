"""Apache Kafka's Java clients in groups at real nodes: they share one with our consumer, and `kafka-consumer-groups`
lists, describes, resets and deletes."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import confluent_kafka
import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tests.interop.kafka_tools import java_command, run
from tests.kafka_nodes import QUICK_GROUPS, kafka_cluster

pytestmark = pytest.mark.interop

TOOLS = "org.apache.kafka.tools"
PARTITIONS = 4
WAIT_S = 60.0


cluster = kafka_cluster(
    QUICK_GROUPS,
    {
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.session.timeout.ms": 3_000,
        "group.consumer.min.session.timeout.ms": 1_000,
    },
)


async def written(cluster: LocalCluster, topic: str, values: list[bytes]) -> None:
    async with tidelog.Producer(cluster.bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send(topic, value, partition=number % PARTITIONS)


def tool(cluster: LocalCluster, main: str, *arguments: str) -> list[list[str]]:
    """The rows that a tool prints, word by word."""
    printed, _ = run(main, "--bootstrap-server", cluster.kafka_bootstrap, *arguments, is_silent=True)
    return [line.split() for line in printed.splitlines() if line.strip()]


def groups(cluster: LocalCluster, *arguments: str) -> list[list[str]]:
    """What `kafka-consumer-groups` prints."""
    return tool(cluster, f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--timeout", "30000", *arguments)


def columns(rows: list[list[str]], *names: str) -> list[tuple[str, ...]]:
    """These columns of a table, of which the first row is the head."""
    places = [rows[0].index(name) for name in names]
    return sorted(tuple(row[place] for place in places) for row in rows[1:])


@asynccontextmanager
async def console_consumer(cluster: LocalCluster, topic: str, group: str) -> AsyncIterator[Process]:
    """A member of the protocol of KIP-848 that prints what it reads."""
    properties = ("group.protocol=consumer", "auto.offset.reset=earliest", "auto.commit.interval.ms=100")
    command = java_command(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--bootstrap-server", cluster.kafka_bootstrap, "--topic", topic, "--group", group),
        *(text for each in properties for text in ("--consumer-property", each)),
    )
    command.insert(1, "-Dtidelog.log.level=off")
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def lines(process: Process, count: int) -> list[bytes]:
    assert process.stdout is not None
    return [(await process.stdout.readline()).strip() for _ in range(count)]


async def test_a_member_of_java_shares_a_group_with_our_consumer(cluster: LocalCluster) -> None:
    """Java reads alone; our consumer gets half of the partitions, and each reads its own. Java is killed: its session
    times out, and our consumer goes on where it has committed."""
    await asyncio.to_thread(cluster.create_topic, "shared", PARTITIONS)
    first = [b"first-%d" % each for each in range(100)]
    await written(cluster, "shared", first)
    async with asyncio.timeout(WAIT_S), console_consumer(cluster, "shared", "readers") as java:
        assert sorted(await lines(java, len(first))) == sorted(first)
        async with tidelog.Consumer(cluster.bootstrap, group="readers", topics=["shared"]) as ours:
            while len(ours.assignment) < PARTITIONS // 2:
                await ours.poll(timeout=0.05)
            second = [b"second-%d" % each for each in range(100)]
            await written(cluster, "shared", second)
            by_java, by_us = await asyncio.gather(lines(java, 50), polled(ours, 50))
            assert sorted(by_java + by_us) == sorted(second)
            async with tidelog.Admin(cluster.bootstrap) as admin:
                described = (await admin.describe_groups(["readers"]))["readers"]
                assert not isinstance(described, tidelog.TidelogError)
                assert (described.type, sorted(len(each.assignment) for each in described.members)) == (
                    "consumer",
                    [2, 2],
                )
            java.kill()
            while len(ours.assignment) < PARTITIONS:
                await ours.poll(timeout=0.05)
            third = [b"third-%d" % each for each in range(100)]
            await written(cluster, "shared", third)
            found: set[bytes] = set()
            while not found >= set(third):
                found.update(await polled(ours, 1))
            assert not found & set(first), "what Java has committed is not read again"


async def polled(consumer: tidelog.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [each.value or b"" for each in await consumer.poll(timeout=0.1)]
    return found


def member(cluster: LocalCluster, group: str, protocol: str) -> confluent_kafka.Consumer:
    """One that has read and committed all of the topic."""
    settings: dict[str, Any] = {"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0, "client.id": protocol}
    settings |= {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    found = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    found.subscribe(["tools"])
    for _ in range(40):
        message = found.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
    found.commit(asynchronous=False)
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_tool_for_groups_does_what_it_does_at_kafka(cluster: LocalCluster, protocol: str) -> None:
    """Above 10 s: a JVM for each command."""
    if protocol == "classic":
        await asyncio.to_thread(cluster.create_topic, "tools", PARTITIONS)
        await written(cluster, "tools", [b"%d" % each for each in range(40)])
    name = f"{protocol}-group"
    alive = await asyncio.to_thread(member, cluster, name, protocol)

    def looked_at() -> None:
        one = ("--describe", "--group", name)
        listed = groups(cluster, "--list", "--state")
        assert [name, "Stable"] in listed
        assert [name, protocol.capitalize()] in groups(cluster, "--list", "--type", protocol)
        by_name = tool(cluster, f"{TOOLS}.GroupsCommand", "--list")
        assert [name, protocol.capitalize(), "consumer"] in by_name
        rows = groups(cluster, *one)
        found = columns(rows, "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CLIENT-ID")
        assert found == [("tools", str(each), "10", "10", "0", protocol) for each in range(PARTITIONS)]
        rows = groups(cluster, *one, "--members")
        assert columns(rows, "CLIENT-ID", "#PARTITIONS") == [(protocol, str(PARTITIONS))]
        rows = groups(cluster, *one, "--state")
        assert [row[-2:] for row in rows[1:]] == [["Stable", "1"]]

    await asyncio.to_thread(looked_at)
    await asyncio.to_thread(alive.close)

    def changed() -> None:
        reset = ("--reset-offsets", "--group", name, "--topic", "tools:1", "--to-earliest", "--execute")
        assert columns(groups(cluster, *reset), "PARTITION", "NEW-OFFSET") == [("1", "0")]
        rows = [row for row in groups(cluster, "--describe", "--group", name) if name in row or "GROUP" in row]
        found = columns([row for row in rows if len(row) > 4], "PARTITION", "CURRENT-OFFSET", "LAG")
        assert found == [("0", "10", "0"), ("1", "0", "10"), ("2", "10", "0"), ("3", "10", "0")]
        forgot = groups(cluster, "--delete-offsets", "--group", name, "--topic", "tools:2")
        assert ["tools", "2", "Successful"] in forgot
        groups(cluster, "--delete", "--group", name)
        assert name not in {row[0] for row in groups(cluster, "--list")}

    await asyncio.to_thread(changed)
