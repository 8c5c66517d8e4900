"""ConsumerProtocolAssignment, versions 0 to 3. Generated from ConsumerProtocolAssignment.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_array,
    read_length,
    read_nullable_bytes,
    read_numbers,
    read_string,
    write_array,
    write_bytes,
    write_length,
    write_numbers,
    write_string,
)
from tidelog.types import PartitionIndex


class TopicPartition(Structure):
    """A structure of ConsumerProtocolAssignment."""

    __slots__ = ("topic", "partitions")
    __match_args__ = ("topic", "partitions")

    def __init__(
        self,
        topic: str,
        partitions: tuple[PartitionIndex, ...],
    ) -> None:
        # The topic name.
        self.topic: Final = topic
        # The list of partitions assigned to this consumer.
        self.partitions: Final = partitions


class ConsumerProtocolAssignment(Structure):
    """The message."""

    __slots__ = ("assigned_partitions", "user_data")
    __match_args__ = ("assigned_partitions", "user_data")

    def __init__(
        self,
        assigned_partitions: tuple[TopicPartition, ...],
        user_data: bytes | None,
    ) -> None:
        # The list of topics and partitions assigned to this consumer.
        self.assigned_partitions: Final = assigned_partitions
        # User data.
        self.user_data: Final = user_data


def _read_topic_partition_0(data: Data, at: int) -> tuple[TopicPartition, int]:
    topic, at = read_string(data, at)
    partitions, at = read_numbers(data, at, read_length, "i")
    return TopicPartition(topic=topic, partitions=partitions), at


def _read_consumer_protocol_assignment_0(data: Data, at: int) -> tuple[ConsumerProtocolAssignment, int]:
    assigned_partitions, at = read_array(data, at, read_length, _read_topic_partition_0)
    user_data, at = read_nullable_bytes(data, at, read_length)
    return ConsumerProtocolAssignment(assigned_partitions=assigned_partitions, user_data=user_data), at


def _write_topic_partition_0(out: Output, value: TopicPartition) -> None:
    write_string(out, value.topic)
    write_numbers(out, value.partitions, write_length, "i")


def _write_consumer_protocol_assignment_0(out: Output, value: ConsumerProtocolAssignment) -> None:
    write_array(out, value.assigned_partitions, write_length, _write_topic_partition_0)
    write_bytes(out, value.user_data, write_length)


CONSUMER_PROTOCOL_ASSIGNMENT: Final = MessageCodec(
    ConsumerProtocolAssignment,
    -1,
    readers={
        0: _read_consumer_protocol_assignment_0,
        1: _read_consumer_protocol_assignment_0,
        2: _read_consumer_protocol_assignment_0,
        3: _read_consumer_protocol_assignment_0,
    },
    writers={
        0: _write_consumer_protocol_assignment_0,
        1: _write_consumer_protocol_assignment_0,
        2: _write_consumer_protocol_assignment_0,
        3: _write_consumer_protocol_assignment_0,
    },
)
