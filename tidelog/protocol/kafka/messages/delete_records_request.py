"""DeleteRecordsRequest, versions 0 to 2. Generated from DeleteRecordsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
from tidelog.types import Offset

_r_i = Struct(">i").unpack_from
_r_iq = Struct(">iq").unpack_from


class DeleteRecordsPartition(Structure):
    """A structure of DeleteRecordsRequest."""

    __slots__ = ("partition_index", "offset")
    __match_args__ = ("partition_index", "offset")

    def __init__(
        self,
        partition_index: int,
        offset: Offset,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The deletion offset.
        self.offset: Final = offset


class DeleteRecordsTopic(Structure):
    """A structure of DeleteRecordsRequest."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[DeleteRecordsPartition, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # Each partition that we want to delete records from.
        self.partitions: Final = partitions


class DeleteRecordsRequest(Structure):
    """The message."""

    __slots__ = ("topics", "timeout_ms")
    __match_args__ = ("topics", "timeout_ms")

    def __init__(
        self,
        topics: tuple[DeleteRecordsTopic, ...],
        timeout_ms: int,
    ) -> None:
        # Each topic that we want to delete records from.
        self.topics: Final = topics
        # How long to wait for the deletion to complete, in milliseconds.
        self.timeout_ms: Final = timeout_ms


def _read_delete_records_partition_0(data: Data, at: int) -> tuple[DeleteRecordsPartition, int]:
    partition_index, offset = _r_iq(data, at)
    at += 12
    return DeleteRecordsPartition(partition_index=partition_index, offset=offset), at


def _read_delete_records_topic_0(data: Data, at: int) -> tuple[DeleteRecordsTopic, int]:
    name, at = read_string(data, at)
    partitions, at = read_array(data, at, read_length, _read_delete_records_partition_0)
    return DeleteRecordsTopic(name=name, partitions=partitions), at


def _read_delete_records_request_0(data: Data, at: int) -> tuple[DeleteRecordsRequest, int]:
    topics, at = read_array(data, at, read_length, _read_delete_records_topic_0)
    (timeout_ms,) = _r_i(data, at)
    at += 4
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), at


def _read_delete_records_partition_2(data: Data, at: int) -> tuple[DeleteRecordsPartition, int]:
    partition_index, offset = _r_iq(data, at)
    at += 12
    at = skip_tags(data, at)
    return DeleteRecordsPartition(partition_index=partition_index, offset=offset), at


def _read_delete_records_topic_2(data: Data, at: int) -> tuple[DeleteRecordsTopic, int]:
    name, at = read_compact_string(data, at)
    partitions, at = read_array(data, at, read_compact_length, _read_delete_records_partition_2)
    at = skip_tags(data, at)
    return DeleteRecordsTopic(name=name, partitions=partitions), at


def _read_delete_records_request_2(data: Data, at: int) -> tuple[DeleteRecordsRequest, int]:
    topics, at = read_array(data, at, read_compact_length, _read_delete_records_topic_2)
    (timeout_ms,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms), at


DELETE_RECORDS_REQUEST: Final = MessageCodec(
    DeleteRecordsRequest,
    21,
    readers={0: _read_delete_records_request_0, 1: _read_delete_records_request_0, 2: _read_delete_records_request_2},
    writers={},
    flexible_from=2,
)
