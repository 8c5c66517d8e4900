"""The folders of Kafka's brokers: their transaction logs load, and the machine decides what Kafka recorded."""

from __future__ import annotations

import pytest

from replication.coordination.coordinator_machine import Instant
from replication.coordination.transaction_records import (
    TransactionLogValue,
    TransactionState,
)
from replication.coordination.transaction_requests import (
    EndTxn,
    InitTransactionalProducer,
    InitWithProducerId,
    MarkersWritten,
    TransactionToVerify,
    WriteMarkers,
)
from replication.coordination.transactions.partitions import missing_from, partitions_of
from replication.coordination.transactions.transaction_config import TransactionConfig
from replication.coordination.transactions.transaction_machine import TransactionMachine
from tests.conformance.kafka_directories import PARTITIONS
from tests.replication.kafka_records import records_of
from tests.replication.transaction_world import image
from tidelog.types import Millis, Offset, ProducerId

LOGS = [each for each in PARTITIONS if each[1].startswith("__transaction_state")]


def request_for(
    name: str, before: TransactionLogValue | None, after: TransactionLogValue, markers: dict[str, WriteMarkers]
) -> object:
    """What made Kafka write `after`."""
    match after.transaction_status:
        case TransactionState.EMPTY:
            timeout_ms = after.transaction_timeout_ms
            request = InitTransactionalProducer(name, timeout_ms, ProducerId(-1), -1, 2)
            return InitWithProducerId(request, after.producer_id)
        case TransactionState.ONGOING:
            assert before is not None
            wanted = set(partitions_of(after))
            added = (
                wanted if before.transaction_status is not TransactionState.ONGOING else missing_from(before, wanted)
            )
            return TransactionToVerify(
                name, after.producer_id, after.producer_epoch, verify_only=False, partitions=tuple(added)
            )
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT as prepared:
            committed = prepared is TransactionState.PREPARE_COMMIT
            return EndTxn(name, after.producer_id, after.producer_epoch - 1, committed, transaction_version=2)
        case _:
            return MarkersWritten(markers.pop(name))


@pytest.mark.parametrize(("directory", "partition"), LOGS)
def test_the_machine_decides_what_kafka_recorded(directory: str, partition: str) -> None:
    config = TransactionConfig(transaction_max_timeout_ms=Millis(2**31 - 1))
    machine, markers, count = TransactionMachine(config), dict[str, WriteMarkers](), 0
    topics = image({"compacted-txn": 4, "txn": 4, "__consumer_offsets": 2})
    machine.loaded(topics, 1, Instant(Millis(0), Millis(0)))
    for record in records_of(directory, partition):
        name, after = record.key.transactional_id, record.value
        assert after is not None
        now = Instant(Millis(0), after.transaction_last_update_timestamp_ms)
        request = request_for(name, machine.values.get(name), after, markers)
        decision = machine.handle(request, now)
        (decided,) = decision.records
        assert decided.value is not None
        assert decided.value.replace(transaction_partitions=None) == after.replace(transaction_partitions=None)
        assert set(partitions_of(decided.value)) == set(partitions_of(after))
        for effect in decision.effects:
            assert isinstance(effect, WriteMarkers)
            markers[name] = effect
        machine.apply(decided, Offset(-1), None)
        count += 1
    assert count >= 4


@pytest.mark.parametrize(("directory", "partition"), LOGS)
def test_a_log_of_kafka_is_loaded_and_its_prepared_transactions_are_completed(directory: str, partition: str) -> None:
    machine = TransactionMachine(TransactionConfig())
    records = records_of(directory, partition)
    for offset, record in enumerate(records):
        machine.apply(record, Offset(offset), None)
    last = {record.key.transactional_id: record.value for record in records}
    assert dict(machine.values) == last
    decisions = machine.loaded(image({}), 5, Instant(Millis(0), Millis(0)))
    prepared = {name for name, value in last.items() if value and value.transaction_status.name.startswith("PREPARE")}
    assert {effect.transactional_id for decision in decisions for effect in decision.effects} == prepared  # type: ignore[attr-defined]
