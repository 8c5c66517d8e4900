"""Object stores that hang, and objects that are damaged or gone: what is read elsewhere goes on, and each error says
what to do."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from node.listeners.kafka.error_codes import code_of
from node.replicas.store_reads import STORE_READS_AT_ONCE
from node.runtime.memory_budget import Kind
from node.tiering.remote_tier import COPIES_AT_ONCE
from testbed.fake_object_store import FakeObjectStore, StoreCall
from tests.node.real_nodes import RealNodes, real_nodes
from tests.node.tiered_nodes import (
    COORDINATORS,
    TIERED,
    all_left,
    bootstrap,
    consume_more,
    consumed,
    leader,
    of_store,
    produce,
)
from tidelog import Consumer
from tidelog.client.admin import Admin
from tidelog.errors import KafkaStorageError, TidelogError, UnknownServerError
from tidelog.protocol import methods
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchedPartition
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.obstore_store import open_object_store
from tidelog.tiering.remote_errors import (
    ObjectStoreRefused,
    ObjectStoreUnavailable,
    RemoteObjectDamaged,
    RemoteObjectMissing,
)

pytestmark = pytest.mark.usefixtures("quick_tier")

COLD, HOT = "history", "present"
RECORDS = 20
FETCH_BYTES = 2 * (4 << 20)
"""What a fetch of our consumer is charged for while it is read."""


@asynccontextmanager
async def cold_and_hot(home: Path, store: ObjectStore, **waits: int) -> AsyncIterator[RealNodes]:
    """A node with a topic that is in the store, less its last segments, and one that is not."""
    async with real_nodes(home, 1, coordinators=COORDINATORS, prepare=of_store(store, **waits)) as nodes:
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(COLD, partitions=2, replication_factor=1, configs=TIERED)
            await admin.create_topic(HOT, partitions=1, replication_factor=1)
        for partition in (0, 1):
            await produce(nodes, 0, RECORDS, COLD, partition)
            await nodes.wait_until(all_left(nodes, RECORDS, COLD, partition))
        await produce(nodes, 0, RECORDS, HOT)
        yield nodes


async def fetch_both(nodes: RealNodes) -> list[FetchedPartition]:
    """The first records of both topics, by one call, as Kafka's clients ask for them."""
    partitions = []
    for topic in (COLD, HOT):
        name = leader(nodes, topic).key
        partitions.append(
            data_pb2.FetchPartition(
                topic_id=name.topic_id.bytes, partition=0, current_leader_epoch=-1, last_fetched_epoch=-1
            )
        )
    request = data_pb2.FetchRequest(partitions=partitions, max_wait_ms=60_000, min_bytes=1)
    answer = await nodes.call(0, methods.DATA_FETCH, request)
    return answer.partitions


async def test_a_store_that_hangs_holds_back_only_what_is_in_it(tmp_path: Path) -> None:
    """Thirty consumers of history wait for a store that takes calls and does not answer. Meanwhile others read and
    produce, a fetch of both is answered with what is on the node, and those that wait use no more memory and threads
    than four of them. Then the store answers, and all get everything."""
    store, answers = FakeObjectStore(), threading.Event()

    def hang(call: StoreCall) -> None:
        if call.operation == "get_range":
            answers.wait()

    async with cold_and_hot(tmp_path, store, fetch_wait_ms=50) as nodes, asyncio.TaskGroup() as tasks:
        store.on_call = hang
        threads = threading.active_count()
        begun = len(store.calls)
        readers = [tasks.create_task(consumed(nodes, RECORDS, COLD)) for _ in range(30)]
        try:
            await nodes.wait_until(lambda: len(store.calls) > begun)
            assert await consumed(nodes, RECORDS, HOT) == list(range(RECORDS))
            found = {len(part.records) > 0 for part in await fetch_both(nodes)}
            assert found == {True, False}, "the records of one, and nothing of the other"
            await produce(nodes, RECORDS, 5, HOT)
            await produce(nodes, RECORDS, 5, COLD)
            async with Consumer(bootstrap(nodes)) as both:
                numbers: list[int] = []
                both.assign([(COLD, 0), (COLD, 1), (HOT, 0)])
                await both.seek_to_beginning()
                await consume_more(both, numbers, RECORDS + 5)
                assert numbers == list(range(RECORDS + 5)), "of the topic on the node"
            replicas = nodes.nodes[0].node.replicas
            assert replicas is not None
            assert replicas.memory.figures.used[Kind.CONSUMER_FETCH] <= STORE_READS_AT_ONCE * FETCH_BYTES
            assert threading.active_count() <= threads + 2
            asked = [call for call in store.calls[begun:] if call.operation == "get_range"]
            assert len(asked) <= STORE_READS_AT_ONCE + COPIES_AT_ONCE
        finally:
            answers.set()
        for reader in readers:
            assert await reader == list(range(RECORDS))


