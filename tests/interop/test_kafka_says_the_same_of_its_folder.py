"""The internal topics of a folder that Kafka's brokers wrote (tests/vectors): Kafka's own group and transaction tools,
on a broker that has loaded it, say what our coordinators say that have loaded it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replication.coordination.coordinator_machine import Instant
from replication.coordination.group_requests import ListGroups, ListGroupsAnswer, OffsetFetch, OffsetFetchAnswer
from replication.coordination.transaction_requests import (
    DescribeTransactions,
    DescribeTransactionsAnswer,
    ListTransactions,
    ListTransactionsAnswer,
)
from replication.coordination.transactions.transaction_config import TransactionConfig
from replication.coordination.transactions.transaction_machine import TransactionMachine
from tests.interop.kafka_broker import Broker
from tests.interop.kafka_coordination import (
    described_transaction,
    group_offsets,
    group_states,
    listed_transactions,
)
from tests.replication.kafka_records import loaded as loaded_groups
from tests.replication.kafka_records import records_of
from tests.storage.kafka_vectors import unpack
from tidelog.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Millis, Offset, TopicPartition

pytestmark = pytest.mark.interop

FOLDER = "cluster"
TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
PARTITIONS = 2
NOW = Instant(Millis(0), Millis(int(time.time() * 1_000)))
SETTINGS = {
    "offsets.topic.num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": PARTITIONS,
    "offsets.retention.minutes": 2**31 - 1,
    "transactional.id.expiration.ms": 2**31 - 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 600_000,
}
"""The folder is old, and nothing of it is to expire."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker that has loaded the folder."""
    home = tmp_path_factory.mktemp("folder")
    (home / "broker").mkdir()
    broker = Broker(home / "broker", SETTINGS)
    broker.start()
    broker.create_topics({topic: {"cleanup.policy": "compact"} for topic in TOPICS}, PARTITIONS)
    broker.create_topics({"codec-none": {}})
    broker.stop()
    folder: Path = unpack(FOLDER, home)
    broker.mount(folder, [f"{topic}-{index}" for topic in TOPICS for index in range(PARTITIONS)])
    broker.start()
    yield broker.address
    broker.kill()


@pytest.mark.timeout(600)
def test_the_groups_are_the_same(address: str) -> None:
    states: dict[str, tuple[str, int]] = {}
    offsets: dict[str, dict[TopicPartition, int]] = {}
    for index in range(PARTITIONS):
        machine = loaded_groups(FOLDER, f"{OFFSETS_TOPIC}-{index}")
        listed = machine.handle(ListGroups(), NOW).answer
        assert isinstance(listed, ListGroupsAnswer)
        for group in listed.groups:
            states[group.group_id] = (group.state, group.members)
            fetched = machine.handle(OffsetFetch(group.group_id, "", -1, None), NOW).answer
            assert isinstance(fetched, OffsetFetchAnswer)
            offsets[group.group_id] = {TopicPartition(at.topic, at.partition): at.offset for at in fetched.partitions}
    assert len(states) >= 6
    assert group_states(address) == states
    assert group_offsets(address) == offsets


@pytest.mark.timeout(600)
def test_the_transactions_are_the_same(address: str) -> None:
    found: dict[str, tuple[int, str]] = {}
    described: dict[str, dict[str, str]] = {}
    for index in range(PARTITIONS):
        machine = TransactionMachine(TransactionConfig())
        for offset, record in enumerate(records_of(FOLDER, f"{TRANSACTIONS_TOPIC}-{index}")):
            machine.apply(record, Offset(offset), None)
        listed = machine.handle(ListTransactions(), NOW).answer
        assert isinstance(listed, ListTransactionsAnswer)
        for each in listed.transactions:
            found[each.transactional_id] = (each.producer_id, each.state)
        ids = tuple(each.transactional_id for each in listed.transactions)
        answer = machine.handle(DescribeTransactions(ids), NOW).answer
        assert isinstance(answer, DescribeTransactionsAnswer)
        described |= {
            each.transactional_id: {
                "ProducerEpoch": str(each.producer_epoch),
                "TransactionTimeoutMs": str(each.transaction_timeout_ms),
                "TopicPartitions": ",".join(f"{at.topic}-{at.partition}" for at in each.partitions),
            }
            for each in answer.transactions
        }
    assert "Ongoing" in {state for _, state in found.values()}
    assert listed_transactions(address) == found
    for name in [name for name, (_, state) in found.items() if state == "Ongoing"] + sorted(found)[:2]:
        assert described[name].items() <= described_transaction(address, name).items()
