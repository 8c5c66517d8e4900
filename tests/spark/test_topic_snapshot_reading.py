"""`option("snapshot", NAME)`: the rows of a snapshot of topics, again and again. Without Spark: its reader is called as
Spark calls it."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.replication_settings import ReplicationConfig
from tests.node.real_nodes import RealNodes, real_nodes
from tidelog import Producer
from tidelog.client.admin import Admin
from tidelog.errors import InvalidConfig, ResourceNotFound, UnknownTopicOrPartition
from tidelog.spark.options.query_options import parse_batch_options, parse_stream_options
from tidelog.spark.ranges.batch_reader import TidelogReader
from tidelog.types import Millis

PATIENT = ReplicationConfig(session_ms=Millis(60_000))
COORDINATORS = CoordinatorSettings(GroupSettings(partitions=1), TransactionSettings(partitions=2, min_isr=1))
Row = tuple[str, int, int, bytes]


async def rows_of(nodes: RealNodes, **options: str) -> list[Row]:
    """The rows of a batch query: topic, partition, offset, value."""
    asked = {"tidelog.bootstrap.servers": ",".join(map(str, nodes.addresses)), **options}

    def read() -> list[Row]:
        reader = TidelogReader(parse_batch_options(asked), ("topic", "partition", "offset", "value"))
        found: list[Row] = []
        for task in reader.partitions():
            for batch in reader.read(pickle.loads(pickle.dumps(task))):
                found += zip(*(batch.column(index).to_pylist() for index in range(4)), strict=True)
        return sorted(found)

    return await asyncio.get_running_loop().run_in_executor(None, read)


async def test_a_snapshot_has_the_same_rows_each_time(tmp_path: Path) -> None:
    async with real_nodes(tmp_path, replication=PATIENT, coordinators=COORDINATORS) as nodes:
        at = str(nodes.addresses[0])
        async with Admin(at) as admin, Producer(at) as plain, Producer(at, transactional_id="one") as one:
            for topic in ("orders", "payments"):
                await admin.create_topic(topic, partitions=2, replication_factor=1)
            await plain.send("orders", b"plain", partition=0)
            async with one.transaction():
                await one.send("orders", b"paid", partition=0)
                await one.send("payments", b"paid", partition=1)
            async with Producer(at, transactional_id="two") as two, two.transaction():
                await two.send("orders", b"late", partition=0)
                async with one.transaction():
                    await one.send("orders", b"behind an open one", partition=0)
                await two.send("payments", b"late", partition=1)
                await admin.create_topic_snapshot("friday", ["orders", "payments"])
                await two.send("payments", b"later", partition=0)
            async with one.transaction():
                await one.send("payments", b"after", partition=1)

            rows = await rows_of(nodes, snapshot="friday")
            assert [(topic, partition, value) for topic, partition, _, value in rows] == [
                ("orders", 0, b"plain"),
                ("orders", 0, b"paid"),
                ("orders", 0, b"behind an open one"),
                ("payments", 1, b"paid"),
            ]
            now = await rows_of(nodes, subscribe="orders,payments")
            assert {value for *_, value in now} - {value for *_, value in rows} == {b"late", b"later", b"after"}
            await plain.send("orders", b"even later", partition=0)
            assert await rows_of(nodes, snapshot="friday", minPartitions="7") == rows
            assert await rows_of(nodes, snapshot="friday", subscribe="payments") == rows[3:]

            with pytest.raises(UnknownTopicOrPartition, match="invoices"):
                await rows_of(nodes, snapshot="friday", subscribe="invoices")
            await admin.delete_topic_snapshot("friday")
            with pytest.raises(ResourceNotFound, match="no snapshot 'friday': it has expired, was deleted"):
                await rows_of(nodes, snapshot="friday")


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("startingOffsets", "earliest", "has no meaning with 'snapshot'"),
        ("endingTimestamp", "5", "has no meaning with 'snapshot'"),
        ("tidelog.isolation.level", "read_uncommitted", "whole transactions only"),
        ("failOnDataLoss", "false", "always the same"),
    ],
)
def test_what_contradicts_a_snapshot_is_refused(option: str, value: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        parse_batch_options({"tidelog.bootstrap.servers": "a:1", "snapshot": "friday", option: value})


def test_a_stream_has_no_snapshot() -> None:
    with pytest.raises(InvalidConfig, match="goes on behind the end of a snapshot"):
        parse_stream_options({"tidelog.bootstrap.servers": "a:1", "subscribe": "orders", "snapshot": "friday"})
