"""A read-committed consumer: it skips aborted transactions and stops before open ones."""

from __future__ import annotations

import pytest

from tests.client.hidden_records import data, fill, marker
from tests.client.memory_cluster import memory_cluster
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.client.read_committed import IsolationLevel, hide_aborted
from tidelog.errors import InvalidConfig
from tidelog.record_exchange import AbortedStart
from tidelog.records import iter_batches
from tidelog.types import Isolation, Offset, PartitionIndex, ProducerId, TopicPartition

P0 = TopicPartition("orders", PartitionIndex(0))


async def read_to_end(consumer: Consumer) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    end = (await consumer.end_offsets([P0]))[P0]
    while await consumer.position(P0) < end:
        found += await consumer.poll(timeout=0.05)
    return found


async def test_a_read_committed_consumer_gets_only_committed_records() -> None:
    async with memory_cluster() as cluster:
        fill(cluster.create("orders").partitions[0])
        levels: dict[IsolationLevel, list[int]] = {
            "read_committed": [0, 2, 3, 7],
            Isolation.READ_UNCOMMITTED: [0, 1, 2, 3, 5, 7, 8, 9],
        }
        for isolation, offsets in levels.items():
            async with Consumer(cluster.bootstrap, isolation=isolation, max_wait_ms=20) as consumer:
                consumer.assign([P0])
                assert [record.offset for record in await read_to_end(consumer)] == offsets
                await consumer.seek(P0, 5)
                left = [record.offset for record in await read_to_end(consumer)]
                assert left == [offset for offset in offsets if offset >= 5]


async def test_latest_is_the_last_stable_offset_for_read_committed() -> None:
    async with memory_cluster() as cluster:
        fill(cluster.create("orders").partitions[0])
        async with Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
            consumer.assign([P0])
            assert await consumer.seek(P0, "latest") == 8
            assert await consumer.end_offsets([P0]) == {P0: 8}


def test_an_unknown_isolation_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match="read_committed"):
        Consumer("localhost:1", isolation="serializable")  # type: ignore[arg-type]


def test_hidden_batches_span_their_offsets_without_records() -> None:
    log = data(7, 3) + data(8, base=3) + marker(7, base=4) + data(7, 2, base=5)
    batches = list(iter_batches(log))
    shown = hide_aborted(batches, [AbortedStart(ProducerId(7), Offset(0))])
    assert [(batch.base_offset, batch.next_offset, batch.count) for batch in shown] == [
        (0, 3, 0),
        (3, 4, 1),
        (4, 5, 1),
        (5, 7, 2),
    ]
    for batch in shown:
        batch.ensure_valid()
    assert hide_aborted(batches, []) == tuple(batches)
