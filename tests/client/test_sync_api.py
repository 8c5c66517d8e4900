"""The synchronous clients have the whole API of the asynchronous ones, for any number of threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from inspect import Parameter, signature
from typing import Any, Final

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tidelog import sync
from tidelog.client.admin import Admin
from tidelog.client.connection import Service
from tidelog.client.consumer import Consumer
from tidelog.client.machine import run_beside
from tidelog.client.producer import Producer
from tidelog.client.sync_transaction import SyncTransaction
from tidelog.client.transaction import Transaction
from tidelog.errors import InvalidRecord, InvalidRequest, RecordTooLarge
from tidelog.types import PartitionIndex, TopicPartition

PAIRS: Final[list[tuple[type[Any], type[Any]]]] = [
    (Producer, sync.Producer),
    (Consumer, sync.Consumer),
    (Admin, sync.Admin),
    (Transaction, SyncTransaction),
]

NOT_FOR_PROGRAMS: Final = {"start", "note_fork", "assigned_cursor", "assigned_cursors", "hooks", "columns_of"}
"""Called by the clients themselves."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[MemoryCluster]:
    with cluster_in_a_thread() as started:
        for topic in ("orders", "threads", "copies", "closing"):
            started.create(topic, 3 if topic == "threads" else 1)
        yield started


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - NOT_FOR_PROGRAMS


