"""ConsumerGroupPartitionMetadataValue, versions 0 to 0. Generated from ConsumerGroupPartitionMetadataValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    skip_tags,
    uuid_of,
    write_array,
    write_compact_length,
    write_compact_string,
)
from tidelog.types import PartitionIndex

_r_u = Struct(">16s").unpack_from
_w_u = Struct(">16s").pack
_r_i = Struct(">i").unpack_from
_w_i = Struct(">i").pack


class PartitionMetadata(Structure):
    """A structure of ConsumerGroupPartitionMetadataValue."""

    __slots__ = ("partition", "racks")
    __match_args__ = ("partition", "racks")

    def __init__(
        self,
        partition: PartitionIndex,
        racks: tuple[str, ...],
    ) -> None:
        # The partition number.
        self.partition: Final = partition
        # The set of racks that the partition is mapped to.
        self.racks: Final = racks


class TopicMetadata(Structure):
    """A structure of ConsumerGroupPartitionMetadataValue."""

    __slots__ = ("topic_id", "topic_name", "num_partitions", "partition_metadata")
    __match_args__ = ("topic_id", "topic_name", "num_partitions", "partition_metadata")

    def __init__(
        self,
        topic_id: UUID,
        topic_name: str,
        num_partitions: int,
        partition_metadata: tuple[PartitionMetadata, ...],
    ) -> None:
        # The topic id.
        self.topic_id: Final = topic_id
        # The topic name.
        self.topic_name: Final = topic_name
        # The number of partitions of the topic.
        self.num_partitions: Final = num_partitions
        # Deprecated: this field is not used after 4.0. Partitions mapped to a set of racks. If the rack information
        # is unavailable for all the partitions, an empty list is stored.
        self.partition_metadata: Final = partition_metadata


class ConsumerGroupPartitionMetadataValue(Structure):
    """The message."""

    __slots__ = ("topics",)
    __match_args__ = ("topics",)

    def __init__(
        self,
        topics: tuple[TopicMetadata, ...],
    ) -> None:
        # The list of topic metadata.
        self.topics: Final = topics


def _read_partition_metadata_0(data: Data, at: int) -> tuple[PartitionMetadata, int]:
    (partition,) = _r_i(data, at)
    at += 4
    racks, at = read_array(data, at, read_compact_length, read_compact_string)
    at = skip_tags(data, at)
    return PartitionMetadata(partition=partition, racks=racks), at


def _read_topic_metadata_0(data: Data, at: int) -> tuple[TopicMetadata, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    topic_name, at = read_compact_string(data, at)
    (num_partitions,) = _r_i(data, at)
    at += 4
    partition_metadata, at = read_array(data, at, read_compact_length, _read_partition_metadata_0)
    at = skip_tags(data, at)
    return TopicMetadata(
        topic_id=topic_id, topic_name=topic_name, num_partitions=num_partitions, partition_metadata=partition_metadata
    ), at


def _read_consumer_group_partition_metadata_value_0(
    data: Data, at: int
) -> tuple[ConsumerGroupPartitionMetadataValue, int]:
    topics, at = read_array(data, at, read_compact_length, _read_topic_metadata_0)
    at = skip_tags(data, at)
    return ConsumerGroupPartitionMetadataValue(topics=topics), at


def _write_partition_metadata_0(out: Output, value: PartitionMetadata) -> None:
    out += _w_i(value.partition)
    write_array(out, value.racks, write_compact_length, write_compact_string)
    out.append(0)


def _write_topic_metadata_0(out: Output, value: TopicMetadata) -> None:
    out += _w_u(value.topic_id.bytes)
    write_compact_string(out, value.topic_name)
    out += _w_i(value.num_partitions)
    write_array(out, value.partition_metadata, write_compact_length, _write_partition_metadata_0)
    out.append(0)


def _write_consumer_group_partition_metadata_value_0(out: Output, value: ConsumerGroupPartitionMetadataValue) -> None:
    write_array(out, value.topics, write_compact_length, _write_topic_metadata_0)
    out.append(0)


CONSUMER_GROUP_PARTITION_METADATA_VALUE: Final = MessageCodec(
    ConsumerGroupPartitionMetadataValue,
    4,
    readers={0: _read_consumer_group_partition_metadata_value_0},
    writers={0: _write_consumer_group_partition_metadata_value_0},
)
