"""The consumer over real connections: all committed records, in order, once; otherwise an error with the cause."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.client.memory_cluster import CLOCK, SILENCE, memory_cluster, start, until
from tests.client.numbered_records import P0, fill, numbered, read
from tidelog.client import fetch_core
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.errors import (
    CorruptRecord,
    InconsistentTopicId,
    InvalidConfig,
    InvalidRequest,
    LogTruncated,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Codec, EpochEnd, LeaderEpoch, Millis, Offset, PartitionIndex


@pytest.mark.parametrize("codec", list(Codec))
async def test_everything_is_read_in_order_by_polling_and_by_iterating(codec: Codec) -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        fill(cluster, numbered(100), codec=codec)
        async with Consumer(cluster.bootstrap, fetch_bytes=500) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            records = await read(consumer, 100)
            assert [record.value for record in records] == numbered(100)
            assert [record.offset for record in records] == list(range(100))
            seventh = ConsumerRecord("orders", PartitionIndex(0), Offset(7), Millis(7000), None, b"7")
            assert records[7] == seventh._replace(leader_epoch=LeaderEpoch(0))
            assert await consumer.poll(timeout=0.05) == []
            await consumer.seek(P0, 90)
            again = []
            async for record in consumer:
                again.append(record.offset)
                if len(again) == 5:
                    break
            assert again == [90, 91, 92, 93, 94]
            assert await consumer.position(P0) == 95, "leaving the loop loses nothing"
            assert (await consumer.poll(1))[0].offset == 95
            assert await consumer.position(P0) == 96


async def test_new_records_are_read_as_they_come() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("orders", 0)], start="latest")
            assert await consumer.position(P0) == 0
            for number in range(5):
                fill(cluster, [str(number).encode()])
                (record,) = await consumer.poll(timeout=5)
                assert record.value == str(number).encode()
            assert consumer.high_watermark(P0) == 5


async def test_positions_are_found_by_place_and_time() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(10))
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            assert await consumer.seek(P0, "latest") == 10
            assert await consumer.seek(P0, "earliest") == 0
            assert await consumer.seek(P0, datetime.fromtimestamp(4.5, UTC)) == 5
            assert await consumer.seek(P0, datetime.fromtimestamp(99, UTC)) == 10, "no record is that new: the end"
            assert await consumer.end_offsets([P0]) == {P0: 10}
            assert await consumer.seek(P0, 4) == 4
            assert [record.offset for record in await read(consumer, 6)] == [4, 5, 6, 7, 8, 9]
            for nowhere in (-1, "middle", datetime(2026, 1, 1)):  # noqa: DTZ001
                with pytest.raises(InvalidRequest):
                    await consumer.seek(P0, nowhere)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="not assigned"):
                await consumer.seek(("orders", 1), 0)


async def test_a_moved_leader_is_followed() -> None:
    async with memory_cluster(3) as cluster:
        cluster.create("orders")
        fill(cluster, numbered(10))
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            assert len(await read(consumer, 10)) == 10
            for node in (1, 2, 0):
                cluster.lead("orders", 0, node)
                fill(cluster, [b"more"])
                (record,) = await read(consumer, 1)
                assert record.value == b"more"
            assert await consumer.position(P0) == 13


async def test_a_node_that_restarts_is_read_again() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        fill(cluster, numbered(5))
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            await read(consumer, 5)
            await cluster.nodes[0].stop()
            waiting = start(read(consumer, 1))
            await CLOCK.sleep_ms(200)
            assert not waiting.done()
            await cluster.nodes[0].start()
            fill(cluster, [b"back"])
            assert (await waiting)[0].value == b"back"


async def test_a_broken_stream_is_opened_again() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(9))
        wishes = iter([None, "break", None, "break"])
        cluster.nodes[0].on_fetch = lambda entry: next(wishes, None)
        async with Consumer(cluster.bootstrap, fetch_bytes=1) as consumer:
            consumer.assign([P0])
            assert [record.offset for record in await read(consumer, 9)] == list(range(9))


async def test_a_silent_node_delays_only_its_own_partitions() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        fill(cluster, numbered(3))
        cluster.nodes[1].on_fetch = lambda entry: SILENCE
        async with Consumer(cluster.bootstrap, max_wait_ms=100) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            assert len(await read(consumer, 3)) == 3
            await until(lambda: cluster.nodes[1].fetches)
            cluster.nodes[1].on_fetch = lambda entry: None
            cluster.lead("orders", 1, 0)
            cluster.topics["orders"].partitions[1].append(cluster.topics["orders"].partitions[0].batches[0])
            assert len(await read(consumer, 3)) == 3


async def test_out_of_range_is_raised_and_other_partitions_are_still_read() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 2)
        fill(cluster, numbered(3))
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            await consumer.seek(("orders", 1), 77)
            raised: list[OffsetOutOfRange] = []
            found: list[ConsumerRecord] = []
            while len(found) < 3 or not raised:
                try:
                    found += await consumer.poll()
                except OffsetOutOfRange as error:
                    raised.append(error)
            assert "orders-1: offset 77 is outside 0..0" in raised[0].message
            assert [record.offset for record in found] == [0, 1, 2]
            with pytest.raises(OffsetOutOfRange):
                await consumer.poll()
            await consumer.seek(("orders", 1), "earliest")
            assert await consumer.poll(timeout=0.05) == []


@pytest.mark.parametrize(("jump", "expected"), [("earliest", 6), ("latest", 12)])
async def test_a_position_out_of_range_moves_only_if_configured(jump: Any, expected: int) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(12))
        partition = cluster.topics["orders"].partitions[0]
        partition.start, partition.batches = 6, partition.batches[2:]
        async with Consumer(cluster.bootstrap, on_out_of_range=jump) as consumer:
            consumer.assign([P0])
            await consumer.seek(P0, 2)
            waiting = start(consumer.poll(1, timeout=20))
            await until(lambda: consumer._cursor(P0).position in (expected, expected + 1))
            fill(cluster, [b"new"])
            (record,) = await waiting
            assert record.offset == expected


async def test_a_log_truncated_below_the_position_raises_an_error() -> None:
    """KIP-320: an unclean election removed records that had been read."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        fill(cluster, numbered(9))
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            await read(consumer, 9)
            del cluster.topics["orders"].partitions[0].batches[2:]
            cluster.lead("orders", 0, 1)
            fill(cluster, numbered(6))
            with pytest.raises(LogTruncated, match="agrees only below offset 6") as caught:
                await read(consumer, 1)
            assert caught.value.diverging is not None
            await consumer.seek(P0, caught.value.diverging.end_offset, leader_epoch=0)
            assert [record.offset for record in await read(consumer, 6)] == list(range(6, 12))