async def test_while_a_store_is_down_its_readers_are_told_and_go_on_by_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FakeObjectStore()
    async with cold_and_hot(tmp_path, store) as nodes, asyncio.TaskGroup() as tasks:
        store.fail("get_range", times=1_000_000)
        reader = tasks.create_task(consumed(nodes, RECORDS, COLD))
        errors: list[TidelogError] = []
        while not errors:
            errors = [part.error for part in await fetch_both(nodes) if part.error is not None]
        assert isinstance(errors[0], ObjectStoreUnavailable)
        assert not reader.done()
        assert "a read of the object store failed" in caplog.text
        tier = nodes.nodes[0].node.metric_sources().tier
        assert tier is not None and tier.read_errors > 0
        store.recover()
        assert await reader == list(range(RECORDS))


@pytest.mark.parametrize("damage", ["tampered", "truncated", "missing"])
async def test_an_object_that_is_damaged_or_gone_ends_only_reads_of_its_records(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder as the store, and an object in the middle of a partition's history: the consumer gets what is before it,
    then an error that names the object and the next step. It continues once the object is restored."""
    caplog.set_level(logging.WARNING, "node.tiering")
    async with cold_and_hot(tmp_path / "nodes", open_object_store(f"file://{tmp_path}/store")) as nodes:
        file = sorted((tmp_path / "store").glob(f"{COLD}-*/0/*.segment"))[4]
        whole = file.read_bytes()
        match damage:
            case "tampered":
                file.write_bytes(whole[:700] + bytes([whole[700] ^ 1]) + whole[701:])
            case "truncated":
                file.write_bytes(whole[:1_000])
            case _:
                file.unlink()
        async with Consumer(bootstrap(nodes)) as consumer:
            numbers: list[int] = []
            consumer.assign([(COLD, 0)])
            await consumer.seek_to_beginning()
            kind = RemoteObjectMissing if damage == "missing" else RemoteObjectDamaged
            with pytest.raises(kind, match=r"restore (it|the object).*, or delete the records") as told:
                await consume_more(consumer, numbers, RECORDS)
            assert file.name in told.value.message
            assert file.name in caplog.text
            assert numbers == list(range(len(numbers))) and 0 < len(numbers) < RECORDS

            assert await consumed(nodes, RECORDS, COLD, partition=1) == list(range(RECORDS))
            assert await consumed(nodes, RECORDS, HOT) == list(range(RECORDS))
            await produce(nodes, RECORDS, 1, COLD)

            file.write_bytes(whole)
            await consumer.seek((COLD, 0), await consumer.position((COLD, 0)))
            await consume_more(consumer, numbers, RECORDS + 1)
            assert numbers == list(range(RECORDS + 1))


async def test_a_node_without_the_url_of_the_store_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The setting is lost on a node: its log names it at the start, and a consumer of history gets an error, since no
    other attempt would help. What is on the node is read as before."""
    async with cold_and_hot(tmp_path, FakeObjectStore()) as nodes:
        await nodes.stop(0)
        nodes.tiering = replace(nodes.tiering, url="")
        await nodes.start(0)
        await nodes.wait_led(HOT)
        await nodes.wait_led(COLD)
        assert f"remote.log.storage.url is not set, but logs have a remote tier (2, {COLD}-" in caplog.text
        with pytest.raises(ObjectStoreRefused, match=r"offset 0 .* no remote\.log\.storage\.url: set it"):
            await consumed(nodes, RECORDS, COLD)
        assert await consumed(nodes, RECORDS, HOT) == list(range(RECORDS))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ObjectStoreUnavailable("down"), KafkaStorageError.code),
        (RemoteObjectMissing("gone"), UnknownServerError.code),
        (RemoteObjectDamaged("changed"), UnknownServerError.code),
    ],
)
def test_consumers_of_kafka_fetch_again(error: TidelogError, code: int) -> None:
    """Java's consumer ends `poll` with an IllegalStateException for errors that brokers do not answer a fetch with."""
    assert code_of(error) == code
