"""Kafka's tools read the internal topics of coordinators as we write them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from node.coordinators.record_batches import batches_of, encoded
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import GROUP_RECORDS
from replication.coordination.transaction_records import TRANSACTION_RECORDS, TransactionLogKey
from storage.append_info import Origin
from tests.interop.coordinator_records import as_kafka_prints
from tests.interop.kafka_dump import kafka_dump
from tests.interop.our_logs import open_world
from tests.replication.golden_records import GOLDEN, pairs
from tests.storage.workbench import NOW
from tidelog.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Millis

pytestmark = pytest.mark.interop


Written = list[tuple[CoordinatorRecord[Any, Any], bytes, bytes | None]]
records = st.one_of([st.builds(CoordinatorRecord, key, st.one_of(st.none(), value)) for key, value in pairs])


def compare(written: Written) -> None:
    """Kafka's tool prints each record as it was before it was encoded."""
    by_topic: dict[str, Written] = {OFFSETS_TOPIC: [], TRANSACTIONS_TOPIC: []}
    for record, key, value in written:
        topic = TRANSACTIONS_TOPIC if isinstance(record.key, TransactionLogKey) else OFFSETS_TOPIC
        by_topic[topic].append((record, key, value))
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home) / "data"
        world = open_world(directory, now=NOW)
        for topic, entries in by_topic.items():
            log = world.create(topic)
            decisions = [encoded([(key, value)], None) for _, key, value in entries]
            for batch in batches_of(decisions, 4_000, Millis(NOW)):
                world.lead(log, batch, origin=Origin.COORDINATOR)
        world.directory.close_clean()
        for topic, entries in by_topic.items():
            assert kafka_dump(directory, topic) == [as_kafka_prints(*entry) for entry in entries], topic


@settings(max_examples=5, deadline=None, phases=[Phase.generate])
@given(st.lists(records, min_size=40, max_size=80))
def test_kafka_decodes_records_of_every_type(made: list[CoordinatorRecord[Any, Any]]) -> None:
    written: Written = []
    for record in made:
        encode: Any = TRANSACTION_RECORDS.encode if isinstance(record.key, TransactionLogKey) else GROUP_RECORDS.encode
        written.append((record, *encode(record)))
    compare(written)


def test_kafka_decodes_every_version() -> None:
    compare(
        [
            (CoordinatorRecord(key, value), bytes.fromhex(key_hex), bytes.fromhex(value_hex))
            for key, value, _, key_hex, value_hex in GOLDEN
        ]
    )
