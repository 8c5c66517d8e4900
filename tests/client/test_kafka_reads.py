"""What programs of Kafka's consumers look for: the ends of logs, offsets for times, seeks of many partitions."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.client.group_story import fill, place
from tests.client.memory_cluster import memory_cluster
from tests.client.numbered_records import P0
from tidelog.client.consumer import Consumer
from tidelog.client.offset_lookup import OffsetAndTimestamp
from tidelog.errors import InvalidRequest, InvalidTimestamp
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Millis, Offset, TimestampType

P1 = place("orders", 1)


async def test_the_ends_of_logs_are_told() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, 5)
        cluster.topics["orders"].partitions[1].start = 3
        async with Consumer(cluster.bootstrap) as consumer:
            assert await consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 3}
            assert await consumer.end_offsets([P0, P1]) == {P0: 5, P1: 3}


async def test_a_time_is_the_first_record_since() -> None:
    """The record of offset n has the time n seconds."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, 5)
        async with Consumer(cluster.bootstrap) as consumer:
            found = await consumer.offsets_for_times({("orders", 0): 2_500, P1: datetime(1970, 1, 1, tzinfo=UTC)})
            assert found == {P0: OffsetAndTimestamp(Offset(3), Millis(3_000), LeaderEpoch(-1)), P1: None}
            assert await consumer.offsets_for_times({P0: datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)}) == {P0: None}


WRONG: list[tuple[Any, type[Exception], str]] = [
    ([("orders", 0)], TypeError, "times must be a mapping of partitions to times, not list"),
    ({"orders": 0}, TypeError, "a partition must be a TopicPartition or a (topic, index) pair, not str"),
    ({("orders", 0): 1_764_374_400}, InvalidTimestamp, "can only be seconds since 1970: use milliseconds"),
    ({("orders", 0): 1.5}, TypeError, "a time in milliseconds must be a whole number (int), not float"),
    ({("orders", 0): -1}, InvalidRequest, "a time in milliseconds=-1"),
    ({("orders", 0): datetime(2026, 1, 1)}, InvalidRequest, "has no time zone"),  # noqa: DTZ001
]


@pytest.mark.parametrize(("times", "error", "says"), WRONG, ids=lambda each: str(each)[:30])
async def test_what_is_no_time_is_refused(times: Any, error: type[Exception], says: str) -> None:
    async with memory_cluster() as cluster, Consumer(cluster.bootstrap) as consumer:
        with pytest.raises(error, match=re.escape(says)):
            await consumer.offsets_for_times(times)


async def test_many_partitions_are_sought_at_once() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        for index in (0, 1):
            fill(cluster, "orders", index, 4)
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0, P1])
            await consumer.seek_to_end()
            assert [await consumer.position(each) for each in (P0, P1)] == [4, 4]
            await consumer.seek_to_beginning([P1])
            assert [await consumer.position(each) for each in (P0, P1)] == [4, 0]
            (record,) = await consumer.poll(1, timeout_ms=10_000)
            assert (record.partition, record.offset) == (1, 0)
            with pytest.raises(InvalidRequest, match="orders-7 is not assigned"):
                await consumer.seek_to_end([("orders", 7)])
            with pytest.raises(TypeError, match="this is one partition: write"):
                await consumer.seek_to_end(("orders", 0))  # type: ignore[arg-type]


async def test_a_time_limit_in_milliseconds_is_one() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            assert await consumer.poll(timeout=3_600, timeout_ms=10) == []
            for wrong, error in ((-1, InvalidRequest), (0.5, TypeError)):
                with pytest.raises(error, match="timeout_ms"):
                    await consumer.poll(timeout_ms=wrong)  # type: ignore[arg-type]


async def test_a_record_names_the_source_of_its_time_and_the_epoch_of_its_leader() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, "orders", 0, 1)
        partition = cluster.topics["orders"].partitions[0]
        partition.leader_epoch = 3
        record = Record(Offset(0), Millis(5_000), None, b"v")
        partition.append(
            build_batch([record], timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=9_000, base_offset=0)
        )
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            found = await consumer.poll(1, timeout_ms=10_000) + await consumer.poll(1, timeout_ms=10_000)
        assert [(each.timestamp, each.timestamp_type, each.leader_epoch) for each in found] == [
            (0, TimestampType.CREATE_TIME, 0),
            (9_000, TimestampType.LOG_APPEND_TIME, 3),
        ]


async def test_an_epoch_that_cannot_be_is_not_given_to_the_program() -> None:
    """No checksum covers it: a seek with it would find the log truncated."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        partition = cluster.topics["orders"].partitions[0]
        partition.leader_epoch = 9
        fill(cluster, "orders", 0, 1)
        partition.leader_epoch = 3
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            (record,) = await consumer.poll(timeout_ms=10_000)
            assert record.leader_epoch == NO_LEADER_EPOCH
