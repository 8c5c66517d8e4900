"""A Spark task reads through the consumer's fetch core: corrupt batches, offset gaps, missing answers and memory.

Spark itself is not needed: the source's reader runs as in a task, against a cluster in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread, until
from tests.record_values import fetched
from tests.spark.reading_tasks import fill, offset_range, task_offsets
from tidelog.client import fetch_core
from tidelog.errors import CorruptRecord, OffsetOutOfRange, RequestTimedOut
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchAnswer
from tidelog.records import EndTxnMarker, RecordBatch, RecordBatchBuilder, build_batch, control_batch
from tidelog.records.v2.record import Record
from tidelog.spark.options.query_options import parse_batch_options
from tidelog.spark.ranges import range_batches
from tidelog.spark.ranges.batch_reader import TidelogReader
from tidelog.spark.ranges.planning import TaskRanges
from tidelog.spark.ranges.reading import RangeReader
from tidelog.spark.ranges.resolving import resolve
from tidelog.types import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    Millis,
    Offset,
)


def value_flipped(records: bytes) -> bytes:
    """Return the batch with another last byte in the last value: the checksum is wrong."""
    return records[:-2] + bytes((records[-2] ^ 1,)) + records[-1:]


def size_negative(records: bytes) -> bytes:
    """Return the batch with an impossible header."""
    return records[:8] + b"\xff" * 4 + records[12:]


def test_driver_and_tasks_have_the_client_id_of_the_query() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 1)
        named = {"tidelog.client.id": "night-load"}
        asked = parse_batch_options({"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders", **named})
        asyncio.run(resolve(asked))
        assert task_offsets(cluster, 0, 3, **named) == [0, 1, 2]
        assert set.union(*(node.client_ids for node in cluster.nodes)) == {"night-load"}


def transactions(cluster: MemoryCluster) -> None:
    """Offsets 0 and 5 outside of transactions, 1 and 2 aborted, 3 a marker, 4 committed, 6 a marker, 7 and 8 open."""
    partition = cluster.topics["orders"].partitions[0]

    def records(producer: int, count: int, *, txn: bool = True) -> bytes:
        builder = RecordBatchBuilder(producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=txn)
        for _ in range(count):
            builder.append(key=None, value=b"v", timestamp=partition.end)
        return builder.build()

    def marker(producer: int, *, committed: bool) -> bytes:
        end = EndTxnMarker(committed=committed, coordinator_epoch=0)
        return control_batch(end, timestamp=1, producer_id=producer, producer_epoch=0, base_offset=0)

    partition.append(records(1, 1, txn=False))
    partition.append(records(2, 2))
    partition.append(marker(2, committed=False))
    partition.append(records(3, 1))
    partition.append(records(1, 1, txn=False))
    partition.append(marker(3, committed=True))
    partition.append(records(4, 1))
    partition.append(records(1, 1, txn=False))
    partition.aborted, partition.open_since = [(2, 1)], 7


def test_a_query_reads_committed_transactions_up_to_the_first_one_that_is_open() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        transactions(cluster)

        def planned(**options: str) -> list[tuple[int, int]]:
            asked = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders", **options}
            (task,) = asyncio.run(resolve(parse_batch_options(asked)))
            return [(one.start, one.end) for one in task.ranges]

        assert planned() == [(0, 7)]
        assert task_offsets(cluster, 0, 7) == [0, 4, 5]
        assert task_offsets(cluster, 2, 5) == [4], "the rest of an aborted transaction"
        assert planned(endingTimestamp="7") == [(0, 7)], "a time behind the open transaction's start is its start"
        assert planned(startingTimestamp="3") == [(4, 7)]
        with pytest.raises(OffsetOutOfRange, match="who-holds-lso"):
            planned(endingOffsets='{"orders": {"0": 8}}')
        everything = {"kafka.isolation.level": "read_uncommitted"}
        assert planned(**everything) == [(0, 9)]
        assert task_offsets(cluster, 0, 9, **everything) == [0, 1, 2, 4, 5, 7, 8]


def test_a_pattern_matches_no_internal_topic() -> None:
    with cluster_in_a_thread() as cluster:
        for name in ("orders", OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            cluster.create(name)
            cluster.topics[name].partitions[0].append(build_batch([Record(Offset(0), Millis(1), None, b"x")]))
        asked = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribePattern": ".*"}
        (task,) = asyncio.run(resolve(parse_batch_options(asked)))
        assert [one.topic_partition.topic for one in task.ranges] == ["orders"]


def test_a_task_of_many_short_ranges_asks_for_their_leaders_once() -> None:
    """Each request for leaders after the first one waits for some 100 ms: a micro-batch of a few records would too."""
    with cluster_in_a_thread() as cluster:
        for topic in ("orders", "returns"):
            cluster.create(topic, 3)
            for index, partition in enumerate(cluster.topics[topic].partitions):
                for number in range(index + 1):
                    value = f"{topic} {index} {number}".encode()
                    partition.append(build_batch([Record(Offset(0), Millis(1), None, value)]))
        ranges = [
            offset_range(cluster, topic, index, 0, index + 1) for topic in ("orders", "returns") for index in range(3)
        ]
        options = parse_batch_options({"tidelog.bootstrap.servers": cluster.bootstrap, "subscribePattern": ".*"})
        read = TidelogReader(options, ("topic", "partition", "offset", "value")).read(TaskRanges(tuple(ranges)))
        rows = [tuple(row.values()) for batch in read for row in batch.to_pylist()]
        expected = [
            (topic, index, number, f"{topic} {index} {number}".encode())
            for topic in ("orders", "returns")
            for index in range(3)
            for number in range(index + 1)
        ]
        assert rows == expected
        assert sum(len(node.metadata_requests) for node in cluster.nodes) == 1


def test_the_short_ranges_of_a_task_are_fetched_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch of a few records would else take two round trips for each partition."""
    monkeypatch.setattr(range_batches, "RangeReader", partial(RangeReader, patience_ms=5_000))
    with cluster_in_a_thread() as cluster:
        cluster.create("orders", 4)
        for index, partition in enumerate(cluster.topics["orders"].partitions):
            partition.append(build_batch([Record(Offset(0), Millis(1), None, b"%d" % index)]))
        asked = set[int]()
        for node in cluster.nodes:

            async def serve_all(stream: Any, request: Any, entry: Any, serve: Any = node._fetch) -> None:
                asked.add(entry.partition)
                async with asyncio.timeout(5):
                    await until(lambda: asked == {0, 1, 2, 3})
                await serve(stream, request, entry)

            node._fetch = serve_all  # type: ignore[method-assign]
        ranges = [offset_range(cluster, "orders", index, 0, 1) for index in range(4)]
        options = parse_batch_options({"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"})
        read = TidelogReader(options, ("value",)).read(TaskRanges(tuple(ranges)))
        assert [row["value"] for batch in read for row in batch.to_pylist()] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("damage", [value_flipped, size_negative])
