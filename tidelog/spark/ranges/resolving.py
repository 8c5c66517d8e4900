"""The options of a query resolved to offset ranges: the partitions of its topics and where each begins and ends.

Runs once, on the driver, when the query is planned. Every task reads the topic ids and offsets that are fixed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.client.admin import Admin, TopicDescription
from tidelog.client.offset_lookup import time_at
from tidelog.errors import OffsetOutOfRange
from tidelog.spark.options.batch_options import BatchOptions
from tidelog.spark.options.connection_options import ConnectionOptions
from tidelog.spark.options.offset_bounds import EARLIEST, LATEST, Bound
from tidelog.spark.options.topic_selection import TopicSelection, ensure_present
from tidelog.spark.ranges.planning import (
    PartitionBounds,
    TaskRanges,
    is_outside,
    offset_range,
    require_all,
    tasks_of,
)
from tidelog.spark.ranges.read_admin import Leaders, ReadAdmin
from tidelog.types import INTERNAL_TOPICS, NO_LEADER_EPOCH, Isolation, Offset, TopicId, TopicPartition

OFFSETS_OF_ALL: Final = "-2 stands for the earliest offset, -1 for the latest"


async def resolve(options: BatchOptions) -> list[TaskRanges]:
    """What each task of the query reads, in the order of topics and partitions.

    Raises UnknownTopicOrPartition, OffsetOutOfRange, InvalidConfig, and ConnectionFailed if no node answers.
    """
    query = options.query
    async with admin_of(query.connection) as admin:
        topics = await selected_topics(admin, query.selection)
        ids = {one: topics[one.topic].topic_id for one in selected_partitions(topics, query.selection)}
        confirmed: Leaders = {}
        while True:
            bounds, failure = list[PartitionBounds](), None
            try:
                bounds = await _bounds(admin, options, ids)
                doubtful = [one.topic_partition for one in bounds if is_outside(one)]
            except OffsetOutOfRange as error:  # no record is as young as the starting time
                failure, doubtful = error, list(ids)
            # A deposed leader lacks records: out of range is believed only of a leader that another node names too.
            leaders = await admin.confirmed_leaders({one: (ids[one], NO_LEADER_EPOCH) for one in doubtful})
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
    admin: ReadAdmin, options: BatchOptions, ids: Mapping[TopicPartition, TopicId]
) -> list[PartitionBounds]:
    query, isolation, partitions = options.query, options.query.connection.isolation, list(ids)
    earliest = await admin.list_offsets(partitions, "earliest")
    end_positions = await admin.end_positions(partitions, isolation=isolation)
    latest = {one: position.end_offset for one, position in end_positions.items()}
    lookup = OffsetLookup(admin, isolation, partitions, latest)
    starts = await bound_offsets(
        lookup, query.starting, "starting", past_the_last_is_latest=query.past_the_last_is_latest
    )
    ends = await bound_offsets(lookup, options.ending, "ending", past_the_last_is_latest=True)
    return [
        PartitionBounds(
            topic_partition=one,
            topic_id=ids[one],
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
    return ReadAdmin(connection.bootstrap, tls=connection.tls, sasl=connection.sasl, client_id=connection.client_id)


async def selected_topics(admin: Admin, selection: TopicSelection) -> dict[str, TopicDescription]:
    """The topics of the selection, by name. Raises UnknownTopicOrPartition for a named topic that does not exist."""
    if selection.pattern is not None:
        # As in Spark's Kafka source, the pattern must match the whole name, and internal topics match none.
        return {
            topic.name: topic
            for topic in await admin.list_topics()
            if topic.name not in INTERNAL_TOPICS and selection.pattern.matches(topic.name)
        }
    names = selection.topics or tuple(dict.fromkeys(one.topic for one in selection.assigned or ()))
    return {name: await admin.describe_topic(name) for name in names}


def selected_partitions(topics: dict[str, TopicDescription], selection: TopicSelection) -> list[TopicPartition]:
    """The partitions of the selection, by topic and number. Raises UnknownTopicOrPartition if an assigned one does not
    exist."""
    ensure_present(selection, {name: len(topic.partitions) for name, topic in topics.items()})
    if selection.assigned is not None:
        return list(selection.assigned)
    return [TopicPartition(name, one.partition) for name in sorted(topics) for one in topics[name].partitions]


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
