"""WriteTxnMarkersResponse, versions 1 to 1. Generated from WriteTxnMarkersResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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

_w_ih = Struct(">ih").pack
_w_q = Struct(">q").pack


class WritableTxnMarkerPartitionResult(Structure):
    """A structure of WriteTxnMarkersResponse."""

    __slots__ = ("partition_index", "error_code")
    __match_args__ = ("partition_index", "error_code")

    def __init__(
        self,
        partition_index: int,
        error_code: int,
    ) -> None:
        # The partition index.
        self.partition_index: Final = partition_index
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code


class WritableTxnMarkerTopicResult(Structure):
    """A structure of WriteTxnMarkersResponse."""

    __slots__ = ("name", "partitions")
    __match_args__ = ("name", "partitions")

    def __init__(
        self,
        name: str,
        partitions: tuple[WritableTxnMarkerPartitionResult, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The results by partition.
        self.partitions: Final = partitions


class WritableTxnMarkerResult(Structure):
    """A structure of WriteTxnMarkersResponse."""

    __slots__ = ("producer_id", "topics")
    __match_args__ = ("producer_id", "topics")

    def __init__(
        self,
        producer_id: ProducerId,
        topics: tuple[WritableTxnMarkerTopicResult, ...],
    ) -> None:
        # The current producer ID in use by the transactional ID.
        self.producer_id: Final = producer_id
        # The results by topic.
        self.topics: Final = topics


class WriteTxnMarkersResponse(Structure):
    """The message."""

    __slots__ = ("markers",)
    __match_args__ = ("markers",)

    def __init__(
        self,
        markers: tuple[WritableTxnMarkerResult, ...],
    ) -> None:
        # The results for writing makers.
        self.markers: Final = markers


def _write_writable_txn_marker_partition_result_1(out: Output, value: WritableTxnMarkerPartitionResult) -> None:
    out += _w_ih(value.partition_index, value.error_code)
    out.append(0)


def _write_writable_txn_marker_topic_result_1(out: Output, value: WritableTxnMarkerTopicResult) -> None:
    write_compact_string(out, value.name)
    write_array(out, value.partitions, write_compact_length, _write_writable_txn_marker_partition_result_1)
    out.append(0)


def _write_writable_txn_marker_result_1(out: Output, value: WritableTxnMarkerResult) -> None:
    out += _w_q(value.producer_id)
    write_array(out, value.topics, write_compact_length, _write_writable_txn_marker_topic_result_1)
    out.append(0)


def _write_write_txn_markers_response_1(out: Output, value: WriteTxnMarkersResponse) -> None:
    write_array(out, value.markers, write_compact_length, _write_writable_txn_marker_result_1)
    out.append(0)


WRITE_TXN_MARKERS_RESPONSE: Final = MessageCodec(
    WriteTxnMarkersResponse,
    27,
    readers={},
    writers={1: _write_write_txn_markers_response_1},
    flexible_from=1,
)
