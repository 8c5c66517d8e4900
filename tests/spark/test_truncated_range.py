"""A task reads the records that its query was planned on, or fails: a log that was truncated in between contains
others.

Spark itself is not needed: the functions that it calls on the driver and in a task run against a cluster in memory.
"""

from __future__ import annotations

from contextlib import aclosing

import pytest

from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tests.spark.filled_partitions import fill
from tidelog.errors import LogTruncated
from tidelog.records import RecordBatch, build_batch
from tidelog.records.v2.record import Record
from tidelog.spark.options.query_options import parse_batch_options
from tidelog.spark.ranges.planning import OffsetRange
from tidelog.spark.ranges.reading import RangeReader
from tidelog.spark.ranges.resolving import resolve
from tidelog.types import Millis, Offset

FAR_MS = 166_185_338_390_360
"""In the year 7236."""


async def planned(cluster: MemoryCluster) -> list[OffsetRange]:
    options = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders", "maxRecordsPerPartition": "6"}
    return [one for each in await resolve(parse_batch_options(options)) for one in each.ranges]


async def task(cluster: MemoryCluster, wanted: OffsetRange) -> list[bytes | None]:
    found: list[Record] = []

    def decode(batch: RecordBatch) -> bool:
        found.extend(batch.records())
        return False

    async with (
        RangeReader(cluster.bootstrap, fetch_bytes=1_000, patience_ms=3_000) as reader,
        aclosing(reader.read(wanted, decode)) as decoded,
    ):
        assert [due async for due in decoded] == []
    return [record.value for record in found if wanted.start <= record.offset < wanted.end]


async def test_a_task_after_an_unclean_election_fails_instead_of_reading_other_records() -> None:
    """Planned on 6 records of epoch 0 and 3 of epoch 1. The next leader has 12 of epoch 0; the last 6 differ."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        partition = cluster.topics["orders"].partitions[0]
        fill(cluster, *"abcdef")
        cluster.lead("orders", 0, 1)
        fill(cluster, *"ghi")
        first, second = await planned(cluster)
        assert (first.start, first.end, second.start, second.end) == (0, 4, 4, 9)
        assert await task(cluster, first) == [b"a", b"b", b"c", b"d"]
        del partition.batches[6:]
        partition.leader_epoch = 0
        fill(cluster, *"mnopqr")
        partition.leader_epoch = 1
        cluster.lead("orders", 0, 0)
        with pytest.raises(LogTruncated, match=r"reading offsets 4 to 9.*truncated after the query was planned"):
            await task(cluster, second)


async def test_a_task_fails_if_its_range_was_truncated_and_reads_below_the_truncation() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        fill(cluster, *"abcdefghi")
        first, second = await planned(cluster)
        del cluster.topics["orders"].partitions[0].batches[6:]
        cluster.lead("orders", 0, 1)
        fill(cluster, *"xyz")
        assert await task(cluster, first) == [b"a", b"b", b"c", b"d"]
        with pytest.raises(LogTruncated):
            await task(cluster, second)


async def test_a_new_leader_without_loss_is_read_although_the_planned_one_wrote_nothing() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        fill(cluster, *"abcdef")
        cluster.lead("orders", 0, 1)  # writes nothing
        (only,) = await planned(cluster)
        cluster.lead("orders", 0, 0)
        fill(cluster, *"xyz")
        assert await task(cluster, only) == [letter.encode() for letter in "abcdef"]


async def test_a_starting_time_is_exact_to_the_millisecond() -> None:
    """Far in the future, as producers write times in another unit. Before, the batch began a millisecond early."""
    async with memory_cluster(1) as cluster:
        cluster.create("orders")
        for time in (FAR_MS - 1, FAR_MS):
            cluster.topics["orders"].partitions[0].append(build_batch([Record(Offset(0), Millis(time), None, b"x")]))
        options = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": "orders"}
        (only,) = await resolve(parse_batch_options({**options, "startingTimestamp": str(FAR_MS)}))
        assert [(one.start, one.end) for one in only.ranges] == [(1, 2)]
