"""Lookup of an offset by timestamp: largest timestamps select the segment, the time index a batch, reading the record.

Invariants: the result is the first record, in offset order, whose own timestamp is at or after the requested one. A
batch with a correct checksum but unreadable records came from its producer in that state: the lookup raises
CorruptRecord, and the log is not marked as damaged.
Source: Kafka's LogSegment.findOffsetByTimestamp; KIP-79, KIP-734.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from storage.segment.batch_walk import BrokenChain
from storage.segment.segment import LogSegment
from storage.segment.time_index import TimestampOffset
from tidelog.errors import CorruptRecord, InvalidRequest, TidelogError, UnsupportedForMessageFormat
from tidelog.records.batches import batch_at
from tidelog.records.v2.header import BatchHeader
from tidelog.records.v2.record import Record
from tidelog.types import NO_TIMESTAMP, LeaderEpoch, Millis, Offset, TopicPartition


class TimestampedOffset(NamedTuple):
    """A record found by timestamp: its offset, its timestamp, the leader epoch of its batch."""

    offset: Offset
    timestamp: Millis
    leader_epoch: LeaderEpoch


def ensure_time(timestamp: int, magic: int, topic_partition: TopicPartition) -> None:
    """Check that the timestamp is valid and that the topic's format has timestamps. Raises InvalidRequest,
    UnsupportedForMessageFormat."""
    if timestamp < 0:
        raise InvalidRequest(
            f"invalid timestamp {timestamp}: it must be 0 or more, -1 (latest), -2 (earliest) or -3 (largest)"
        )
    if magic == 0:
        raise UnsupportedForMessageFormat(
            f"{topic_partition} has message.format v0, whose records have no timestamps: ask for the earliest or "
            "latest offset"
        )


def find_timestamp(
    segments: Sequence[LogSegment], timestamp: int, start: Offset, up_to: Offset
) -> TimestampedOffset | None:
    """The first record at or after `timestamp` with start <= offset < up_to. Raises BrokenChain, OSError, CorruptRecord
    if the batch with the result cannot be read."""
    for segment in segments:
        if segment.base_offset >= up_to:
            break
        segment.ensure_indexes()
        if segment.confirm_largest().timestamp < timestamp:
            continue
        found = _find_in(segment, timestamp, start, up_to)
        if found is not None:
            return found
    return None


def _find_in(segment: LogSegment, timestamp: int, start: Offset, up_to: Offset) -> TimestampedOffset | None:
    entry = segment.time_index.lookup(timestamp - 1)
    first = segment.find(max(entry.offset, start) if _is_valid(segment, entry) else start)
    if first is None:
        return None
    for header in segment.walk(first.position):
        if header.base_offset >= up_to:
            return None
        if header.max_timestamp >= timestamp:
            found = _record_in(segment, header, timestamp, start, up_to)
            if found is not None:
                return found
    return None


def _is_valid(segment: LogSegment, entry: TimestampOffset) -> bool:
    """True if a batch has the timestamp of this index entry. Otherwise rebuilds the indexes."""
    if entry == (NO_TIMESTAMP, segment.base_offset):
        return True  # no entry
    batch = segment.find(entry.offset)
    if batch is not None and batch.max_timestamp == entry.timestamp:
        return True
    segment.repair_indexes()
    return False


def _record_in(
    segment: LogSegment, header: BatchHeader, timestamp: int, start: Offset, up_to: Offset
) -> TimestampedOffset | None:
    for record in _records(segment, header):
        if record.timestamp >= timestamp and start <= record.offset < up_to:
            return TimestampedOffset(record.offset, record.timestamp, header.leader_epoch)
    return None


def _records(segment: LogSegment, header: BatchHeader) -> Iterator[Record]:
    """The records of a batch. Raises BrokenChain if its checksum is wrong (disk damage), CorruptRecord if the producer
    sent unreadable records, OSError."""
    batch = batch_at(segment.file.pread(header.size, header.position))
    try:
        batch.ensure_valid()
    except CorruptRecord as damage:
        raise BrokenChain(header.position, header.base_offset, damage.message) from damage
    try:
        yield from batch.records()
    except TidelogError as error:
        raise CorruptRecord(
            f"the records of the batch with offsets {header.base_offset}..{header.last_offset} cannot be read, "
            f"although its checksum is correct ({error.message}): use an offset after that batch instead of a timestamp"
        ) from error


def find_largest_timestamp(segments: Sequence[LogSegment], start: Offset, up_to: Offset) -> TimestampedOffset | None:
    """The first record with the largest timestamp and start <= offset < up_to. Raises BrokenChain, OSError."""
    largest = -1
    for i, segment in enumerate(segments):
        if segment.base_offset >= up_to:
            break
        segment.ensure_indexes()
        whole = i + 1 < len(segments) and segments[i + 1].base_offset <= up_to and segment.base_offset >= start
        if whole:
            largest = max(largest, segment.confirm_largest().timestamp)
            continue
        largest = max(largest, _largest_in(segment, start, up_to))
    found = find_timestamp(segments, largest, start, up_to) if largest >= 0 else None
    return found if found is not None or largest < 0 else _largest_of_records(segments, start, up_to)


def _largest_of_records(segments: Sequence[LogSegment], start: Offset, up_to: Offset) -> TimestampedOffset | None:
    """For a largest timestamp that belongs to a batch without records, as compaction leaves it: search the headers of
    all segments that may contain the largest timestamp of a record."""
    largest = -1
    for segment in sorted(segments, key=lambda each: each.confirm_largest().timestamp, reverse=True):
        if segment.confirm_largest().timestamp <= largest:
            break
        for header in segment.walk():
            inside = header.last_offset >= start and header.base_offset < up_to and header.record_count != 0
            if inside and header.max_timestamp > largest:
                times = (record.timestamp for record in _records(segment, header) if start <= record.offset < up_to)
                largest = max(largest, *times, -1)
    return find_timestamp(segments, largest, start, up_to) if largest >= 0 else None


def _largest_in(segment: LogSegment, start: Offset, up_to: Offset) -> int:
    """The largest timestamp of the records with start <= offset < up_to; -1 for none."""
    largest = -1
    if segment.base_offset >= start:  # the time index covers all batches below its last entry
        if not _is_valid(segment, segment.time_index.before(up_to)):
            return _largest_in(segment, start, up_to)
        position = segment.start_for(Offset(up_to - 1))
        largest = segment.time_index.before(up_to).timestamp
    else:
        position = segment.start_for(start)
    first = segment.base_offset < start
    for header in segment.walk(position):
        if header.base_offset >= up_to:
            break
        if header.last_offset < start:
            continue
        # only the first batch can begin below the start; a v0 or v1 wrapper does not contain its first offset
        is_partial = (first and (header.magic < 2 or header.base_offset < start)) or header.last_offset >= up_to
        first = False
        if not is_partial:
            largest = max(largest, header.max_timestamp)
        elif header.max_timestamp > largest:
            inside = (record.timestamp for record in _records(segment, header) if start <= record.offset < up_to)
            largest = max(largest, *inside, -1)
    return largest
