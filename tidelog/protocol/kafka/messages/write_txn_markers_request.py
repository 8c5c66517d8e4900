"""WriteTxnMarkersRequest, versions 1 to 1. Generated from WriteTxnMarkersRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    read_numbers,
    skip_tags,
)
from tidelog.types import ProducerId

_r_i = Struct(">i").unpack_from
_r_qht = Struct(">qh?").unpack_from


class WritableTxnMarkerTopic(Structure):
    """A structure of WriteTxnMarkersRequest."""

    __slots__ = ("name", "partition_indexes")
    __match_args__ = ("name", "partition_indexes")

    def __init__(
        self,
        name: str,
        partition_indexes: tuple[int, ...],
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The indexes of the partitions to write transaction markers for.
        self.partition_indexes: Final = partition_indexes


class WritableTxnMarker(Structure):
    """A structure of WriteTxnMarkersRequest."""

    __slots__ = ("producer_id", "producer_epoch", "transaction_result", "topics", "coordinator_epoch")
    __match_args__ = ("producer_id", "producer_epoch", "transaction_result", "topics", "coordinator_epoch")

    def __init__(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        transaction_result: bool,
        topics: tuple[WritableTxnMarkerTopic, ...],
        coordinator_epoch: int,
    ) -> None:
        # The current producer ID.
        self.producer_id: Final = producer_id
        # The current epoch associated with the producer ID.
        self.producer_epoch: Final = producer_epoch
        # The result of the transaction to write to the partitions (false = ABORT, true = COMMIT).
        self.transaction_result: Final = transaction_result
        # Each topic that we want to write transaction marker(s) for.
        self.topics: Final = topics
        # Epoch associated with the transaction state partition hosted by this transaction coordinator.
        self.coordinator_epoch: Final = coordinator_epoch


class WriteTxnMarkersRequest(Structure):
    """The message."""

    __slots__ = ("markers",)
    __match_args__ = ("markers",)

    def __init__(
        self,
        markers: tuple[WritableTxnMarker, ...],
    ) -> None:
        # The transaction markers to be written.
        self.markers: Final = markers


def _read_writable_txn_marker_topic_1(data: Data, at: int) -> tuple[WritableTxnMarkerTopic, int]:
    name, at = read_compact_string(data, at)
    partition_indexes, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return WritableTxnMarkerTopic(name=name, partition_indexes=partition_indexes), at


def _read_writable_txn_marker_1(data: Data, at: int) -> tuple[WritableTxnMarker, int]:
    producer_id, producer_epoch, transaction_result = _r_qht(data, at)
    at += 11
    topics, at = read_array(data, at, read_compact_length, _read_writable_txn_marker_topic_1)
    (coordinator_epoch,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=transaction_result,
        topics=topics,
        coordinator_epoch=coordinator_epoch,
    ), at


def _read_write_txn_markers_request_1(data: Data, at: int) -> tuple[WriteTxnMarkersRequest, int]:
    markers, at = read_array(data, at, read_compact_length, _read_writable_txn_marker_1)
    at = skip_tags(data, at)
    return WriteTxnMarkersRequest(markers=markers), at


WRITE_TXN_MARKERS_REQUEST: Final = MessageCodec(
    WriteTxnMarkersRequest,
    27,
    readers={1: _read_write_txn_markers_request_1},
    writers={},
    flexible_from=1,
)
