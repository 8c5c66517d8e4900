"""OffsetDeleteResponse, versions 0 to 0. Generated from OffsetDeleteResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_length,
    write_string,
)

_w_hi = Struct(">hi").pack
_w_ih = Struct(">ih").pack


class OffsetDeleteResponsePartition(Structure):
    """A structure of OffsetDeleteResponse."""

    __slots__ = ("partition_index", "error_code")
    __match_args__ = ("partition_index", "error_code")

    def __init__(
        self,
        partition_index: int,
        error_code: int,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code


class OffsetDeleteResponseTopic(Structure):
    """A structure of OffsetDeleteResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[OffsetDeleteResponsePartition, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The responses for each partition in the topic.
        self.partitions: Final = partitions


class OffsetDeleteResponse(Structure):
    """The message."""

    __slots__ = ("error_code", "throttle_time_ms", "topics")
    __match_args__ = ("error_code", "throttle_time_ms", "topics")

    def __init__(
        self,
        error_code: int,
        throttle_time_ms: int,
        topics: tuple[OffsetDeleteResponseTopic, ...],
    ) -> None:
        # The top-level error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The responses for each topic.
        self.topics: Final = topics


def _write_offset_delete_response_partition_0(out: Output, value: OffsetDeleteResponsePartition) -> None:
    out += _w_ih(value.partition_index, value.error_code)


def _write_offset_delete_response_topic_0(out: Output, value: OffsetDeleteResponseTopic) -> None:
    write_string(out, value.name)
    write_array(out, value.partitions, write_length, _write_offset_delete_response_partition_0)


def _write_offset_delete_response_0(out: Output, value: OffsetDeleteResponse) -> None:
    out += _w_hi(value.error_code, value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_offset_delete_response_topic_0)


OFFSET_DELETE_RESPONSE: Final = MessageCodec(
    OffsetDeleteResponse,
    47,
    readers={},
    writers={0: _write_offset_delete_response_0},
)
