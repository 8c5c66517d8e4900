"""OffsetFetchRequest, versions 1 to 10. Generated from OffsetFetchRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    read_nullable_array,
    read_nullable_compact_string,
    read_numbers,
    read_string,
    skip_tags,
    uuid_of,
)

_r_u = Struct(">16s").unpack_from
_r_t = Struct(">?").unpack_from
_r_i = Struct(">i").unpack_from


class OffsetFetchRequestTopic(Structure):
    """A structure of OffsetFetchRequest."""

    __slots__ = ("name", "partition_indexes")
    __match_args__ = ("name", "partition_indexes")

    def __init__(
        self,
        name: str,
        partition_indexes: tuple[int, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The partition indexes we would like to fetch offsets for.
        self.partition_indexes: Final = partition_indexes


class OffsetFetchRequestTopics(Structure):
    """A structure of OffsetFetchRequest."""

    __slots__ = ("partition_indexes", "name", "topic_id")
    __match_args__ = ("partition_indexes", "name", "topic_id")

    def __init__(
        self,
        partition_indexes: tuple[int, ...],
        name: str = "",
        topic_id: UUID = NO_UUID,
    ) -> None:
        # The partition indexes we would like to fetch offsets for.
        self.partition_indexes: Final = partition_indexes
        # The topic name.
        self.name: Final = name
        # The topic ID.
        self.topic_id: Final = topic_id


class OffsetFetchRequestGroup(Structure):
    """A structure of OffsetFetchRequest."""

    __slots__ = ("group_id", "topics", "member_id", "member_epoch")
    __match_args__ = ("group_id", "topics", "member_id", "member_epoch")

    def __init__(
        self,
        group_id: str,
        topics: tuple[OffsetFetchRequestTopics, ...] | None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> None:
        # The group ID.
        self.group_id: Final = group_id
        # Each topic we would like to fetch offsets for, or null to fetch offsets for all topics.
        self.topics: Final = topics
        # The member id.
        self.member_id: Final = member_id
        # The member epoch if using the new consumer protocol (KIP-848).
        self.member_epoch: Final = member_epoch


class OffsetFetchRequest(Structure):
    """The message."""

    __slots__ = ("group_id", "topics", "groups", "require_stable")
    __match_args__ = ("group_id", "topics", "groups", "require_stable")

    def __init__(
        self,
        group_id: str = "",
        topics: tuple[OffsetFetchRequestTopic, ...] | None = (),
        groups: tuple[OffsetFetchRequestGroup, ...] = (),
        require_stable: bool = False,
    ) -> None:
        # The group to fetch offsets for.
        self.group_id: Final = group_id
        # Each topic we would like to fetch offsets for, or null to fetch offsets for all topics.
        self.topics: Final = topics
        # Each group we would like to fetch offsets for.
        self.groups: Final = groups
        # Whether broker should hold on returning unstable offsets but set a retriable error code for the partitions.
        self.require_stable: Final = require_stable


def _read_offset_fetch_request_topic_1(data: Data, at: int) -> tuple[OffsetFetchRequestTopic, int]:
    name, at = read_string(data, at)
    partition_indexes, at = read_numbers(data, at, read_length, "i")
    return OffsetFetchRequestTopic(name=name, partition_indexes=partition_indexes), at


def _read_offset_fetch_request_1(data: Data, at: int) -> tuple[OffsetFetchRequest, int]:
    group_id, at = read_string(data, at)
    topics, at = read_array(data, at, read_length, _read_offset_fetch_request_topic_1)
    return OffsetFetchRequest(group_id=group_id, topics=topics), at


def _read_offset_fetch_request_2(data: Data, at: int) -> tuple[OffsetFetchRequest, int]:
    group_id, at = read_string(data, at)
    topics, at = read_nullable_array(data, at, read_length, _read_offset_fetch_request_topic_1)
    return OffsetFetchRequest(group_id=group_id, topics=topics), at


def _read_offset_fetch_request_topic_6(data: Data, at: int) -> tuple[OffsetFetchRequestTopic, int]:
    name, at = read_compact_string(data, at)
    partition_indexes, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return OffsetFetchRequestTopic(name=name, partition_indexes=partition_indexes), at


def _read_offset_fetch_request_6(data: Data, at: int) -> tuple[OffsetFetchRequest, int]:
    group_id, at = read_compact_string(data, at)
    topics, at = read_nullable_array(data, at, read_compact_length, _read_offset_fetch_request_topic_6)
    at = skip_tags(data, at)
    return OffsetFetchRequest(group_id=group_id, topics=topics), at


def _read_offset_fetch_request_7(data: Data, at: int) -> tuple[OffsetFetchRequest, int]:
    group_id, at = read_compact_string(data, at)
    topics, at = read_nullable_array(data, at, read_compact_length, _read_offset_fetch_request_topic_6)
    (require_stable,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable), at


def _read_offset_fetch_request_topics_8(data: Data, at: int) -> tuple[OffsetFetchRequestTopics, int]:
    name, at = read_compact_string(data, at)
    partition_indexes, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return OffsetFetchRequestTopics(name=name, partition_indexes=partition_indexes), at


def _read_offset_fetch_request_group_8(data: Data, at: int) -> tuple[OffsetFetchRequestGroup, int]:
    group_id, at = read_compact_string(data, at)
    topics, at = read_nullable_array(data, at, read_compact_length, _read_offset_fetch_request_topics_8)
    at = skip_tags(data, at)
    return OffsetFetchRequestGroup(group_id=group_id, topics=topics), at


def _read_offset_fetch_request_8(data: Data, at: int) -> tuple[OffsetFetchRequest, int]:
    groups, at = read_array(data, at, read_compact_length, _read_offset_fetch_request_group_8)
    (require_stable,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return OffsetFetchRequest(groups=groups, require_stable=require_stable), at


def _read_offset_fetch_request_group_9(data: Data, at: int) -> tuple[OffsetFetchRequestGroup, int]:
    group_id, at = read_compact_string(data, at)
    member_id, at = read_nullable_compact_string(data, at)
    (member_epoch,) = _r_i(data, at)
    at += 4
    topics, at = read_nullable_array(data, at, read_compact_length, _read_offset_fetch_request_topics_8)
    at = skip_tags(data, at)
    return OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=topics), at


def _read_offset_fetch_request_9(data: Data, at: int) -> tuple[OffsetFetchRequest, int]:
    groups, at = read_array(data, at, read_compact_length, _read_offset_fetch_request_group_9)
    (require_stable,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return OffsetFetchRequest(groups=groups, require_stable=require_stable), at


def _read_offset_fetch_request_topics_10(data: Data, at: int) -> tuple[OffsetFetchRequestTopics, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    partition_indexes, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=partition_indexes), at


def _read_offset_fetch_request_group_10(data: Data, at: int) -> tuple[OffsetFetchRequestGroup, int]:
    group_id, at = read_compact_string(data, at)
    member_id, at = read_nullable_compact_string(data, at)
    (member_epoch,) = _r_i(data, at)
    at += 4
    topics, at = read_nullable_array(data, at, read_compact_length, _read_offset_fetch_request_topics_10)
    at = skip_tags(data, at)
    return OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=topics), at


def _read_offset_fetch_request_10(data: Data, at: int) -> tuple[OffsetFetchRequest, int]:
    groups, at = read_array(data, at, read_compact_length, _read_offset_fetch_request_group_10)
    (require_stable,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return OffsetFetchRequest(groups=groups, require_stable=require_stable), at


OFFSET_FETCH_REQUEST: Final = MessageCodec(
    OffsetFetchRequest,
    9,
    readers={
        1: _read_offset_fetch_request_1,
        2: _read_offset_fetch_request_2,
        3: _read_offset_fetch_request_2,
        4: _read_offset_fetch_request_2,
        5: _read_offset_fetch_request_2,
        6: _read_offset_fetch_request_6,
        7: _read_offset_fetch_request_7,
        8: _read_offset_fetch_request_8,
        9: _read_offset_fetch_request_9,
        10: _read_offset_fetch_request_10,
    },
    writers={},
    flexible_from=6,
)
