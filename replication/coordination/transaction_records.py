"""Keys and values of `__transaction_state`, which are the messages of Kafka's schemas TransactionLogKey and
TransactionLogValue, and their bytes.

Source: Kafka 4.1 (KIP-98, KIP-890, KIP-939), TransactionVersion.transactionLogValueVersion.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from replication.coordination.coordinator_record import CoordinatorRecord, RecordCodec, RecordFormat
from tidelog.protocol.kafka.messages.transaction_log_key import TRANSACTION_LOG_KEY, TransactionLogKey
from tidelog.protocol.kafka.messages.transaction_log_value import TRANSACTION_LOG_VALUE, TransactionLogValue
from tidelog.protocol.kafka.messages.transaction_log_value import PartitionsSchema as TransactionTopicPartitions
from tidelog.types import NO_PRODUCER_EPOCH, TRANSACTIONS_TOPIC, TransactionState

__all__ = [
    "NO_PRODUCER_EPOCH",
    "TRANSACTION_RECORDS",
    "TransactionLogKey",
    "TransactionLogValue",
    "TransactionRecord",
    "TransactionState",
    "TransactionTopicPartitions",
]

TransactionRecord: TypeAlias = CoordinatorRecord[TransactionLogKey, TransactionLogValue]

TRANSACTION_RECORDS: Final[RecordCodec[TransactionLogKey, TransactionLogValue]] = RecordCodec(
    TRANSACTIONS_TOPIC,
    # Version 1 adds tagged fields. Kafka writes it wherever the cluster's `transaction.version` is at least 1, as is
    # the default since 4.0, also for clients of the first protocol.
    [RecordFormat(TRANSACTION_LOG_KEY, TRANSACTION_LOG_VALUE, written_version=lambda _: 1)],
)
"""The bytes of these records."""
