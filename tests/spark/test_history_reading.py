"""`option("remoteStorage", "on")`: history comes from the object store, the tail from the nodes, each row once. Without
Spark: its reader is called as Spark calls it."""

from __future__ import annotations

import asyncio
import pickle
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.replication_settings import ReplicationConfig
from node.tiering_settings import TieringConfig
from storage.directory.maintenance_config import MaintenanceConfig
from tests.node.real_nodes import RealNodes, real_nodes
from tidelog import Producer
from tidelog.client.admin import Admin
from tidelog.errors import InvalidConfig, OffsetOutOfRange, TidelogError
from tidelog.spark.options.query_options import parse_batch_options
from tidelog.spark.ranges.batch_reader import TidelogReader
from tidelog.spark.ranges.planning import OffsetRange, TaskRanges
from tidelog.tiering.remote_errors import ObjectStoreRefused, RemoteObjectDamaged, RemoteObjectMissing
from tidelog.types import Millis

TOPIC = "orders"
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "2000",
    "local.retention.bytes": "0",
    "file.delete.delay.ms": "0",
}
PATIENT = ReplicationConfig(session_ms=Millis(60_000))
COORDINATORS = CoordinatorSettings(GroupSettings(partitions=1), TransactionSettings(partitions=1, min_isr=1))


def with_store(folder: Path) -> Callable[[RealNodes], None]:
    def prepare(nodes: RealNodes) -> None:
        nodes.tiering = TieringConfig(url=f"file://{folder}", partitions=1, min_isr=1)
        nodes.maintenance = MaintenanceConfig(retention_check_ms=200)

    return prepare


class History:
    """One node with a folder as its store, and a topic whose segments have two records each."""

    def __init__(self, nodes: RealNodes, folder: Path) -> None:
        self.nodes, self.folder = nodes, folder
        self.address = str(nodes.addresses[0])

    async def create(self) -> None:
        async with Admin(self.address) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)

    async def produce(self, first: int, count: int) -> None:
        async with Producer(self.address, linger_ms=0) as producer:
            for number in range(first, first + count):
                await producer.send(TOPIC, f"{number}".encode() + b"." * 900, partition=0)

    async def left(self, end: int) -> None:
        """Wait until the node has only what is not copied."""

        def has_left() -> bool:
            node = self.nodes.nodes[0].node
            replica = node.replicas.registry.find(TOPIC, 0) if node.replicas else None
            return replica is not None and end - replica.log.local_log_start_offset <= 4

        await self.nodes.wait_until(has_left)

    def objects(self) -> list[Path]:
        return sorted(self.folder.glob("**/*.segment"))

    async def plan(self, **options: str) -> tuple[TidelogReader, Sequence[TaskRanges]]:
        asked = {"tidelog.bootstrap.servers": self.address, "subscribe": TOPIC, "remoteStorage": "on", **options}
        reader = TidelogReader(parse_batch_options(asked), ("offset", "value"))
        tasks = await asyncio.get_running_loop().run_in_executor(None, reader.partitions)
        return reader, [pickle.loads(pickle.dumps(task)) for task in tasks]

    async def rows(self, **options: str) -> list[tuple[int, int]]:
        """Offset and number of each row."""
        return await read(*await self.plan(**options))


async def read(reader: TidelogReader, tasks: Sequence[TaskRanges]) -> list[tuple[int, int]]:
    def rows() -> list[tuple[int, int]]:
        found = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
        return sorted((row["offset"], int(row["value"].partition(b".")[0])) for row in found)

    return await asyncio.get_running_loop().run_in_executor(None, rows)


def ranges_of(tasks: Sequence[TaskRanges]) -> list[OffsetRange]:
    return [one for task in tasks for one in task.ranges]


async def test_each_row_is_read_once_from_either_tier(tmp_path: Path) -> None:
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=with_store(tmp_path / "store")) as nodes:
        history = History(nodes, tmp_path / "store")
        await history.create()
        await history.produce(0, 31)
        await history.left(31)

        reader, tasks = await history.plan()
        from_store = [one for one in ranges_of(tasks) if one.remote]
        assert from_store[0].start == 0
        assert from_store[-1].end >= 27, "all but the active segment, and the one before it, is copied"
        assert await read(reader, tasks) == [(number, number) for number in range(31)]
        assert await history.rows(remoteStorage="off") == [(number, number) for number in range(31)]

        bounds = {"startingOffsets": f'{{"{TOPIC}":{{"0":5}}}}', "endingOffsets": f'{{"{TOPIC}":{{"0":30}}}}'}
        for split in ({}, {"minPartitions": "4"}, {"maxRecordsPerPartition": "3"}, {"fetchBytes": "1"}):
            assert await history.rows(**bounds, **split) == [(number, number) for number in range(5, 30)]
        _, small = await history.plan(**bounds, maxRecordsPerPartition="3")
        assert max(sum(one.length for one in task.ranges) for task in small) == 3

        await history.produce(31, 3)
        assert await read(reader, tasks) == [(number, number) for number in range(31)], "the plan has its end"
        async with Admin(history.address) as admin:
            await admin.create_topic_snapshot("friday", [TOPIC])
            await history.produce(34, 3)
            assert await history.rows(snapshot="friday") == [(number, number) for number in range(34)]
            await admin.delete_topic_snapshot("friday")


