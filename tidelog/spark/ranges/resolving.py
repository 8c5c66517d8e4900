"""The options of a query resolved to offset ranges: the partitions of its topics and where each begins and ends.

Runs once, on the driver, when the query is planned. Every task reads the topic ids and offsets that are fixed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.offset_lookup import time_at
from tidelog.errors import OffsetOutOfRange
from tidelog.spark.options.batch_options import BatchOptions
from tidelog.spark.options.connection_options import ConnectionOptions
from tidelog.spark.options.offset_bounds import Bound
from tidelog.spark.ranges.cluster_snapshot import ClusterSnapshot
from tidelog.spark.ranges.planning import (
    PartitionBounds,
    TaskRanges,
    is_outside,
    offset_range,
    require_all,
    tasks_of,
)
from tidelog.spark.ranges.read_admin import Leaders, ReadAdmin
from tidelog.types import EARLIEST, LATEST, NO_LEADER_EPOCH, Isolation, Offset, TopicPartition

OFFSETS_OF_ALL: Final = "-2 stands for the earliest offset, -1 for the latest"


async def resolve(options: BatchOptions) -> list[TaskRanges]:
    """What each task of the query reads, in the order of topics and partitions.

    Raises UnknownTopicOrPartition, OffsetOutOfRange, InvalidConfig, and ConnectionFailed if no node answers.
    """
    query = options.query
    async with admin_of(query.connection) as admin:
        snapshot = await admin.newest_snapshot(query.selection)
        partitions = snapshot.all_partitions(query.selection)
        confirmed: Leaders = {}
        while True:
            bounds, failure = list[PartitionBounds](), None
            try:
                bounds = await _bounds(admin, options, snapshot, partitions)
                doubtful = [one.topic_partition for one in bounds if is_outside(one)]
            except OffsetOutOfRange as error:  # no record is as young as the starting time
                failure, doubtful = error, partitions
            # A deposed leader lacks records: out of range is believed only of a leader that another node names too.
            leaders = await admin.confirmed_leaders(
                {one: (snapshot.leadership(one)[0], NO_LEADER_EPOCH) for one in doubtful}
            )
            if not leaders or leaders == confirmed:
                break
            confirmed = leaders
        if failure is not None:
            raise failure
    return tasks_of(
        [offset_range(one, fail_on_data_loss=query.fail_on_data_loss) for one in bounds],
        min_partitions=query.min_partitions,
        records_per_partition_max=query.records_per_partition_max,
    )


async def _bounds(
    admin: ReadAdmin, options: BatchOptions, snapshot: ClusterSnapshot, partitions: list[TopicPartition]
) -> list[PartitionBounds]:
    query, isolation = options.query, options.query.connection.isolation
    end_positions = await admin.ends_of_newest(snapshot, partitions, isolation)
    earliest = await admin.list_offsets(partitions, "earliest")
    latest = {one: position.end_offset for one, position in end_positions.items()}
    lookup = OffsetLookup(admin, isolation, partitions, latest)
    starts = await bound_offsets(
        lookup, query.starting, "starting", past_the_last_is_latest=query.past_the_last_is_latest
    )
    ends = await bound_offsets(lookup, options.ending, "ending", past_the_last_is_latest=True)
    return [
        PartitionBounds(
            topic_partition=one,
            topic_id=snapshot.leadership(one)[0],
            last_epoch=end_positions[one].epoch,
            earliest=earliest[one],
            latest=latest[one],
            query_start=starts.get(one),
            query_end=ends.get(one),
        )
        for one in partitions
    ]


def admin_of(connection: ConnectionOptions) -> ReadAdmin:
    """The client that asks the cluster, for use inside `async with`."""
    return ReadAdmin(connection.bootstrap, **connection.of_client)


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """Whom to ask for the offset of a time, in which partitions; and their ends."""

    admin: Admin
    isolation: Isolation
    partitions: list[TopicPartition]
    latest: dict[TopicPartition, Offset]


async def bound_offsets(
    lookup: OffsetLookup, bound: Bound, side: str, *, past_the_last_is_latest: bool
) -> dict[TopicPartition, Offset]:
    """The offsets of one bound of the query; partitions that are read from their start or to their end are left out.

    Raises OffsetOutOfRange if a partition has no record at or after the given time."""
    partitions = lookup.partitions
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
        found |= await lookup.admin.list_offsets(partitions_at, time_at(moment), isolation=lookup.isolation)
    missing = [one for one in partitions if found[one] >= lookup.latest[one]]
    if missing and not past_the_last_is_latest:
        raise OffsetOutOfRange(
            f"no record at or after the starting time in {', '.join(map(str, missing))}; use an earlier time, or set "
            '"startingOffsetsByTimestampStrategy" to "latest"'
        )
    return found
