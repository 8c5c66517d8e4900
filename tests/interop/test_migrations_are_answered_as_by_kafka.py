"""The same requests of members that change their protocol to a broker of Kafka and to a node: the answers are the
same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.interop.kafka_broker import Broker
from tests.interop.migration_story import CHAPTERS, PARTITIONS, TOPIC, tell

pytestmark = pytest.mark.interop

UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID = 25, 82
DIFFERENT: dict[str, dict[str, object]] = {
    "a_group_is_downgraded": {"to a classic group": UNKNOWN_MEMBER_ID},
    "static_members_change": {
        "the other one lives": UNKNOWN_MEMBER_ID,
        "the former one commits": FENCED_INSTANCE_ID,
    },
}
"""What a node answers otherwise. A member of KIP-848 in a group that is a classic one since joins again, where Kafka's
GROUP_ID_NOT_FOUND ends its consumer. Kafka does not compare the instance id of a commit."""


@pytest.fixture(scope="module")
def of_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, object]]]:
    home: Path = tmp_path_factory.mktemp("kafka")
    broker = Broker(home)
    broker.start()
    try:
        broker.create_topics({TOPIC: {}}, partitions=PARTITIONS)
        yield tell(broker.address)
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def of_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, object]]]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    with LocalCluster(tmp_path_factory.mktemp("ours"), nodes=1, kafka=True, settings=settings) as cluster:
        cluster.wait_healthy(60)
        cluster.create_topic(TOPIC, PARTITIONS, replicas=1)
        yield tell(cluster.kafka_bootstrap)


@pytest.mark.parametrize("chapter", [each.__name__ for each in CHAPTERS])
def test_the_answers_are_the_same(
    of_kafka: dict[str, dict[str, object]], of_ours: dict[str, dict[str, object]], chapter: str
) -> None:
    assert of_ours[chapter] == {**of_kafka[chapter], **DIFFERENT.get(chapter, {})}
