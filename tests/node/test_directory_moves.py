"""Replicas move between the log directories of their node, under load (KIP-113)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings
from node.replicas.replica import Replica
from node.replication_settings import ReplicationConfig
from storage.files.disk_executor import Executor
from tests.node.real_nodes import RealNodes, real_nodes
from tests.node.shell import Shell
from tidelog import Consumer, Producer
from tidelog.client.admin import Admin
from tidelog.errors import (
    DiskFull,
    InvalidReplicaAssignment,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)
from tidelog.types import Millis, NodeId, Offset, PartitionIndex, TopicPartition

PATIENT = ReplicationConfig(session_ms=Millis(60_000))
SLOW = ReplicationConfig(session_ms=Millis(60_000), alter_log_dirs_rate=20_000)
"""A copy of 100 KB takes five seconds."""
ORDERS = TopicPartition("orders", PartitionIndex(0))
GONE = TopicPartition("gone", PartitionIndex(0))


def replica_of(nodes: RealNodes, number: int) -> Replica | None:
    replicas = nodes.nodes[number].node.replicas
    found = () if replicas is None else replicas.partitions()
    return next((each for each in found if each.name == ORDERS), None)


def names_in(path: str) -> list[str]:
    """What there is of the partition in a log directory: its directory, copies, and what is to be deleted."""
    return sorted(each.name for each in Path(path).iterdir() if each.name.startswith("orders-0"))


def home_and_other(nodes: RealNodes, number: int) -> tuple[str, str]:
    one, two = nodes.log_directories(number)
    return (one, two) if "orders-0" in names_in(one) else (two, one)


async def wait_until_in(nodes: RealNodes, number: int, path: str) -> None:
    """Wait until the replica is in that directory, the metadata name it, and nothing is left in the other one."""

    def is_there() -> bool:
        replica, image = replica_of(nodes, number), nodes.nodes[number].node.image
        if replica is None or image is None or replica.directory.path != path:
            return False
        state = image.partition(replica.key)
        named = state is not None and state.directory_of(NodeId(number)) == replica.directory.directory_id
        (other,) = [each for each in nodes.log_directories(number) if each != path]
        return named and replica.log.moved_from is None and names_in(other) == [] and names_in(path) == ["orders-0"]

    await nodes.wait_until(is_there)


class Load:
    """A producer that sends numbers, one after the other, until it is stopped."""

    def __init__(self) -> None:
        self.sent = 0
        self.stopping = False

    async def run(self, bootstrap: str) -> None:
        async with Producer(bootstrap, linger_ms=0) as producer:
            while not self.stopping:
                await producer.send("orders", b"%06d" % self.sent + b"x" * 100, partition=0)
                self.sent += 1

    async def wait_more(self, nodes: RealNodes, count: int) -> None:
        before = self.sent
        await nodes.wait_until(lambda: self.sent >= before + count)


@asynccontextmanager
async def under_load(nodes: RealNodes) -> AsyncIterator[Load]:
    """Afterwards each number that was acknowledged must be in the log once, in order."""
    bootstrap, load = ",".join(map(str, nodes.addresses)), Load()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run(bootstrap))
        yield load
        load.stopping = True
    async with Consumer(bootstrap) as consumer:
        consumer.assign([ORDERS])
        found: list[bytes] = []
        async with asyncio.timeout(30):
            while len(found) < load.sent:
                found += [(record.value or b"")[:6] for record in await consumer.poll(timeout=1.0)]
    assert found == [b"%06d" % number for number in range(load.sent)]


async def test_a_leader_moves_to_the_other_directory_and_back_while_it_is_written_to(tmp_path: Path) -> None:
    async with (
        real_nodes(tmp_path, directories=2, replication=PATIENT) as nodes,
        Admin(str(nodes.addresses[0])) as admin,
    ):
        await admin.create_topic("orders", partitions=1, replication_factor=1, configs={"segment.bytes": "16384"})
        await nodes.wait_led("orders")
        home, other = home_and_other(nodes, 0)
        async with under_load(nodes) as load:
            await load.wait_more(nodes, 300)
            role = replica_of(nodes, 0).role  # type: ignore[union-attr]
            for target in (other, home):
                (outcome,) = await admin.move_replicas(0, {ORDERS: target})
                assert outcome.error is None
                await wait_until_in(nodes, 0, target)
                await load.wait_more(nodes, 50)
            assert replica_of(nodes, 0).role is role, "no leadership ended"  # type: ignore[union-attr]
        await nodes.stop(0)
        await nodes.start(0)
        await nodes.wait_present(NodeId(0))
        await wait_until_in(nodes, 0, home)


async def test_a_follower_moves_and_stays_in_sync(tmp_path: Path) -> None:
    async with (
        real_nodes(tmp_path, 2, directories=2, replication=PATIENT) as nodes,
        Admin(str(nodes.addresses[0])) as admin,
        under_load(nodes) as load,
    ):
        await admin.create_topic("orders", partitions=1, replication_factor=2)
        await load.wait_more(nodes, 100)
        (state,) = (await admin.describe_topic("orders")).partitions
        follower = 1 - state.leader
        _, other = home_and_other(nodes, follower)
        await admin.move_replicas(follower, {ORDERS: other})
        await wait_until_in(nodes, follower, other)
        await load.wait_more(nodes, 50)
        (after,) = (await admin.describe_topic("orders")).partitions
        assert (set(after.isr), after.leader_epoch) == ({0, 1}, state.leader_epoch)


@contextmanager
def busy(executor: Executor) -> Iterator[None]:
    """Long work on the executor: nothing else runs there meanwhile."""
    ends = Event()
    executor.submit(lambda: ends.wait(60), lambda _: None)
    try:
        yield
    finally:
        ends.set()


async def test_appends_do_not_wait_for_a_long_cleaning_in_the_new_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        real_nodes(tmp_path, directories=2, replication=PATIENT) as nodes,
        Admin(str(nodes.addresses[0])) as admin,
        Producer(str(nodes.addresses[0])) as producer,
    ):
        await admin.create_topic("orders", partitions=1, replication_factor=1)
        await producer.send("orders", b"a", partition=0)
        replica, replicas = replica_of(nodes, 0), nodes.nodes[0].node.replicas
        assert replica is not None and replicas is not None
        _, other = home_and_other(nodes, 0)
        waits: list[bool] = []

        def not_yet(*_: object) -> bool:
            waits.append(True)
            return False

        with monkeypatch.context() as patch:
            patch.setattr(replicas.moves, "_may_swap", not_yet)
            await admin.move_replicas(0, {ORDERS: other})
            await nodes.wait_until(lambda: bool(waits))  # the copy is flushed
            (target,) = [each for each in replicas.moves._logs.working if each.path == other]
            await producer.send("orders", b"b", partition=0)
        with busy(target.background):
            await nodes.wait_until(lambda: replica.directory is target)
            async with asyncio.timeout(20):
                await producer.send("orders", b"c", partition=0)
        await wait_until_in(nodes, 0, other)


async def test_a_new_role_waits_until_a_start_finds_the_new_log_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that appended before could lose what it has reported as durable: a start might use the old log."""
    async with (
        real_nodes(tmp_path, 2, directories=2, replication=PATIENT) as nodes,
        Admin(",".join(map(str, nodes.addresses))) as admin,
        Producer(",".join(map(str, nodes.addresses))) as producer,
    ):
        await admin.create_topic("orders", partitions=1, replication_factor=2)
        await producer.send("orders", b"a", partition=0)
        (state,) = (await admin.describe_topic("orders")).partitions
        me, after = state.leader, 1 - state.leader
        replica, node = replica_of(nodes, me), nodes.nodes[me].node
        assert replica is not None and node.replicas is not None
        _, other = home_and_other(nodes, me)
        monkeypatch.setattr("node.replicas.directory_moves.REPORTED_MAX", 0)
        with busy(replica.directory.executor):
            await admin.move_replicas(me, {ORDERS: other})
            await nodes.wait_until(lambda: replica.directory.path == other)
            held = replica.role
            await admin.reassign({ORDERS: [after, me]})
            await admin.elect_leaders([ORDERS])

            def is_known() -> bool:
                image = node.image
                known = None if image is None else image.partition(replica.key)
                return known is not None and known.leader == after

            await nodes.wait_until(is_known)
            assert replica.role is held, "it does nothing until the old log is renamed"
        await nodes.wait_until(lambda: replica.role is not held and replica.role is not None)
        monkeypatch.undo()
        await producer.send("orders", b"b", partition=0)
        await wait_until_in(nodes, me, other)


