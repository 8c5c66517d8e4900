"""ListPartitionReassignmentsResponse, versions 0 to 0. Generated from ListPartitionReassignmentsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    write_numbers,
)

_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack


class OngoingPartitionReassignment(Structure):
    """A structure of ListPartitionReassignmentsResponse."""

    __slots__ = ("partition_index", "replicas", "adding_replicas", "removing_replicas")
    __match_args__ = ("partition_index", "replicas", "adding_replicas", "removing_replicas")

    def __init__(
        self,
        partition_index: int,
        replicas: tuple[int, ...],
        adding_replicas: tuple[int, ...],
        removing_replicas: tuple[int, ...],
    ) -> None:
        # The index of the partition.
        self.partition_index: Final = partition_index
        # The current replica set.
        self.replicas: Final = replicas
        # The set of replicas we are currently adding.
        self.adding_replicas: Final = adding_replicas
        # The set of replicas we are currently removing.
        self.removing_replicas: Final = removing_replicas


class OngoingTopicReassignment(Structure):
    """A structure of ListPartitionReassignmentsResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[OngoingPartitionReassignment, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The ongoing reassignments for each partition.
        self.partitions: Final = partitions


class ListPartitionReassignmentsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "error_message", "topics")
    __match_args__ = ("throttle_time_ms", "error_code", "error_message", "topics")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        error_message: str | None,
        topics: tuple[OngoingTopicReassignment, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The top-level error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The top-level error message, or null if there was no error.
        self.error_message: Final = error_message
        # The ongoing reassignments for each topic.
        self.topics: Final = topics


def _write_ongoing_partition_reassignment_0(out: Output, value: OngoingPartitionReassignment) -> None:
    out += _w_i(value.partition_index)
    write_numbers(out, value.replicas, write_compact_length, "i")
    write_numbers(out, value.adding_replicas, write_compact_length, "i")
    write_numbers(out, value.removing_replicas, write_compact_length, "i")
    out.append(0)


def _write_ongoing_topic_reassignment_0(out: Output, value: OngoingTopicReassignment) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_ongoing_partition_reassignment_0)
    out.append(0)


def _write_list_partition_reassignments_response_0(out: Output, value: ListPartitionReassignmentsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.topics, write_compact_length, _write_ongoing_topic_reassignment_0)
    out.append(0)


LIST_PARTITION_REASSIGNMENTS_RESPONSE: Final = MessageCodec(
    ListPartitionReassignmentsResponse,
    46,
    readers={},
    writers={0: _write_list_partition_reassignments_response_0},
    flexible_from=0,
)
