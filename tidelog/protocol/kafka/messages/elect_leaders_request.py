"""ElectLeadersRequest, versions 0 to 2. Generated from ElectLeadersRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
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

_r_b = Struct(">b").unpack_from
_r_i = Struct(">i").unpack_from


class TopicPartitions(Structure):
    """A structure of ElectLeadersRequest."""

    __slots__ = ("topic", "partitions")
    __match_args__ = ("topic", "partitions")

    def __init__(
        self,
        topic: str,
        partitions: tuple[PartitionIndex, ...],
    ) -> None:
        # The name of a topic.
        self.topic: Final = topic
        # The partitions of this topic whose leader should be elected.
        self.partitions: Final = partitions


class ElectLeadersRequest(Structure):
    """The message."""

    __slots__ = ("topic_partitions", "timeout_ms", "election_type")
    __match_args__ = ("topic_partitions", "timeout_ms", "election_type")

    def __init__(
        self,
        topic_partitions: tuple[TopicPartitions, ...] | None,
        timeout_ms: int,
        election_type: int = 0,
    ) -> None:
        # The topic partitions to elect leaders.
        self.topic_partitions: Final = topic_partitions
        # The time in ms to wait for the election to complete.
        self.timeout_ms: Final = timeout_ms
        # Type of elections to conduct for the partition. A value of '0' elects the preferred replica. A value of '1'
        # elects the first live replica if there are no in-sync replica.
        self.election_type: Final = election_type


def _read_topic_partitions_0(data: Data, at: int) -> tuple[TopicPartitions, int]:
    topic, at = read_string(data, at)
    partitions, at = read_numbers(data, at, read_length, "i")
    return TopicPartitions(topic=topic, partitions=partitions), at


def _read_elect_leaders_request_0(data: Data, at: int) -> tuple[ElectLeadersRequest, int]:
    topic_partitions, at = read_nullable_array(data, at, read_length, _read_topic_partitions_0)
    (timeout_ms,) = _r_i(data, at)
    at += 4
    return ElectLeadersRequest(topic_partitions=topic_partitions, timeout_ms=timeout_ms), at


def _read_elect_leaders_request_1(data: Data, at: int) -> tuple[ElectLeadersRequest, int]:
    (election_type,) = _r_b(data, at)
    at += 1
    topic_partitions, at = read_nullable_array(data, at, read_length, _read_topic_partitions_0)
    (timeout_ms,) = _r_i(data, at)
    at += 4
    return ElectLeadersRequest(
        election_type=election_type, topic_partitions=topic_partitions, timeout_ms=timeout_ms
    ), at


def _read_topic_partitions_2(data: Data, at: int) -> tuple[TopicPartitions, int]:
    topic, at = read_compact_string(data, at)
    partitions, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return TopicPartitions(topic=topic, partitions=partitions), at


def _read_elect_leaders_request_2(data: Data, at: int) -> tuple[ElectLeadersRequest, int]:
    (election_type,) = _r_b(data, at)
    at += 1
    topic_partitions, at = read_nullable_array(data, at, read_compact_length, _read_topic_partitions_2)
    (timeout_ms,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return ElectLeadersRequest(
        election_type=election_type, topic_partitions=topic_partitions, timeout_ms=timeout_ms
    ), at


ELECT_LEADERS_REQUEST: Final = MessageCodec(
    ElectLeadersRequest,
    43,
    readers={0: _read_elect_leaders_request_0, 1: _read_elect_leaders_request_1, 2: _read_elect_leaders_request_2},
    writers={},
    flexible_from=2,
)