async def test_the_copy_is_throttled_shown_and_cancelled(tmp_path: Path) -> None:
    async with (
        real_nodes(tmp_path, directories=2, replication=SLOW) as nodes,
        Admin(str(nodes.addresses[0])) as admin,
        Producer(str(nodes.addresses[0])) as producer,
    ):
        await admin.create_topic("orders", partitions=1, replication_factor=1)
        for _ in range(50):
            await producer.send("orders", b"x" * 10_000, partition=0)
        home, other = home_and_other(nodes, 0)
        await admin.move_replicas(0, {ORDERS: other})
        logs: dict[str, Any] = {other: ()}
        while not logs[other]:  # the folder is there before the copy is shown
            shown = await admin.describe_log_dirs(partitions=[ORDERS])
            assert not isinstance(shown[NodeId(0)], Exception)
            logs = {each.path: each.logs for each in shown[NodeId(0)]}  # type: ignore[union-attr]
        ((now,), (copy,)) = logs[home], logs[other]
        assert (now.is_future, now.offset_lag) == (False, 0)
        assert copy.is_future and 0 < copy.offset_lag <= 50
        await admin.move_replicas(0, {ORDERS: home})
        await nodes.wait_until(lambda: not names_in(other))
        assert names_in(home) == ["orders-0"]


