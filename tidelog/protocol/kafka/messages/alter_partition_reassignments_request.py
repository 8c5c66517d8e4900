"""AlterPartitionReassignmentsRequest, versions 0 to 1. Generated from AlterPartitionReassignmentsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_nullable_numbers,
    skip_tags,
)

_r_i = Struct(">i").unpack_from
_r_it = Struct(">i?").unpack_from


class ReassignablePartition(Structure):
    """A structure of AlterPartitionReassignmentsRequest."""

    __slots__ = ("partition_index", "replicas")
    __match_args__ = ("partition_index", "replicas")

    def __init__(
        self,
        partition_index: int,
        replicas: tuple[int, ...] | None,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The replicas to place the partitions on, or null to cancel a pending reassignment for this partition.
        self.replicas: Final = replicas


class ReassignableTopic(Structure):
    """A structure of AlterPartitionReassignmentsRequest."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[ReassignablePartition, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The partitions to reassign.
        self.partitions: Final = partitions


class AlterPartitionReassignmentsRequest(Structure):
    """The message."""

    __slots__ = ("timeout_ms", "topics", "allow_replication_factor_change")
    __match_args__ = ("timeout_ms", "topics", "allow_replication_factor_change")

    def __init__(
        self,
        timeout_ms: int,
        topics: tuple[ReassignableTopic, ...],
        allow_replication_factor_change: bool = True,
    ) -> None:
        # The time in ms to wait for the request to complete.
        self.timeout_ms: Final = timeout_ms
        # The topics to reassign.
        self.topics: Final = topics
        # The option indicating whether changing the replication factor of any given partition as part of this request
        # is a valid move.
        self.allow_replication_factor_change: Final = allow_replication_factor_change


def _read_reassignable_partition_0(data: Data, at: int) -> tuple[ReassignablePartition, int]:
    (partition_index,) = _r_i(data, at)
    at += 4
    replicas, at = read_nullable_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return ReassignablePartition(partition_index=partition_index, replicas=replicas), at


def _read_reassignable_topic_0(data: Data, at: int) -> tuple[ReassignableTopic, int]:
    name, at = read_compact_string(data, at)
    partitions, at = read_array(data, at, read_compact_length, _read_reassignable_partition_0)
    at = skip_tags(data, at)
    return ReassignableTopic(name=name, partitions=partitions), at


def _read_alter_partition_reassignments_request_0(
    data: Data, at: int
) -> tuple[AlterPartitionReassignmentsRequest, int]:
    (timeout_ms,) = _r_i(data, at)
    at += 4
    topics, at = read_array(data, at, read_compact_length, _read_reassignable_topic_0)
    at = skip_tags(data, at)
    return AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics), at


def _read_alter_partition_reassignments_request_1(
    data: Data, at: int
) -> tuple[AlterPartitionReassignmentsRequest, int]:
    timeout_ms, allow_replication_factor_change = _r_it(data, at)
    at += 5
    topics, at = read_array(data, at, read_compact_length, _read_reassignable_topic_0)
    at = skip_tags(data, at)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms, allow_replication_factor_change=allow_replication_factor_change, topics=topics
    ), at


ALTER_PARTITION_REASSIGNMENTS_REQUEST: Final = MessageCodec(
    AlterPartitionReassignmentsRequest,
    45,
    readers={0: _read_alter_partition_reassignments_request_0, 1: _read_alter_partition_reassignments_request_1},
    writers={},
    flexible_from=0,
)
