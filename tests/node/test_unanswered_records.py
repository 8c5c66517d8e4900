"""Records that are sent without answers (acks=0), to real nodes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.node.real_nodes import real_nodes
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.produce_stream import ProduceStreams
from tidelog.client.producer import Producer


async def test_what_was_sent_before_the_close_is_written(tmp_path: Path) -> None:
    """The node unpacks one batch while the next ones wait to be read, and the producer leaves meanwhile."""
    values = [random.Random(number).randbytes(100_000) for number in range(20)]
    async with real_nodes(tmp_path) as nodes:
        bootstrap = str(nodes.addresses[0])
        async with Admin(bootstrap) as admin:
            await admin.create_topic("clicks", partitions=1, replication_factor=1)
        async with Producer(bootstrap, acks=0, compression="gzip", linger_ms=0) as producer:
            for value in values:
                await producer.enqueue("clicks", value)
        async with Consumer(bootstrap) as consumer:
            consumer.assign(await consumer.partitions("clicks"))
            read: list[bytes | None] = []
            while len(read) < len(values) and (records := await consumer.poll(timeout=5)):
                read += [record.value for record in records]
    assert read == values


async def test_a_producer_that_gives_a_node_up_says_that_records_may_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The node is frozen, or holds the producer back for a quota."""

    async def never(_: ProduceStreams) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ProduceStreams, "finish", never)
    async with real_nodes(tmp_path) as nodes:
        bootstrap = str(nodes.addresses[0])
        async with Admin(bootstrap) as admin:
            await admin.create_topic("clicks", partitions=1, replication_factor=1)
        async with Producer(bootstrap, acks=0, request_timeout_ms=200) as producer:
            await producer.send("clicks", b"a click")
    assert "with acks=0 the last ones may be lost" in caplog.text
