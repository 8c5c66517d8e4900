"""A function of the program is called when the outcome of a record is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread, memory_cluster
from tidelog import sync
from tidelog.client.delivery import Delivery
from tidelog.client.producer import Producer
from tidelog.errors import InvalidRecord, InvalidTopic


@contextmanager
def refusing(cluster: MemoryCluster, value: bytes) -> Iterator[None]:
    """The nodes refuse batches with this value."""
    for node in cluster.nodes:
        node.on_produce = lambda entry: InvalidRecord("refused") if value in bytes(entry.records) else None
    yield
    for node in cluster.nodes:
        node.on_produce = lambda _: None


async def test_each_way_to_send_calls_it_once() -> None:
    outcomes: list[int | str] = []

    def note(delivery: Delivery) -> None:
        error = delivery.exception()
        outcomes.append(delivery.result().offset if error is None else error.message)

    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            await producer.send("orders", b"0", on_delivery=note)
            await (await producer.enqueue("orders", b"1", on_delivery=note))
            await producer.send_nowait("orders", b"2", on_delivery=note)
            assert outcomes == [0, 1, 2]
            with refusing(cluster, b"wrong"), pytest.raises(InvalidRecord):
                await producer.send("orders", b"wrong", on_delivery=note)
            assert "refused" in str(outcomes[3])
            with pytest.raises(InvalidTopic):
                await producer.send("no topic", b"", on_delivery=note)
    assert len(outcomes) == 4, "a record that was not queued has no delivery"


async def test_a_failing_function_fails_no_record(caplog: pytest.LogCaptureFixture) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap) as producer:
            sent = await producer.send("orders", b"0", on_delivery=lambda _: 1 / 0)
            assert sent.offset == 0
    assert "the record is not affected" in caplog.text


async def test_what_is_no_function_is_refused_before_the_record_is_queued() -> None:
    wrong: Any = 3
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap) as producer:
            await producer.send("orders", b"0")
            for call in (producer.send, producer.enqueue):
                with pytest.raises(TypeError, match="on_delivery must be a function or None, not int: 3"):
                    await call("orders", b"refused", on_delivery=wrong)
            with pytest.raises(TypeError, match="on_delivery must be a function"):
                producer.send_nowait("orders", b"refused", on_delivery=wrong)
            with pytest.raises(TypeError, match="callback must be a function or None, not int"):
                (await producer.enqueue("orders", b"1")).add_done_callback(wrong)
            assert (await producer.send("orders", b"2")).offset == 2, "a refused record is not in the log"


async def test_a_transaction_takes_one_too() -> None:
    offsets: list[int] = []
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, transactional_id="t") as producer, producer.transaction() as txn:
            await txn.enqueue("orders", b"0", on_delivery=lambda delivery: offsets.append(delivery.result().offset))
    assert offsets == [0]


def test_a_synchronous_producer_takes_one_too() -> None:
    offsets: list[int] = []
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        with sync.Producer(cluster.bootstrap) as producer:
            producer.enqueue("orders", b"0", on_delivery=lambda delivery: offsets.append(delivery.result().offset))
    assert offsets == [0]
