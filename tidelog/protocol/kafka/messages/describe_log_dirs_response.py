"""DescribeLogDirsResponse, versions 1 to 5. Generated from DescribeLogDirsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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

_w_h = Struct(">h").pack
_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack
_w_iqqt = Struct(">iqq?").pack
_w_qq = Struct(">qq").pack
_w_qqt = Struct(">qq?").pack


class DescribeLogDirsPartition(Structure):
    """A structure of DescribeLogDirsResponse."""

    __slots__ = ("partition_index", "partition_size", "offset_lag", "is_future_key")
    __match_args__ = ("partition_index", "partition_size", "offset_lag", "is_future_key")

    def __init__(
        self,
        partition_index: int,
        partition_size: int,
        offset_lag: int,
        is_future_key: bool,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The size of the log segments in this partition in bytes.
        self.partition_size: Final = partition_size
        # The lag of the log's LEO w.r.t. partition's HW (if it is the current log for the partition) or current
        # replica's LEO (if it is the future log for the partition).
        self.offset_lag: Final = offset_lag
        # True if this log is created by AlterReplicaLogDirsRequest and will replace the current log of the replica in
        # the future.
        self.is_future_key: Final = is_future_key


class DescribeLogDirsTopic(Structure):
    """A structure of DescribeLogDirsResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[DescribeLogDirsPartition, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The partitions.
        self.partitions: Final = partitions


class DescribeLogDirsResult(Structure):
    """A structure of DescribeLogDirsResponse."""

    __slots__ = ("error_code", "log_dir", "topics", "total_bytes", "usable_bytes", "is_cordoned")
    __match_args__ = ("error_code", "log_dir", "topics", "total_bytes", "usable_bytes", "is_cordoned")

    def __init__(
        self,
        error_code: int,
        log_dir: str,
        topics: tuple[DescribeLogDirsTopic, ...],
        total_bytes: int = -1,
        usable_bytes: int = -1,
        is_cordoned: bool = False,
    ) -> None:
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The absolute log directory path.
        self.log_dir: Final = log_dir
        # The topics.
        self.topics: Final = topics
        # The total size in bytes of the volume the log directory is in. This value does not include the size of data
        # stored in remote storage.
        self.total_bytes: Final = total_bytes
        # The usable size in bytes of the volume the log directory is in. This value does not include the size of data
        # stored in remote storage.
        self.usable_bytes: Final = usable_bytes
        # True if this log directory is cordoned.
        self.is_cordoned: Final = is_cordoned


class DescribeLogDirsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "results", "error_code")
    __match_args__ = ("throttle_time_ms", "results", "error_code")

    def __init__(
        self,
        throttle_time_ms: int,
        results: tuple[DescribeLogDirsResult, ...],
        error_code: int = 0,
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The log directories.
        self.results: Final = results
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code


def _write_describe_log_dirs_partition_1(out: Output, value: DescribeLogDirsPartition) -> None:
    out += _w_iqqt(value.partition_index, value.partition_size, value.offset_lag, value.is_future_key)


def _write_describe_log_dirs_topic_1(out: Output, value: DescribeLogDirsTopic) -> None:
    write_string(out, value.name)
    write_array(out, value.partitions, write_length, _write_describe_log_dirs_partition_1)


def _write_describe_log_dirs_result_1(out: Output, value: DescribeLogDirsResult) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.log_dir)
    write_array(out, value.topics, write_length, _write_describe_log_dirs_topic_1)


def _write_describe_log_dirs_response_1(out: Output, value: DescribeLogDirsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_length, _write_describe_log_dirs_result_1)


def _write_describe_log_dirs_partition_2(out: Output, value: DescribeLogDirsPartition) -> None:
    out += _w_iqqt(value.partition_index, value.partition_size, value.offset_lag, value.is_future_key)
    out.append(0)


def _write_describe_log_dirs_topic_2(out: Output, value: DescribeLogDirsTopic) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_describe_log_dirs_partition_2)
    out.append(0)


def _write_describe_log_dirs_result_2(out: Output, value: DescribeLogDirsResult) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.log_dir)
    write_array(out, value.topics, write_compact_length, _write_describe_log_dirs_topic_2)
    out.append(0)


def _write_describe_log_dirs_response_2(out: Output, value: DescribeLogDirsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_compact_length, _write_describe_log_dirs_result_2)
    out.append(0)


def _write_describe_log_dirs_response_3(out: Output, value: DescribeLogDirsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.results, write_compact_length, _write_describe_log_dirs_result_2)
    out.append(0)


def _write_describe_log_dirs_result_4(out: Output, value: DescribeLogDirsResult) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.log_dir)
    write_array(out, value.topics, write_compact_length, _write_describe_log_dirs_topic_2)
    out += _w_qq(value.total_bytes, value.usable_bytes)
    out.append(0)


def _write_describe_log_dirs_response_4(out: Output, value: DescribeLogDirsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.results, write_compact_length, _write_describe_log_dirs_result_4)
    out.append(0)


def _write_describe_log_dirs_result_5(out: Output, value: DescribeLogDirsResult) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.log_dir)
    write_array(out, value.topics, write_compact_length, _write_describe_log_dirs_topic_2)
    out += _w_qqt(value.total_bytes, value.usable_bytes, value.is_cordoned)
    out.append(0)


def _write_describe_log_dirs_response_5(out: Output, value: DescribeLogDirsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.results, write_compact_length, _write_describe_log_dirs_result_5)
    out.append(0)


DESCRIBE_LOG_DIRS_RESPONSE: Final = MessageCodec(
    DescribeLogDirsResponse,
    35,
    readers={},
    writers={
        1: _write_describe_log_dirs_response_1,
        2: _write_describe_log_dirs_response_2,
        3: _write_describe_log_dirs_response_3,
        4: _write_describe_log_dirs_response_4,
        5: _write_describe_log_dirs_response_5,
    },
    flexible_from=2,
)