def parameters(call: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults, without `self`."""
    found: list[Parameter] = list(signature(call).parameters.values())[1:]
    return [(each.name, each.kind, each.default) for each in found]


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS, ids=lambda kind: kind.__name__)
def test_no_method_is_missing_and_all_have_the_same_parameters(asynchronous: type[Any], synchronous: type[Any]) -> None:
    assert public(asynchronous) - public(synchronous) == set()
    for name in sorted(public(asynchronous)):
        theirs, ours = getattr(asynchronous, name), getattr(synchronous, name)
        assert isinstance(theirs, property) == isinstance(ours, property), name
        if callable(theirs):
            assert parameters(ours) == parameters(theirs), name
            assert ours.__doc__, name
    if issubclass(asynchronous, Service):
        assert parameters(synchronous.__init__) == parameters(asynchronous.__init__)


def test_the_module_is_there_without_an_import_of_its_own() -> None:
    program = "import tidelog; assert tidelog.sync.Producer.__name__ == 'Producer'"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_records_are_queued_and_their_outcomes_collected_later(cluster: MemoryCluster) -> None:
    called: list[int] = []
    with sync.Producer(cluster.bootstrap, linger_ms=60_000) as producer:
        first = producer.enqueue("orders", b"0")
        assert not first.done()
        with pytest.raises(TimeoutError, match=r"no outcome within 0\.01 s: the record is still sent"):
            first.result(0.01)
        first.add_done_callback(lambda delivery: called.append(delivery.result().offset))
        many = producer.enqueue_many("orders", [b"1", b"2"])
        last = producer.send_nowait("orders", b"3")
        with pytest.raises(TypeError, match="timeout must be a number of seconds"):
            first.result("1")  # type: ignore[arg-type]
        producer.flush()
        assert first.result(timeout=10).offset == 0
        assert [each.offset for each in many.results()] == [1, 2]
        assert (many.failures(), many.exception(), many[1].result().offset, len(many)) == ({}, None, 2, 2)
        assert producer.partitions("orders") == 1
        assert producer.is_idempotent("orders")
        assert producer.buffered_bytes == 0
    assert (last.result().offset, last.exception()) == (3, None), "also after the producer was closed"
    last.add_done_callback(lambda delivery: called.append(delivery.result().offset))
    assert called == [0, 3]


def test_an_outcome_that_is_a_failure_is_raised_by_each_call(cluster: MemoryCluster) -> None:
    with sync.Producer(cluster.bootstrap, linger_ms=0) as producer:
        with pytest.raises(RecordTooLarge):
            producer.enqueue("orders", bytes(2_000_000))
        producer.partitions("copies")
        for node in cluster.nodes:
            node.on_produce = lambda _: InvalidRecord("the validator refuses it")
        try:
            refused = producer.enqueue("copies", b"refused")
            assert isinstance(refused.exception(10), InvalidRecord)
            for _ in range(2):
                with pytest.raises(InvalidRecord, match="the validator refuses it"):
                    refused.result()
        finally:
            for node in cluster.nodes:
                node.on_produce = lambda _: None


async def test_many_threads_share_one_producer_and_each_keeps_its_order(cluster: MemoryCluster) -> None:
    def write(partition: int) -> list[int]:
        deliveries = [producer.enqueue("threads", b"%d" % number, partition=partition) for number in range(50)]
        return [delivery.result(30).offset for delivery in deliveries]

    with sync.Producer(cluster.bootstrap) as producer:
        written = await asyncio.gather(*(run_beside(partial(write, partition)) for partition in range(3)))
    assert written == [list(range(50))] * 3


def test_a_callback_that_would_wait_for_its_own_thread_is_refused(cluster: MemoryCluster) -> None:
    refused: list[str] = []
    done = threading.Event()
    with sync.Producer(cluster.bootstrap) as producer:

        def send_again(_: object) -> None:
            try:
                producer.send("copies", b"again")
            except InvalidRequest as error:
                refused.append(error.message)
            done.set()

        producer.enqueue("copies", b"first").add_done_callback(send_again)
        assert done.wait(10)
    assert refused == ["a callback in the thread of the producer cannot wait for it: let another thread make the call"]


def test_a_producer_that_a_callback_would_close_stays_open_and_loses_nothing(cluster: MemoryCluster) -> None:
    refused: list[str] = []
    with sync.Producer(cluster.bootstrap) as producer:

        def close(_: object) -> None:
            try:
                producer.close()
            except InvalidRequest as error:
                refused.append(error.message)

        first = producer.send("copies", b"first", on_delivery=close)
        assert producer.send("copies", b"second").offset == first.offset + 1
    assert refused == ["a callback in the thread of the producer cannot wait for it: let another thread make the call"]


def test_a_consumer_that_its_deserializer_would_close_stays_open(cluster: MemoryCluster) -> None:
    with sync.Producer(cluster.bootstrap) as producer:
        producer.send_many("closing", [b"1", b"2", b"3"])
    refused: list[str] = []

    def close(value: bytes) -> bytes:
        try:
            consumer.close()
        except InvalidRequest as error:
            refused.append(error.message)
        return value

    with sync.Consumer(cluster.bootstrap, value_deserializer=close) as consumer:
        consumer.assign([("closing", 0)])
        records = iter(consumer)
        assert [next(records).value for _ in range(3)] == [b"1", b"2", b"3"]
    assert set(refused) == {
        "a callback in the thread of the consumer cannot wait for it: let another thread make the call"
    }


def test_a_transaction_queues_too(cluster: MemoryCluster) -> None:
    with sync.Producer(cluster.bootstrap, transactional_id="copier") as producer:
        with producer.transaction() as transaction:
            assert transaction.is_open
            queued = transaction.enqueue("copies", b"in it")
            many = transaction.enqueue_many("copies", iter([b"1", b"2"]))
        assert many.results()[1].offset == queued.result().offset + 2


def test_results_by_partition_are_asked_with_a_pair_as_type_checkers_know(cluster: MemoryCluster) -> None:
    with sync.Consumer(cluster.bootstrap, group="pairs") as consumer, sync.Admin(cluster.bootstrap) as admin:
        first: int = consumer.beginning_offsets([("orders", 0)])["orders", 0]
        assert first == admin.list_offsets([("orders", 0)], "earliest")["orders", 0] == 0
        assert consumer.committed([("orders", 0)])["orders", 0] is None
        assert consumer.end_offsets([("orders", 0)]).get(("orders", 1), -1) == -1
        far = consumer.offsets_for_times({("orders", 0): 2**62})
        assert far["orders", 0] is None
        assert far == {TopicPartition("orders", PartitionIndex(0)): None}, "it is a dict"


def test_a_consumer_tells_what_the_asynchronous_one_tells(cluster: MemoryCluster) -> None:
    with sync.Producer(cluster.bootstrap) as producer:
        producer.send("orders", b"one")
    with sync.Consumer(cluster.bootstrap, group="readers") as consumer:
        consumer.assign([("orders", 0)])
        consumer.seek(("orders", 0), 0)
        consumer.pause([("orders", 0)])
        assert consumer.paused == consumer.assignment
        assert consumer.group_metadata().group_id == "readers"
        assert [each.offset for each in consumer.offsets_to_commit().values()] == [0]
        consumer.resume([("orders", 0)])
        (end,) = consumer.end_offsets([("orders", 0)]).values()
        while not consumer.poll():
            pass
        assert consumer.high_watermark(("orders", 0)) == end > 0
