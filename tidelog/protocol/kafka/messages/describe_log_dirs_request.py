"""DescribeLogDirsRequest, versions 1 to 5. Generated from DescribeLogDirsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_array,
    read_numbers,
    read_string,
    skip_tags,
)
from tidelog.types import PartitionIndex


class DescribableLogDirTopic(Structure):
    """A structure of DescribeLogDirsRequest."""

    __slots__ = ("topic", "partitions")
    __match_args__ = ("topic", "partitions")

    def __init__(
        self,
        topic: str,
        partitions: tuple[PartitionIndex, ...],
    ) -> None:
        # The topic name.
        self.topic: Final = topic
        # The partition indexes.
        self.partitions: Final = partitions


class DescribeLogDirsRequest(Structure):
    """The message."""

    __slots__ = ("topics",)
    __match_args__ = ("topics",)

    def __init__(
        self,
        topics: tuple[DescribableLogDirTopic, ...] | None,
    ) -> None:
        # Each topic that we want to describe log directories for, or null for all topics.
        self.topics: Final = topics


def _read_describable_log_dir_topic_1(data: Data, at: int) -> tuple[DescribableLogDirTopic, int]:
    topic, at = read_string(data, at)
    partitions, at = read_numbers(data, at, read_length, "i")
    return DescribableLogDirTopic(topic=topic, partitions=partitions), at


def _read_describe_log_dirs_request_1(data: Data, at: int) -> tuple[DescribeLogDirsRequest, int]:
    topics, at = read_nullable_array(data, at, read_length, _read_describable_log_dir_topic_1)
    return DescribeLogDirsRequest(topics=topics), at


def _read_describable_log_dir_topic_2(data: Data, at: int) -> tuple[DescribableLogDirTopic, int]:
    topic, at = read_compact_string(data, at)
    partitions, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return DescribableLogDirTopic(topic=topic, partitions=partitions), at


def _read_describe_log_dirs_request_2(data: Data, at: int) -> tuple[DescribeLogDirsRequest, int]:
    topics, at = read_nullable_array(data, at, read_compact_length, _read_describable_log_dir_topic_2)
    at = skip_tags(data, at)
    return DescribeLogDirsRequest(topics=topics), at


DESCRIBE_LOG_DIRS_REQUEST: Final = MessageCodec(
    DescribeLogDirsRequest,
    35,
    readers={
        1: _read_describe_log_dirs_request_1,
        2: _read_describe_log_dirs_request_2,
        3: _read_describe_log_dirs_request_2,
        4: _read_describe_log_dirs_request_2,
        5: _read_describe_log_dirs_request_2,
    },
    writers={},
    flexible_from=2,
)
