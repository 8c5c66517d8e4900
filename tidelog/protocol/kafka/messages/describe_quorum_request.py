"""DescribeQuorumRequest, versions 0 to 2. Generated from DescribeQuorumRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    skip_tags,
)

_r_i = Struct(">i").unpack_from


class PartitionData(Structure):
    """A structure of DescribeQuorumRequest."""

    __slots__ = ("partition_index",)
    __match_args__ = ("partition_index",)

    def __init__(
        self,
        partition_index: int,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index


class TopicData(Structure):
    """A structure of DescribeQuorumRequest."""

    __slots__ = ("topic_name", "partitions")
    __match_args__ = ("topic_name", "partitions")

    def __init__(
        self,
        topic_name: str,
        partitions: tuple[PartitionData, ...],
    ) -> None:
        # The topic name.
        self.topic_name: Final = topic_name
        # The partitions to describe.
        self.partitions: Final = partitions


class DescribeQuorumRequest(Structure):
    """The message."""

    __slots__ = ("topics",)
    __match_args__ = ("topics",)

    def __init__(
        self,
        topics: tuple[TopicData, ...],
    ) -> None:
        # The topics to describe.
        self.topics: Final = topics


def _read_partition_data_0(data: Data, at: int) -> tuple[PartitionData, int]:
    (partition_index,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return PartitionData(partition_index=partition_index), at


def _read_topic_data_0(data: Data, at: int) -> tuple[TopicData, int]:
    topic_name, at = read_compact_string(data, at)
    partitions, at = read_array(data, at, read_compact_length, _read_partition_data_0)
    at = skip_tags(data, at)
    return TopicData(topic_name=topic_name, partitions=partitions), at


def _read_describe_quorum_request_0(data: Data, at: int) -> tuple[DescribeQuorumRequest, int]:
    topics, at = read_array(data, at, read_compact_length, _read_topic_data_0)
    at = skip_tags(data, at)
    return DescribeQuorumRequest(topics=topics), at


DESCRIBE_QUORUM_REQUEST: Final = MessageCodec(
    DescribeQuorumRequest,
    55,
    readers={
        0: _read_describe_quorum_request_0,
        1: _read_describe_quorum_request_0,
        2: _read_describe_quorum_request_0,
    },
    writers={},
    flexible_from=0,
)
