"""Keys and values of `__remote_log_metadata`, their bytes, and the remote segments that they stand for.

A segment's record is its last state; a tombstone follows when its object is gone, in place of Kafka's
DELETE_SEGMENT_FINISHED, so that the compacted topic forgets it.
Source: KIP-405; Kafka's RemoteLogSegmentMetadataRecord, whose topic has no keys and is never compacted.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from replication.coordination.coordinator_record import CoordinatorRecord, RecordCodec, RecordFormat
from replication.coordination.encoded_segment import EncodedSegment, segment_value
from replication.coordination.remote_log_requests import RemoteLogLeader
from tidelog.protocol.kafka.messages.remote_log_partition_key import REMOTE_LOG_PARTITION_KEY, RemoteLogPartitionKey
from tidelog.protocol.kafka.messages.remote_log_partition_value import (
    REMOTE_LOG_PARTITION_VALUE,
    RemoteLogPartitionValue,
)
from tidelog.protocol.kafka.messages.remote_log_segment_key import REMOTE_LOG_SEGMENT_KEY, RemoteLogSegmentKey
from tidelog.protocol.kafka.messages.remote_log_segment_value import (
    REMOTE_LOG_SEGMENT_VALUE,
    RemoteLogSegmentValue,
)
from tidelog.tiering.remote_segment import RemoteSegment
from tidelog.types import NO_LEADER_EPOCH, REMOTE_LOG_METADATA_TOPIC, EpochStart, LeaderEpoch, Offset

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

_SEGMENT: Final = REMOTE_LOG_SEGMENT_KEY.api_key.to_bytes(2, "big")
_KEY_BYTES: Final = 38
"""Of a segment's key: type, topic id, partition, segment id."""


def decode_to_replay(key: bytes | None, value: bytes | None) -> CoordinatorRecord[Any, Any]:
    """As `REMOTE_LOG_RECORDS.decode`, but with the value of a segment as an EncodedSegment, which nobody has looked at:
    a coordinator keeps these bytes."""
    if key is None or value is None or len(key) != _KEY_BYTES or not key.startswith(_SEGMENT):
        return REMOTE_LOG_RECORDS.decode(key, value)
    decoded, _ = REMOTE_LOG_SEGMENT_KEY.decode(key, 0, len(_SEGMENT))
    return CoordinatorRecord(decoded, EncodedSegment(key[-16:] + value))


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
    return CoordinatorRecord(segment_key(segment), segment_value(segment))


def segment_key(segment: RemoteSegment) -> RemoteLogSegmentKey:
    """The key of a segment's records."""
    return RemoteLogSegmentKey(segment.topic_id, segment.partition, segment.segment_id)
