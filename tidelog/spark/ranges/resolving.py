"""The options of a query resolved to offset ranges: the partitions of its topics and where each begins and ends.

Runs once, on the driver, when the query is planned. Every task reads the topic ids and offsets that are fixed here.
"""

from __future__ import annotations

from typing import Final

from tidelog.client.offset_lookup import time_at
from tidelog.errors import OffsetOutOfRange
from tidelog.spark.options.offset_bounds import Bound
from tidelog.spark.options.query_options import BatchOptions, QueryOptions
from tidelog.spark.options.topic_selection import TopicSelection, ensure_present
from tidelog.spark.ranges.cluster_snapshot import ClusterSnapshot, selects
from tidelog.spark.ranges.planning import (
    OffsetRange,
    PartitionBounds,
    TaskRanges,
    is_outside,
    offset_range,
    require_all,
    tasks_of,
)
from tidelog.spark.ranges.read_admin import Doubts, ReadAdmin
from tidelog.spark.ranges.remote_history import with_sources
from tidelog.topic_snapshots import TopicSnapshot
from tidelog.types import EARLIEST, LATEST, NO_LEADER_EPOCH, Isolation, Offset, TopicPartition

OFFSETS_OF_ALL: Final = "-2 stands for the earliest offset, -1 for the latest"
TO_THE_END: Final = Bound(everywhere=LATEST)


async def resolve(options: BatchOptions) -> list[TaskRanges]:
    """What each task of the query reads, in the order of topics and partitions.

    Raises UnknownTopicOrPartition, OffsetOutOfRange, InvalidConfig, ResourceNotFound for a snapshot that has expired,
    and ConnectionFailed if no node answers.
    """
    query = options.query
    async with ReadAdmin(query.connection.bootstrap, **query.connection.of_client) as admin:
        if options.snapshot is not None:
            ranges = snapshot_ranges(await admin.describe_topic_snapshot(options.snapshot), query.selection)
        else:
            bounds = await query_bounds(admin, query, options.ending)
            ranges = [offset_range(one, fail_on_data_loss=query.fail_on_data_loss) for one in bounds]
        return await planned_tasks(admin, query, ranges)


async def planned_tasks(admin: ReadAdmin, query: QueryOptions, ranges: list[OffsetRange]) -> list[TaskRanges]:
    """The tasks of a query for these ranges, and from where each reads. Raises as `ReadAdmin.remote_histories`."""
    tasks = tasks_of(
        ranges,
        min_partitions=query.min_partitions,
        records_per_partition_max=query.records_per_partition_max,
    )
    if query.remote_storage is None:
        return tasks
    return with_sources(tasks, await admin.remote_histories(ranges, query.remote_storage))


def snapshot_ranges(snapshot: TopicSnapshot, selection: TopicSelection) -> list[OffsetRange]:
    """What a query reads of a snapshot: all of the selected partitions, in order. Raises UnknownTopicOrPartition if a
    topic or partition that the options name is not in it."""
    ensure_present(selection, {topic.name: len(topic.partitions) for topic in snapshot.topics})
    return [
        OffsetRange(key, topic.topic_id, part.end_epoch, part.start_offset, part.end_offset, part.left_out)
        for topic in snapshot.topics
        for part in topic.partitions
        if selects(selection, key := TopicPartition(topic.name, part.partition))
    ]


async def query_bounds(admin: ReadAdmin, query: QueryOptions, ending: Bound) -> list[PartitionBounds]:
    """Each partition that the query reads, with its bounds: in the order of topics and partitions. Raises
    UnknownTopicOrPartition, OffsetOutOfRange if no record is as young as the starting time, InvalidConfig."""
    snapshot = await admin.newest_snapshot(query.selection)
    partitions = snapshot.all_partitions(query.selection)

    async def look() -> tuple[list[PartitionBounds] | OffsetOutOfRange, Doubts]:
        found: list[PartitionBounds] | OffsetOutOfRange
        try:
            found = await _bounds(admin, query, ending, snapshot, partitions)
            doubtful = [one.topic_partition for one in found if is_outside(one)]
        except OffsetOutOfRange as error:
            found, doubtful = error, partitions
        # A deposed leader lacks records: out of range is believed only of a leader that another node names too.
        return found, {one: (snapshot.leadership(one)[0], NO_LEADER_EPOCH) for one in doubtful}

    bounds = await admin.until_confirmed(look)
    if isinstance(bounds, OffsetOutOfRange):
        raise bounds
    return bounds


async def _bounds(
    admin: ReadAdmin,
    query: QueryOptions,
    ending: Bound,
    snapshot: ClusterSnapshot,
    partitions: list[TopicPartition],
) -> list[PartitionBounds]:
    isolation = query.connection.isolation
    ends = await admin.ends_of_newest(snapshot, partitions, isolation)
    earliest = await admin.list_offsets(partitions, "earliest")
    latest = {one: end.end_offset for one, end in ends.items()}
    starts = await _offsets(admin, isolation, partitions, query.starting, "starting")
    late = (
        []
        if query.past_the_last_is_latest or query.starting.offsets
        else [one for one, start in starts.items() if start >= latest[one]]
    )
    if late:
        raise OffsetOutOfRange(
            f"no record at or after the starting time in {', '.join(map(str, late))}; use an earlier time, or set "
            '"startingOffsetsByTimestampStrategy" to "latest"'
        )
    stops = await _offsets(admin, isolation, partitions, ending, "ending")
    return [
        PartitionBounds(
            topic_partition=one,
            topic_id=snapshot.leadership(one)[0],
            last_epoch=ends[one].epoch,
            earliest=earliest[one],
            latest=latest[one],
            query_start=starts.get(one),
            query_end=stops.get(one),
        )
        for one in partitions
    ]


async def _offsets(
    admin: ReadAdmin, isolation: Isolation, partitions: list[TopicPartition], bound: Bound, side: str
) -> dict[TopicPartition, Offset]:
    """The offsets of one bound of the query; partitions that are read from their start or to their end are left out. A
    partition without a record at or after the given time has its end."""
    if bound.offsets is not None:
        require_all(bound.offsets, partitions, f"{side}Offsets", OFFSETS_OF_ALL)
        return {one: offset for one, offset in bound.offsets.items() if offset not in (EARLIEST, LATEST)}
    times = bound.times
    if bound.timestamp_ms is not None:
        times = dict.fromkeys(partitions, bound.timestamp_ms)
    if times is None:
        return {}
    require_all(
        times, partitions, f"{side}OffsetsByTimestamp", f"give each a time, or all of them one with {side}Timestamp"
    )
    found: dict[TopicPartition, Offset] = {}
    for moment in sorted(set(times.values())):
        partitions_at = [one for one in partitions if times[one] == moment]
        found |= await admin.list_offsets(partitions_at, time_at(moment), isolation=isolation)
    return found
