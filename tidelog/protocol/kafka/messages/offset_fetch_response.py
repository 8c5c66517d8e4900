"""OffsetFetchResponse, versions 1 to 10. Generated from OffsetFetchResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    NO_UUID,
    Output,
    Structure,
    inexpressible,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_u = Struct(">16s").pack
_w_h = Struct(">h").pack
_w_i = Struct(">i").pack
_w_iq = Struct(">iq").pack
_w_iqi = Struct(">iqi").pack


class OffsetFetchResponsePartition(Structure):
    """A structure of OffsetFetchResponse."""

    __slots__ = ("partition_index", "committed_offset", "metadata", "error_code", "committed_leader_epoch")
    __match_args__ = ("partition_index", "committed_offset", "metadata", "error_code", "committed_leader_epoch")

    def __init__(
        self,
        partition_index: int,
        committed_offset: int,
        metadata: str | None,
        error_code: int,
        committed_leader_epoch: int = -1,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The committed message offset.
        self.committed_offset: Final = committed_offset
        # The partition metadata.
        self.metadata: Final = metadata
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The leader epoch.
        self.committed_leader_epoch: Final = committed_leader_epoch


class OffsetFetchResponseTopic(Structure):
    """A structure of OffsetFetchResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[OffsetFetchResponsePartition, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The responses per partition.
        self.partitions: Final = partitions


class OffsetFetchResponsePartitions(Structure):
    """A structure of OffsetFetchResponse."""

    __slots__ = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")
    __match_args__ = ("partition_index", "committed_offset", "committed_leader_epoch", "metadata", "error_code")

    def __init__(
        self,
        partition_index: int,
        committed_offset: int,
        committed_leader_epoch: int,
        metadata: str | None,
        error_code: int,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The committed message offset.
        self.committed_offset: Final = committed_offset
        # The leader epoch.
        self.committed_leader_epoch: Final = committed_leader_epoch
        # The partition metadata.
        self.metadata: Final = metadata
        # The partition-level error code, or 0 if there was no error.
        self.error_code: Final = error_code


class OffsetFetchResponseTopics(Structure):
    """A structure of OffsetFetchResponse."""

    __slots__ = ("partitions", "name", "topic_id")
    __match_args__ = ("partitions", "name", "topic_id")

    def __init__(
        self,
        partitions: tuple[OffsetFetchResponsePartitions, ...],
        name: str = "",
        topic_id: UUID = NO_UUID,
    ) -> None:
        # The responses per partition.
        self.partitions: Final = partitions
        # The topic name.
        self.name: Final = name
        # The topic ID.
        self.topic_id: Final = topic_id


class OffsetFetchResponseGroup(Structure):
    """A structure of OffsetFetchResponse."""

    __slots__ = ("group_id", "topics", "error_code")
    __match_args__ = ("group_id", "topics", "error_code")

    def __init__(
        self,
        group_id: str,
        topics: tuple[OffsetFetchResponseTopics, ...],
        error_code: int,
    ) -> None:
        # The group ID.
        self.group_id: Final = group_id
        # The responses per topic.
        self.topics: Final = topics
        # The group-level error code, or 0 if there was no error.
        self.error_code: Final = error_code


class OffsetFetchResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "topics", "error_code", "groups")
    __match_args__ = ("throttle_time_ms", "topics", "error_code", "groups")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        topics: tuple[OffsetFetchResponseTopic, ...] = (),
        error_code: int = 0,
        groups: tuple[OffsetFetchResponseGroup, ...] = (),
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The responses per topic.
        self.topics: Final = topics
        # The top-level error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The responses per group id.
        self.groups: Final = groups


def _write_offset_fetch_response_partition_1(out: Output, value: OffsetFetchResponsePartition) -> None:
    out += _w_iq(value.partition_index, value.committed_offset)
    write_string(out, value.metadata)
    out += _w_h(value.error_code)


def _write_offset_fetch_response_topic_1(out: Output, value: OffsetFetchResponseTopic) -> None:
    write_string(out, value.name)
    write_array(out, value.partitions, write_length, _write_offset_fetch_response_partition_1)


def _write_offset_fetch_response_1(out: Output, value: OffsetFetchResponse) -> None:
    if value.groups != ():
        raise inexpressible("OffsetFetchResponse.groups")
    write_array(out, value.topics, write_length, _write_offset_fetch_response_topic_1)


def _write_offset_fetch_response_2(out: Output, value: OffsetFetchResponse) -> None:
    if value.groups != ():
        raise inexpressible("OffsetFetchResponse.groups")
    write_array(out, value.topics, write_length, _write_offset_fetch_response_topic_1)
    out += _w_h(value.error_code)


def _write_offset_fetch_response_3(out: Output, value: OffsetFetchResponse) -> None:
    if value.groups != ():
        raise inexpressible("OffsetFetchResponse.groups")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_offset_fetch_response_topic_1)
    out += _w_h(value.error_code)


