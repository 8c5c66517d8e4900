"""A task reads the records that its query was planned on, or fails: a log that was truncated in between contains
others.

Spark itself is not needed: the functions that it calls on the driver and in a task run against a cluster in memory.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from uuid import UUID

import pytest

from tests.client.memory_cluster import MemoryCluster, memory_cluster
from tests.spark.filled_partitions import fill
from tidelog.errors import LogTruncated
from tidelog.records import RecordBatch, build_batch
from tidelog.records.v2.record import Record
from tidelog.spark.options.query_options import parse_batch_options
from tidelog.spark.ranges.planning import OffsetRange, RemoteSource
from tidelog.spark.ranges.reading import RangeReader
from tidelog.spark.ranges.resolving import resolve, snapshot_ranges
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState
from tidelog.topic_snapshots import SnapshotPartition, SnapshotTopic, TopicSnapshot
from tidelog.types import EpochStart, LeaderEpoch, Millis, NodeId, Offset, PartitionIndex, TopicId

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


@pytest.mark.parametrize("longer", [True, False])
async def test_a_snapshot_after_an_unclean_election_gives_no_other_records(longer: bool) -> None:
    """Taken at 9, the last 3 in epoch 1, and read again and again. The next leader has 6 of these records, and then
    some of its own, so that its log ends behind that of the snapshot or before it; or it has not 6 either."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        topic = cluster.topics["orders"]
        partition = topic.partitions[0]
        fill(cluster, *"abcdef")
        cluster.lead("orders", 0, 1)
        fill(cluster, *"ghi")
        part = SnapshotPartition(PartitionIndex(0), Offset(0), Offset(9), LeaderEpoch(1), LeaderEpoch(1))
        taken = SnapshotTopic(TopicId(topic.topic_id), "orders", (part,))
        snapshot = TopicSnapshot("friday", UUID(int=1), Millis(1), Millis(2), Millis(3), (taken,))
        options = parse_batch_options({"tidelog.bootstrap.servers": cluster.bootstrap, "snapshot": "friday"})
        (wanted,) = snapshot_ranges(snapshot, options.query.selection)
        assert await task(cluster, wanted) == [letter.encode() for letter in "abcdefghi"]
        del partition.batches[6 if longer else 4 :]
        cluster.lead("orders", 0, 0)
        fill(cluster, *("mnopqr" if longer else "m"))
        for _ in range(2):
            with pytest.raises(LogTruncated, match=r"offsets 0 to 9"):
                await task(cluster, wanted)


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


def of_segment(wanted: OffsetRange, end: int, epoch: int) -> OffsetRange:
    """The range, read from a segment whose last record is of this epoch."""
    segment = RemoteSegment(
        RemoteSegmentId(UUID(int=1)),
        wanted.topic_id,
        PartitionIndex(0),
        Offset(0),
        Offset(end),
        (EpochStart(LeaderEpoch(0), Offset(0)), EpochStart(LeaderEpoch(epoch), Offset(end - 1))),
        Millis(1),
        100,
        LeaderEpoch(epoch),
        NodeId(0),
        Millis(1),
        RemoteSegmentState.COPY_SEGMENT_FINISHED,
    )
    return replace(wanted, remote=RemoteSource("file:///store", segment))


async def test_only_a_log_with_the_records_of_a_segment_says_which_of_its_transactions_were_aborted() -> None:
    """A transaction of a segment goes on behind it. Before the unclean election, the leader knows that it was aborted;
    the log after it has other records there, and no transaction: those of the segment would pass for committed."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        partition = cluster.topics["orders"].partitions[0]
        fill(cluster, *"abcd")
        cluster.lead("orders", 0, 1)
        fill(cluster, *"efghi")
        partition.aborted.append((7, 5))
        _, planned_range = await planned(cluster)
        wanted = of_segment(planned_range, 7, 1)

        async def ask() -> list[int]:
            async with RangeReader(cluster.bootstrap, fetch_bytes=1_000, patience_ms=3_000) as reader:
                return [each.first_offset for each in await reader.aborted_behind(wanted, Offset(7))]

        assert await ask() == [5]
        del partition.batches[4:]
        partition.aborted.clear()
        cluster.lead("orders", 0, 0)
        fill(cluster, *"mnopqr")
        with pytest.raises(LogTruncated, match=r"now at 7: the log was truncated after the query was planned"):
            await ask()


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
