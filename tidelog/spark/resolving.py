"""The options of a query resolved to offset ranges: the partitions of its topics and where each begins and ends.

Runs once, on the driver, when the query is planned. Every task reads the topic ids and offsets that are fixed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from tidelog.client.admin import Admin, TopicDescription
from tidelog.errors import OffsetOutOfRange, UnknownTopicOrPartition
from tidelog.spark.planning import OffsetRange, PartitionBounds, offset_range, require_all, split_ranges
from tidelog.spark.source_options import EARLIEST, LATEST, Bound, SourceOptions
from tidelog.types import INTERNAL_TOPICS, Isolation, Offset, TopicPartition


async def resolve(options: SourceOptions) -> list[OffsetRange]:
    """The ranges that the query reads, in the order of topics and partitions.

    Raises UnknownTopicOrPartition, OffsetOutOfRange, InvalidConfig, and ConnectionFailed if no node answers.
    """
    async with Admin(options.bootstrap, tls=options.tls, sasl=options.sasl, client_id=options.client_id) as admin:
        topics = await _topics(admin, options)
        partitions = _partitions(topics, options)
        earliest = await admin.list_offsets(partitions, "earliest")
        end_positions = await admin.end_positions(partitions, isolation=options.isolation)
        latest = {one: position.end_offset for one, position in end_positions.items()}
        lookup = _Lookup(admin, options.isolation, partitions, latest)
        starts = await _bound_offsets(lookup, options.starting, "starting", options.past_the_last_is_latest)
        ends = await _bound_offsets(lookup, options.ending, "ending", past_the_last_is_latest=True)
    bounds = [
        PartitionBounds(
            topic_partition=one,
            topic_id=topics[one.topic].topic_id,
            last_epoch=end_positions[one].epoch,
            earliest=earliest[one],
            latest=latest[one],
            query_start=starts.get(one),
            query_end=ends.get(one),
        )
        for one in partitions
    ]
    ranges = [offset_range(one, fail_on_data_loss=options.fail_on_data_loss) for one in bounds]
    return split_ranges(
        ranges,
        min_partitions=options.min_partitions,
        records_per_partition_max=options.records_per_partition_max,
    )


async def _topics(admin: Admin, options: SourceOptions) -> dict[str, TopicDescription]:
    if options.pattern is not None:
        # As in Spark's Kafka source, the pattern must match the whole name, and internal topics match none.
        return {
            topic.name: topic
            for topic in await admin.list_topics()
            if topic.name not in INTERNAL_TOPICS and options.pattern.matches(topic.name)
        }
    names = options.topics or tuple(dict.fromkeys(one.topic for one in options.assigned or ()))
    return {name: await admin.describe_topic(name) for name in names}


def _partitions(topics: dict[str, TopicDescription], options: SourceOptions) -> list[TopicPartition]:
    available = [TopicPartition(name, one.partition) for name in sorted(topics) for one in topics[name].partitions]
    if options.assigned is None:
        return available
    missing = sorted(set(options.assigned) - set(available))
    if missing:
        raise UnknownTopicOrPartition(
            f"option 'assign': unknown partitions {', '.join(map(str, missing))}; topic "
            f"{missing[0].topic!r} has {len(topics[missing[0].topic].partitions)} partitions, numbered from 0"
        )
    return list(options.assigned)


@dataclass(frozen=True, slots=True)
class _Lookup:
    """Whom to ask for the offset of a time, in which partitions; and their ends."""

    admin: Admin
    isolation: Isolation
    partitions: list[TopicPartition]
    latest: dict[TopicPartition, Offset]


async def _bound_offsets(
    lookup: _Lookup, bound: Bound, side: str, past_the_last_is_latest: bool
) -> dict[TopicPartition, Offset]:
    """The offsets of one bound of the query; partitions that are read from their start or to their end are left out.

    Raises OffsetOutOfRange if a partition has no record at or after the given time."""
    partitions = lookup.partitions
    if bound.offsets is not None:
        require_all(bound.offsets, partitions, f"{side}Offsets")
        return {one: offset for one, offset in bound.offsets.items() if offset not in (EARLIEST, LATEST)}
    times = bound.times
    if bound.timestamp_ms is not None:
        times = dict.fromkeys(partitions, bound.timestamp_ms)
    if times is None:
        return {}
    require_all(times, partitions, f"{side}OffsetsByTimestamp")
    found: dict[TopicPartition, Offset] = {}
    for moment in sorted(set(times.values())):
        partitions_at = [one for one in partitions if times[one] == moment]
        found |= await lookup.admin.list_offsets(
            partitions_at, datetime.fromtimestamp(moment / 1000, UTC), isolation=lookup.isolation
        )
    missing = [one for one in partitions if found[one] >= lookup.latest[one]]
    if missing and not past_the_last_is_latest:
        raise OffsetOutOfRange(
            f"no record at or after the starting time in {', '.join(map(str, missing))}; use an earlier time, or set "
            '"startingOffsetsByTimestampStrategy" to "latest"'
        )
    return found
