"""ListPartitionReassignmentsRequest, versions 0 to 0. Generated from ListPartitionReassignmentsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_compact_length,
    read_compact_string,
    read_nullable_array,
    read_numbers,
    skip_tags,
)

_r_i = Struct(">i").unpack_from


class ListPartitionReassignmentsTopics(Structure):
    """A structure of ListPartitionReassignmentsRequest."""

    __slots__ = ("name", "partition_indexes")
    __match_args__ = ("name", "partition_indexes")

    def __init__(
        self,
        name: str,
        partition_indexes: tuple[int, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The partitions to list partition reassignments for.
        self.partition_indexes: Final = partition_indexes


class ListPartitionReassignmentsRequest(Structure):
    """The message."""

    __slots__ = ("timeout_ms", "topics")
    __match_args__ = ("timeout_ms", "topics")

    def __init__(
        self,
        timeout_ms: int,
        topics: tuple[ListPartitionReassignmentsTopics, ...] | None,
    ) -> None:
        # The time in ms to wait for the request to complete.
        self.timeout_ms: Final = timeout_ms
        # The topics to list partition reassignments for, or null to list everything.
        self.topics: Final = topics


def _read_list_partition_reassignments_topics_0(data: Data, at: int) -> tuple[ListPartitionReassignmentsTopics, int]:
    name, at = read_compact_string(data, at)
    partition_indexes, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return ListPartitionReassignmentsTopics(name=name, partition_indexes=partition_indexes), at


def _read_list_partition_reassignments_request_0(data: Data, at: int) -> tuple[ListPartitionReassignmentsRequest, int]:
    (timeout_ms,) = _r_i(data, at)
    at += 4
    topics, at = read_nullable_array(data, at, read_compact_length, _read_list_partition_reassignments_topics_0)
    at = skip_tags(data, at)
    return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics), at


LIST_PARTITION_REASSIGNMENTS_REQUEST: Final = MessageCodec(
    ListPartitionReassignmentsRequest,
    46,
    readers={0: _read_list_partition_reassignments_request_0},
    writers={},
    flexible_from=0,
)
