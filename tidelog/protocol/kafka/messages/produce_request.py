"""ProduceRequest, versions 3 to 13. Generated from ProduceRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    NO_UUID,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_compact_string,
    read_nullable_string,
    read_records,
    read_string,
    skip_tags,
    uuid_of,
)

_r_u = Struct(">16s").unpack_from
_r_hi = Struct(">hi").unpack_from
_r_i = Struct(">i").unpack_from


class PartitionProduceData(Structure):
    """A structure of ProduceRequest."""

    __slots__ = ("index", "records")
    __match_args__ = ("index", "records")

    def __init__(
        self,
        index: int,
        records: Data | None,
    ) -> None:
        # The partition index.
        self.index: Final = index
        # The record data to be produced.
        self.records: Final = records


class TopicProduceData(Structure):
    """A structure of ProduceRequest."""

    __slots__ = ("partition_data", "name", "topic_id")
    __match_args__ = ("partition_data", "name", "topic_id")

    def __init__(
        self,
        partition_data: tuple[PartitionProduceData, ...],
        name: str = "",
        topic_id: UUID = NO_UUID,
    ) -> None:
        # Each partition to produce to.
        self.partition_data: Final = partition_data
        # The topic name.
        self.name: Final = name
        # The unique topic ID
        self.topic_id: Final = topic_id


class ProduceRequest(Structure):
    """The message."""

    __slots__ = ("transactional_id", "acks", "timeout_ms", "topic_data")
    __match_args__ = ("transactional_id", "acks", "timeout_ms", "topic_data")

    def __init__(
        self,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topic_data: tuple[TopicProduceData, ...],
    ) -> None:
        # The transactional ID, or null if the producer is not transactional.
        self.transactional_id: Final = transactional_id
        # The number of acknowledgments the producer requires the leader to have received before considering a request
        # complete. Allowed values: 0 for no acknowledgments, 1 for only the leader and -1 for the full ISR.
        self.acks: Final = acks
        # The timeout to await a response in milliseconds.
        self.timeout_ms: Final = timeout_ms
        # Each topic to produce to.
        self.topic_data: Final = topic_data


def _read_partition_produce_data_3(data: Data, at: int) -> tuple[PartitionProduceData, int]:
    (index,) = _r_i(data, at)
    at += 4
    records, at = read_records(data, at, read_length)
    return PartitionProduceData(index=index, records=records), at


def _read_topic_produce_data_3(data: Data, at: int) -> tuple[TopicProduceData, int]:
    name, at = read_string(data, at)
    partition_data, at = read_array(data, at, read_length, _read_partition_produce_data_3)
    return TopicProduceData(name=name, partition_data=partition_data), at


def _read_produce_request_3(data: Data, at: int) -> tuple[ProduceRequest, int]:
    transactional_id, at = read_nullable_string(data, at)
    acks, timeout_ms = _r_hi(data, at)
    at += 6
    topic_data, at = read_array(data, at, read_length, _read_topic_produce_data_3)
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topic_data
    ), at


def _read_partition_produce_data_9(data: Data, at: int) -> tuple[PartitionProduceData, int]:
    (index,) = _r_i(data, at)
    at += 4
    records, at = read_records(data, at, read_compact_length)
    at = skip_tags(data, at)
    return PartitionProduceData(index=index, records=records), at


def _read_topic_produce_data_9(data: Data, at: int) -> tuple[TopicProduceData, int]:
    name, at = read_compact_string(data, at)
    partition_data, at = read_array(data, at, read_compact_length, _read_partition_produce_data_9)
    at = skip_tags(data, at)
    return TopicProduceData(name=name, partition_data=partition_data), at


def _read_produce_request_9(data: Data, at: int) -> tuple[ProduceRequest, int]:
    transactional_id, at = read_nullable_compact_string(data, at)
    acks, timeout_ms = _r_hi(data, at)
    at += 6
    topic_data, at = read_array(data, at, read_compact_length, _read_topic_produce_data_9)
    at = skip_tags(data, at)
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topic_data
    ), at


def _read_topic_produce_data_13(data: Data, at: int) -> tuple[TopicProduceData, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    partition_data, at = read_array(data, at, read_compact_length, _read_partition_produce_data_9)
    at = skip_tags(data, at)
    return TopicProduceData(topic_id=topic_id, partition_data=partition_data), at


def _read_produce_request_13(data: Data, at: int) -> tuple[ProduceRequest, int]:
    transactional_id, at = read_nullable_compact_string(data, at)
    acks, timeout_ms = _r_hi(data, at)
    at += 6
    topic_data, at = read_array(data, at, read_compact_length, _read_topic_produce_data_13)
    at = skip_tags(data, at)
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topic_data
    ), at


PRODUCE_REQUEST: Final = MessageCodec(
    ProduceRequest,
    0,
    readers={
        3: _read_produce_request_3,
        4: _read_produce_request_3,
        5: _read_produce_request_3,
        6: _read_produce_request_3,
        7: _read_produce_request_3,
        8: _read_produce_request_3,
        9: _read_produce_request_9,
        10: _read_produce_request_9,
        11: _read_produce_request_9,
        12: _read_produce_request_9,
        13: _read_produce_request_13,
    },
    writers={},
    flexible_from=9,
)
