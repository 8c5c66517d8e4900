"""What a node must refuse, over the real wire: each time with its own error, nothing written, and serving on."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.integration.grpc_client import Client
from tests.integration.small_disk import SETTINGS, give_small_disk, make_room, needs_small_disks
from tidelog.errors import (
    CorruptRecord,
    DiskFull,
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidRequiredAcks,
    NotLeaderOrFollower,
    RecordTooLarge,
    TidelogError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Millis, Offset

pytestmark = pytest.mark.integration


def batch(value: bytes = b"value", count: int = 1) -> bytes:
    return build_batch([Record(Offset(index), Millis(1_700_000_000_000), b"key", value) for index in range(count)])


def damaged(position: int) -> bytes:
    data = bytearray(batch())
    data[position] ^= 0x40
    return bytes(data)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster"), nodes=1) as cluster:
        cluster.wait_healthy()
        yield cluster


def with_client(cluster: LocalCluster, topic_id: bytes, story: Callable[[Client], Awaitable[None]]) -> None:
    async def tell() -> None:
        client = Client(cluster, topic_id)
        try:
            await story(client)
        finally:
            await client.close()

    asyncio.run(tell())


def test_each_bad_request_has_its_own_error_and_writes_nothing(single: LocalCluster) -> None:
    topic_id = single.create_topic("orders", partitions=1, replicas=1, max_message_bytes="2000")
    refusals: list[tuple[type[TidelogError], dict[str, object]]] = [
        (CorruptRecord, {"records": damaged(40)}),  # the header's own fields
        (CorruptRecord, {"records": damaged(70)}),  # a record
        (InvalidRequest, {"records": batch()[:-1]}),  # no whole batch
        (CorruptRecord, {"records": b"no batch at all, but long enough to look like one: " * 3}),
        (CorruptRecord, {"records": batch()[:16] + b"\x01" + batch()[17:]}),  # no message of format v1
        (CorruptRecord, {"records": batch()[:16] + b"\x07" + batch()[17:]}),  # no format at all
        (RecordTooLarge, {"records": batch(b"x" * 3000)}),
        (UnknownTopicId, {"records": batch(), "topic_id": uuid.uuid4().bytes}),
        (InvalidRequest, {"records": batch(), "topic_id": b"short"}),
        (UnknownTopicOrPartition, {"records": batch(), "partition": 7}),
        (UnknownLeaderEpoch, {"records": batch(), "epoch": 9}),
        (InvalidRequiredAcks, {"records": batch(), "acks": 7}),
    ]

    async def story(client: Client) -> None:
        assert await client.produce(batch()) == 0
        for expected, request in refusals:
            with pytest.raises(TidelogError) as refused:
                await client.produce(**request)  # type: ignore[arg-type]
            assert type(refused.value) is expected, f"{request}: {refused.value!r}"
            assert refused.value.written is False
            assert len(refused.value.message) > 20, "the thing, the cause, the next step"
            assert await client.end() == 1
        assert await client.produce(batch(count=3)) == 1
        assert await client.end() == 4

    with_client(single, topic_id, story)


def test_an_older_leader_epoch_is_fenced(single: LocalCluster) -> None:
    topic_id = single.create_topic("payments", partitions=1, replicas=1)
    single.kill(0)
    single.start_node(0)  # a new incarnation leads in a new epoch
    single.wait_healthy()

    async def story(client: Client) -> None:
        with pytest.raises(FencedLeaderEpoch):
            while True:
                with suppress(UnknownTopicId, NotLeaderOrFollower):  # the new process has not got all metadata yet
                    await client.produce(batch(), epoch=0)
                    pytest.fail("a record for an older epoch was acknowledged")
        while (end := await client.end()) < 0:
            pass  # it does not know the committed end of its epoch yet (KIP-207)
        assert end == 0

    with_client(single, topic_id, story)


def test_a_minimum_above_the_replicas_counts_as_their_number(single: LocalCluster) -> None:
    topic_id = single.create_topic("careful", partitions=1, replicas=1, min_insync_replicas="2")

    async def story(client: Client) -> None:
        for acks in (1, -1):
            await client.produce(batch(), acks=acks)
        assert await client.end() == 2, "what is acknowledged can be read"

    with_client(single, topic_id, story)


@needs_small_disks
def test_a_full_disk_refuses_whole_batches_and_serves_again_once_there_is_room(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, nodes=1, settings=SETTINGS)
    (node,) = cluster.nodes
    give_small_disk(node)
    try:
        cluster.start()
        cluster.wait_healthy()
        topic_id = cluster.create_topic("orders", partitions=1, replicas=1)

        async def story(client: Client) -> None:
            written = 0
            with pytest.raises(DiskFull) as refused:
                while written < 100:
                    await client.produce(batch(b"x" * 900_000))
                    written += 1
            assert refused.value.written is False
            assert "is full" in refused.value.message
            assert 5 < written < 100
            assert await client.end() == written, "the refused batch left nothing"
            make_room(node)
            before = await client.end()
            assert await client.produce(batch(b"x" * 900_000)) == before

        with_client(cluster, topic_id, story)
        assert cluster.describe(0).controller_id == 0
    finally:
        cluster.kill_all()
