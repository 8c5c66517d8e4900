"""OffsetCommitRequest, versions 2 to 10. Generated from OffsetCommitRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    NO_UUID,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_compact_string,
    read_nullable_string,
    read_string,
    skip_tags,
    uuid_of,
)

_r_u = Struct(">16s").unpack_from
_r_i = Struct(">i").unpack_from
_r_iq = Struct(">iq").unpack_from
_r_iqi = Struct(">iqi").unpack_from
_r_q = Struct(">q").unpack_from


class OffsetCommitRequestPartition(Structure):
    """A structure of OffsetCommitRequest."""

    __slots__ = ("partition_index", "committed_offset", "committed_metadata", "committed_leader_epoch")
    __match_args__ = ("partition_index", "committed_offset", "committed_metadata", "committed_leader_epoch")

    def __init__(
        self,
        partition_index: int,
        committed_offset: int,
        committed_metadata: str | None,
        committed_leader_epoch: int = -1,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The message offset to be committed.
        self.committed_offset: Final = committed_offset
        # Any associated metadata the client wants to keep.
        self.committed_metadata: Final = committed_metadata
        # The leader epoch of this partition.
        self.committed_leader_epoch: Final = committed_leader_epoch


class OffsetCommitRequestTopic(Structure):
    """A structure of OffsetCommitRequest."""

    __slots__ = ("partitions", "name", "topic_id")
    __match_args__ = ("partitions", "name", "topic_id")

    def __init__(
        self,
        partitions: tuple[OffsetCommitRequestPartition, ...],
        name: str = "",
        topic_id: UUID = NO_UUID,
    ) -> None:
        # Each partition to commit offsets for.
        self.partitions: Final = partitions
        # The topic name.
        self.name: Final = name
        # The topic ID.
        self.topic_id: Final = topic_id


class OffsetCommitRequest(Structure):
    """The message."""

    __slots__ = (
        "group_id",
        "generation_id_or_member_epoch",
        "member_id",
        "topics",
        "group_instance_id",
        "retention_time_ms",
    )
    __match_args__ = (
        "group_id",
        "generation_id_or_member_epoch",
        "member_id",
        "topics",
        "group_instance_id",
        "retention_time_ms",
    )

    def __init__(
        self,
        group_id: str,
        generation_id_or_member_epoch: int,
        member_id: str,
        topics: tuple[OffsetCommitRequestTopic, ...],
        group_instance_id: str | None = None,
        retention_time_ms: int = -1,
    ) -> None:
        # The unique group identifier.
        self.group_id: Final = group_id
        # The generation of the group if using the classic group protocol or the member epoch if using the consumer
        # protocol.
        self.generation_id_or_member_epoch: Final = generation_id_or_member_epoch
        # The member ID assigned by the group coordinator.
        self.member_id: Final = member_id
        # The topics to commit offsets for.
        self.topics: Final = topics
        # The unique identifier of the consumer instance provided by end user.
        self.group_instance_id: Final = group_instance_id
        # The time period in ms to retain the offset.
        self.retention_time_ms: Final = retention_time_ms


def _read_offset_commit_request_partition_2(data: Data, at: int) -> tuple[OffsetCommitRequestPartition, int]:
    partition_index, committed_offset = _r_iq(data, at)
    at += 12
    committed_metadata, at = read_nullable_string(data, at)
    return OffsetCommitRequestPartition(
        partition_index=partition_index, committed_offset=committed_offset, committed_metadata=committed_metadata
    ), at


def _read_offset_commit_request_topic_2(data: Data, at: int) -> tuple[OffsetCommitRequestTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_offset_commit_request_partition_2)
    return OffsetCommitRequestTopic(name=name, partitions=partitions), at


def _read_offset_commit_request_2(data: Data, at: int) -> tuple[OffsetCommitRequest, int]:
    group_id, at = read_string(data, at)
    (generation_id_or_member_epoch,) = _r_i(data, at)
    at += 4
    member_id, at = read_string(data, at)
    (retention_time_ms,) = _r_q(data, at)
    at += 8
    topics, at = read_array(data, at, read_length, _read_offset_commit_request_topic_2)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id_or_member_epoch,
        member_id=member_id,
        retention_time_ms=retention_time_ms,
        topics=topics,
    ), at


def _read_offset_commit_request_5(data: Data, at: int) -> tuple[OffsetCommitRequest, int]:
    group_id, at = read_string(data, at)
    (generation_id_or_member_epoch,) = _r_i(data, at)
    at += 4
    member_id, at = read_string(data, at)
    topics, at = read_array(data, at, read_length, _read_offset_commit_request_topic_2)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id_or_member_epoch,
        member_id=member_id,
        topics=topics,
    ), at


def _read_offset_commit_request_partition_6(data: Data, at: int) -> tuple[OffsetCommitRequestPartition, int]:
    partition_index, committed_offset, committed_leader_epoch = _r_iqi(data, at)
    at += 16
    committed_metadata, at = read_nullable_string(data, at)
    return OffsetCommitRequestPartition(
        partition_index=partition_index,
        committed_offset=committed_offset,
        committed_leader_epoch=committed_leader_epoch,
        committed_metadata=committed_metadata,
    ), at


def _read_offset_commit_request_topic_6(data: Data, at: int) -> tuple[OffsetCommitRequestTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_offset_commit_request_partition_6)
    return OffsetCommitRequestTopic(name=name, partitions=partitions), at


def _read_offset_commit_request_6(data: Data, at: int) -> tuple[OffsetCommitRequest, int]:
    group_id, at = read_string(data, at)
    (generation_id_or_member_epoch,) = _r_i(data, at)
    at += 4
    member_id, at = read_string(data, at)
    topics, at = read_array(data, at, read_length, _read_offset_commit_request_topic_6)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id_or_member_epoch,
        member_id=member_id,
        topics=topics,
    ), at


def _read_offset_commit_request_7(data: Data, at: int) -> tuple[OffsetCommitRequest, int]:
    group_id, at = read_string(data, at)
    (generation_id_or_member_epoch,) = _r_i(data, at)
    at += 4
    member_id, at = read_string(data, at)
    group_instance_id, at = read_nullable_string(data, at)
    topics, at = read_array(data, at, read_length, _read_offset_commit_request_topic_6)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id_or_member_epoch,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=topics,
    ), at


def _read_offset_commit_request_partition_8(data: Data, at: int) -> tuple[OffsetCommitRequestPartition, int]:
    partition_index, committed_offset, committed_leader_epoch = _r_iqi(data, at)
    at += 16
    committed_metadata, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return OffsetCommitRequestPartition(
        partition_index=partition_index,
        committed_offset=committed_offset,
        committed_leader_epoch=committed_leader_epoch,
        committed_metadata=committed_metadata,
    ), at


def _read_offset_commit_request_topic_8(data: Data, at: int) -> tuple[OffsetCommitRequestTopic, int]:
    name, at = read_compact_string(data, at)
    partitions, at = read_array(data, at, read_compact_length, _read_offset_commit_request_partition_8)
    at = skip_tags(data, at)
    return OffsetCommitRequestTopic(name=name, partitions=partitions), at


def _read_offset_commit_request_8(data: Data, at: int) -> tuple[OffsetCommitRequest, int]:
    group_id, at = read_compact_string(data, at)
    (generation_id_or_member_epoch,) = _r_i(data, at)
    at += 4
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    topics, at = read_array(data, at, read_compact_length, _read_offset_commit_request_topic_8)
    at = skip_tags(data, at)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id_or_member_epoch,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=topics,
    ), at


def _read_offset_commit_request_topic_10(data: Data, at: int) -> tuple[OffsetCommitRequestTopic, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    partitions, at = read_array(data, at, read_compact_length, _read_offset_commit_request_partition_8)
    at = skip_tags(data, at)
    return OffsetCommitRequestTopic(topic_id=topic_id, partitions=partitions), at


def _read_offset_commit_request_10(data: Data, at: int) -> tuple[OffsetCommitRequest, int]:
    group_id, at = read_compact_string(data, at)
    (generation_id_or_member_epoch,) = _r_i(data, at)
    at += 4
    member_id, at = read_compact_string(data, at)
    group_instance_id, at = read_nullable_compact_string(data, at)
    topics, at = read_array(data, at, read_compact_length, _read_offset_commit_request_topic_10)
    at = skip_tags(data, at)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id_or_member_epoch,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=topics,
    ), at


OFFSET_COMMIT_REQUEST: Final = MessageCodec(
    OffsetCommitRequest,
    8,
    readers={
        2: _read_offset_commit_request_2,
        3: _read_offset_commit_request_2,
        4: _read_offset_commit_request_2,
        5: _read_offset_commit_request_5,
        6: _read_offset_commit_request_6,
        7: _read_offset_commit_request_7,
        8: _read_offset_commit_request_8,
        9: _read_offset_commit_request_8,
        10: _read_offset_commit_request_10,
    },
    writers={},
    flexible_from=8,
)