def _write_offset_fetch_response_partition_5(out: Output, value: OffsetFetchResponsePartition) -> None:
    out += _w_iqi(value.partition_index, value.committed_offset, value.committed_leader_epoch)
    write_string(out, value.metadata)
    out += _w_h(value.error_code)


def _write_offset_fetch_response_topic_5(out: Output, value: OffsetFetchResponseTopic) -> None:
    write_string(out, value.name)
    write_array(out, value.partitions, write_length, _write_offset_fetch_response_partition_5)


def _write_offset_fetch_response_5(out: Output, value: OffsetFetchResponse) -> None:
    if value.groups != ():
        raise inexpressible("OffsetFetchResponse.groups")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_offset_fetch_response_topic_5)
    out += _w_h(value.error_code)


def _write_offset_fetch_response_partition_6(out: Output, value: OffsetFetchResponsePartition) -> None:
    out += _w_iqi(value.partition_index, value.committed_offset, value.committed_leader_epoch)
    write_compact_string(out, value.metadata)
    out += _w_h(value.error_code)
    out.append(0)


def _write_offset_fetch_response_topic_6(out: Output, value: OffsetFetchResponseTopic) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_offset_fetch_response_partition_6)
    out.append(0)


def _write_offset_fetch_response_6(out: Output, value: OffsetFetchResponse) -> None:
    if value.groups != ():
        raise inexpressible("OffsetFetchResponse.groups")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_offset_fetch_response_topic_6)
    out += _w_h(value.error_code)
    out.append(0)


def _write_offset_fetch_response_partitions_8(out: Output, value: OffsetFetchResponsePartitions) -> None:
    out += _w_iqi(value.partition_index, value.committed_offset, value.committed_leader_epoch)
    write_compact_string(out, value.metadata)
    out += _w_h(value.error_code)
    out.append(0)


def _write_offset_fetch_response_topics_8(out: Output, value: OffsetFetchResponseTopics) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_offset_fetch_response_partitions_8)
    out.append(0)


def _write_offset_fetch_response_group_8(out: Output, value: OffsetFetchResponseGroup) -> None:
    write_compact_string(out, value.group_id)
    write_array(out, value.topics, write_compact_length, _write_offset_fetch_response_topics_8)
    out += _w_h(value.error_code)
    out.append(0)


def _write_offset_fetch_response_8(out: Output, value: OffsetFetchResponse) -> None:
    if value.topics != ():
        raise inexpressible("OffsetFetchResponse.topics")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.groups, write_compact_length, _write_offset_fetch_response_group_8)
    out.append(0)


def _write_offset_fetch_response_topics_10(out: Output, value: OffsetFetchResponseTopics) -> None:
    out += _w_u(value.topic_id.bytes)
    write_array(out, value.partitions, write_compact_length, _write_offset_fetch_response_partitions_8)
    out.append(0)


def _write_offset_fetch_response_group_10(out: Output, value: OffsetFetchResponseGroup) -> None:
    write_compact_string(out, value.group_id)
    write_array(out, value.topics, write_compact_length, _write_offset_fetch_response_topics_10)
    out += _w_h(value.error_code)
    out.append(0)


def _write_offset_fetch_response_10(out: Output, value: OffsetFetchResponse) -> None:
    if value.topics != ():
        raise inexpressible("OffsetFetchResponse.topics")
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.groups, write_compact_length, _write_offset_fetch_response_group_10)
    out.append(0)


OFFSET_FETCH_RESPONSE: Final = MessageCodec(
    OffsetFetchResponse,
    9,
    readers={},
    writers={
        1: _write_offset_fetch_response_1,
        2: _write_offset_fetch_response_2,
        3: _write_offset_fetch_response_3,
        4: _write_offset_fetch_response_3,
        5: _write_offset_fetch_response_5,
        6: _write_offset_fetch_response_6,
        7: _write_offset_fetch_response_6,
        8: _write_offset_fetch_response_8,
        9: _write_offset_fetch_response_8,
        10: _write_offset_fetch_response_10,
    },
    flexible_from=6,
)
