"""OffsetDeleteRequest, versions 0 to 0. Generated from OffsetDeleteRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_length,
    read_string,
)

_r_i = Struct(">i").unpack_from


class OffsetDeleteRequestPartition(Structure):
    """A structure of OffsetDeleteRequest."""

    __slots__ = ("partition_index",)
    __match_args__ = ("partition_index",)

    def __init__(
        self,
        partition_index: int,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index


class OffsetDeleteRequestTopic(Structure):
    """A structure of OffsetDeleteRequest."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[OffsetDeleteRequestPartition, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # Each partition to delete offsets for.
        self.partitions: Final = partitions


class OffsetDeleteRequest(Structure):
    """The message."""

    __slots__ = ("group_id", "topics")
    __match_args__ = ("group_id", "topics")

    def __init__(
        self,
        group_id: str,
        topics: tuple[OffsetDeleteRequestTopic, ...],
    ) -> None:
        # The unique group identifier.
        self.group_id: Final = group_id
        # The topics to delete offsets for.
        self.topics: Final = topics


def _read_offset_delete_request_partition_0(data: Data, at: int) -> tuple[OffsetDeleteRequestPartition, int]:
    (partition_index,) = _r_i(data, at)
    at += 4
    return OffsetDeleteRequestPartition(partition_index=partition_index), at


def _read_offset_delete_request_topic_0(data: Data, at: int) -> tuple[OffsetDeleteRequestTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_offset_delete_request_partition_0)
    return OffsetDeleteRequestTopic(name=name, partitions=partitions), at


def _read_offset_delete_request_0(data: Data, at: int) -> tuple[OffsetDeleteRequest, int]:
    group_id, at = read_string(data, at)
    topics, at = read_array(data, at, read_length, _read_offset_delete_request_topic_0)
    return OffsetDeleteRequest(group_id=group_id, topics=topics), at


OFFSET_DELETE_REQUEST: Final = MessageCodec(
    OffsetDeleteRequest,
    47,
    readers={0: _read_offset_delete_request_0},
    writers={},
)
