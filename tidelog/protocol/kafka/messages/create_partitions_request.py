"""CreatePartitionsRequest, versions 0 to 3. Generated from CreatePartitionsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    read_length,
    read_nullable_array,
    read_numbers,
    read_string,
    skip_tags,
)

_r_i = Struct(">i").unpack_from
_r_it = Struct(">i?").unpack_from


class CreatePartitionsAssignment(Structure):
    """A structure of CreatePartitionsRequest."""

    __slots__ = ("broker_ids",)
    __match_args__ = ("broker_ids",)

    def __init__(
        self,
        broker_ids: tuple[int, ...],
    ) -> None:
        # The assigned broker IDs.
        self.broker_ids: Final = broker_ids


class CreatePartitionsTopic(Structure):
    """A structure of CreatePartitionsRequest."""

    __slots__ = ("name", "count", "assignments")
    __match_args__ = ("name", "count", "assignments")

    def __init__(
        self,
        name: str,
        count: int,
        assignments: tuple[CreatePartitionsAssignment, ...] | None,
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The new partition count.
        self.count: Final = count
        # The new partition assignments.
        self.assignments: Final = assignments


class CreatePartitionsRequest(Structure):
    """The message."""

    __slots__ = ("topics", "timeout_ms", "validate_only")
    __match_args__ = ("topics", "timeout_ms", "validate_only")

    def __init__(
        self,
        topics: tuple[CreatePartitionsTopic, ...],
        timeout_ms: int,
        validate_only: bool,
    ) -> None:
        # Each topic that we want to create new partitions inside.
        self.topics: Final = topics
        # The time in ms to wait for the partitions to be created.
        self.timeout_ms: Final = timeout_ms
        # If true, then validate the request, but don't actually increase the number of partitions.
        self.validate_only: Final = validate_only


def _read_create_partitions_assignment_0(data: Data, at: int) -> tuple[CreatePartitionsAssignment, int]:
    broker_ids, at = read_numbers(data, at, read_length, "i")
    return CreatePartitionsAssignment(broker_ids=broker_ids), at


def _read_create_partitions_topic_0(data: Data, at: int) -> tuple[CreatePartitionsTopic, int]:
    name, at = read_string(data, at)
    (count,) = _r_i(data, at)
    at += 4
    assignments, at = read_nullable_array(data, at, read_length, _read_create_partitions_assignment_0)
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments), at


def _read_create_partitions_request_0(data: Data, at: int) -> tuple[CreatePartitionsRequest, int]:
    topics, at = read_array(data, at, read_length, _read_create_partitions_topic_0)
    timeout_ms, validate_only = _r_it(data, at)
    at += 5
    return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only), at


def _read_create_partitions_assignment_2(data: Data, at: int) -> tuple[CreatePartitionsAssignment, int]:
    broker_ids, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return CreatePartitionsAssignment(broker_ids=broker_ids), at


def _read_create_partitions_topic_2(data: Data, at: int) -> tuple[CreatePartitionsTopic, int]:
    name, at = read_compact_string(data, at)
    (count,) = _r_i(data, at)
    at += 4
    assignments, at = read_nullable_array(data, at, read_compact_length, _read_create_partitions_assignment_2)
    at = skip_tags(data, at)
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments), at


def _read_create_partitions_request_2(data: Data, at: int) -> tuple[CreatePartitionsRequest, int]:
    topics, at = read_array(data, at, read_compact_length, _read_create_partitions_topic_2)
    timeout_ms, validate_only = _r_it(data, at)
    at += 5
    at = skip_tags(data, at)
    return CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only), at


CREATE_PARTITIONS_REQUEST: Final = MessageCodec(
    CreatePartitionsRequest,
    37,
    readers={
        0: _read_create_partitions_request_0,
        1: _read_create_partitions_request_0,
        2: _read_create_partitions_request_2,
        3: _read_create_partitions_request_2,
    },
    writers={},
    flexible_from=2,
)
