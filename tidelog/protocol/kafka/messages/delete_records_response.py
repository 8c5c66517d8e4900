"""DeleteRecordsResponse, versions 0 to 2. Generated from DeleteRecordsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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

_w_i = Struct(">i").pack
_w_iqh = Struct(">iqh").pack


class DeleteRecordsPartitionResult(Structure):
    """A structure of DeleteRecordsResponse."""

    __slots__ = ("partition_index", "low_watermark", "error_code")
    __match_args__ = ("partition_index", "low_watermark", "error_code")

    def __init__(
        self,
        partition_index: int,
        low_watermark: int,
        error_code: int,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The partition low water mark.
        self.low_watermark: Final = low_watermark
        # The deletion error code, or 0 if the deletion succeeded.
        self.error_code: Final = error_code


class DeleteRecordsTopicResult(Structure):
    """A structure of DeleteRecordsResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[DeleteRecordsPartitionResult, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # Each partition that we wanted to delete records from.
        self.partitions: Final = partitions


class DeleteRecordsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "topics")
    __match_args__ = ("throttle_time_ms", "topics")

    def __init__(
        self,
        throttle_time_ms: int,
        topics: tuple[DeleteRecordsTopicResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # Each topic that we wanted to delete records from.
        self.topics: Final = topics


def _write_delete_records_partition_result_0(out: Output, value: DeleteRecordsPartitionResult) -> None:
    out += _w_iqh(value.partition_index, value.low_watermark, value.error_code)


def _write_delete_records_topic_result_0(out: Output, value: DeleteRecordsTopicResult) -> None:
    write_string(out, value.name)
    write_array(out, value.partitions, write_length, _write_delete_records_partition_result_0)


def _write_delete_records_response_0(out: Output, value: DeleteRecordsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_delete_records_topic_result_0)


def _write_delete_records_partition_result_2(out: Output, value: DeleteRecordsPartitionResult) -> None:
    out += _w_iqh(value.partition_index, value.low_watermark, value.error_code)
    out.append(0)


def _write_delete_records_topic_result_2(out: Output, value: DeleteRecordsTopicResult) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_delete_records_partition_result_2)
    out.append(0)


def _write_delete_records_response_2(out: Output, value: DeleteRecordsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_delete_records_topic_result_2)
    out.append(0)


DELETE_RECORDS_RESPONSE: Final = MessageCodec(
    DeleteRecordsResponse,
    21,
    readers={},
    writers={
        0: _write_delete_records_response_0,
        1: _write_delete_records_response_0,
        2: _write_delete_records_response_2,
    },
    flexible_from=2,
)
