"""AlterReplicaLogDirsResponse, versions 1 to 2. Generated from AlterReplicaLogDirsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
_w_ih = Struct(">ih").pack


class AlterReplicaLogDirPartitionResult(Structure):
    """A structure of AlterReplicaLogDirsResponse."""

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


class AlterReplicaLogDirTopicResult(Structure):
    """A structure of AlterReplicaLogDirsResponse."""

    __slots__ = ("topic_name", "partitions")
    __match_args__ = ("topic_name", "partitions")

    def __init__(
        self,
        topic_name: str,
        partitions: tuple[AlterReplicaLogDirPartitionResult, ...],
    ) -> None:
        # The name of the topic.
        self.topic_name: Final = topic_name
        # The results for each partition.
        self.partitions: Final = partitions


class AlterReplicaLogDirsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "results")
    __match_args__ = ("throttle_time_ms", "results")

    def __init__(
        self,
        throttle_time_ms: int,
        results: tuple[AlterReplicaLogDirTopicResult, ...],
    ) -> None:
        # Duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The results for each topic.
        self.results: Final = results


def _write_alter_replica_log_dir_partition_result_1(out: Output, value: AlterReplicaLogDirPartitionResult) -> None:
    out += _w_ih(value.partition_index, value.error_code)


def _write_alter_replica_log_dir_topic_result_1(out: Output, value: AlterReplicaLogDirTopicResult) -> None:
    write_string(out, value.topic_name)
    write_array(out, value.partitions, write_length, _write_alter_replica_log_dir_partition_result_1)


def _write_alter_replica_log_dirs_response_1(out: Output, value: AlterReplicaLogDirsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_length, _write_alter_replica_log_dir_topic_result_1)


def _write_alter_replica_log_dir_partition_result_2(out: Output, value: AlterReplicaLogDirPartitionResult) -> None:
    out += _w_ih(value.partition_index, value.error_code)
    out.append(0)


def _write_alter_replica_log_dir_topic_result_2(out: Output, value: AlterReplicaLogDirTopicResult) -> None:
    write_compact_string(out, value.topic_name)
    write_array(out, value.partitions, write_compact_length, _write_alter_replica_log_dir_partition_result_2)
    out.append(0)


def _write_alter_replica_log_dirs_response_2(out: Output, value: AlterReplicaLogDirsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_compact_length, _write_alter_replica_log_dir_topic_result_2)
    out.append(0)


ALTER_REPLICA_LOG_DIRS_RESPONSE: Final = MessageCodec(
    AlterReplicaLogDirsResponse,
    34,
    readers={},
    writers={1: _write_alter_replica_log_dirs_response_1, 2: _write_alter_replica_log_dirs_response_2},
    flexible_from=2,
)
