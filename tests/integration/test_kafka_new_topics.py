"""Clients of Kafka that write to a topic before anybody has created it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from node.process.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

WAIT_S = 20.0
DEFAULTS = {"num.partitions": 4, "default.replication.factor": 3}


@pytest.fixture
def creates(request: pytest.FixtureRequest) -> bool:
    return bool(getattr(request, "param", True))


@pytest.fixture
def cluster(creates: bool, tmp_path: Path) -> Iterator[LocalCluster]:
    settings = {"auto.create.topics.enable": creates, **DEFAULTS}
    with LocalCluster(tmp_path, kafka=True, settings=settings) as started:
        started.wait_healthy(60)
        yield started


def client(cluster: LocalCluster, **settings: object) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0, **settings}


def topics_of(cluster: LocalCluster) -> dict[str, Any]:
    """All topics: to ask for one would create it."""
    return dict(AdminClient(client(cluster)).list_topics(timeout=WAIT_S).topics)


def replicas_of(cluster: LocalCluster, topic: str) -> list[int]:
    """The number of replicas of each partition, once the node that is asked has applied that there is such a topic."""
    cluster.wait_until(lambda: topic in topics_of(cluster), within_s=WAIT_S, what=f"{topic} is there")
    return [len(each.replicas) for each in topics_of(cluster)[topic].partitions.values()]


def test_the_first_record_makes_the_topic_with_the_defaults_of_the_node(cluster: LocalCluster) -> None:
    producer = confluent_kafka.Producer(client(cluster))
    delivered: list[confluent_kafka.KafkaError | None] = []
    producer.produce("first", b"value", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(WAIT_S) == 0
    assert delivered == [None]
    assert replicas_of(cluster, "first") == [3] * 4
    # A topic that names no numbers has the same ones.
    admin = AdminClient(client(cluster))
    admin.create_topics([NewTopic("unnumbered", -1, -1)])["unnumbered"].result(WAIT_S)
    assert replicas_of(cluster, "unnumbered") == [3] * 4
    # A name that no topic can have is refused for what it is. Asked for by metadata: a record would be refused
    # by the call or at its delivery, as the answer comes before or after librdkafka chooses a partition.
    refused = producer.list_topics("no/topic", timeout=WAIT_S).topics["no/topic"]
    assert refused.error == confluent_kafka.KafkaError.TOPIC_EXCEPTION
    assert set(topics_of(cluster)) == {"first", "unnumbered"}


@pytest.mark.parametrize("creates", [False], indirect=True, ids=["not-enabled"])
def test_a_topic_is_not_made_where_the_node_does_not_allow_it(cluster: LocalCluster) -> None:
    producer = confluent_kafka.Producer(client(cluster, **{"message.timeout.ms": 1_500}))
    failed: list[str] = []
    producer.produce("misspelt", b"value", on_delivery=lambda error, _: failed.append(error.name() if error else ""))
    producer.flush(WAIT_S)
    assert failed == ["_MSG_TIMED_OUT"]
    assert topics_of(cluster) == {}


def test_a_topic_is_created_and_grows_while_a_node_is_down(cluster: LocalCluster) -> None:
    """As in Kafka: the node gets replicas, and is in sync once it runs. It was refused."""
    admin = AdminClient(client(cluster))
    cluster.kill(2)

    def fenced() -> bool:
        return any(node.fenced for node in cluster.describe(0).nodes if node.address.node_id == 2)

    cluster.wait_until(fenced, within_s=WAIT_S, what="the node is fenced")
    admin.create_topics([NewTopic("early", 1, 3)])["early"].result(WAIT_S)
    admin.create_partitions([NewPartitions("early", 2)])["early"].result(WAIT_S)

    def sets() -> list[tuple[set[int], set[int]]]:
        topic = topics_of(cluster).get("early")
        return [] if topic is None else [(set(each.replicas), set(each.isrs)) for each in topic.partitions.values()]

    cluster.wait_until(lambda: sets() == [({0, 1, 2}, {0, 1})] * 2, within_s=WAIT_S, what="the node has replicas")
    producer = confluent_kafka.Producer(client(cluster, acks="all"))
    producer.produce("early", b"value", partition=1)
    assert producer.flush(WAIT_S) == 0
    cluster.start()
    cluster.wait_until(lambda: sets() == [({0, 1, 2}, {0, 1, 2})] * 2, within_s=WAIT_S, what="all are in sync")
