"""DescribeProducersRequest, versions 0 to 0. Generated from DescribeProducersRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_numbers,
    skip_tags,
)


class TopicRequest(Structure):
    """A structure of DescribeProducersRequest."""

    __slots__ = ("name", "partition_indexes")
    __match_args__ = ("name", "partition_indexes")

    def __init__(
        self,
        name: str,
        partition_indexes: tuple[int, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The indexes of the partitions to list producers for.
        self.partition_indexes: Final = partition_indexes


class DescribeProducersRequest(Structure):
    """The message."""

    __slots__ = ("topics",)
    __match_args__ = ("topics",)

    def __init__(
        self,
        topics: tuple[TopicRequest, ...],
    ) -> None:
        # The topics to list producers for.
        self.topics: Final = topics


def _read_topic_request_0(data: Data, at: int) -> tuple[TopicRequest, int]:
    name, at = read_compact_string(data, at)
    partition_indexes, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return TopicRequest(name=name, partition_indexes=partition_indexes), at


def _read_describe_producers_request_0(data: Data, at: int) -> tuple[DescribeProducersRequest, int]:
    topics, at = read_array(data, at, read_compact_length, _read_topic_request_0)
    at = skip_tags(data, at)
    return DescribeProducersRequest(topics=topics), at


DESCRIBE_PRODUCERS_REQUEST: Final = MessageCodec(
    DescribeProducersRequest,
    61,
    readers={0: _read_describe_producers_request_0},
    writers={},
    flexible_from=0,
)
