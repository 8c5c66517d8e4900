"""OffsetForLeaderEpochResponse, versions 2 to 4. Generated from OffsetForLeaderEpochResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)
from tidelog.types import LeaderEpoch, PartitionIndex

_w_hiiq = Struct(">hiiq").pack
_w_i = Struct(">i").pack


class EpochEndOffset(Structure):
    """A structure of OffsetForLeaderEpochResponse."""

    __slots__ = ("error_code", "partition", "leader_epoch", "end_offset")
    __match_args__ = ("error_code", "partition", "leader_epoch", "end_offset")

    def __init__(
        self,
        error_code: int,
        partition: PartitionIndex,
        leader_epoch: LeaderEpoch,
        end_offset: int,
    ) -> None:
        # The error code 0, or if there was no error.
        self.error_code: Final = error_code
        # The partition index.
        self.partition: Final = partition
        # The leader epoch of the partition.
        self.leader_epoch: Final = leader_epoch
        # The end offset of the epoch.
        self.end_offset: Final = end_offset


class OffsetForLeaderTopicResult(Structure):
    """A structure of OffsetForLeaderEpochResponse."""

    __slots__ = ("topic", "partitions")
    __match_args__ = ("topic", "partitions")

    def __init__(
        self,
        topic: str,
        partitions: tuple[EpochEndOffset, ...],
    ) -> None:
        # The topic name.
        self.topic: Final = topic
        # Each partition in the topic we fetched offsets for.
        self.partitions: Final = partitions


class OffsetForLeaderEpochResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "topics")
    __match_args__ = ("throttle_time_ms", "topics")

    def __init__(
        self,
        throttle_time_ms: int,
        topics: tuple[OffsetForLeaderTopicResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # Each topic we fetched offsets for.
        self.topics: Final = topics


def _write_epoch_end_offset_2(out: Output, value: EpochEndOffset) -> None:
    out += _w_hiiq(value.error_code, value.partition, value.leader_epoch, value.end_offset)


def _write_offset_for_leader_topic_result_2(out: Output, value: OffsetForLeaderTopicResult) -> None:
    write_string(out, value.topic)
    write_array(out, value.partitions, write_length, _write_epoch_end_offset_2)


def _write_offset_for_leader_epoch_response_2(out: Output, value: OffsetForLeaderEpochResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_offset_for_leader_topic_result_2)


def _write_epoch_end_offset_4(out: Output, value: EpochEndOffset) -> None:
    out += _w_hiiq(value.error_code, value.partition, value.leader_epoch, value.end_offset)
    out.append(0)


def _write_offset_for_leader_topic_result_4(out: Output, value: OffsetForLeaderTopicResult) -> None:
    write_compact_string(out, value.topic)
    write_array(out, value.partitions, write_compact_length, _write_epoch_end_offset_4)
    out.append(0)


def _write_offset_for_leader_epoch_response_4(out: Output, value: OffsetForLeaderEpochResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_offset_for_leader_topic_result_4)
    out.append(0)


OFFSET_FOR_LEADER_EPOCH_RESPONSE: Final = MessageCodec(
    OffsetForLeaderEpochResponse,
    23,
    readers={},
    writers={
        2: _write_offset_for_leader_epoch_response_2,
        3: _write_offset_for_leader_epoch_response_2,
        4: _write_offset_for_leader_epoch_response_4,
    },
    flexible_from=4,
)