async def test_a_move_that_a_stop_interrupts_is_begun_again(tmp_path: Path) -> None:
    async with real_nodes(tmp_path, directories=2, replication=SLOW) as nodes:
        bootstrap = str(nodes.addresses[0])
        async with Admin(bootstrap) as admin, under_load(nodes) as load:
            await admin.create_topic("orders", partitions=1, replication_factor=1)
            await load.wait_more(nodes, 200)
            _, other = home_and_other(nodes, 0)
            await admin.move_replicas(0, {ORDERS: other})
            await nodes.wait_until(lambda: bool(names_in(other)))
            (copy,) = names_in(other)
            await nodes.stop(0)
            assert names_in(other) == [copy]
            nodes.replication = PATIENT
            await nodes.start(0)
            await wait_until_in(nodes, 0, other)
            await load.wait_more(nodes, 10)


async def test_a_topic_deleted_during_a_move_leaves_nothing(tmp_path: Path) -> None:
    async with (
        real_nodes(tmp_path, directories=2, replication=SLOW) as nodes,
        Admin(str(nodes.addresses[0])) as admin,
        Producer(str(nodes.addresses[0])) as producer,
    ):
        await admin.create_topic("orders", partitions=1, replication_factor=1)
        for _ in range(20):
            await producer.send("orders", b"x" * 10_000, partition=0)
        home, other = home_and_other(nodes, 0)
        await admin.move_replicas(0, {ORDERS: other})
        await nodes.wait_until(lambda: bool(names_in(other)))
        await admin.delete_topic("orders")
        await nodes.wait_until(lambda: names_in(home) == names_in(other) == [])


async def test_what_cannot_be_moved_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        real_nodes(tmp_path, 2, directories=2, replication=PATIENT) as nodes,
        Admin(str(nodes.addresses[0])) as admin,
    ):
        await admin.create_topic("orders", partitions=1, replication_factor=1)
        (state,) = (await admin.describe_topic("orders")).partitions
        me = state.leader
        await nodes.wait_until(lambda: replica_of(nodes, me) is not None)
        home, other = home_and_other(nodes, me)
        outcomes = await admin.move_replicas(me, {ORDERS: "/elsewhere", GONE: other})
        assert [type(each.error) for each in outcomes] == [LogDirNotFound, UnknownTopicOrPartition]
        (outcome,) = await admin.move_replicas(1 - me, {ORDERS: nodes.log_directories(1 - me)[0]})
        assert type(outcome.error) is ReplicaNotAvailable
        (outcome,) = await admin.move_replicas(me, {ORDERS: home + "/"})
        assert outcome.error is None, "it is there already"
        replica = replica_of(nodes, me)
        assert replica is not None
        with monkeypatch.context() as patch:
            patch.setattr(type(replica.log), "size", 1 << 60)
            (outcome,) = await admin.move_replicas(me, {ORDERS: other})
        with pytest.raises(DiskFull, match=f"orders-0 has {1 << 60} bytes, and the disk of {other} has room for"):
            raise outcome.error or AssertionError
        await admin.cordon_node(me, log_dirs=[other])

        def is_cordoned() -> bool:
            image = nodes.nodes[me].node.image
            return image is not None and bool(image.nodes[me].cordoned_directories)

        await nodes.wait_until(is_cordoned)
        (outcome,) = await admin.move_replicas(me, {ORDERS: other})
        with pytest.raises(InvalidReplicaAssignment, match=f"log directory {other} of node {me} is cordoned"):
            raise outcome.error or AssertionError


