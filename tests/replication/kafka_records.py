"""Records in the internal topics of a directory that Kafka wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.group_records import GROUP_RECORDS, GroupRecord
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.group_machine import GroupMachine
from replication.coordination.transaction_records import (
    TRANSACTION_RECORDS,
    TransactionRecord,
)
from tests.conformance.kafka_directories import segments
from tidelog.records import EndTxnMarker, decode_control
from tidelog.types import Offset


class Marker(NamedTuple):
    """The end of a transaction."""

    committed: bool


Entry: TypeAlias = tuple[Offset, TransactionalProducer | None, GroupRecord | Marker]


def entries(directory: str, partition: str) -> Iterator[Entry]:
    """Records and markers in the order of the log; with the producer in whose transaction they are."""
    for segment in segments(directory, partition):
        for batch, _ in segment.pairs():
            producer = (
                TransactionalProducer(batch.producer_id, batch.producer_epoch) if batch.is_transactional else None
            )
            for record in batch.records():
                if not batch.is_control:
                    yield record.offset, producer, GROUP_RECORDS.decode(record.key, record.value)
                elif isinstance(marker := decode_control(record), EndTxnMarker):
                    yield record.offset, producer, Marker(marker.committed)


def loaded(directory: str, partition: str) -> GroupMachine:
    """A machine after the replay of the log."""
    machine = GroupMachine(GroupConfig(), re.compile)  # type: ignore[arg-type]
    for offset, producer, entry in entries(directory, partition):
        if isinstance(entry, Marker):
            assert producer is not None
            machine.apply_marker(producer, committed=entry.committed)
        else:
            machine.apply(entry, offset, producer)
    return machine


def records_of(directory: str, partition: str) -> list[TransactionRecord]:
    return [
        TRANSACTION_RECORDS.decode(record.key, record.value)
        for segment in segments(directory, partition)
        for batch, _ in segment.pairs()
        if not batch.is_control
        for record in batch.records()
    ]
