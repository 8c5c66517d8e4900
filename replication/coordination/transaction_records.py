"""Keys and values of `__transaction_state`, named and ordered as in Kafka's schemas.

Source: Kafka 4.1, TransactionLogKey and TransactionLogValue (KIP-98, KIP-890).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from replication.coordination.coordinator_record import CoordinatorRecord
from tidelog.types import NO_PRODUCER_ID, Millis, PartitionIndex, ProducerId

NO_PRODUCER_EPOCH = -1


class TransactionState(IntEnum):
    """The state of a transactional id, by Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


@dataclass(frozen=True, slots=True)
class TransactionLogKey:
    """A transactional id."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class TransactionTopicPartitions:
    """Some partitions of a topic, by name."""

    topic: str
    partition_ids: tuple[PartitionIndex, ...]


@dataclass(frozen=True, slots=True)
class TransactionLogValue:
    """The state of a transactional id. Timestamps: wall time in ms, -1 none.

    transaction_partitions: None if there is no transaction. previous_producer_id, next_producer_id: around a change of
    the producer id, else -1. client_transaction_version: 0 or 1 for the first protocol, 2 for KIP-890.
    next_producer_epoch: after the end of the transaction (KIP-939), -1 none.
    """

    producer_id: ProducerId
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: TransactionState
    transaction_partitions: tuple[TransactionTopicPartitions, ...] | None
    transaction_last_update_timestamp_ms: Millis
    transaction_start_timestamp_ms: Millis
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    client_transaction_version: int = 0
    next_producer_epoch: int = NO_PRODUCER_EPOCH


TransactionRecord: TypeAlias = CoordinatorRecord[TransactionLogKey, TransactionLogValue]
