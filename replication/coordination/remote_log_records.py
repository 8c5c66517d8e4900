"""Keys and values of `__remote_log_metadata`, their bytes, and the remote segments that they stand for.

A segment's record is its last state; a tombstone follows when its object is gone, in place of Kafka's
DELETE_SEGMENT_FINISHED, so that the compacted topic forgets it.
Source: KIP-405; Kafka's RemoteLogSegmentMetadataRecord, whose topic has no keys and is never compacted.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from replication.coordination.coordinator_record import CoordinatorRecord, RecordCodec, RecordFormat
from replication.coordination.remote_log_requests import RemoteLogLeader
from tidelog.errors import UnreadableCoordinatorRecord
from tidelog.protocol.kafka.messages.remote_log_partition_key import REMOTE_LOG_PARTITION_KEY, RemoteLogPartitionKey
from tidelog.protocol.kafka.messages.remote_log_partition_value import (
    REMOTE_LOG_PARTITION_VALUE,
    RemoteLogPartitionValue,
)
from tidelog.protocol.kafka.messages.remote_log_segment_key import REMOTE_LOG_SEGMENT_KEY, RemoteLogSegmentKey
from tidelog.protocol.kafka.messages.remote_log_segment_value import (
    REMOTE_LOG_SEGMENT_VALUE,
    RemoteLogSegmentValue,
    SegmentEpoch,
    SegmentSection,
)
from tidelog.tiering.remote_segment import (
    ObjectSection,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    SectionKind,
)
from tidelog.types import (
    NO_LEADER_EPOCH,
    REMOTE_LOG_METADATA_TOPIC,
    EpochStart,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
)

RemoteLogRecord: TypeAlias = (
    CoordinatorRecord[RemoteLogSegmentKey, RemoteLogSegmentValue]
    | CoordinatorRecord[RemoteLogPartitionKey, RemoteLogPartitionValue]
)

REMOTE_LOG_RECORDS: Final[
    RecordCodec[RemoteLogSegmentKey | RemoteLogPartitionKey, RemoteLogSegmentValue | RemoteLogPartitionValue]
] = RecordCodec(
    REMOTE_LOG_METADATA_TOPIC,
    [
        RecordFormat(REMOTE_LOG_SEGMENT_KEY, REMOTE_LOG_SEGMENT_VALUE),
        RecordFormat(REMOTE_LOG_PARTITION_KEY, REMOTE_LOG_PARTITION_VALUE),
    ],
)
"""The bytes of these records."""


def partition_record(
    leader: RemoteLogLeader, topic: str, log_start: EpochStart | None
) -> CoordinatorRecord[RemoteLogPartitionKey, RemoteLogPartitionValue]:
    """The record of a partition. leader: the newest that has registered. log_start: see RemoteSegmentsPage."""
    start = log_start or EpochStart(NO_LEADER_EPOCH, Offset(0))
    key = RemoteLogPartitionKey(leader.key.topic_id, leader.key.partition)
    value = RemoteLogPartitionValue(topic, leader.leader_epoch, leader.node_id, start.start_offset, start.epoch)
    return CoordinatorRecord(key, value)


def remote_log_start(value: RemoteLogPartitionValue) -> EpochStart | None:
    """The log start in the record of a partition."""
    if value.log_start_epoch == NO_LEADER_EPOCH:
        return None
    return EpochStart(LeaderEpoch(value.log_start_epoch), Offset(value.log_start_offset))


def segment_record(segment: RemoteSegment) -> CoordinatorRecord[RemoteLogSegmentKey, RemoteLogSegmentValue]:
    """The record of a segment's state."""
    value = RemoteLogSegmentValue(
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        leader_epochs=tuple(SegmentEpoch(each.epoch, each.start_offset) for each in segment.leader_epochs),
        max_timestamp_ms=segment.max_timestamp,
        log_size=segment.log_size,
        copied_in_epoch=segment.copied_in,
        node_id=segment.node_id,
        changed_ms=segment.changed_ms,
        segment_state=segment.state,
        sections=tuple(SegmentSection(each.kind, each.start, each.size, each.crc) for each in segment.sections),
    )
    return CoordinatorRecord(segment_key(segment), value)


def segment_key(segment: RemoteSegment) -> RemoteLogSegmentKey:
    """The key of a segment's records."""
    return RemoteLogSegmentKey(segment.topic_id, segment.partition, segment.segment_id)


def remote_segment(key: RemoteLogSegmentKey, value: RemoteLogSegmentValue) -> RemoteSegment:
    """The segment of a record. Raises UnreadableCoordinatorRecord for a state or section that is not known."""
    try:
        return RemoteSegment(
            RemoteSegmentId(key.segment_id),
            TopicId(key.topic_id),
            PartitionIndex(key.partition),
            Offset(value.start_offset),
            Offset(value.end_offset),
            tuple(EpochStart(each.leader_epoch, Offset(each.epoch_start)) for each in value.leader_epochs),
            Millis(value.max_timestamp_ms),
            value.log_size,
            LeaderEpoch(value.copied_in_epoch),
            NodeId(value.node_id),
            Millis(value.changed_ms),
            RemoteSegmentState(value.segment_state),
            tuple(ObjectSection(SectionKind(each.kind), each.start, each.size, each.crc) for each in value.sections),
        )
    except ValueError as error:
        raise UnreadableCoordinatorRecord(
            f"a record of {REMOTE_LOG_METADATA_TOPIC}, segment {key.segment_id}: {error}; upgrade this node to the "
            "version that wrote it"
        ) from error
