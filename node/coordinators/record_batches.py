"""The record batches of decisions: as few as possible, with the records of one decision in one batch.

Records of a transaction are in batches of their own, with the producer's id and epoch and without sequence numbers, as
Kafka writes them. Batches keep the order of the decisions.
Not here: key and value of a record (replication/coordination/), the append (partition_coordinator.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from replication.coordination.coordinator_machine import TransactionalProducer
from tidelog.records import HEADER_BYTES, RecordBatchBuilder
from tidelog.types import Millis

RECORD_BYTES_MAX: Final = 32
"""Upper bound of the bytes of a record without headers beside key and value: five varints."""

KeyAndValue: TypeAlias = tuple[bytes, bytes | None]


class EncodedDecision(NamedTuple):
    """The records of a decision."""

    records: Sequence[KeyAndValue]
    producer: TransactionalProducer | None
    """The producer in whose transaction the records are; None outside a transaction."""
    size: int
    """Upper bound of their bytes."""


def encoded(records: Sequence[KeyAndValue], producer: TransactionalProducer | None) -> EncodedDecision:
    """The records with their size."""
    size = sum(RECORD_BYTES_MAX + len(key) + len(value or b"") for key, value in records)
    return EncodedDecision(records, producer, size)


def fits(decision: EncodedDecision, bytes_max: int) -> bool:
    """Whether one batch may contain the decision."""
    return HEADER_BYTES + decision.size <= bytes_max


def batches_of(decisions: Iterable[EncodedDecision], bytes_max: int, timestamp: Millis) -> list[bytes]:
    """The batches, in order. bytes_max: of a batch; each decision fits. timestamp: of all records, wall time in ms."""
    batches: list[bytes] = []
    collected: list[KeyAndValue] = []
    producer: TransactionalProducer | None = None
    size = HEADER_BYTES
    for decision in decisions:
        if collected and (decision.producer != producer or size + decision.size > bytes_max):
            batches.append(_batch(collected, producer, timestamp))
            collected, size = [], HEADER_BYTES
        producer = decision.producer
        collected += decision.records
        size += decision.size
    if collected:
        batches.append(_batch(collected, producer, timestamp))
    return batches


def _batch(records: Sequence[KeyAndValue], producer: TransactionalProducer | None, timestamp: Millis) -> bytes:
    if producer is None:
        builder = RecordBatchBuilder()
    else:
        builder = RecordBatchBuilder(
            producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, is_transactional=True
        )
    builder.extend((key, value, timestamp, ()) for key, value in records)
    return builder.build()
