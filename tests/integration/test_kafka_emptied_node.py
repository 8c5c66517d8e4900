"""A client of Kafka that meets a node with an emptied directory while no other node runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import confluent_kafka
import pytest

from node.process.local_cluster import LocalCluster
from tests.kafka_nodes import QUICK_FAILOVER, QUICK_GROUPS
from tidelog.errors import NodeNotAvailable

WAIT_S = 60.0


@pytest.mark.integration
@pytest.mark.deep
def test_a_consumer_gets_over_an_emptied_node(tmp_path: Path) -> None:
    """Above 10 s: three real nodes start twice. The emptied node knows neither topics nor nodes. A client that it tells
    so forgets the other nodes, and asks none of them again."""
    settings = {**QUICK_FAILOVER, **QUICK_GROUPS}
    with LocalCluster(tmp_path, 3, kafka=True, settings=settings) as cluster:
        cluster.wait_healthy(WAIT_S)
        cluster.create_topic("orders", 1, 3)
        emptied = cluster.nodes[0]
        produce(cluster, b"before")
        member = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.kafka_bootstrap,
                "log_level": 0,
                "group.id": "billing",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        member.subscribe(["orders"])
        try:
            assert read(member) == b"before"
            cluster.kill(0)  # first: killed last, it could be the only in-sync replica, whose loss nobody repairs
            cluster.wait_until(lambda: is_out_of_sync(cluster), within_s=WAIT_S, what="node 0 is in no in-sync set")
            cluster.kill_all()
            shutil.rmtree(emptied.data)
            cluster.start_node(0)
            cluster.wait_until(
                lambda: is_asked_in_vain(cluster), within_s=WAIT_S, what="the emptied node serves requests"
            )
            with pytest.raises(confluent_kafka.KafkaException):
                member.list_topics("orders", timeout=2)
            cluster.start_node(1)
            cluster.start_node(2)
            cluster.wait_healthy(WAIT_S)
            produce(cluster, b"after")
            assert read(member) == b"after"
            member.commit(asynchronous=False)
        finally:
            member.close()


def is_out_of_sync(cluster: LocalCluster) -> bool:
    """Whether node 0 is in no in-sync set, as far as node 1 knows."""
    return all(0 not in state.isr for topic in cluster.metadata(1).topics for state in topic.partitions)


def is_asked_in_vain(cluster: LocalCluster) -> bool:
    """Whether node 0 has recovered its logs, and does not answer about topics all the same."""
    with pytest.raises(NodeNotAvailable) as refusal:
        cluster.metadata(0, "orders")
    return "has not joined a cluster yet" in refusal.value.message


def produce(cluster: LocalCluster, value: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0})
    producer.produce("orders", value)
    assert producer.flush(WAIT_S) == 0


def read(member: confluent_kafka.Consumer) -> bytes | None:
    message = member.poll(WAIT_S)
    assert message is not None, f"no record came within {WAIT_S:g} s"
    assert message.error() is None, message.error()
    value: bytes | None = message.value()
    return value
