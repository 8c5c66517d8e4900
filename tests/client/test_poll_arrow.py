"""The consumer's Arrow batches: the records that `poll` returns, as rows with the columns of the Spark source."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, MemoryPartition, cluster_in_a_thread, memory_cluster, until
from tidelog import sync
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.client.producer import Producer
from tidelog.errors import CorruptRecord, InvalidRequest, OffsetOutOfRange
from tidelog.records import (
    EndTxnMarker,
    Record,
    RecordBatch,
    RecordBatchBuilder,
    build_batch,
    control_batch,
)
from tidelog.records.arrow_columns import table_schema
from tidelog.types import Codec, Millis, Offset, PartitionIndex, TopicPartition

pa = pytest.importorskip("pyarrow")
P0 = TopicPartition("orders", PartitionIndex(0))


def fill(partition: MemoryPartition, count: int, *, per_batch: int = 3, codec: Codec = Codec.NONE) -> None:
    """Append records with the values "0", "1" and so on; the timestamp of each is its offset times 1000."""
    for first in range(0, count, per_batch):
        records = [
            Record(
                Offset(index),
                Millis((partition.end + index) * 1000),
                b"k" if first % 2 else None,
                b"%d" % (first + index),
                (("h", None),) if index == 1 else (),
            )
            for index in range(min(per_batch, count - first))
        ]
        partition.append(build_batch(records, codec, base_offset=0))


LAST_HELD = 253_402_214_399_999  # the last millisecond of 9999-12-30


async def read(consumer: Consumer, count: int, **limits: Any) -> Any:
    """Read at least `count` rows into one table."""
    batches = [await consumer.poll_arrow(**limits)]
    while sum(batch.num_rows for batch in batches) < count:
        batches.append(await consumer.poll_arrow(**limits))
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_the_rows_are_the_records_that_poll_returns(codec: Codec) -> None:
    async with memory_cluster(2) as cluster:
        topic = cluster.create("orders", 3)
        for partition in topic.partitions:
            fill(partition, 20, codec=codec)
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            records: list[ConsumerRecord] = []
            while len(records) < 60:
                records += await consumer.poll()
            for key in consumer.assignment:
                await consumer.seek(key, 0)
            table = await read(consumer, 60)
            assert table.schema == table_schema()
            found = sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))
            for row, record in zip(found, sorted(records), strict=True):
                assert (row["topic"], row["partition"], row["offset"]) == record[:3]
                assert (row["key"], row["value"], row["timestampType"]) == (record.key, record.value, 0)
                assert round(row["timestamp"].timestamp() * 1000) == record.timestamp
                assert [(h["key"], h["value"]) for h in row["headers"] or ()] == list(record.headers)
            for index in range(3):
                rows = table.filter(pa.compute.equal(table["partition"], index))
                assert rows["offset"].to_pylist() == list(range(rows.num_rows)), "in order"
                assert await consumer.position(("orders", index)) == rows.num_rows
            assert (await consumer.poll_arrow(timeout=0.05)).num_rows == 0


async def test_a_bound_in_the_middle_of_a_batch_splits_it() -> None:
    """Compressed, sparse and plain batches; polls of records and of rows take turns."""
    async with memory_cluster() as cluster:
        partition = cluster.create("orders").partitions[0]
        fill(partition, 10, per_batch=10, codec=Codec.GZIP)
        sparse = [Record(Offset(offset), Millis(1), None, b"s") for offset in (0, 1, 500, 501, 900)]
        partition.append(build_batch(sparse, base_offset=0, last_offset=999))
        fill(partition, 10, per_batch=10)
        wanted = [*range(10), 10, 11, 510, 511, 910, *range(1010, 1020)]
        async with Consumer(cluster.bootstrap) as consumer:
            for most in (1, 2, 3, 7):
                consumer.assign([])
                consumer.assign([P0])
                offsets: list[int] = []
                while len(offsets) < len(wanted):
                    rows: Any = await consumer.poll_arrow(max_records=most, columns=["offset"])
                    assert 0 < rows.num_rows <= most
                    offsets += rows["offset"].to_pylist()
                    assert await consumer.position(P0) > offsets[-1]
                    offsets += [record.offset for record in await consumer.poll(max_records=1, timeout=0.01)]
                assert offsets == wanted
                assert await consumer.position(P0) == 1020


async def test_the_bytes_of_a_batch_of_rows_are_bounded() -> None:
    async with memory_cluster() as cluster:
        partition = cluster.create("orders").partitions[0]
        for _ in range(10):
            partition.append(build_batch([Record(Offset(0), Millis(1), None, b"x" * 1_000)], base_offset=0))
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            sizes = [(await consumer.poll_arrow(max_bytes=2_500)).num_rows for _ in range(4)]
            assert sizes == [3, 3, 3, 1]


async def test_only_committed_rows_without_control_records() -> None:
    def data(producer: int, count: int) -> bytes:
        builder = RecordBatchBuilder(producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)
        builder.extend([(None, b"v", 1, ())] * count)
        return builder.build()

    def marker(producer: int, *, committed: bool) -> bytes:
        return control_batch(EndTxnMarker(committed, 0), timestamp=1, producer_id=producer, producer_epoch=0)

    async with memory_cluster() as cluster:
        partition = cluster.create("orders").partitions[0]
        for batch in (data(1, 2), data(2, 2), marker(1, committed=False), marker(2, committed=True), data(3, 1)):
            partition.append(batch)
        partition.aborted, partition.open_since = [(1, 0)], 6
        async with Consumer(cluster.bootstrap, isolation="read_committed", max_wait_ms=20) as consumer:
            consumer.assign([P0])
            rows = await consumer.poll_arrow(columns=("offset", "value"))
            assert rows.to_pydict() == {"offset": [2, 3], "value": [b"v", b"v"]}
            while await consumer.position(P0) < 6:
                assert (await consumer.poll_arrow(timeout=0.02)).num_rows == 0


def damage(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


@pytest.mark.usefixtures("no_lag")
async def test_rows_before_an_error_come_first_and_the_error_is_raised_in_its_turn() -> None:
    async with memory_cluster() as cluster:
        topic = cluster.create("orders", 3)
        for partition in topic.partitions:
            fill(partition, 6)
        first = topic.partitions[0]
        first.batches[1] = damage(first.batches[1])
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            await consumer.seek(("orders", 1), 77)
            offsets: list[tuple[int, int]] = []
            raised: list[type] = []
            while len(offsets) < 9 or len(set(raised)) < 2:
                try:
                    rows: Any = await consumer.poll_arrow(timeout=10, columns=["partition", "offset"])
                    offsets += zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
                except (OffsetOutOfRange, CorruptRecord) as error:
                    raised.append(type(error))
            assert sorted(offsets) == [(0, 0), (0, 1), (0, 2), *((2, offset) for offset in range(6))]
            assert await consumer.position(P0) == 3, "behind the sound batch"


async def test_an_error_is_raised_although_another_partition_always_has_rows() -> None:
    async with memory_cluster() as cluster:
        topic = cluster.create("orders", 2)
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            cursor = consumer._core.cursors[P0]
            await consumer.seek(("orders", 1), 77)
            with pytest.raises(OffsetOutOfRange):
                for _ in range(5):
                    fill(topic.partitions[0], 3)
                    await until(lambda: cursor.has_data)
                    assert (await consumer.poll_arrow(timeout=10)).num_rows > 0


TIMES = (-1, 0, 1_714_564_800_123, LAST_HELD, LAST_HELD + 1, 1_795_843_134_110_000, 1_795_843_134_110_000_000, 2**62)
"""None, usual ones, and those of producers that write micro- or nanoseconds."""


async def test_every_time_that_can_be_in_a_log_is_read_and_written_again() -> None:
    """The column `timestamp` is null where it has no such time, and `timestampMs` beside it has all of them."""
    async with memory_cluster() as cluster:
        origin = cluster.create("orders").partitions[0]
        for name in ("one by one", "rows"):
            cluster.create(name.replace(" ", "-"))
        records = [Record(Offset(at), Millis(time), None, b"v") for at, time in enumerate(TIMES)]
        origin.append(build_batch(records, base_offset=0))
        async with Consumer(cluster.bootstrap) as consumer, Producer(cluster.bootstrap) as producer:
            consumer.assign([P0])
            polled = await consumer.poll()
            assert [each.timestamp for each in polled] == [None, *TIMES[1:]]
            await consumer.seek(P0, 0)
            rows = await read(consumer, len(TIMES), columns=["value", "timestamp", "timestampMs"])
            assert rows["timestampMs"].to_pylist() == list(TIMES)
            found = rows["timestamp"].to_pylist()
            assert found[0] is None and found[4:] == [None] * 4
            assert [round(each.timestamp() * 1000) for each in found[1:4]] == list(TIMES[1:4])

            for time in TIMES:
                sent = await producer.send("one-by-one", b"v", timestamp=time)
                assert sent.timestamp == (None if time == -1 else time)
            delivery = await producer.enqueue_arrow("rows", rows)
            await delivery
            assert [each.timestamp for each in delivery.results()] == [None, *TIMES[1:]]
            assert written_times(cluster, "one-by-one") == written_times(cluster, "rows") == list(TIMES)


async def test_what_was_read_can_be_written_and_has_the_present_time_where_it_had_none() -> None:
    async with memory_cluster() as cluster:
        origin = cluster.create("orders").partitions[0]
        cluster.create("copy")
        origin.append(build_batch([Record(Offset(0), Millis(-1), None, b"v")], base_offset=0))
        async with Consumer(cluster.bootstrap) as consumer, Producer(cluster.bootstrap) as producer:
            consumer.assign([P0])
            (record,) = await consumer.poll()
            await producer.send("copy", record.value, timestamp=record.timestamp)
            await consumer.seek(P0, 0)
            await (await producer.enqueue_arrow("copy", await consumer.poll_arrow()))
            mixed = {"value": [b"a", b"b", b"c"], "timestampMs": [None, None, 7], "timestamp": [5, None, 6]}
            await (await producer.enqueue_arrow("copy", pa.table(mixed)))
            first, second, third, fourth, fifth = written_times(cluster, "copy")
            assert (third, fifth) == (5, 7), "timestampMs wins where it is not null"
            assert min(first, second, fourth) > 1_700_000_000_000


def written_times(cluster: MemoryCluster, topic: str) -> list[int]:
    """The times in the log of the one partition of a topic."""
    batches = cluster.topics[topic].partitions[0].batches
    return [record.timestamp for batch in batches for record in RecordBatch(batch).records()]


async def test_a_seek_continues_within_a_batch() -> None:
    async with memory_cluster() as cluster:
        fill(cluster.create("orders").partitions[0], 20, per_batch=10)
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            await consumer.seek(P0, 14)
            assert (await read(consumer, 6))["offset"].to_pylist() == list(range(14, 20))


async def test_what_cannot_be_asked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Consumer(cluster.bootstrap) as consumer:
            with pytest.raises(InvalidRequest, match="call assign or subscribe first"):
                await consumer.poll_arrow()
            consumer.assign([P0])
            with pytest.raises(InvalidRequest, match=r"unknown column 'values'.*timestampType"):
                await consumer.poll_arrow(columns=["values"])
            for wrong in ({"max_records": 0}, {"max_bytes": 0}):
                with pytest.raises(InvalidRequest):
                    await consumer.poll_arrow(**wrong)  # type: ignore[arg-type]
            monkeypatch.setitem(sys.modules, "pyarrow", None)
            with pytest.raises(InvalidRequest, match=r"pip install 'tidelog\[arrow\]'"):
                await consumer.poll_arrow()
            monkeypatch.undo()


class Exported:
    """An Arrow batch of which only the C data interface is known, as polars and DuckDB take it."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._batch.__arrow_c_array__(requested_schema)


def test_the_synchronous_client_returns_rows_for_any_arrow_library() -> None:
    with cluster_in_a_thread() as cluster, sync.Consumer(cluster.bootstrap) as consumer:
        fill(cluster.create("orders").partitions[0], 5, per_batch=5)
        consumer.assign([P0])
        rows = consumer.poll_arrow(timeout=10)
        rows.validate(full=True)
        again = pa.record_batch(Exported(rows))
        assert again.schema == table_schema()
        assert again.to_pylist() == rows.to_pylist()
        assert again["value"].to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
