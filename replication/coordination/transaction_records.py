"""Keys and values of `__transaction_state`: the messages of Kafka's schemas TransactionLogKey and TransactionLogValue.

Source: Kafka 4.1 (KIP-98, KIP-890, KIP-939).
"""

from __future__ import annotations

from typing import TypeAlias

from replication.coordination.coordinator_record import CoordinatorRecord
from tidelog.protocol.kafka.messages.transaction_log_key import TransactionLogKey
from tidelog.protocol.kafka.messages.transaction_log_value import PartitionsSchema as TransactionTopicPartitions
from tidelog.protocol.kafka.messages.transaction_log_value import TransactionLogValue
from tidelog.types import NO_PRODUCER_EPOCH, TransactionState

__all__ = [
    "NO_PRODUCER_EPOCH",
    "TransactionLogKey",
    "TransactionLogValue",
    "TransactionRecord",
    "TransactionState",
    "TransactionTopicPartitions",
]

TransactionRecord: TypeAlias = CoordinatorRecord[TransactionLogKey, TransactionLogValue]