async def test_a_coordinator_goes_on_while_its_partition_moves(tmp_path: Path) -> None:
    """Its state is not loaded again: no leadership ends, and commits wait for the moment of the swap."""
    coordinators = CoordinatorSettings(GroupSettings(partitions=1))
    async with real_nodes(tmp_path, directories=2, replication=PATIENT, coordinators=coordinators) as nodes:
        bootstrap = str(nodes.addresses[0])
        async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
            await admin.create_topic("orders", partitions=1, replication_factor=1)
            await producer.send("orders", b"a", partition=0)
            place = TopicPartition("__consumer_offsets", PartitionIndex(0))
            await admin.alter_group_offsets("billing", {ORDERS: Offset(0)})
            replicas = nodes.nodes[0].node.replicas
            assert replicas is not None
            replica = next(each for each in replicas.partitions() if each.name == place)
            role, committed = replica.role, 0
            for _ in range(2):
                (target,) = [path for path in nodes.log_directories(0) if path != replica.directory.path]
                await admin.move_replicas(0, {place: target})
                while replica.directory.path != target or replica.log.moved_from is not None:
                    committed = 1 - committed
                    await admin.alter_group_offsets("billing", {ORDERS: Offset(committed)})
            found = (await admin.list_group_offsets("billing"))["orders", 0]
            assert found is not None and found.offset == committed
            assert replica.role is role


async def test_a_log_that_moves_is_kept_for_a_topic_snapshot_as_before(tmp_path: Path) -> None:
    async with real_nodes(tmp_path, directories=2, replication=PATIENT) as nodes:
        at = str(nodes.addresses[0])
        async with Admin(at) as admin, Producer(at) as producer:
            await admin.create_topic("orders", partitions=1, replication_factor=1)
            await producer.send("orders", b"a", partition=0)
            await admin.create_topic_snapshot("friday", ["orders"])
            _, other = home_and_other(nodes, 0)
            await admin.move_replicas(0, {ORDERS: other})
            await wait_until_in(nodes, 0, other)
            replica = replica_of(nodes, 0)
            assert replica is not None
            assert replica.log.pinned


async def test_a_plan_file_moves_a_replica_to_a_log_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_nodes(tmp_path, directories=2, replication=PATIENT) as nodes:
        tidelog, plan = Shell(nodes, capsys), tmp_path / "plan.json"
        await tidelog("topic", "create", "orders", "-p", "1", "-r", "1")
        await nodes.wait_led("orders")
        _, other = home_and_other(nodes, 0)
        entry = {"topic": "orders", "partition": 0, "replicas": [0], "log_dirs": [other]}
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        await tidelog("cluster", "rebalance", "--plan-file", str(plan))
        assert "1 replica in the log directories of the plan" in tidelog.err
        assert names_in(other) == ["orders-0"], "it was waited for"
        await wait_until_in(nodes, 0, other)
        entry["log_dirs"] = ["/elsewhere"]
        plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        await tidelog("cluster", "rebalance", "--plan-file", str(plan), code=1)
        assert "node 0 has no log directory '/elsewhere'" in tidelog.err


async def test_a_rebalance_evens_out_the_bytes_of_log_directories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, and another plan is empty."""
    monkeypatch.setattr("tidelog.balancing.dir_planner.SLACK_BYTES", 50_000)
    async with real_nodes(tmp_path, directories=2, replication=PATIENT) as nodes:
        tidelog, bootstrap = Shell(nodes, capsys), str(nodes.addresses[0])
        one, two = nodes.log_directories(0)
        await tidelog("topic", "create", "orders", "-p", "4", "-r", "1")
        await nodes.wait_led("orders", 4)
        places = {TopicPartition("orders", PartitionIndex(index)) for index in range(4)}
        async with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=0) as producer:
            for index in range(4):
                for number in range(20):
                    await producer.send("orders", b"%d-%02d" % (index, number) + b"x" * 10_000, partition=index)
            await admin.move_replicas(0, dict.fromkeys(places, one))

            async def bytes_in(path: str) -> int:
                found = await admin.describe_log_dirs()
                directories = found[NodeId(0)]
                assert not isinstance(directories, Exception)
                return sum(log.size for each in directories if each.path == path for log in each.logs)

            while await bytes_in(two):
                nodes.ensure_running()
            await tidelog("cluster", "rebalance", "--dry-run")
            assert "2 replicas to move between log directories" in tidelog.err
            await tidelog("cluster", "rebalance")
            assert "2 replicas in the log directories of the plan" in tidelog.err
            assert await bytes_in(one) == await bytes_in(two) > 400_000
            await tidelog("cluster", "rebalance")
            assert "nothing to move" in tidelog.err
            await tidelog("cluster", "rebalance", "--drain", "0", "--log-dir", one)
            assert "2 replicas in the log directories of the plan" in tidelog.err
            assert await bytes_in(one) == 0, "the command has waited"
        async with Consumer(bootstrap) as consumer:
            consumer.assign(places)
            read: list[bytes] = []
            async with asyncio.timeout(30):
                while len(read) < 80:
                    read += [(record.value or b"")[:4] for record in await consumer.poll(timeout=1.0)]
        assert sorted(read) == [b"%d-%02d" % (index, number) for index in range(4) for number in range(20)]
