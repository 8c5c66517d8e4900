"""AlterPartitionReassignmentsResponse, versions 0 to 1. Generated from AlterPartitionReassignmentsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
)

_w_ith = Struct(">i?h").pack
_w_ih = Struct(">ih").pack


class ReassignablePartitionResponse(Structure):
    """A structure of AlterPartitionReassignmentsResponse."""

    __slots__ = ("partition_index", "error_code", "error_message")
    __match_args__ = ("partition_index", "error_code", "error_message")

    def __init__(
        self,
        partition_index: int,
        error_code: int,
        error_message: str | None,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The error code for this partition, or 0 if there was no error.
        self.error_code: Final = error_code
        # The error message for this partition, or null if there was no error.
        self.error_message: Final = error_message


class ReassignableTopicResponse(Structure):
    """A structure of AlterPartitionReassignmentsResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[ReassignablePartitionResponse, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The responses to partitions to reassign.
        self.partitions: Final = partitions


class AlterPartitionReassignmentsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "error_message", "responses", "allow_replication_factor_change")
    __match_args__ = ("throttle_time_ms", "error_code", "error_message", "responses", "allow_replication_factor_change")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        error_message: str | None,
        responses: tuple[ReassignableTopicResponse, ...],
        allow_replication_factor_change: bool = True,
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The top-level error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The top-level error message, or null if there was no error.
        self.error_message: Final = error_message
        # The responses to topics to reassign.
        self.responses: Final = responses
        # The option indicating whether changing the replication factor of any given partition as part of the request
        # was allowed.
        self.allow_replication_factor_change: Final = allow_replication_factor_change


def _write_reassignable_partition_response_0(out: Output, value: ReassignablePartitionResponse) -> None:
    out += _w_ih(value.partition_index, value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_reassignable_topic_response_0(out: Output, value: ReassignableTopicResponse) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_reassignable_partition_response_0)
    out.append(0)


def _write_alter_partition_reassignments_response_0(out: Output, value: AlterPartitionReassignmentsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.responses, write_compact_length, _write_reassignable_topic_response_0)
    out.append(0)


def _write_alter_partition_reassignments_response_1(out: Output, value: AlterPartitionReassignmentsResponse) -> None:
    out += _w_ith(value.throttle_time_ms, value.allow_replication_factor_change, value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.responses, write_compact_length, _write_reassignable_topic_response_0)
    out.append(0)


ALTER_PARTITION_REASSIGNMENTS_RESPONSE: Final = MessageCodec(
    AlterPartitionReassignmentsResponse,
    45,
    readers={},
    writers={0: _write_alter_partition_reassignments_response_0, 1: _write_alter_partition_reassignments_response_1},
    flexible_from=0,
)
