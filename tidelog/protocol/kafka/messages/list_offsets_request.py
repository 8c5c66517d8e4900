"""ListOffsetsRequest, versions 1 to 10. Generated from ListOffsetsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
from tidelog.types import Millis

_r_i = Struct(">i").unpack_from
_r_ib = Struct(">ib").unpack_from
_r_iiq = Struct(">iiq").unpack_from
_r_iq = Struct(">iq").unpack_from


class ListOffsetsPartition(Structure):
    """A structure of ListOffsetsRequest."""

    __slots__ = ("partition_index", "timestamp", "current_leader_epoch")
    __match_args__ = ("partition_index", "timestamp", "current_leader_epoch")

    def __init__(
        self,
        partition_index: int,
        timestamp: Millis,
        current_leader_epoch: int = -1,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The current timestamp.
        self.timestamp: Final = timestamp
        # The current leader epoch.
        self.current_leader_epoch: Final = current_leader_epoch


class ListOffsetsTopic(Structure):
    """A structure of ListOffsetsRequest."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[ListOffsetsPartition, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # Each partition in the request.
        self.partitions: Final = partitions


class ListOffsetsRequest(Structure):
    """The message."""

    __slots__ = ("replica_id", "topics", "isolation_level", "timeout_ms")
    __match_args__ = ("replica_id", "topics", "isolation_level", "timeout_ms")

    def __init__(
        self,
        replica_id: int,
        topics: tuple[ListOffsetsTopic, ...],
        isolation_level: int = 0,
        timeout_ms: int = 0,
    ) -> None:
        # The broker ID of the requester, or -1 if this request is being made by a normal consumer.
        self.replica_id: Final = replica_id
        # Each topic in the request.
        self.topics: Final = topics
        # This setting controls the visibility of transactional records. Using READ_UNCOMMITTED (isolation_level = 0)
        # makes all records visible. With READ_COMMITTED (isolation_level = 1), non-transactional and COMMITTED
        # transactional records are visible. To be more concrete, READ_COMMITTED returns all data from offsets smaller
        # than the current LSO (last stable offset), and enables the inclusion of the list of aborted transactions in
        # the result, which allows consumers to discard ABORTED transactional records.
        self.isolation_level: Final = isolation_level
        # The timeout to await a response in milliseconds for requests that require reading from remote storage for
        # topics enabled with tiered storage.
        self.timeout_ms: Final = timeout_ms


def _read_list_offsets_partition_1(data: Data, at: int) -> tuple[ListOffsetsPartition, int]:
    partition_index, timestamp = _r_iq(data, at)
    at += 12
    return ListOffsetsPartition(partition_index=partition_index, timestamp=timestamp), at


def _read_list_offsets_topic_1(data: Data, at: int) -> tuple[ListOffsetsTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_list_offsets_partition_1)
    return ListOffsetsTopic(name=name, partitions=partitions), at


def _read_list_offsets_request_1(data: Data, at: int) -> tuple[ListOffsetsRequest, int]:
    (replica_id,) = _r_i(data, at)
    at += 4
    topics, at = read_array(data, at, read_length, _read_list_offsets_topic_1)
    return ListOffsetsRequest(replica_id=replica_id, topics=topics), at


def _read_list_offsets_request_2(data: Data, at: int) -> tuple[ListOffsetsRequest, int]:
    replica_id, isolation_level = _r_ib(data, at)
    at += 5
    topics, at = read_array(data, at, read_length, _read_list_offsets_topic_1)
    return ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level, topics=topics), at


def _read_list_offsets_partition_4(data: Data, at: int) -> tuple[ListOffsetsPartition, int]:
    partition_index, current_leader_epoch, timestamp = _r_iiq(data, at)
    at += 16
    return ListOffsetsPartition(
        partition_index=partition_index, current_leader_epoch=current_leader_epoch, timestamp=timestamp
    ), at


def _read_list_offsets_topic_4(data: Data, at: int) -> tuple[ListOffsetsTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_list_offsets_partition_4)
    return ListOffsetsTopic(name=name, partitions=partitions), at


def _read_list_offsets_request_4(data: Data, at: int) -> tuple[ListOffsetsRequest, int]:
    replica_id, isolation_level = _r_ib(data, at)
    at += 5
    topics, at = read_array(data, at, read_length, _read_list_offsets_topic_4)
    return ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level, topics=topics), at


def _read_list_offsets_partition_6(data: Data, at: int) -> tuple[ListOffsetsPartition, int]:
    partition_index, current_leader_epoch, timestamp = _r_iiq(data, at)
    at += 16
    at = skip_tags(data, at)
    return ListOffsetsPartition(
        partition_index=partition_index, current_leader_epoch=current_leader_epoch, timestamp=timestamp
    ), at


def _read_list_offsets_topic_6(data: Data, at: int) -> tuple[ListOffsetsTopic, int]:
    name, at = read_compact_string(data, at)
    partitions, at = read_array(data, at, read_compact_length, _read_list_offsets_partition_6)
    at = skip_tags(data, at)
    return ListOffsetsTopic(name=name, partitions=partitions), at


def _read_list_offsets_request_6(data: Data, at: int) -> tuple[ListOffsetsRequest, int]:
    replica_id, isolation_level = _r_ib(data, at)
    at += 5
    topics, at = read_array(data, at, read_compact_length, _read_list_offsets_topic_6)
    at = skip_tags(data, at)
    return ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation_level, topics=topics), at


def _read_list_offsets_request_10(data: Data, at: int) -> tuple[ListOffsetsRequest, int]:
    replica_id, isolation_level = _r_ib(data, at)
    at += 5
    topics, at = read_array(data, at, read_compact_length, _read_list_offsets_topic_6)
    (timeout_ms,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return ListOffsetsRequest(
        replica_id=replica_id, isolation_level=isolation_level, topics=topics, timeout_ms=timeout_ms
    ), at


LIST_OFFSETS_REQUEST: Final = MessageCodec(
    ListOffsetsRequest,
    2,
    readers={
        1: _read_list_offsets_request_1,
        2: _read_list_offsets_request_2,
        3: _read_list_offsets_request_2,
        4: _read_list_offsets_request_4,
        5: _read_list_offsets_request_4,
        6: _read_list_offsets_request_6,
        7: _read_list_offsets_request_6,
        8: _read_list_offsets_request_6,
        9: _read_list_offsets_request_6,
        10: _read_list_offsets_request_10,
    },
    writers={},
    flexible_from=6,
)
