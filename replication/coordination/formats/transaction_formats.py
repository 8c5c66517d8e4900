"""Bytes of the records in `__transaction_state`.

Version 1 adds tagged fields. Kafka writes it wherever the cluster's `transaction.version` is at least 1, as is the
default since 4.0, also for clients of the first protocol; version 0 is read.
Source: Kafka 4.1, TransactionLogKey.json, TransactionLogValue.json and TransactionVersion.transactionLogValueVersion.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final

from replication.coordination.formats.fields import FieldReader, FieldWriter, MalformedField
from replication.coordination.formats.record_codec import RecordCodec, RecordFormat
from replication.coordination.transaction_records import (
    NO_PRODUCER_EPOCH,
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
    TransactionState,
    TransactionTopicPartitions,
)
from tidelog.types import NO_PRODUCER_ID, TRANSACTIONS_TOPIC, Millis, PartitionIndex, ProducerId

_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_TRANSACTION_VERSION: Final = 2
_NEXT_PRODUCER_EPOCH: Final = 3
_TAGGED: Final = {
    _PREVIOUS_PRODUCER_ID: FieldReader.int64,
    _NEXT_PRODUCER_ID: FieldReader.int64,
    _CLIENT_TRANSACTION_VERSION: FieldReader.int16,
    _NEXT_PRODUCER_EPOCH: FieldReader.int16,
}

_PRODUCER_AND_STATE: Final = Struct(">qhib")
_TIMESTAMPS: Final = Struct(">qq")
_STATES: Final = {state.value: state for state in TransactionState}


def decode_transaction(key: bytes | None, value: bytes | None) -> TransactionRecord:
    """Return a record of `__transaction_state`. value: None deletes the transactional id.

    Raises UnreadableCoordinatorRecord for malformed bytes and for types and versions that are not known.
    """
    return _CODEC.decode(key, value)


def encode_transaction(record: TransactionRecord, version: int | None = None) -> tuple[bytes, bytes | None]:
    """Return key and value of a record. version: of the value; without it, the version that Kafka 4.1 writes.

    Raises InvalidRequest for a transactional id of more than 32,767 bytes.
    """
    return _CODEC.encode(record, version)


def _read_key(reader: FieldReader) -> TransactionLogKey:
    return TransactionLogKey(reader.string())


def _write_key(writer: FieldWriter, key: TransactionLogKey) -> None:
    writer.string(key.transactional_id)


def _read_topic(reader: FieldReader) -> TransactionTopicPartitions:
    topic = TransactionTopicPartitions(reader.string(), tuple(map(PartitionIndex, reader.array(FieldReader.int32))))
    reader.tagged({})
    return topic


def _write_topic(writer: FieldWriter, topic: TransactionTopicPartitions) -> None:
    writer.string(topic.topic)
    writer.array(topic.partition_ids, FieldWriter.int32)
    writer.tagged()


def _read_value(reader: FieldReader, _: int) -> TransactionLogValue:
    producer_id, producer_epoch, timeout_ms, state = reader.numbers(_PRODUCER_AND_STATE)
    if state not in _STATES:
        raise MalformedField(f"{state} is no state of a transaction")
    partitions = reader.nullable_array(_read_topic)
    updated, started = reader.numbers(_TIMESTAMPS)
    tagged = reader.tagged(_TAGGED)
    return TransactionLogValue(
        producer_id=ProducerId(producer_id),
        producer_epoch=producer_epoch,
        transaction_timeout_ms=timeout_ms,
        transaction_status=_STATES[state],
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=Millis(updated),
        transaction_start_timestamp_ms=Millis(started),
        previous_producer_id=ProducerId(tagged.get(_PREVIOUS_PRODUCER_ID, NO_PRODUCER_ID)),
        next_producer_id=ProducerId(tagged.get(_NEXT_PRODUCER_ID, NO_PRODUCER_ID)),
        client_transaction_version=tagged.get(_CLIENT_TRANSACTION_VERSION, 0),
        next_producer_epoch=tagged.get(_NEXT_PRODUCER_EPOCH, NO_PRODUCER_EPOCH),
    )


def _write_value(writer: FieldWriter, value: TransactionLogValue, _: int) -> None:
    writer.int64(value.producer_id)
    writer.int16(value.producer_epoch)
    writer.int32(value.transaction_timeout_ms)
    writer.int8(value.transaction_status)
    writer.array(value.transaction_partitions, _write_topic)
    writer.int64(value.transaction_last_update_timestamp_ms)
    writer.int64(value.transaction_start_timestamp_ms)
    tagged: list[tuple[int, Callable[[FieldWriter], None]]] = []
    if value.previous_producer_id != NO_PRODUCER_ID:
        tagged.append((_PREVIOUS_PRODUCER_ID, partial(FieldWriter.int64, value=value.previous_producer_id)))
    if value.next_producer_id != NO_PRODUCER_ID:
        tagged.append((_NEXT_PRODUCER_ID, partial(FieldWriter.int64, value=value.next_producer_id)))
    if value.client_transaction_version != 0:
        tagged.append((_CLIENT_TRANSACTION_VERSION, partial(FieldWriter.int16, value=value.client_transaction_version)))
    if value.next_producer_epoch != NO_PRODUCER_EPOCH:
        tagged.append((_NEXT_PRODUCER_EPOCH, partial(FieldWriter.int16, value=value.next_producer_epoch)))
    writer.tagged(tagged)


_CODEC: Final = RecordCodec(
    TRANSACTIONS_TOPIC,
    [
        RecordFormat(
            numbers=(0,),
            name="TransactionLog",
            key=TransactionLogKey,
            read_key=_read_key,
            write_key=_write_key,
            read_value=_read_value,
            write_value=_write_value,
            versions=range(2),
            flexible_from=1,
            written_version=lambda _: 1,
        )
    ],
)