def test_a_corrupt_batch_is_reported_to_its_node_and_read_again(damage: Callable[[bytes], bytes]) -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 3)
        seen: list[tuple[int, bool]] = []

        def corrupt_until_reported(entry: Any) -> object:
            seen.append((entry.fetch_offset, entry.refused))
            return damage if entry.fetch_offset == 3 and not entry.refused else None

        cluster.nodes[0].on_fetch = corrupt_until_reported
        assert task_offsets(cluster, 0, 9, fetchBytes="1") == list(range(9)), "no row twice, none missing"
        assert [fetch for fetch in seen if fetch[1]] == [(3, True)]


def test_the_batches_before_a_corrupt_one_are_not_read_again() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 3)
        seen: list[tuple[int, bool]] = []

        def last_one_corrupt(entry: Any) -> object:
            seen.append((entry.fetch_offset, entry.refused))
            return value_flipped if entry.fetch_offset == 0 else None

        cluster.nodes[0].on_fetch = last_one_corrupt
        assert task_offsets(cluster, 0, 9) == list(range(9))
        assert seen == [(0, False), (6, True)]


def test_a_batch_that_stays_corrupt_fails_the_task_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_core, "REFUSED_MS", 50)
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 3)
        cluster.nodes[0].on_fetch = lambda entry: value_flipped if entry.fetch_offset == 3 else None
        with pytest.raises(
            CorruptRecord, match=r"orders-0, reading offsets 0 to 9, now at 3: .*read from node 0.*startingOffsets 6"
        ):
            task_offsets(cluster, 0, 9, fetchBytes="1")


def test_an_offset_gap_at_the_end_of_the_range_is_not_a_missing_record() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 3)
        partition = cluster.topics["orders"].partitions[0]
        read = partition.read
        partition.read = lambda offset, *rest: b"" if offset >= 6 else read(offset, *rest)  # type: ignore[method-assign]
        assert task_offsets(cluster, 1, 9, fetchBytes="1") == [1, 2, 3, 4, 5]


def test_a_silent_partition_fails_the_task_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_batches, "RangeReader", partial(RangeReader, patience_ms=300))
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 1)
        cluster.lead("orders", 0, -1)
        with pytest.raises(RequestTimedOut, match=r"orders-0: no batch from offset 0 on .*300 ms.*has no leader"):
            task_offsets(cluster, 0, 3)


def test_at_most_two_fetches_are_in_memory_and_none_exceeds_the_range() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 40, records=1, size=1_000)
        first, last = (RecordBatch(cluster.topics["orders"].partitions[0].batches[at]) for at in (0, -1))
        assert first.size == last.size
        assert task_offsets(cluster, 0, 30, fetchBytes=str(4 * first.size)) == list(range(30))
        fetches = cluster.nodes[0].fetches
        assert {fetch.max_bytes for fetch in fetches} == {4 * first.size}
        assert [fetch.fetch_offset for fetch in fetches] == list(range(0, 30, 4)), "each once, one after the other"


def test_the_replica_in_the_executors_rack_is_read() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 3)
        leader, follower = cluster.nodes
        serve, racks, nearby = leader._fetch, list[str](), list[int]()

        async def name_the_follower(
            stream: Any, request: data_pb2.FetchRequest, entry: data_pb2.FetchPartition
        ) -> None:
            racks.append(request.rack)
            answer = fetched(
                correlation_id=entry.fetch_id,
                topic_id=entry.topic_id,
                partition=entry.partition,
                preferred_read_replica=follower.node_id,
            )
            await stream.send(FetchAnswer(partitions=[answer]))

        async def serve_nearby(stream: Any, request: data_pb2.FetchRequest, entry: Any) -> None:
            nearby.append(entry.fetch_offset)
            await serve(stream, request, entry)

        leader._fetch, follower._fetch = name_the_follower, serve_nearby  # type: ignore[method-assign]
        rack = {"kafka.client.rack": "b", "fetchBytes": "1"}
        assert task_offsets(cluster, 0, 9, **rack) == list(range(9))
        assert (racks, nearby) == (["b"], [0, 3, 6])
