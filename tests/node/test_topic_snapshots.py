"""Snapshots of topics on real nodes: a consistent end of several topics, which is kept until it expires."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.replication_settings import ReplicationConfig
from tests.node.real_nodes import OPERATOR, RealNodes, real_nodes
from tests.node.shell import Shell
from tidelog import Producer, TopicPartition
from tidelog.client.admin import Admin
from tidelog.errors import (
    DuplicateResource,
    InvalidRequest,
    PolicyViolation,
    ResourceNotFound,
    TopicAuthorizationFailed,
)
from tidelog.records import EndTxnMarker, RecordBatch, decode_control, iter_batches
from tidelog.topic_snapshots import SnapshotPartition
from tidelog.types import INT64_MAX, Millis

PATIENT = ReplicationConfig(session_ms=Millis(60_000))
"""No node is fenced because the machine is busy."""

COORDINATORS = CoordinatorSettings(GroupSettings(partitions=1), TransactionSettings(partitions=3, min_isr=1))

TOPICS = {"orders": 3, "payments": 2}
PLACES = [TopicPartition(name, partition) for name, count in TOPICS.items() for partition in range(count)]


def bootstrap(nodes: RealNodes) -> str:
    return ",".join(map(str, nodes.addresses))


async def create_topics(admin: Admin) -> None:
    for name, partitions in TOPICS.items():
        await admin.create_topic(name, partitions=partitions, replication_factor=1)


async def write_everywhere(nodes: RealNodes, number: int, stop: asyncio.Event) -> int:
    """Write the same value to each partition in each transaction, and commit it, until stopped. Returns how many."""
    written = 0
    async with Producer(bootstrap(nodes), transactional_id=f"writer-{number}") as producer:
        while not stop.is_set():
            async with producer.transaction():
                for topic, partitions in TOPICS.items():
                    for partition in range(partitions):
                        await producer.send(topic, f"{number}-{written}".encode(), partition=partition)
            written += 1
    return written


def batches_of(nodes: RealNodes, place: TopicPartition) -> list[RecordBatch]:
    """The batches of a partition with one replica, as they are in its files."""
    (folder,) = nodes.home.glob(f"node-*/{place.topic}-{place.partition}")
    return [batch for file in sorted(folder.glob("*.log")) for batch in iter_batches(file.read_bytes())]


def rows_of(batches: Sequence[RecordBatch], part: SnapshotPartition) -> list[bytes]:
    """The values in a partition of a snapshot, once all its transactions are decided."""
    ended: dict[int, list[tuple[int, bool]]] = {}
    for batch in batches:
        for record in batch.records() if batch.is_control else ():
            marker = decode_control(record)
            assert isinstance(marker, EndTxnMarker)
            ended.setdefault(batch.producer_id, []).append((record.offset, marker.committed))
    left_out = {each.producer_id: each.first_offset for each in part.left_out}
    return [
        record.value or b""
        for batch in batches
        if not batch.is_control
        for record in batch.records()
        if part.start_offset <= record.offset < part.end_offset
        and not record.offset >= left_out.get(batch.producer_id, part.end_offset)
        and next(committed for offset, committed in ended[batch.producer_id] if offset > record.offset)
    ]


async def test_each_transaction_is_in_all_partitions_of_a_snapshot_or_in_none(tmp_path: Path) -> None:
    """Goal: no cut tears a transaction, whenever it is made. Method: writers commit all the time, each transaction to
    all partitions, while snapshots are taken."""
    async with real_nodes(tmp_path, 2, replication=PATIENT, coordinators=COORDINATORS) as nodes:
        async with Admin(bootstrap(nodes), request_timeout_ms=60_000) as admin:
            await create_topics(admin)
            stop = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                writers = [tasks.create_task(write_everywhere(nodes, number, stop)) for number in range(4)]
                await nodes.wait_until(lambda: holds_records(nodes))
                taken = [await admin.create_topic_snapshot(f"cut-{number}", TOPICS) for number in range(8)]
                stop.set()
        written = {f"{number}-{one}".encode() for number, task in enumerate(writers) for one in range(task.result())}
        everything = {place: batches_of(nodes, place) for place in PLACES}
    before: set[bytes] = set()
    for snapshot in taken:
        parts = {
            TopicPartition(topic.name, each.partition): each for topic in snapshot.topics for each in topic.partitions
        }
        rows = {place: rows_of(everything[place], part) for place, part in parts.items()}
        assert set(rows) == set(PLACES)
        first = sorted(rows[PLACES[0]])
        assert all(sorted(values) == first for values in rows.values())
        assert len(set(first)) == len(first)
        assert before <= set(first) <= written
        before = set(first)
    assert before
    assert any(each.left_out for snapshot in taken for topic in snapshot.topics for each in topic.partitions)


def holds_records(nodes: RealNodes) -> bool:
    return all(batches_of(nodes, place) for place in PLACES)


async def test_retention_deletions_and_compaction_wait_for_a_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with real_nodes(tmp_path, replication=PATIENT) as nodes:
        tidelog = Shell(nodes, capsys)
        async with Admin(bootstrap(nodes)) as admin, Producer(bootstrap(nodes)) as producer:
            await tidelog("topic", "create", "orders", "-p", "1", "-c", "retention.ms=1", "-c", "segment.bytes=1048576")
            await producer.send("orders", b"first")
            await tidelog("snapshot", "create", "friday", "orders")
            assert "1 topic, 1 partition" in tidelog.err
            place = TopicPartition("orders", 0)
            replica = nodes.nodes[0].node.replicas.registry.find("orders", 0)  # type: ignore[union-attr]
            assert replica is not None

            def remove_expired() -> None:
                replica.directory.drop_expired(replica.log)

            await producer.send("orders", b"second")
            await nodes.wait_until(lambda: replica.log.recovery_point >= replica.log.high_watermark == 2)
            remove_expired()
            refused = (await admin.delete_records({place: 1}))[place]
            assert isinstance(refused, PolicyViolation)
            assert "records of orders-0 cannot be deleted: snapshots of orders need its records (friday)" in str(
                refused
            )
            with pytest.raises(PolicyViolation, match=r"topic orders cannot be deleted: snapshots .*friday"):
                await admin.delete_topic("orders")
            await tidelog("topic", "alter", "orders", "-c", "cleanup.policy=compact", code=1)
            assert "topic orders cannot be compacted" in tidelog.err
            with pytest.raises(DuplicateResource):
                await admin.create_topic_snapshot("friday", ["orders"])
            assert replica.log.log_start_offset == 0

            (described,) = await tidelog.json("snapshot", "describe", "friday")
            (part,) = described["topics"][0]["partitions"]
            assert (part["start_offset"], part["end_offset"]) == (0, 1)
            with pytest.raises(InvalidRequest, match="at most 3,650 days from now on"):
                await admin.extend_topic_snapshot("friday", INT64_MAX)
            assert "friday" in await tidelog("snapshot", "list")

            await tidelog("snapshot", "extend", "friday", "--expires", "1ms")
            await nodes.wait_until(lambda: not replica.log.pinned)
            remove_expired()
            await nodes.wait_until(lambda: replica.log.log_start_offset == 2)
            with pytest.raises(ResourceNotFound, match="it has expired, was deleted or never taken"):
                await admin.describe_topic_snapshot("friday")
            await admin.delete_topic("orders")


async def test_a_compacted_topic_cannot_be_in_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with real_nodes(tmp_path, replication=PATIENT) as nodes:
        tidelog = Shell(nodes, capsys)
        await tidelog("topic", "create", "customers", "-p", "1", "-c", "cleanup.policy=compact")
        await tidelog("snapshot", "create", "friday", "customers", code=1)
        assert "customers has cleanup.policy compact and cannot be in a snapshot" in tidelog.err
        await tidelog("snapshot", "create", "friday", "nothing", code=1)
        assert "topic 'nothing' does not exist" in tidelog.err
        await tidelog("snapshot", "create", "friday", "customers", "--expires", "soon", code=2)
        assert "is no duration" in tidelog.err
        assert await tidelog.json("snapshot", "list") == [[]]


async def test_a_snapshot_needs_the_permission_that_retention_needs(tmp_path: Path) -> None:
    async with real_nodes(tmp_path, principals={"USERS": "User:alice"}, replication=PATIENT) as nodes:
        (operator,), (alice,) = nodes.further[OPERATOR], nodes.further["USERS"]
        async with Admin(str(operator)) as admin, Admin(str(alice)) as stranger:
            await admin.create_topic("orders", partitions=1, replication_factor=1)
            with pytest.raises(TopicAuthorizationFailed):
                await stranger.create_topic_snapshot("friday", ["orders"])
            await admin.create_topic_snapshot("friday", ["orders"])
            assert await stranger.list_topic_snapshots() == []
            for refused in (
                stranger.describe_topic_snapshot("friday"),
                stranger.extend_topic_snapshot("friday", 1),
                stranger.delete_topic_snapshot("friday"),
            ):
                with pytest.raises(TopicAuthorizationFailed, match="a topic that the request does not name") as refusal:
                    await refused
                assert "orders" not in refusal.value.message, "it may not know that there is such a topic"
            assert [each.name for each in await admin.list_topic_snapshots()] == ["friday"]
