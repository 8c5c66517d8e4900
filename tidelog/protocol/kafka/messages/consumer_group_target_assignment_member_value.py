"""ConsumerGroupTargetAssignmentMemberValue, versions 0 to 0. Generated from ConsumerGroupTargetAssignmentMemberValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_array,
    read_compact_length,
    read_numbers,
    skip_tags,
    uuid_of,
    write_array,
    write_compact_length,
    write_numbers,
)
from tidelog.types import TopicPartitions

_r_u = Struct(">16s").unpack_from
_w_u = Struct(">16s").pack


TopicPartition = TopicPartitions


class ConsumerGroupTargetAssignmentMemberValue(Structure):
    """The message."""

    __slots__ = ("topic_partitions",)
    __match_args__ = ("topic_partitions",)

    def __init__(
        self,
        topic_partitions: tuple[TopicPartition, ...],
    ) -> None:
        # The assigned partitions.
        self.topic_partitions: Final = topic_partitions


def _read_topic_partition_0(data: Data, at: int) -> tuple[TopicPartition, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    partitions, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return TopicPartition(topic_id=topic_id, partitions=partitions), at


def _read_consumer_group_target_assignment_member_value_0(
    data: Data, at: int
) -> tuple[ConsumerGroupTargetAssignmentMemberValue, int]:
    topic_partitions, at = read_array(data, at, read_compact_length, _read_topic_partition_0)
    at = skip_tags(data, at)
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topic_partitions), at


def _write_topic_partition_0(out: Output, value: TopicPartition) -> None:
    out += _w_u(value.topic_id.bytes)
    write_numbers(out, value.partitions, write_compact_length, "i")
    out.append(0)


def _write_consumer_group_target_assignment_member_value_0(
    out: Output, value: ConsumerGroupTargetAssignmentMemberValue
) -> None:
    write_array(out, value.topic_partitions, write_compact_length, _write_topic_partition_0)
    out.append(0)


CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Final = MessageCodec(
    ConsumerGroupTargetAssignmentMemberValue,
    7,
    readers={0: _read_consumer_group_target_assignment_member_value_0},
    writers={0: _write_consumer_group_target_assignment_member_value_0},
)
