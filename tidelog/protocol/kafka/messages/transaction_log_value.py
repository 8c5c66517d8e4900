"""TransactionLogValue, versions 0 to 1. Generated from TransactionLogValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    check_tag,
    inexpressible,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_array,
    read_numbers,
    read_string,
    read_tag,
    read_tag_count,
    skip_tags,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_numbers,
    write_string,
    write_tags,
)
from tidelog.types import Millis, PartitionIndex, ProducerId, TransactionState

_r_h = Struct(">h").unpack_from
_w_h = Struct(">h").pack
_r_q = Struct(">q").unpack_from
_w_q = Struct(">q").pack
_r_qhib = Struct(">qhib").unpack_from
_w_qhib = Struct(">qhib").pack
_r_qq = Struct(">qq").unpack_from
_w_qq = Struct(">qq").pack


class PartitionsSchema(Structure):
    """A structure of TransactionLogValue."""

    __slots__ = ("topic", "partition_ids")
    __match_args__ = ("topic", "partition_ids")

    def __init__(
        self,
        topic: str,
        partition_ids: tuple[PartitionIndex, ...],
    ) -> None:
        # Topic involved in the transaction.
        self.topic: Final = topic
        # Partition ids involved in the transaction.
        self.partition_ids: Final = partition_ids


class TransactionLogValue(Structure):
    """The message."""

    __slots__ = (
        "producer_id",
        "producer_epoch",
        "transaction_timeout_ms",
        "transaction_status",
        "transaction_partitions",
        "transaction_last_update_timestamp_ms",
        "transaction_start_timestamp_ms",
        "previous_producer_id",
        "next_producer_id",
        "next_producer_epoch",
        "client_transaction_version",
    )
    __match_args__ = (
        "producer_id",
        "producer_epoch",
        "transaction_timeout_ms",
        "transaction_status",
        "transaction_partitions",
        "transaction_last_update_timestamp_ms",
        "transaction_start_timestamp_ms",
        "previous_producer_id",
        "next_producer_id",
        "next_producer_epoch",
        "client_transaction_version",
    )

    def __init__(
        self,
        producer_id: ProducerId,
        producer_epoch: int,
        transaction_timeout_ms: int,
        transaction_status: TransactionState,
        transaction_partitions: tuple[PartitionsSchema, ...] | None,
        transaction_last_update_timestamp_ms: Millis,
        transaction_start_timestamp_ms: Millis,
        previous_producer_id: ProducerId = ProducerId(-1),
        next_producer_id: ProducerId = ProducerId(-1),
        next_producer_epoch: int = -1,
        client_transaction_version: int = 0,
    ) -> None:
        # Producer id in use by the transactional id.
        self.producer_id: Final = producer_id
        # Epoch associated with the producer id.
        self.producer_epoch: Final = producer_epoch
        # Transaction timeout in milliseconds.
        self.transaction_timeout_ms: Final = transaction_timeout_ms
        # TransactionState the transaction is in.
        self.transaction_status: Final = transaction_status
        # Partitions involved in the transaction.
        self.transaction_partitions: Final = transaction_partitions
        # Time the transaction was last updated.
        self.transaction_last_update_timestamp_ms: Final = transaction_last_update_timestamp_ms
        # Time the transaction was started.
        self.transaction_start_timestamp_ms: Final = transaction_start_timestamp_ms
        # Producer id used by the last committed transaction.
        self.previous_producer_id: Final = previous_producer_id
        # Latest producer ID sent to the producer for the given transactional id.
        self.next_producer_id: Final = next_producer_id
        # Producer epoch associated with the NextProducerId
        self.next_producer_epoch: Final = next_producer_epoch
        # The transaction version used by the client.
        self.client_transaction_version: Final = client_transaction_version


def _read_partitions_schema_0(data: Data, at: int) -> tuple[PartitionsSchema, int]:
    topic, at = read_string(data, at)
    partition_ids, at = read_numbers(data, at, read_length, "i")
    return PartitionsSchema(topic=topic, partition_ids=partition_ids), at


def _read_transaction_log_value_0(data: Data, at: int) -> tuple[TransactionLogValue, int]:
    producer_id, producer_epoch, transaction_timeout_ms, transaction_status = _r_qhib(data, at)
    at += 15
    transaction_status = TransactionState(transaction_status)
    transaction_partitions, at = read_nullable_array(data, at, read_length, _read_partitions_schema_0)
    transaction_last_update_timestamp_ms, transaction_start_timestamp_ms = _r_qq(data, at)
    at += 16
    return TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_timeout_ms=transaction_timeout_ms,
        transaction_status=transaction_status,
        transaction_partitions=transaction_partitions,
        transaction_last_update_timestamp_ms=transaction_last_update_timestamp_ms,
        transaction_start_timestamp_ms=transaction_start_timestamp_ms,
    ), at


def _read_partitions_schema_1(data: Data, at: int) -> tuple[PartitionsSchema, int]:
    topic, at = read_compact_string(data, at)
    partition_ids, at = read_numbers(data, at, read_compact_length, "i")
    at = skip_tags(data, at)
    return PartitionsSchema(topic=topic, partition_ids=partition_ids), at


def _read_transaction_log_value_1(data: Data, at: int) -> tuple[TransactionLogValue, int]:
    producer_id, producer_epoch, transaction_timeout_ms, transaction_status = _r_qhib(data, at)
    at += 15
    transaction_status = TransactionState(transaction_status)
    transaction_partitions, at = read_nullable_array(data, at, read_compact_length, _read_partitions_schema_1)
    transaction_last_update_timestamp_ms, transaction_start_timestamp_ms = _r_qq(data, at)
    at += 16
    previous_producer_id: ProducerId = ProducerId(-1)
    next_producer_id: ProducerId = ProducerId(-1)
    client_transaction_version: int = 0
    next_producer_epoch: int = -1
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            (previous_producer_id,) = _r_q(data, at)
            at += 8
        elif tag == 1:
            (next_producer_id,) = _r_q(data, at)
            at += 8
        elif tag == 2:
            (client_transaction_version,) = _r_h(data, at)
            at += 2
        elif tag == 3:
            (next_producer_epoch,) = _r_h(data, at)
            at += 2
        else:
            at = end
        check_tag(tag, at, end)
    return TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_timeout_ms=transaction_timeout_ms,
        transaction_status=transaction_status,
        transaction_partitions=transaction_partitions,
        transaction_last_update_timestamp_ms=transaction_last_update_timestamp_ms,
        transaction_start_timestamp_ms=transaction_start_timestamp_ms,
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        client_transaction_version=client_transaction_version,
        next_producer_epoch=next_producer_epoch,
    ), at


def _write_partitions_schema_0(out: Output, value: PartitionsSchema) -> None:
    write_string(out, value.topic)
    write_numbers(out, value.partition_ids, write_length, "i")


def _write_transaction_log_value_0(out: Output, value: TransactionLogValue) -> None:
    if value.previous_producer_id != ProducerId(-1):
        raise inexpressible("TransactionLogValue.previous_producer_id")
    if value.next_producer_id != ProducerId(-1):
        raise inexpressible("TransactionLogValue.next_producer_id")
    if value.next_producer_epoch != -1:
        raise inexpressible("TransactionLogValue.next_producer_epoch")
    if value.client_transaction_version != 0:
        raise inexpressible("TransactionLogValue.client_transaction_version")
    out += _w_qhib(value.producer_id, value.producer_epoch, value.transaction_timeout_ms, value.transaction_status)
    write_array(out, value.transaction_partitions, write_length, _write_partitions_schema_0)
    out += _w_qq(value.transaction_last_update_timestamp_ms, value.transaction_start_timestamp_ms)


def _write_partitions_schema_1(out: Output, value: PartitionsSchema) -> None:
    write_compact_string(out, value.topic)
    write_numbers(out, value.partition_ids, write_compact_length, "i")
    out.append(0)


def _write_transaction_log_value_1(out: Output, value: TransactionLogValue) -> None:
    out += _w_qhib(value.producer_id, value.producer_epoch, value.transaction_timeout_ms, value.transaction_status)
    write_array(out, value.transaction_partitions, write_compact_length, _write_partitions_schema_1)
    out += _w_qq(value.transaction_last_update_timestamp_ms, value.transaction_start_timestamp_ms)
    tags: list[tuple[int, Output]] = []
    if value.previous_producer_id != ProducerId(-1):
        tagged = Output()
        tagged += _w_q(value.previous_producer_id)
        tags.append((0, tagged))
    if value.next_producer_id != ProducerId(-1):
        tagged = Output()
        tagged += _w_q(value.next_producer_id)
        tags.append((1, tagged))
    if value.client_transaction_version != 0:
        tagged = Output()
        tagged += _w_h(value.client_transaction_version)
        tags.append((2, tagged))
    if value.next_producer_epoch != -1:
        tagged = Output()
        tagged += _w_h(value.next_producer_epoch)
        tags.append((3, tagged))
    write_tags(out, tags)


TRANSACTION_LOG_VALUE: Final = MessageCodec(
    TransactionLogValue,
    0,
    readers={0: _read_transaction_log_value_0, 1: _read_transaction_log_value_1},
    writers={0: _write_transaction_log_value_0, 1: _write_transaction_log_value_1},
)
