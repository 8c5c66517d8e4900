"""ConsumerProtocolSubscription, versions 0 to 3. Generated from ConsumerProtocolSubscription.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_array,
    read_length,
    read_nullable_bytes,
    read_nullable_string,
    read_numbers,
    read_string,
    write_array,
    write_bytes,
    write_length,
    write_numbers,
    write_string,
)
from tidelog.types import PartitionIndex

_r_i = Struct(">i").unpack_from
_w_i = Struct(">i").pack


class TopicPartition(Structure):
    """A structure of ConsumerProtocolSubscription."""

    __slots__ = ("topic", "partitions")
    __match_args__ = ("topic", "partitions")

    def __init__(
        self,
        topic: str,
        partitions: tuple[PartitionIndex, ...],
    ) -> None:
        # The topic name.
        self.topic: Final = topic
        # The partition ids.
        self.partitions: Final = partitions


class ConsumerProtocolSubscription(Structure):
    """The message."""

    __slots__ = ("topics", "user_data", "owned_partitions", "generation_id", "rack_id")
    __match_args__ = ("topics", "user_data", "owned_partitions", "generation_id", "rack_id")

    def __init__(
        self,
        topics: tuple[str, ...],
        user_data: bytes | None,
        owned_partitions: tuple[TopicPartition, ...] = (),
        generation_id: int = -1,
        rack_id: str | None = None,
    ) -> None:
        # The topics that the member wants to consume.
        self.topics: Final = topics
        # User data that will be passed back to the consumer.
        self.user_data: Final = user_data
        # The partitions that the member owns.
        self.owned_partitions: Final = owned_partitions
        # The generation id of the member.
        self.generation_id: Final = generation_id
        # The rack id of the member.
        self.rack_id: Final = rack_id


def _read_consumer_protocol_subscription_0(data: Data, at: int) -> tuple[ConsumerProtocolSubscription, int]:
    topics, at = read_array(data, at, read_length, read_string)
    user_data, at = read_nullable_bytes(data, at, read_length)
    return ConsumerProtocolSubscription(topics=topics, user_data=user_data), at


def _read_topic_partition_1(data: Data, at: int) -> tuple[TopicPartition, int]:
    topic, at = read_string(data, at)
    partitions, at = read_numbers(data, at, read_length, "i")
    return TopicPartition(topic=topic, partitions=partitions), at


def _read_consumer_protocol_subscription_1(data: Data, at: int) -> tuple[ConsumerProtocolSubscription, int]:
    topics, at = read_array(data, at, read_length, read_string)
    user_data, at = read_nullable_bytes(data, at, read_length)
    owned_partitions, at = read_array(data, at, read_length, _read_topic_partition_1)
    return ConsumerProtocolSubscription(topics=topics, user_data=user_data, owned_partitions=owned_partitions), at


def _read_consumer_protocol_subscription_2(data: Data, at: int) -> tuple[ConsumerProtocolSubscription, int]:
    topics, at = read_array(data, at, read_length, read_string)
    user_data, at = read_nullable_bytes(data, at, read_length)
    owned_partitions, at = read_array(data, at, read_length, _read_topic_partition_1)
    (generation_id,) = _r_i(data, at)
    at += 4
    return ConsumerProtocolSubscription(
        topics=topics, user_data=user_data, owned_partitions=owned_partitions, generation_id=generation_id
    ), at


def _read_consumer_protocol_subscription_3(data: Data, at: int) -> tuple[ConsumerProtocolSubscription, int]:
    topics, at = read_array(data, at, read_length, read_string)
    user_data, at = read_nullable_bytes(data, at, read_length)
    owned_partitions, at = read_array(data, at, read_length, _read_topic_partition_1)
    (generation_id,) = _r_i(data, at)
    at += 4
    rack_id, at = read_nullable_string(data, at)
    return ConsumerProtocolSubscription(
        topics=topics,
        user_data=user_data,
        owned_partitions=owned_partitions,
        generation_id=generation_id,
        rack_id=rack_id,
    ), at


def _write_consumer_protocol_subscription_0(out: Output, value: ConsumerProtocolSubscription) -> None:
    write_array(out, value.topics, write_length, write_string)
    write_bytes(out, value.user_data, write_length)


def _write_topic_partition_1(out: Output, value: TopicPartition) -> None:
    write_string(out, value.topic)
    write_numbers(out, value.partitions, write_length, "i")


def _write_consumer_protocol_subscription_1(out: Output, value: ConsumerProtocolSubscription) -> None:
    write_array(out, value.topics, write_length, write_string)
    write_bytes(out, value.user_data, write_length)
    write_array(out, value.owned_partitions, write_length, _write_topic_partition_1)


def _write_consumer_protocol_subscription_2(out: Output, value: ConsumerProtocolSubscription) -> None:
    write_array(out, value.topics, write_length, write_string)
    write_bytes(out, value.user_data, write_length)
    write_array(out, value.owned_partitions, write_length, _write_topic_partition_1)
    out += _w_i(value.generation_id)


def _write_consumer_protocol_subscription_3(out: Output, value: ConsumerProtocolSubscription) -> None:
    write_array(out, value.topics, write_length, write_string)
    write_bytes(out, value.user_data, write_length)
    write_array(out, value.owned_partitions, write_length, _write_topic_partition_1)
    out += _w_i(value.generation_id)
    write_string(out, value.rack_id)


CONSUMER_PROTOCOL_SUBSCRIPTION: Final = MessageCodec(
    ConsumerProtocolSubscription,
    -1,
    readers={
        0: _read_consumer_protocol_subscription_0,
        1: _read_consumer_protocol_subscription_1,
        2: _read_consumer_protocol_subscription_2,
        3: _read_consumer_protocol_subscription_3,
    },
    writers={
        0: _write_consumer_protocol_subscription_0,
        1: _write_consumer_protocol_subscription_1,
        2: _write_consumer_protocol_subscription_2,
        3: _write_consumer_protocol_subscription_3,
    },
)