async def test_aborted_transactions_that_end_behind_a_segment(tmp_path: Path) -> None:
    """Transactions span segments. Some of them are aborted: in a later segment, or in what only the node has."""
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=with_store(tmp_path / "store")) as nodes:
        history = History(nodes, tmp_path / "store")
        await history.create()
        await history.produce(0, 3)
        async with (
            Producer(history.address, transactional_id="aborted", linger_ms=0) as aborted,
            Producer(history.address, transactional_id="committed", linger_ms=0) as committed,
        ):
            for first in (3, 11):
                with pytest.raises(KeyError):
                    async with committed.transaction(), aborted.transaction():
                        for number in range(first, first + 4):
                            await committed.send(TOPIC, f"{number}".encode() + b"." * 900, partition=0)
                            await aborted.send(TOPIC, b"-1." + b"." * 900, partition=0)
                        raise KeyError
                async with committed.transaction():
                    for number in range(first, first + 8):
                        await committed.send(TOPIC, f"{number}".encode() + b"." * 900, partition=0)
        await history.produce(19, 6)
        end = 3 + 2 * (4 + 4 + 2 + 8 + 1) + 6
        await history.left(end)

        through_nodes = await history.rows(remoteStorage="off")
        assert [number for _, number in through_nodes] == list(range(25))
        _, tasks = await history.plan()
        assert any(one.remote for one in ranges_of(tasks))
        assert await history.rows() == through_nodes
        assert await history.rows(maxRecordsPerPartition="1") == through_nodes, "wherever a range begins and ends"
        everything = await history.rows(**{"tidelog.isolation.level": "read_uncommitted"})
        assert len(everything) == end - 6, "all but the markers"


async def test_what_is_gone_or_changed_after_the_plan_is_an_error(tmp_path: Path) -> None:
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=with_store(tmp_path / "store")) as nodes:
        history = History(nodes, tmp_path / "store")
        await history.create()
        await history.produce(0, 20)
        await history.left(20)
        reader, tasks = await history.plan()

        async def error_of(kind: type[TidelogError]) -> str:
            with pytest.raises(kind) as raised:
                await read(reader, tasks)
            return str(raised.value)

        second = history.objects()[1]
        kept = second.read_bytes()
        second.write_bytes(kept[:300] + bytes([kept[300] ^ 1]) + kept[301:])
        assert "is damaged" in await error_of(RemoteObjectDamaged)
        second.write_bytes(kept[:500])
        assert "orders-0, reading offsets" in await error_of(RemoteObjectDamaged)
        second.write_bytes(kept)

        async with Admin(history.address) as admin:
            await admin.delete_records({(TOPIC, 0): 7})
        await nodes.wait_until(lambda: not second.exists())
        assert "load the frame again" in await error_of(RemoteObjectMissing)
        assert await history.rows() == [(number, number) for number in range(7, 20)]
        with pytest.raises(OffsetOutOfRange, match="retention has deleted"):
            await history.rows(startingOffsets=f'{{"{TOPIC}":{{"0":2}}}}')
        tolerant = {"startingOffsets": f'{{"{TOPIC}":{{"0":2}}}}', "failOnDataLoss": "false"}
        assert await history.rows(**tolerant) == [(number, number) for number in range(7, 20)]


async def test_executors_need_their_own_way_to_the_store(tmp_path: Path) -> None:
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=with_store(tmp_path / "store")) as nodes:
        history = History(nodes, tmp_path / "store")
        await history.create()
        await history.produce(0, 12)
        await history.left(12)
        with pytest.raises(ObjectStoreRefused, match=r'they need its URL.*set "remoteStorage" to "off"'):
            await history.rows(remoteStorage=f"file://{tmp_path}/not-mounted")
        assert not (tmp_path / "not-mounted").exists()
        shutil.copytree(tmp_path / "store", tmp_path / "mounted")
        assert len(await history.rows(remoteStorage=f"file://{tmp_path}/mounted")) == 12


@pytest.mark.parametrize("value", ["true", "s3://", "ftp://host/x", "s3://user:secret@bucket/x"])
def test_an_invalid_store_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        parse_batch_options({"tidelog.bootstrap.servers": "a:1", "subscribe": "t", "remoteStorage": value})
    assert "secret" not in str(raised.value)
