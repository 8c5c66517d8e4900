"""Bytes of the records in `__transaction_state`.

Version 1 adds tagged fields. Kafka writes it wherever the cluster's `transaction.version` is at least 1, as is the
default since 4.0, also for clients of the first protocol; version 0 is read.
Source: Kafka 4.1, TransactionVersion.transactionLogValueVersion.
"""

from __future__ import annotations

from typing import Final

from replication.coordination.formats.record_codec import RecordCodec, RecordFormat
from replication.coordination.transaction_records import TransactionRecord
from tidelog.protocol.kafka.messages.transaction_log_key import TRANSACTION_LOG_KEY
from tidelog.protocol.kafka.messages.transaction_log_value import TRANSACTION_LOG_VALUE
from tidelog.types import TRANSACTIONS_TOPIC

_CODEC: Final = RecordCodec(
    TRANSACTIONS_TOPIC, [RecordFormat(TRANSACTION_LOG_KEY, TRANSACTION_LOG_VALUE, written_version=lambda _: 1)]
)


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
