"""Groups against real node processes: members share, leave, are killed; coordinators are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from node.process.local_cluster import LocalCluster
from tests.client.memory_cluster import CLOCK, start, until
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.client.coordinators import CoordinatorKind, Coordinators
from tidelog.client.core_events import TimePassed
from tidelog.client.group_core import Effect, Event, Polled, SendHeartbeat
from tidelog.client.producer import Producer
from tidelog.errors import TidelogError
from tidelog.types import PartitionIndex, TopicPartition

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent.parent
SESSION_MS = 8_000
SETTINGS = {
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
}
SAFE = {"min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("groups"), 3, settings=SETTINGS) as made:
        made.wait_healthy()
        yield made


@pytest.fixture
def healed(cluster: LocalCluster) -> Iterator[LocalCluster]:
    yield cluster
    for node in cluster.nodes:
        if node.running:
            os.kill(node.pid, signal.SIGCONT)
    cluster.start()
    cluster.wait_healthy()


async def topic_of(cluster: LocalCluster, name: str, partitions: int = 4) -> list[TopicPartition]:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(name, partitions=partitions, replication_factor=3, configs=SAFE)
    return [TopicPartition(name, PartitionIndex(index)) for index in range(partitions)]


async def fill(cluster: LocalCluster, places: list[TopicPartition], values: range) -> None:
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for number in values:
            place = places[number % len(places)]
            await producer.enqueue(place.topic, b"%d" % number, partition=place.partition)
        await producer.flush()


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


async def collect(consumer: Consumer, into: list[ConsumerRecord]) -> None:
    async for record in consumer:
        into.append(record)  # noqa: PERF401 - the story looks at it meanwhile


def worker(cluster: LocalCluster, group: str, topic: str) -> subprocess.Popen[bytes]:
    """A member in a process of its own that prints the records that it reads."""
    return subprocess.Popen(
        [sys.executable, "-m", "tidelog.cli", "consume", topic, "--group", group, "--follow", "-b", cluster.bootstrap],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def without_time(member: Consumer, sent: list[SendHeartbeat]) -> Callable[[Event], list[Effect]]:
    """For a member, time does not pass: no heartbeat is due, and only what arrives lets it send one, to `sent`."""
    handle = member._member._core.handle

    def stepped(event: Event) -> list[Effect]:
        effects = [] if isinstance(event, TimePassed | Polled) else handle(event)
        sent.extend(effect for effect in effects if isinstance(effect, SendHeartbeat))
        return effects

    return stepped


async def test_members_share_a_topic_and_a_closed_ones_partitions_move_at_once(
    healed: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = await topic_of(healed, "shared")
    await fill(healed, places, range(200))
    one, two, sent = list[ConsumerRecord](), list[ConsumerRecord](), list[SendHeartbeat]()
    first = Consumer(healed.bootstrap, group="shared", topics=["shared"], client_id="first")
    async with Consumer(healed.bootstrap, group="shared", topics=["shared"], client_id="second") as second:
        async with first:
            tasks = [start(collect(first, one)), start(collect(second, two))]
            await until(lambda: len(first.assignment) == len(second.assignment) == 2)
            await until(lambda: len(one) + len(two) >= 200)
            assert numbers([*one, *two]) == list(range(200))
            async with Admin(healed.bootstrap) as admin:
                described = (await admin.describe_groups(["shared"]))["shared"]
                assert not isinstance(described, Exception)
                assert described.state == "Stable"
                assert {member.client_id: len(member.assignment) for member in described.members} == {
                    "first": 2,
                    "second": 2,
                }
            tasks[0].cancel()
            await until(lambda: second._member._core._sent_at is None)
            monkeypatch.setattr(second._member._core, "handle", without_time(second, sent))
        await until(lambda: len(second.assignment) == 4)
        assert all(len(beat.owned or ()) == 4 for beat in sent), "a push has brought them, no answer"
        monkeypatch.undo()
        await fill(healed, places, range(200, 220))
        await until(lambda: len(one) + len(two) >= 220)
        tasks[1].cancel()
    assert numbers([*one, *two]) == list(range(220)), "each once"
    async with Admin(healed.bootstrap) as admin:
        lags = await admin.group_lag("shared")
        assert [(each.partition, each.lag) for each in lags] == [(place, 0) for place in places]


async def test_a_member_subscribes_to_something_else_and_unsubscribes_while_it_runs(healed: LocalCluster) -> None:
    """What it gives up is read by the other member, and every record by one of them, once."""
    places = {name: await topic_of(healed, name, 2) for name in ("moving-a", "moving-b")}
    everything = [place for each in places.values() for place in each]
    read = list[ConsumerRecord]()
    async with (
        Consumer(healed.bootstrap, group="moving", topics=["moving-a"]) as staying,
        Consumer(healed.bootstrap, group="moving") as moving,
    ):
        moving.subscribe(["moving-a"])
        tasks = [start(collect(each, read)) for each in (staying, moving)]
        await until(lambda: len(staying.assignment) == len(moving.assignment) == 1)
        await fill(healed, everything, range(40))
        moving.subscribe(["moving-b"])
        await until(lambda: {*staying.assignment} == {*places["moving-a"]})
        await until(lambda: {*moving.assignment} == {*places["moving-b"]})
        await until(lambda: len(read) >= 40)
        tasks[1].cancel()
        await moving.unsubscribe()
        assert moving.assignment == []
        async with Admin(healed.bootstrap) as admin:
            described = (await admin.describe_groups(["moving"]))["moving"]
            assert not isinstance(described, Exception)
            assert len(described.members) == 1, "it has left"
        committed = await moving.committed(places["moving-b"])
        assert [each and each.offset for each in committed.values()] == [10, 10], "what it has processed is committed"
        await fill(healed, everything, range(40, 80))
        moving.subscribe(topic_pattern="moving-.*")
        tasks.append(start(collect(moving, read)))
        await until(lambda: len(staying.assignment) == len(moving.assignment) == 2)
        await until(lambda: len(read) >= 80)
        assert numbers(read) == list(range(80))


async def test_a_killed_members_partitions_are_read_within_the_session_timeout(healed: LocalCluster) -> None:
    """Waits for the session of the killed member to end."""
    places = await topic_of(healed, "killed")
    seen = list[ConsumerRecord]()
    member = worker(healed, "killed", "killed")
    try:
        async with Consumer(healed.bootstrap, group="killed", topics=["killed"]) as survivor:
            reading = start(collect(survivor, seen))
            async with Admin(healed.bootstrap) as admin:
                while True:  # until both have two partitions
                    found = (await admin.describe_groups(["killed"]))["killed"]
                    if not isinstance(found, TidelogError) and [len(m.assignment) for m in found.members] == [2, 2]:
                        break
                    await CLOCK.sleep_ms(50)
            member.kill()
            killed = CLOCK.monotonic_ms()
            await fill(healed, places, range(100))
            await until(lambda: len(seen) >= 100)
            took_ms = CLOCK.monotonic_ms() - killed
            reading.cancel()
        assert numbers(seen) == list(range(100))
        assert took_ms < SESSION_MS + 1_500
    finally:
        member.kill()
        member.wait()


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.deep)])
async def test_members_keep_their_partitions_while_the_coordinator_fails(
    healed: LocalCluster, how: signal.Signals
) -> None:
    """The node of the coordinator is killed or hangs while members read: no member is fenced, no partition moves, every
    record is read once, and what was processed is committed at the next coordinator."""
    group = f"failover-{how.name}"
    places = await topic_of(healed, group)
    lost: list[TopicPartition] = []
    revoked: list[TopicPartition] = []
    seen = list[ConsumerRecord]()
    async with (
        Consumer(healed.bootstrap, group=group, topics=[group], on_lost=lost.extend) as first,
        Consumer(healed.bootstrap, group=group, topics=[group], on_lost=lost.extend) as second,
    ):
        tasks = [start(collect(each, seen)) for each in (first, second)]
        await until(lambda: len(first.assignment) == len(second.assignment) == 2)
        await fill(healed, places, range(100))
        await until(lambda: len(seen) >= 100)
        before = [sorted(first.assignment), sorted(second.assignment)]
        os.kill(healed.nodes[await coordinator_of(healed, group)].pid, how)
        failed = CLOCK.monotonic_ms()
        await fill(healed, places, range(100, 200))
        await until(lambda: len(seen) >= 200)
        await first.commit()
        await second.commit()
        took_ms = CLOCK.monotonic_ms() - failed
        assert [sorted(first.assignment), sorted(second.assignment)] == before
        for task in tasks:
            task.cancel()
        assert (lost, revoked) == ([], [])
        assert numbers(seen) == list(range(200))
        assert took_ms < 15_000
    async with Admin(healed.bootstrap) as admin:
        assert [each.lag for each in await admin.group_lag(group)] == [0] * 4


async def test_the_tools_show_and_reset_a_group_of_processes(healed: LocalCluster) -> None:
    """Some ten commands, each a process that imports the client."""
    places = await topic_of(healed, "tools")
    await fill(healed, places, range(40))

    def tidelog(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tidelog.cli", *arguments, "-b", healed.bootstrap],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )

    read = tidelog("consume", "tools", "--group", "tools")
    assert (read.returncode, read.stderr) == (0, "40 records\n")
    assert sorted(map(int, read.stdout.split())) == list(range(40))
    (lag,) = json.loads(tidelog("group", "lag", "tools", "--json").stdout)
    assert lag["lag"] == 0
    member = worker(healed, "tools", "tools")
    try:
        while '"members": 1' not in tidelog("group", "list", "--json").stdout:
            pass
        refused = tidelog("group", "reset-offsets", "tools", "--topic", "tools", "--to-earliest", "--execute")
        assert (refused.returncode, "stop all consumers of the group" in refused.stderr) == (1, True)
        assert "has 1 member" in refused.stderr
        member.send_signal(signal.SIGINT)
        assert member.wait(30) == 130
    finally:
        member.kill()
        member.wait()
    reset = tidelog("group", "reset-offsets", "tools", "--topic", "tools", "--shift-by", "-5", "--execute")
    assert (reset.returncode, reset.stderr) == (0, "4 offsets set\n")
    again = tidelog("consume", "tools", "--group", "tools")
    assert (again.returncode, len(again.stdout.split())) == (0, 20)
    assert tidelog("group", "delete", "tools").returncode == 0
    assert "there is no group 'tools'" in tidelog("group", "lag", "tools").stderr


async def coordinator_of(cluster: LocalCluster, group: str) -> int:
    """Return the node of the group's coordinator."""
    async with Consumer(cluster.bootstrap) as client:
        found = await Coordinators(client._cluster, Random(1)).find(CoordinatorKind.GROUP, group, timeout_ms=10_000)
    return next(node.node_id for node in cluster.nodes if node.address == found)