@pytest.mark.parametrize("asked_on", ["a new leader", "an open stream"])
async def test_records_replaced_by_others_raise_an_error(asked_on: str) -> None:
    """An unclean election: the reader has 6 records of epoch 0 and 3 of epoch 1; the new leader has 12 of epoch 0."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        partition = cluster.topics["orders"].partitions[0]
        fill(cluster, numbered(6))
        cluster.lead("orders", 0, 1)
        fill(cluster, numbered(3))
        async with Consumer(cluster.bootstrap, max_wait_ms=100) as consumer:
            consumer.assign([P0])
            await read(consumer, 9)
            del partition.batches[2:]
            partition.leader_epoch = 0
            fill(cluster, numbered(6))
            partition.leader_epoch = 1
            if asked_on == "a new leader":
                cluster.lead("orders", 0, 0)
            with pytest.raises(LogTruncated, match="agrees only below offset 6") as caught:
                await read(consumer, 1)
            assert caught.value.diverging == EpochEnd(LeaderEpoch(0), Offset(6))
            await consumer.seek(P0, 6, leader_epoch=0)
            assert [record.offset for record in await read(consumer, 6)] == list(range(6, 12))


async def test_a_topic_created_again_raises_inconsistent_topic_id() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(3))
        async with Consumer(cluster.bootstrap, max_wait_ms=50) as consumer:
            consumer.assign([P0])
            await read(consumer, 3)
            cluster.delete("orders")
            cluster.create("orders")
            fill(cluster, numbered(1))
            with pytest.raises(InconsistentTopicId, match="deleted and created again"):
                await read(consumer, 1)
            consumer.assign([P0])
            assert (await read(consumer, 1))[0].offset == 0


@pytest.mark.usefixtures("no_lag")
async def test_an_unknown_partition_raises_an_error() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("orders", 5)])
            with pytest.raises(UnknownTopicOrPartition, match="partitions 0 to 0; partition 5 does not exist: use an"):
                await read(consumer, 1)
            with pytest.raises(UnknownTopicOrPartition, match="nothing"):
                await consumer.partitions("nothing")


def flipped(records: bytes) -> bytes:
    """Return the batch with another last byte in the last value."""
    return records[:-2] + bytes((records[-2] ^ 1,)) + records[-1:]


@pytest.mark.usefixtures("no_lag")
async def test_a_corrupt_batch_is_reported_and_can_be_skipped() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(6))
        fetches = 0

        def second_is_damaged(entry: Any) -> object:
            nonlocal fetches
            fetches += 1
            return flipped if entry.fetch_offset == 3 else None

        cluster.nodes[0].on_fetch = second_is_damaged
        async with Consumer(cluster.bootstrap, fetch_bytes=1) as consumer:
            consumer.assign([P0])
            assert len(await read(consumer, 3)) == 3
            with pytest.raises(CorruptRecord, match=r"orders-0, read from node 0 .* Seek to the offset after 5"):
                await read(consumer, 1)
            await consumer.seek(P0, 6)
            fill(cluster, [b"sound"])
            assert (await read(consumer, 1))[0].value == b"sound"
        async with Consumer(cluster.bootstrap, fetch_bytes=1, check_crcs=False) as careless:
            careless.assign([P0])
            assert len(await read(careless, 7)) == 7


async def test_after_corrupt_bytes_the_consumer_continues_with_a_new_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_core, "REFUSED_MS", 300)
    monkeypatch.setattr(fetch_core, "LOOKUP_MS", 100)
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        fill(cluster, numbered(6))
        cluster.nodes[0].on_fetch = lambda entry: flipped if entry.fetch_offset == 3 else None
        async with Consumer(cluster.bootstrap, fetch_bytes=1) as consumer:
            consumer.assign([P0])
            assert len(await read(consumer, 3)) == 3
            for _ in range(2):
                with pytest.raises(CorruptRecord, match="read from node 0"):
                    await read(consumer, 1)
            cluster.lead("orders", 0, 1)
            found: list[ConsumerRecord] = []
            while not found:
                with suppress(CorruptRecord):
                    found = await read(consumer, 3)
            assert [record.offset for record in found] == [3, 4, 5]


async def test_a_corrupt_batch_is_fetched_again_and_reported_to_the_node() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(6))
        reported: list[tuple[int, bool]] = []

        def damaged_until_reported(entry: Any) -> object:
            reported.append((entry.fetch_offset, entry.refused))
            return flipped if entry.fetch_offset == 3 and not entry.refused else None

        cluster.nodes[0].on_fetch = damaged_until_reported
        async with Consumer(cluster.bootstrap, fetch_bytes=1) as consumer:
            consumer.assign([P0])
            assert [record.offset for record in await read(consumer, 6)] == [0, 1, 2, 3, 4, 5]
            fill(cluster, [b"later"])
            assert (await read(consumer, 1))[0].value == b"later"
        assert [entry for entry in reported if entry[1]] == [(3, True)], "only the corrupt batch is rejected"


@pytest.mark.usefixtures("no_lag")
async def test_an_answer_without_a_whole_batch_is_rejected() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(3))
        cluster.nodes[0].on_fetch = lambda entry: lambda records: records[:20]
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            with pytest.raises(CorruptRecord, match="does not contain a whole batch"):
                await read(consumer, 1)


async def test_control_records_are_skipped() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(2))
        marker = Record(Offset(0), Millis(0), b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")
        cluster.topics["orders"].partitions[0].append(
            build_batch([marker], is_control=True, is_transactional=True, producer_id=5, producer_epoch=0)
        )
        fill(cluster, [b"after"])
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            assert [record.offset for record in await read(consumer, 3)] == [0, 1, 3]
            await consumer.seek(P0, 2)
            assert [record.offset for record in await read(consumer, 1)] == [3]


async def test_one_budget_holds_for_all_partitions() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 8)
        fill(cluster, [b"x" * 1000] * 60, per_batch=1)
        one = cluster.topics["orders"].partitions[0].batches
        for partition in cluster.topics["orders"].partitions[1:]:
            for batch in one:
                partition.append(batch)
        async with Consumer(cluster.bootstrap, buffer_bytes=40_000, max_wait_ms=50) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            cursors = consumer._core.cursors.values()
            await until(lambda: sum(cursor.buffered for cursor in cursors) > 30_000)  # records are prefetched
            found = 0
            while found < 480:
                assert sum(cursor.buffered + cursor.reserved for cursor in cursors) <= 40_000 + 8 * 1100
                found += len(await consumer.poll(7))


async def test_a_cancelled_poll_loses_nothing() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            waiting = start(consumer.poll(timeout=20))
            await CLOCK.sleep_ms(50)
            waiting.cancel()
            fill(cluster, numbered(3))
            assert [record.offset for record in await read(consumer, 3)] == [0, 1, 2]
            with pytest.raises(asyncio.CancelledError):
                await waiting


async def test_without_an_assignment_or_after_closing_there_is_nothing_to_read() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        consumer = Consumer(cluster.bootstrap)
        with pytest.raises(InvalidRequest, match="not started"):
            consumer.assign([P0])
        async with consumer:
            with pytest.raises(InvalidRequest, match="assign"):
                await consumer.poll()
            consumer.assign([P0])
            waiting = start(consumer.poll(timeout=20))
            await CLOCK.sleep_ms(50)
        with pytest.raises(InvalidRequest, match="closed"):
            await waiting
    with pytest.raises(InvalidConfig):
        Consumer("127.0.0.1:1", on_out_of_range="forget")  # type: ignore[arg-type]
