"""OffsetCommitResponse, versions 2 to 10. Generated from OffsetCommitResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    NO_UUID,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_u = Struct(">16s").pack
_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack


class OffsetCommitResponsePartition(Structure):
    """A structure of OffsetCommitResponse."""

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


class OffsetCommitResponseTopic(Structure):
    """A structure of OffsetCommitResponse."""

    __slots__ = ("partitions", "name", "topic_id")
    __match_args__ = ("partitions", "name", "topic_id")

    def __init__(
        self,
        partitions: tuple[OffsetCommitResponsePartition, ...],
        name: str = "",
        topic_id: UUID = NO_UUID,
    ) -> None:
        # The responses for each partition in the topic.
        self.partitions: Final = partitions
        # The topic name.
        self.name: Final = name
        # The topic ID.
        self.topic_id: Final = topic_id


class OffsetCommitResponse(Structure):
    """The message."""

    __slots__ = ("topics", "throttle_time_ms")
    __match_args__ = ("topics", "throttle_time_ms")

    def __init__(
        self,
        topics: tuple[OffsetCommitResponseTopic, ...],
        throttle_time_ms: int = 0,
    ) -> None:
        # The responses for each topic.
        self.topics: Final = topics
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms


def _write_offset_commit_response_partition_2(out: Output, value: OffsetCommitResponsePartition) -> None:
    out += _w_ih(value.partition_index, value.error_code)


def _write_offset_commit_response_topic_2(out: Output, value: OffsetCommitResponseTopic) -> None:
    write_string(out, value.name)
    write_array(out, value.partitions, write_length, _write_offset_commit_response_partition_2)


def _write_offset_commit_response_2(out: Output, value: OffsetCommitResponse) -> None:
    write_array(out, value.topics, write_length, _write_offset_commit_response_topic_2)


def _write_offset_commit_response_3(out: Output, value: OffsetCommitResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_offset_commit_response_topic_2)


def _write_offset_commit_response_partition_8(out: Output, value: OffsetCommitResponsePartition) -> None:
    out += _w_ih(value.partition_index, value.error_code)
    out.append(0)


def _write_offset_commit_response_topic_8(out: Output, value: OffsetCommitResponseTopic) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_offset_commit_response_partition_8)
    out.append(0)


def _write_offset_commit_response_8(out: Output, value: OffsetCommitResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_offset_commit_response_topic_8)
    out.append(0)


def _write_offset_commit_response_topic_10(out: Output, value: OffsetCommitResponseTopic) -> None:
    out += _w_u(value.topic_id.bytes)
    write_array(out, value.partitions, write_compact_length, _write_offset_commit_response_partition_8)
    out.append(0)


def _write_offset_commit_response_10(out: Output, value: OffsetCommitResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_offset_commit_response_topic_10)
    out.append(0)


OFFSET_COMMIT_RESPONSE: Final = MessageCodec(
    OffsetCommitResponse,
    8,
    readers={},
    writers={
        2: _write_offset_commit_response_2,
        3: _write_offset_commit_response_3,
        4: _write_offset_commit_response_3,
        5: _write_offset_commit_response_3,
        6: _write_offset_commit_response_3,
        7: _write_offset_commit_response_3,
        8: _write_offset_commit_response_8,
        9: _write_offset_commit_response_8,
        10: _write_offset_commit_response_10,
    },
    flexible_from=8,
)
