"""ListOffsetsResponse, versions 1 to 10. Generated from ListOffsetsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    inexpressible,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)
from tidelog.types import LeaderEpoch, Millis, Offset

_w_i = Struct(">i").pack
_w_ihqq = Struct(">ihqq").pack
_w_ihqqi = Struct(">ihqqi").pack


class ListOffsetsPartitionResponse(Structure):
    """A structure of ListOffsetsResponse."""

    __slots__ = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")
    __match_args__ = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")

    def __init__(
        self,
        partition_index: int,
        error_code: int,
        timestamp: Millis,
        offset: Offset,
        leader_epoch: LeaderEpoch = LeaderEpoch(-1),
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The partition error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The timestamp associated with the returned offset.
        self.timestamp: Final = timestamp
        # The returned offset.
        self.offset: Final = offset
        # The leader epoch associated with the returned offset.
        self.leader_epoch: Final = leader_epoch


class ListOffsetsTopicResponse(Structure):
    """A structure of ListOffsetsResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[ListOffsetsPartitionResponse, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # Each partition in the response.
        self.partitions: Final = partitions


class ListOffsetsResponse(Structure):
    """The message."""

    __slots__ = ("topics", "throttle_time_ms")
    __match_args__ = ("topics", "throttle_time_ms")

    def __init__(
        self,
        topics: tuple[ListOffsetsTopicResponse, ...],
        throttle_time_ms: int = 0,
    ) -> None:
        # Each topic in the response.
        self.topics: Final = topics
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms


def _write_list_offsets_partition_response_1(out: Output, value: ListOffsetsPartitionResponse) -> None:
    if value.leader_epoch != LeaderEpoch(-1):
        raise inexpressible("ListOffsetsPartitionResponse.leader_epoch")
    out += _w_ihqq(value.partition_index, value.error_code, value.timestamp, value.offset)


def _write_list_offsets_topic_response_1(out: Output, value: ListOffsetsTopicResponse) -> None:
    write_string(out, value.name)
    write_array(out, value.partitions, write_length, _write_list_offsets_partition_response_1)


def _write_list_offsets_response_1(out: Output, value: ListOffsetsResponse) -> None:
    write_array(out, value.topics, write_length, _write_list_offsets_topic_response_1)


def _write_list_offsets_response_2(out: Output, value: ListOffsetsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_list_offsets_topic_response_1)


def _write_list_offsets_partition_response_4(out: Output, value: ListOffsetsPartitionResponse) -> None:
    out += _w_ihqqi(value.partition_index, value.error_code, value.timestamp, value.offset, value.leader_epoch)


def _write_list_offsets_topic_response_4(out: Output, value: ListOffsetsTopicResponse) -> None:
    write_string(out, value.name)
    write_array(out, value.partitions, write_length, _write_list_offsets_partition_response_4)


def _write_list_offsets_response_4(out: Output, value: ListOffsetsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_list_offsets_topic_response_4)


def _write_list_offsets_partition_response_6(out: Output, value: ListOffsetsPartitionResponse) -> None:
    out += _w_ihqqi(value.partition_index, value.error_code, value.timestamp, value.offset, value.leader_epoch)
    out.append(0)


def _write_list_offsets_topic_response_6(out: Output, value: ListOffsetsTopicResponse) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_list_offsets_partition_response_6)
    out.append(0)


def _write_list_offsets_response_6(out: Output, value: ListOffsetsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_list_offsets_topic_response_6)
    out.append(0)


LIST_OFFSETS_RESPONSE: Final = MessageCodec(
    ListOffsetsResponse,
    2,
    readers={},
    writers={
        1: _write_list_offsets_response_1,
        2: _write_list_offsets_response_2,
        3: _write_list_offsets_response_2,
        4: _write_list_offsets_response_4,
        5: _write_list_offsets_response_4,
        6: _write_list_offsets_response_6,
        7: _write_list_offsets_response_6,
        8: _write_list_offsets_response_6,
        9: _write_list_offsets_response_6,
        10: _write_list_offsets_response_6,
    },
    flexible_from=6,
)
