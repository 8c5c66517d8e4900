"""DescribeProducersResponse, versions 0 to 0. Generated from DescribeProducersResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
)
from tidelog.types import ProducerId

_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack
_w_qiiqiq = Struct(">qiiqiq").pack


class ProducerState(Structure):
    """A structure of DescribeProducersResponse."""

    __slots__ = (
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "last_timestamp",
        "coordinator_epoch",
        "current_txn_start_offset",
    )
    __match_args__ = (
        "producer_id",
        "producer_epoch",
        "last_sequence",
        "last_timestamp",
        "coordinator_epoch",
        "current_txn_start_offset",
    )

    def __init__(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        last_sequence: int,
        last_timestamp: int,
        coordinator_epoch: int,
        current_txn_start_offset: int,
    ) -> None:
        # The producer id.
        self.producer_id: Final = producer_id
        # The producer epoch.
        self.producer_epoch: Final = producer_epoch
        # The last sequence number sent by the producer.
        self.last_sequence: Final = last_sequence
        # The last timestamp sent by the producer.
        self.last_timestamp: Final = last_timestamp
        # The current epoch of the producer group.
        self.coordinator_epoch: Final = coordinator_epoch
        # The current transaction start offset of the producer.
        self.current_txn_start_offset: Final = current_txn_start_offset


class PartitionResponse(Structure):
    """A structure of DescribeProducersResponse."""

    __slots__ = ("partition_index", "error_code", "error_message", "active_producers")
    __match_args__ = ("partition_index", "error_code", "error_message", "active_producers")

    def __init__(
        self,
        partition_index: int,
        error_code: int,
        error_message: str | None,
        active_producers: tuple[ProducerState, ...],
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The partition error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The partition error message, which may be null if no additional details are available.
        self.error_message: Final = error_message
        # The active producers for the partition.
        self.active_producers: Final = active_producers


class TopicResponse(Structure):
    """A structure of DescribeProducersResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[PartitionResponse, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # Each partition in the response.
        self.partitions: Final = partitions


class DescribeProducersResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "topics")
    __match_args__ = ("throttle_time_ms", "topics")

    def __init__(
        self,
        throttle_time_ms: int,
        topics: tuple[TopicResponse, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # Each topic in the response.
        self.topics: Final = topics


def _write_producer_state_0(out: Output, value: ProducerState) -> None:
    out += _w_qiiqiq(
        value.producer_id,
        value.producer_epoch,
        value.last_sequence,
        value.last_timestamp,
        value.coordinator_epoch,
        value.current_txn_start_offset,
    )
    out.append(0)


def _write_partition_response_0(out: Output, value: PartitionResponse) -> None:
    out += _w_ih(value.partition_index, value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.active_producers, write_compact_length, _write_producer_state_0)
    out.append(0)


def _write_topic_response_0(out: Output, value: TopicResponse) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_partition_response_0)
    out.append(0)


def _write_describe_producers_response_0(out: Output, value: DescribeProducersResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_topic_response_0)
    out.append(0)


DESCRIBE_PRODUCERS_RESPONSE: Final = MessageCodec(
    DescribeProducersResponse,
    61,
    readers={},
    writers={0: _write_describe_producers_response_0},
    flexible_from=0,
)
