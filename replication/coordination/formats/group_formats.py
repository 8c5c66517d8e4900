"""Bytes of the records in `__consumer_offsets`.

Source: Kafka 4.1, the schemas of the group coordinator (CoordinatorRecordType, GroupCoordinatorRecordHelpers).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final

from replication.coordination.formats.consumer_group_values import (
    read_current_assignment,
    read_member,
    read_regular_expression,
    read_target_assignment,
    read_topics,
    write_current_assignment,
    write_member,
    write_regular_expression,
    write_target_assignment,
    write_topics,
)
from replication.coordination.formats.fields import FieldReader, FieldWriter
from replication.coordination.formats.record_codec import RecordCodec, RecordFormat
from replication.coordination.group_records import (
    NO_TOPIC_ID,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, OFFSETS_TOPIC, LeaderEpoch, Millis, Offset, PartitionIndex

_OFFSET_AND_EPOCH: Final = Struct(">qi")
_TOPIC_ID: Final = 0
_METADATA_HASH: Final = 0
"""Tags."""

_OFFSET_TAGS: Final = {_TOPIC_ID: FieldReader.uuid}

OTHER_TYPES: Final = {
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    17: "StreamsGroupMetadata",
    18: "StreamsGroupPartitionMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
"""Types of records of share groups (KIP-932) and Streams groups (KIP-1071)."""


def decode_group(key: bytes | None, value: bytes | None) -> GroupRecord:
    """Return a record of `__consumer_offsets`. value: None deletes what the key stands for.

    Raises UnreadableCoordinatorRecord for malformed bytes and for types and versions that are not known.
    """
    return _CODEC.decode(key, value)


def encode_group(record: GroupRecord, version: int | None = None) -> tuple[bytes, bytes | None]:
    """Return key and value of a record. version: of the value; without it, the version that Kafka 4.1 writes.

    Raises InvalidRequest for a name of more than 32,767 bytes.
    """
    return _CODEC.encode(record, version)


# --- committed offsets ------------------------------------------------------------------------------------------


def _read_offset_key(reader: FieldReader) -> OffsetCommitKey:
    return OffsetCommitKey(reader.string(), reader.string(), PartitionIndex(reader.int32()))


def _write_offset_key(writer: FieldWriter, key: OffsetCommitKey) -> None:
    writer.string(key.group)
    writer.string(key.topic)
    writer.int32(key.partition)


def _read_offset(reader: FieldReader, version: int) -> OffsetCommitValue:
    offset, leader_epoch = reader.numbers(_OFFSET_AND_EPOCH) if version >= 3 else (reader.int64(), NO_LEADER_EPOCH)
    metadata, commit_timestamp = reader.string(), reader.int64()
    expire_timestamp = reader.int64() if version == 1 else NO_TIMESTAMP
    tagged = reader.tagged(_OFFSET_TAGS)
    return OffsetCommitValue(
        Offset(offset),
        metadata,
        Millis(commit_timestamp),
        LeaderEpoch(leader_epoch),
        Millis(expire_timestamp),
        tagged.get(_TOPIC_ID, NO_TOPIC_ID),
    )


def _write_offset(writer: FieldWriter, value: OffsetCommitValue, version: int) -> None:
    writer.int64(value.offset)
    if version >= 3:
        writer.int32(value.leader_epoch)
    writer.string(value.metadata)
    writer.int64(value.commit_timestamp)
    if version == 1:
        writer.int64(value.expire_timestamp)
    known = value.topic_id != NO_TOPIC_ID
    writer.tagged([(_TOPIC_ID, partial(FieldWriter.uuid, value=value.topic_id))] if known else [])


def _offset_version(value: OffsetCommitValue) -> int:
    return 4 if value.expire_timestamp == NO_TIMESTAMP else 1  # only version 1 has the time of expiry


# --- classic groups ---------------------------------------------------------------------------------------------


def _read_classic_member(reader: FieldReader, version: int) -> MemberMetadata:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout = reader.int32() if version >= 1 else -1
    session_timeout, subscription, assignment = reader.int32(), reader.data(), reader.data()
    reader.tagged({})
    return MemberMetadata(
        member_id, client_id, client_host, rebalance_timeout, session_timeout, subscription, assignment, instance_id
    )


def _write_classic_member(writer: FieldWriter, member: MemberMetadata, version: int) -> None:
    writer.string(member.member_id)
    if version >= 3:
        writer.string(member.group_instance_id)
    writer.string(member.client_id)
    writer.string(member.client_host)
    if version >= 1:
        writer.int32(member.rebalance_timeout)
    writer.int32(member.session_timeout)
    writer.data(member.subscription)
    writer.data(member.assignment)
    writer.tagged()


def _read_classic_group(reader: FieldReader, version: int) -> GroupMetadataValue:
    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    timestamp = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = reader.array(partial(_read_classic_member, version=version))
    reader.tagged({})
    return GroupMetadataValue(protocol_type, generation, protocol, leader, members, Millis(timestamp))


def _write_classic_group(writer: FieldWriter, value: GroupMetadataValue, version: int) -> None:
    writer.string(value.protocol_type)
    writer.int32(value.generation)
    writer.string(value.protocol)
    writer.string(value.leader)
    if version >= 2:
        writer.int64(value.current_state_timestamp)
    writer.array(value.members, partial(_write_classic_member, version=version))
    writer.tagged()


# --- consumer groups --------------------------------------------------------------------------------------------


def _read_group_epoch(reader: FieldReader, _: int) -> ConsumerGroupMetadataValue:
    epoch, tagged = reader.int32(), reader.tagged({_METADATA_HASH: FieldReader.int64})
    return ConsumerGroupMetadataValue(epoch, tagged.get(_METADATA_HASH, 0))


def _write_group_epoch(writer: FieldWriter, value: ConsumerGroupMetadataValue, _: int) -> None:
    writer.int32(value.epoch)
    known = value.metadata_hash != 0
    writer.tagged([(_METADATA_HASH, partial(FieldWriter.int64, value=value.metadata_hash))] if known else [])


def _read_assignment_epoch(reader: FieldReader, _: int) -> ConsumerGroupTargetAssignmentMetadataValue:
    epoch, _tagged = reader.int32(), reader.tagged({})
    return ConsumerGroupTargetAssignmentMetadataValue(epoch)


def _write_assignment_epoch(writer: FieldWriter, value: ConsumerGroupTargetAssignmentMetadataValue, _: int) -> None:
    writer.int32(value.assignment_epoch)
    writer.tagged()


def _of_names(
    number: int,
    name: str,
    key: type[Any],
    read_value: Callable[[FieldReader, int], Any],
    write_value: Callable[[FieldWriter, Any, int], None],
    **more: Any,
) -> RecordFormat:
    """A format whose key has only strings, in the order of the fields of its class."""
    names = tuple(key.__dataclass_fields__)

    def read_key(reader: FieldReader) -> Any:
        return key(*[reader.string() for _ in names])

    def write_key(writer: FieldWriter, value: Any) -> None:
        for field in names:
            writer.string(getattr(value, field))

    return RecordFormat((number,), name, key, read_key, write_key, read_value, write_value, **more)


_CODEC: Final = RecordCodec(
    OFFSETS_TOPIC,
    [
        RecordFormat(
            numbers=(1, 0),
            name="OffsetCommit",
            key=OffsetCommitKey,
            read_key=_read_offset_key,
            write_key=_write_offset_key,
            read_value=_read_offset,
            write_value=_write_offset,
            versions=range(5),
            flexible_from=4,
            written_version=_offset_version,
        ),
        _of_names(
            2,
            "GroupMetadata",
            GroupMetadataKey,
            _read_classic_group,
            _write_classic_group,
            versions=range(5),
            flexible_from=4,
            written_version=lambda _: 3,
        ),
        _of_names(3, "ConsumerGroupMetadata", ConsumerGroupMetadataKey, _read_group_epoch, _write_group_epoch),
        _of_names(4, "ConsumerGroupPartitionMetadata", ConsumerGroupPartitionMetadataKey, read_topics, write_topics),
        _of_names(5, "ConsumerGroupMemberMetadata", ConsumerGroupMemberMetadataKey, read_member, write_member),
        _of_names(
            6,
            "ConsumerGroupTargetAssignmentMetadata",
            ConsumerGroupTargetAssignmentMetadataKey,
            _read_assignment_epoch,
            _write_assignment_epoch,
        ),
        _of_names(
            7,
            "ConsumerGroupTargetAssignmentMember",
            ConsumerGroupTargetAssignmentMemberKey,
            read_target_assignment,
            write_target_assignment,
        ),
        _of_names(
            8,
            "ConsumerGroupCurrentMemberAssignment",
            ConsumerGroupCurrentMemberAssignmentKey,
            read_current_assignment,
            write_current_assignment,
        ),
        _of_names(
            16,
            "ConsumerGroupRegularExpression",
            ConsumerGroupRegularExpressionKey,
            read_regular_expression,
            write_regular_expression,
        ),
    ],
    OTHER_TYPES,
)
