"""The same requests of transactions to a broker of Kafka and to a node: errors, epochs and ends are the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.interop import second_transaction_story, transaction_story
from tests.interop.kafka_broker import Broker
from tests.interop.transaction_story import TOPIC, tell

pytestmark = pytest.mark.interop

CHAPTERS = (*transaction_story.CHAPTERS, *second_transaction_story.CHAPTERS)
QUICK = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
"""Transactions that time out are aborted soon."""

INVALID_REQUEST, INVALID_TXN_STATE = 42, 48
ABORTABLE = (120, -1, -1)
DIFFERENT: dict[str, dict[str, object]] = {
    "batches": {"writes without its id": INVALID_REQUEST},
    "tools": {"times": [(60_000, False), (60_000, False), (60_000, True)]},
    "operators": {"nothing is open": INVALID_TXN_STATE, "an operator commits": INVALID_REQUEST},
    "second_ends": {"abort 1: ends otherwise": ABORTABLE},
    "nothing_is_open": {"0: commits it": ABORTABLE, "1: commits it": ABORTABLE},
    "timeouts": {"commits": ABORTABLE},
    "second_missing": {"writes without its id": INVALID_REQUEST},
}
"""What a node answers otherwise. Kafka takes a missing transactional id for one without permission, shows when a
transaction began that has ended, and lets operators write markers that end nothing, or commit in one partition. With
version 2 it refuses the commit of an aborted transaction with INVALID_TXN_STATE, which ends Java's producer."""


@pytest.fixture(scope="module")
def of_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, object]]]:
    home: Path = tmp_path_factory.mktemp("kafka")
    broker = Broker(home, QUICK)
    broker.start()
    try:
        broker.create_topics({TOPIC: {}}, partitions=2)
        yield tell(broker.address, CHAPTERS)
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def of_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, object]]]:
    with LocalCluster(tmp_path_factory.mktemp("ours"), nodes=1, kafka=True, settings=QUICK) as cluster:
        cluster.wait_healthy(60)
        cluster.create_topic(TOPIC, 2, replicas=1)
        yield tell(cluster.kafka_bootstrap, CHAPTERS)


@pytest.mark.parametrize("chapter", [each.__name__ for each in CHAPTERS])
def test_the_answers_are_the_same(
    of_kafka: dict[str, dict[str, object]], of_ours: dict[str, dict[str, object]], chapter: str
) -> None:
    """Traps 17 and 18: the chapters have what others got wrong."""
    assert of_ours[chapter] == {**of_kafka[chapter], **DIFFERENT.get(chapter, {})}
