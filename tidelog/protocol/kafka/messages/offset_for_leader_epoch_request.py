"""OffsetForLeaderEpochRequest, versions 2 to 4. Generated from OffsetForLeaderEpochRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    read_string,
    skip_tags,
)
from tidelog.types import LeaderEpoch, PartitionIndex

_r_i = Struct(">i").unpack_from
_r_iii = Struct(">iii").unpack_from


class OffsetForLeaderPartition(Structure):
    """A structure of OffsetForLeaderEpochRequest."""

    __slots__ = ("partition", "current_leader_epoch", "leader_epoch")
    __match_args__ = ("partition", "current_leader_epoch", "leader_epoch")

    def __init__(
        self,
        partition: PartitionIndex,
        current_leader_epoch: int,
        leader_epoch: LeaderEpoch,
    ) -> None:
        # The partition index.
        self.partition: Final = partition
        # An epoch used to fence consumers/replicas with old metadata. If the epoch provided by the client is larger
        # than the current epoch known to the broker, then the UNKNOWN_LEADER_EPOCH error code will be returned. If
        # the provided epoch is smaller, then the FENCED_LEADER_EPOCH error code will be returned.
        self.current_leader_epoch: Final = current_leader_epoch
        # The epoch to look up an offset for.
        self.leader_epoch: Final = leader_epoch


class OffsetForLeaderTopic(Structure):
    """A structure of OffsetForLeaderEpochRequest."""

    __slots__ = ("topic", "partitions")
    __match_args__ = ("topic", "partitions")

    def __init__(
        self,
        topic: str,
        partitions: tuple[OffsetForLeaderPartition, ...],
    ) -> None:
        # The topic name.
        self.topic: Final = topic
        # Each partition to get offsets for.
        self.partitions: Final = partitions


class OffsetForLeaderEpochRequest(Structure):
    """The message."""

    __slots__ = ("topics", "replica_id")
    __match_args__ = ("topics", "replica_id")

    def __init__(
        self,
        topics: tuple[OffsetForLeaderTopic, ...],
        replica_id: int = -2,
    ) -> None:
        # Each topic to get offsets for.
        self.topics: Final = topics
        # The broker ID of the follower, of -1 if this request is from a consumer.
        self.replica_id: Final = replica_id


def _read_offset_for_leader_partition_2(data: Data, at: int) -> tuple[OffsetForLeaderPartition, int]:
    partition, current_leader_epoch, leader_epoch = _r_iii(data, at)
    at += 12
    return OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
    ), at


def _read_offset_for_leader_topic_2(data: Data, at: int) -> tuple[OffsetForLeaderTopic, int]:
    topic, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_offset_for_leader_partition_2)
    return OffsetForLeaderTopic(topic=topic, partitions=partitions), at


def _read_offset_for_leader_epoch_request_2(data: Data, at: int) -> tuple[OffsetForLeaderEpochRequest, int]:
    topics, at = read_array(data, at, read_length, _read_offset_for_leader_topic_2)
    return OffsetForLeaderEpochRequest(topics=topics), at


def _read_offset_for_leader_epoch_request_3(data: Data, at: int) -> tuple[OffsetForLeaderEpochRequest, int]:
    (replica_id,) = _r_i(data, at)
    at += 4
    topics, at = read_array(data, at, read_length, _read_offset_for_leader_topic_2)
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics), at


def _read_offset_for_leader_partition_4(data: Data, at: int) -> tuple[OffsetForLeaderPartition, int]:
    partition, current_leader_epoch, leader_epoch = _r_iii(data, at)
    at += 12
    at = skip_tags(data, at)
    return OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
    ), at


def _read_offset_for_leader_topic_4(data: Data, at: int) -> tuple[OffsetForLeaderTopic, int]:
    topic, at = read_compact_string(data, at)
    partitions, at = read_array(data, at, read_compact_length, _read_offset_for_leader_partition_4)
    at = skip_tags(data, at)
    return OffsetForLeaderTopic(topic=topic, partitions=partitions), at


def _read_offset_for_leader_epoch_request_4(data: Data, at: int) -> tuple[OffsetForLeaderEpochRequest, int]:
    (replica_id,) = _r_i(data, at)
    at += 4
    topics, at = read_array(data, at, read_compact_length, _read_offset_for_leader_topic_4)
    at = skip_tags(data, at)
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics), at


OFFSET_FOR_LEADER_EPOCH_REQUEST: Final = MessageCodec(
    OffsetForLeaderEpochRequest,
    23,
    readers={
        2: _read_offset_for_leader_epoch_request_2,
        3: _read_offset_for_leader_epoch_request_3,
        4: _read_offset_for_leader_epoch_request_4,
    },
    writers={},
    flexible_from=4,
)
