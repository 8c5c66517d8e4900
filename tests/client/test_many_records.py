"""Many records by one call: each is written once, in order, and every failure names its records."""

from __future__ import annotations

import asyncio
from typing import Any
from zlib import crc32

import pytest

import tidelog
from tests.client.memory_cluster import (
    CLOCK,
    SILENCE,
    MemoryCluster,
    cluster_in_a_thread,
    memory_cluster,
    start,
    until,
)
from tidelog import sync
from tidelog.client import many_records, routing
from tidelog.client.batch_delivery import BatchDelivery, RecordsNotQueued
from tidelog.client.consumer import Consumer
from tidelog.client.delivery import Outcome
from tidelog.client.many_records import ManyRecords, RecordColumns, checked_columns
from tidelog.client.partitioner import partition_for_key
from tidelog.client.producer import Producer
from tidelog.client.producer_calls import Call, Pause
from tidelog.errors import (
    BufferExhausted,
    CommitUnknown,
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    RecordTooLarge,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.records import Header, Record, iter_batches
from tidelog.types import Millis, PartitionIndex, TopicPartition


@pytest.fixture(params=["pure Python", "compiled"], autouse=True)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with both implementations, and in small turns."""
    monkeypatch.setattr(many_records, "TURN_BYTES", 20_000)
    names = ("first_other", "measure", "fit", "partitions_of", "unassigned", "group", "pick_sizes", "waiting")
    fast: Any = None
    if request.param == "compiled":
        fast = pytest.importorskip("tidelog.client._routing", reason="the compiled code was not built")
    for name in names:
        monkeypatch.setattr(routing, name, getattr(routing, f"_{name}") if fast is None else getattr(fast, name))


def numbered(count: int, begin: int = 0) -> list[bytes | None]:
    return [b"%d" % number for number in range(begin, begin + count)]


def written(cluster: MemoryCluster, topic: str = "orders") -> list[list[Record]]:
    """The records of each partition."""
    return [
        [record for batch in partition.batches for part in iter_batches(batch) for record in part.records()]
        for partition in cluster.topics[topic].partitions
    ]


def check_positions(cluster: MemoryCluster, delivery: BatchDelivery, values: list[bytes | None]) -> None:
    """Each result is where the record is, and each record is in the log once, in the order of the call."""
    logs = written(cluster)
    results = delivery.results()
    assert [each.result() for each in delivery] == results
    assert [logs[result.partition][result.offset].value for result in results] == values
    assert sum(map(len, logs)) == len(values)
    for log in logs:
        numbers = [int(record.value or b"") for record in log]
        assert numbers == sorted(numbers)


async def answer_again(cluster: MemoryCluster) -> None:
    """Silent nodes answer; batches that they did not answer are resent."""
    for node in cluster.nodes:
        node.on_produce = lambda entry: None
        await node.stop()
        await node.start()


async def test_records_without_keys_fill_batches_of_all_partitions() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 4)
        values = numbered(5_000)
        async with Producer(cluster.bootstrap, batch_bytes=4_000) as producer:
            delivery = await producer.enqueue_many("orders", iter(values))
            assert await delivery is delivery
            assert delivery.done()
            assert len(delivery) == 5_000
            assert producer.buffered_bytes == 0
        check_positions(cluster, delivery, values)
        batches = [len(partition.batches) for partition in cluster.topics["orders"].partitions]
        assert min(batches) > 1
        assert sum(batches) < 60, "batches are full: 24 bytes a record are reserved"
        assert delivery[7].result() == delivery.results()[7] == delivery[-4_993].result()
        assert [each.result().offset for each in delivery[:3]] == [r.offset for r in delivery.results()[:3]]
        with pytest.raises(IndexError):
            delivery[5_000]


async def test_keys_choose_the_partition_as_for_single_records() -> None:
    """Every tenth record has no key: its batch mates do, and the order of the call holds for both."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 7)
        values = numbered(3_000)
        keys = [None if number % 10 == 0 else b"customer %d" % (number % 97) for number in range(3_000)]
        async with Producer(cluster.bootstrap, batch_bytes=4_000, compression="lz4") as producer:
            delivery = await producer.enqueue_many("orders", values, keys=keys)
            await delivery
        check_positions(cluster, delivery, values)
        logs = written(cluster)
        for key, result in zip(keys, delivery.results(), strict=True):
            assert key is None or result.partition == partition_for_key(key, 7)
            assert logs[result.partition][result.offset].key == key


async def test_the_producers_option_chooses_the_hash_of_single_and_of_many_records() -> None:
    keys = [b"customer %d" % number for number in range(40)]
    async with memory_cluster() as cluster:
        cluster.create("orders", 7)
        async with Producer(cluster.bootstrap, partitioner="crc32") as producer:
            many = await (await producer.enqueue_many("orders", keys, keys=keys))
            single = [await producer.send("orders", key, key) for key in keys]
    expected = [crc32(key) % 7 for key in keys]
    assert [each.partition for each in many.results()] == [each.partition for each in single] == expected
    assert expected != [partition_for_key(key, 7) for key in keys]


async def test_headers_timestamps_and_the_partition_reach_the_log() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        async with Producer(cluster.bootstrap) as producer:
            headers: list[list[Header]] = [[("h", b"1")], [], [("n", None), ("ä", b"")]]
            sent = await (
                await producer.enqueue_many(
                    "orders", [b"a", None, b"c"], headers=headers, partition=1, timestamp=[5, None, 7]
                )
            )
            all_at_once = await (await producer.enqueue_many("orders", [b"d"], partition=1, timestamp=9))
            empty = await (await producer.enqueue_many("orders", []))
        first, second, third, fourth = written(cluster)[1]
        assert [record.value for record in (first, second, third)] == [b"a", None, b"c"]
        assert [record.headers for record in (first, second, third)] == [tuple(each) for each in headers]
        assert (first.timestamp, third.timestamp, fourth.timestamp) == (5, 7, 9)
        assert second.timestamp > 1_700_000_000_000
        assert [result.timestamp for result in sent.results()] == [5, second.timestamp, 7]
        assert all_at_once.results() == [tidelog.SendResult("orders", 1, 3, 9)]  # type: ignore[arg-type]
        assert (len(empty), empty.results(), empty.done()) == (0, [], True)


async def test_memory_stays_bounded_and_nothing_comes_between_the_records() -> None:
    """The records take many times the memory. Calls that are made meanwhile are queued behind all of them."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        most = 0

        def note(entry: object) -> None:
            nonlocal most
            most = max(most, producer.buffered_bytes)

        for node in cluster.nodes:
            node.on_produce = note
        async with Producer(cluster.bootstrap, buffer_bytes=30_000, batch_bytes=2_000) as producer:
            keys = [b"%d" % (number % 5) for number in range(4_000)]
            many = start(producer.enqueue_many("orders", numbered(4_000), keys=keys))
            await until(lambda: producer.buffered_bytes)
            assert not many.done()
            with pytest.raises(BufferExhausted):
                producer.send_nowait("orders", b"4000")
            behind = [start(producer.send("orders", b"%d" % (4_000 + n), key=b"%d" % n)) for n in range(5)]
            delivery = await many
            await asyncio.gather(*behind, delivery)
            check = await producer.enqueue_many("orders", numbered(10, 4_005), keys=keys[:10])
            await check
        assert 10_000 < most <= 30_000
        for log in written(cluster):
            numbers = [int(record.value or b"") for record in log]
            assert numbers == sorted(numbers)
        assert sum(map(len, written(cluster))) == 4_015


async def test_a_linger_longer_than_the_test_does_not_stop_a_call_that_needs_memory() -> None:
    """All memory is in open batches: they are flushed, and again whenever that is so."""
    async with memory_cluster() as cluster:
        cluster.create("orders", 9)
        async with Producer(cluster.bootstrap, buffer_bytes=20_000, linger_ms=100_000) as producer:
            keys = [b"%d" % (number % 50) for number in range(1_000)]
            delivery = await producer.enqueue_many("orders", numbered(1_000), keys=keys)
            await producer.flush()
            await delivery
        check_positions(cluster, delivery, numbered(1_000))


async def test_a_call_without_memory_for_its_time_names_the_records_that_are_queued() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        options: dict[str, Any] = {"buffer_bytes": 30_000, "batch_bytes": 2_000, "max_block_ms": 600}
        async with Producer(cluster.bootstrap, **options) as producer:
            await producer.partitions("orders")
            cluster.nodes[0].on_produce = lambda entry: SILENCE
            with pytest.raises(RecordsNotQueued, match=r"the first [0-9]+ of 500 records") as raised:
                await producer.enqueue_many("orders", numbered(500))
            assert isinstance(raised.value.__cause__, BufferExhausted)
            queued = len(raised.value.delivery)
            assert 50 < queued < 500
            assert raised.value.written is False
            with pytest.raises(BufferExhausted, match="Nothing was queued"):
                await producer.enqueue_many("orders", numbered(500))
            await answer_again(cluster)
            await raised.value.delivery
            rest = await producer.enqueue_many("orders", numbered(500 - queued, queued))
            await rest
        assert cluster.values("orders") == numbered(500)


async def test_a_slow_call_has_its_time_again_after_every_piece() -> None:
    """Records were queued since the timer was set: it is set again. None were: the call gives up."""
    many = ManyRecords("orders", RecordColumns(numbered(9)))
    call = Call("orders", lambda: Pause.WAIT, asyncio.get_running_loop().create_future(), many)
    many.delivery.add(Outcome(TopicPartition("orders", PartitionIndex(0))), 0, range(5), Millis(1))
    call.time_out(60_000)
    assert call.timer is not None
    assert not call.placed.done()
    call.timer.cancel()
    call.time_out(60_000, 5)
    assert call.placed.result() is None


def test_a_waiting_call_continues_once_an_eighth_of_the_memory_is_free() -> None:
    """Single freed batches would give each of many partitions a few records at a time."""
    many = ManyRecords("orders", RecordColumns([b"x" * 76] * 1_000))  # each takes 300 bytes of memory
    assert not many.wants_more(299, 80_000)
    assert not many.wants_more(9_999, 80_000)
    assert many.wants_more(10_000, 80_000)
    few = ManyRecords("orders", RecordColumns([b"x" * 76] * 3))
    assert not few.wants_more(899, 80_000)
    assert few.wants_more(900, 80_000), "all the others fit"


async def test_a_cancelled_call_hands_over_the_records_that_are_queued() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, buffer_bytes=30_000, batch_bytes=2_000) as producer:
            await producer.partitions("orders")
            cluster.nodes[0].on_produce = lambda entry: SILENCE
            found: list[BatchDelivery] = []

            async def call() -> None:
                try:
                    await producer.enqueue_many("orders", numbered(500))
                except asyncio.CancelledError as error:
                    found.extend(error.args)
                    raise

            many = start(call())
            await until(lambda: producer.buffered_bytes > 20_000)
            behind = start(producer.send("orders", b"last"))
            await CLOCK.sleep_ms(0)
            many.cancel()
            await asyncio.wait([many])
            assert many.cancelled()
            await answer_again(cluster)
            (delivery,) = found
            await delivery
            assert (await behind).offset == len(delivery)
        assert cluster.values("orders") == [*numbered(len(delivery)), b"last"]
        assert 50 < len(delivery) < 500


async def test_a_call_that_is_cancelled_after_its_last_record_hands_over_all_of_them() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap) as producer:
            await producer.partitions("orders")
            many = start(producer.enqueue_many("orders", numbered(5)))
            await CLOCK.sleep_ms(0)
            assert producer.buffered_bytes > 0, "the call only lets the streams send before it returns"
            many.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await many
            (delivery,) = cancelled.value.args
            assert [result.offset for result in (await delivery).results()] == list(range(5))


async def test_lists_that_change_while_the_call_waits_do_not_change_its_records() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, buffer_bytes=30_000, batch_bytes=2_000) as producer:
            await producer.partitions("orders")
            cluster.nodes[0].on_produce = lambda entry: SILENCE
            values, keys = numbered(500), numbered(500)
            many = start(producer.enqueue_many("orders", values, keys=keys))
            await until(lambda: producer.buffered_bytes > 20_000)
            values.clear()
            keys.append(b"the next call's")
            await answer_again(cluster)
            await (await many)
        assert cluster.values("orders") == numbered(500)


def test_timestamps_are_an_array_of_numpy_or_one_of_its_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    values = numbered(2)
    assert checked_columns(values, None, None, None, numpy.array([7, 8])).timestamps == [7, 8]
    assert checked_columns(values, None, None, None, numpy.int64(7)).timestamps == 7


@pytest.mark.usefixtures("no_lag")
async def test_wrong_arguments_queue_nothing() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2, {"max.message.bytes": "1000"})
        async with Producer(cluster.bootstrap) as producer:
            wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
                (TypeError, "value 1 must be bytes", {"values": [b"a", "b"]}),
                (TypeError, "values must be an iterable", {"values": b"abc"}),
                (TypeError, "key 0 must be bytes", {"values": [b"a"], "keys": [1]}),
                (InvalidRequest, "1 keys for 2 values", {"values": [b"a", b"b"], "keys": [b"k"]}),
                (InvalidRequest, "2 headers for 1 values", {"values": [b"a"], "headers": [(), ()]}),
                (InvalidRequest, "0 timestamps for 1 values", {"values": [b"a"], "timestamp": []}),
                (TypeError, "timestamp must be", {"values": [b"a"], "timestamp": ["now"]}),
                (InvalidTimestamp, "-5", {"values": [b"a"], "timestamp": -5}),
                (InvalidRecord, "UTF-8", {"values": [b"a"], "headers": [[("\ud800", b"")]]}),
                (UnknownTopicOrPartition, "partition 2 does not", {"values": [b"a"], "partition": 2}),
                (RecordTooLarge, "record 1 for topic", {"values": [b"a", b"b" * 1_000]}),
            ]
            for kind, message, arguments in wrong:
                with pytest.raises(kind, match=message):
                    await producer.enqueue_many("orders", **arguments)
            with pytest.raises(UnknownTopicOrPartition):
                await producer.enqueue_many("there-is-none", [b"a"])
            assert producer.buffered_bytes == 0
        assert written(cluster) == [[], []]


async def test_failures_name_the_records_of_the_batches_that_failed() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 3)
        cluster.nodes[0].on_produce = lambda entry: InvalidRecord("no such colour") if entry.partition == 1 else None
        async with Producer(cluster.bootstrap) as producer:
            keys = [b"%d" % number for number in range(300)]
            delivery = await producer.enqueue_many("orders", numbered(300), keys=keys)
            with pytest.raises(asyncio.InvalidStateError):
                delivery.failures()
            lost = [number for number, key in enumerate(keys) if partition_for_key(key, 3) == 1]
            with pytest.raises(InvalidRecord, match=f"{len(lost)} of 300 records.*example record {lost[0]}"):
                await delivery
            assert list(delivery.failures()) == lost
            assert {type(error) for error in delivery.failures().values()} == {InvalidRecord}
            assert delivery[lost[0]].exception() is not None
            assert delivery[lost[0] + 1].exception() is None or lost[0] + 1 in lost
            with pytest.raises(InvalidRecord):
                delivery.results()
        assert sum(map(len, written(cluster))) == 300 - len(lost)


async def test_an_unknown_outcome_is_raised_before_a_certain_failure() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        cluster.nodes[0].on_produce = lambda entry: InvalidRecord("no")
        cluster.nodes[1].on_produce = lambda entry: "lose"
        async with Producer(cluster.bootstrap, enable_idempotence=False) as producer:
            keys = [b"%d" % number for number in range(50)]
            delivery = await producer.enqueue_many("orders", numbered(50), keys=keys)
            with pytest.raises(CommitUnknown):
                await delivery
            kinds = {partition_for_key(key, 2): type(delivery.failures()[n]) for n, key in enumerate(keys)}
            assert kinds == {0: InvalidRecord, 1: CommitUnknown}


async def test_calls_keep_their_order_while_the_topic_is_not_known() -> None:
    async with memory_cluster() as cluster:
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            first = start(producer.enqueue("orders", b"0"))
            many = start(producer.enqueue_many("orders", numbered(1_000, 1)))
            last = start(producer.enqueue("orders", b"1001"))
            await CLOCK.sleep_ms(100)
            cluster.create("orders")
            await asyncio.gather(first, many, last)
        assert cluster.values("orders") == numbered(1_002)


async def test_rows_without_a_partition_ask_for_the_metadata_of_a_new_topic_once() -> None:
    pa = pytest.importorskip("pyarrow")
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap) as producer:
            rows = pa.table({"value": [b"a", b"b"], "partition": pa.array([None, None], pa.int32())})
            await (await producer.enqueue_arrow("orders", rows))
            assert cluster.values("orders") == [b"a", b"b"]
            assert len(cluster.nodes[0].metadata_requests) < 5, "asked as for a missing topic"


async def test_a_closed_producer_refuses_the_records_that_wait() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        producer = Producer(cluster.bootstrap, buffer_bytes=30_000, batch_bytes=2_000)
        async with producer:
            await producer.partitions("orders")
            cluster.nodes[0].on_produce = lambda entry: SILENCE
            many = start(producer.enqueue_many("orders", numbered(500)))
            await until(lambda: producer.buffered_bytes > 20_000)
            await producer.close(flush=False)
            with pytest.raises(RecordsNotQueued) as raised:
                await many
            with pytest.raises(TidelogError):
                await raised.value.delivery
            assert len(raised.value.delivery.failures()) == len(raised.value.delivery)


async def test_rows_of_arrow_tables_are_written_and_read_again() -> None:
    pa = pytest.importorskip("pyarrow")
    async with memory_cluster() as cluster:
        cluster.create("orders", 3)
        cluster.create("copies", 3)
        async with Producer(cluster.bootstrap) as producer, Consumer(cluster.bootstrap) as consumer:
            keys = [b"%d" % (number % 9) if number % 4 else None for number in range(600)]
            headers = [[("n", value)] if number % 3 else [] for number, value in enumerate(numbered(600))]
            await (
                await producer.enqueue_many("orders", numbered(600), keys=keys, headers=headers, timestamp=range(600))
            )
            consumer.assign(await consumer.partitions("orders"))
            rows: list[Any] = []
            while sum(batch.num_rows for batch in rows) < 600:
                rows.append(await consumer.poll_arrow())
            await (await producer.enqueue_arrow("copies", pa.Table.from_batches(rows)))
            assert [sorted(log) for log in written(cluster, "copies")] == written(cluster)

            class Frame:
                def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
                    value = pa.array(["ä".encode(), None]).cast(pa.binary_view())  # as polars exports it
                    table = pa.table({"value": value, "partition": pa.array([2, None], pa.int64())})
                    return table.__arrow_c_stream__(requested_schema)

            delivery = await (await producer.enqueue_arrow("copies", Frame()))
            place = delivery.results()[0]
            assert place.partition == 2
            assert written(cluster, "copies")[2][place.offset].value == "ä".encode()
            only = await (await producer.enqueue_arrow("copies", rows[0].slice(3, 2), partition=1))
            assert [result.partition for result in only.results()] == [1, 1]


@pytest.mark.usefixtures("no_lag")
async def test_tables_that_are_no_records_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        async with Producer(cluster.bootstrap) as producer:
            value = pa.array([b"a", b"b"])
            wrong: list[tuple[type[Exception], str, Any]] = [
                (InvalidRequest, "no column value", pa.table({"key": value})),
                (InvalidRequest, "column 'colour'", pa.table({"value": value, "colour": value})),
                (InvalidRecord, "column value is int64", pa.table({"value": [1, 2]})),
                (InvalidTimestamp, "row 1: timestamp -2", pa.table({"value": value, "timestamp": [0, -2]})),
                (
                    InvalidTimestamp,
                    "row 1: timestamp 92",
                    pa.table({"value": value, "timestampMs": [0, 2**63 - 1]}),
                ),
                (InvalidTimestamp, "timestamp is string", pa.table({"value": value, "timestampMs": ["a", "b"]})),
                (InvalidTimestamp, "timestamp is string", pa.table({"value": value, "timestamp": ["a", "b"]})),
                (UnknownTopicOrPartition, "row 0: partition -1", pa.table({"value": value, "partition": [-1, 0]})),
                (
                    UnknownTopicOrPartition,
                    "record 1: .*partition 2",
                    pa.table({"value": value, "partition": [0, 2]}),
                ),
                (InvalidRecord, "column partition is", pa.table({"value": value, "partition": ["a", "b"]})),
                (InvalidRecord, "column headers is", pa.table({"value": value, "headers": [1, 2]})),
                (TypeError, "Arrow table", [b"a"]),
            ]
            for kind, message, table in wrong:
                with pytest.raises(kind, match=message):
                    await producer.enqueue_arrow("orders", table)
            with monkeypatch.context() as patch:
                patch.setitem(__import__("sys").modules, "pyarrow", None)
                with pytest.raises(InvalidRequest, match=r"tidelog\[arrow\]"):
                    await producer.enqueue_arrow("orders", pa.table({"value": value}))
        assert written(cluster) == [[], []]


def test_the_synchronous_producer_sends_many_and_waits() -> None:
    pa = pytest.importorskip("pyarrow")
    with cluster_in_a_thread() as cluster:
        cluster.create("orders", 2)
        with sync.Producer(cluster.bootstrap, linger_ms=60_000) as producer:
            sent = producer.send_many("orders", iter(numbered(100)), keys=iter(numbered(100)))
            check_positions(cluster, sent, numbered(100))
            rows = producer.send_arrow("orders", pa.table({"value": numbered(50)}), partition=0)
            assert [result.partition for result in rows.results()] == [0] * 50
