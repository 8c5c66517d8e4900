"""What operators alert on must not move while nothing is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from node.replication_settings import ReplicationConfig
from tests.node.real_nodes import RealNode, RealNodes, real_nodes
from tidelog import Admin, Consumer, Producer
from tidelog.types import Millis

BEATS = 8
"""Heartbeats of each voter that is not the active controller: four of each other node."""


def errors(nodes: RealNodes) -> dict[tuple[int, str, str], int]:
    """The errors in answers of each node, by API and name."""
    return {
        (number, meter.api, error): count
        for number, node in nodes.nodes.items()
        for meter in node.meters
        for error, count in meter.errors.items()
    }


def beats(nodes: RealNodes) -> dict[int, int]:
    """The answered heartbeats of each node."""
    return {number: node.meters.of("Controller.Heartbeat").answered for number, node in nodes.nodes.items()}


def is_in_sync(found: RealNode) -> bool:
    """True if the replicas of this node follow or lead, and the sets are whole."""
    image, replicas = found.node.image, found.node.replicas
    topic = None if image is None else image.topic("orders")
    if topic is None or replicas is None or any(len(state.isr) < 3 for state in topic.partitions):
        return False
    hosted = list(replicas.partitions())
    return len(hosted) == 3 and all(each.role is not None for each in hosted)


async def test_a_healthy_cluster_answers_no_request_with_an_error(tmp_path: Path) -> None:
    """Heartbeats also go to voters that lead nothing: each of them was an error, thousands in an hour. Followers of new
    partitions fetch before their leader knows that it leads, which was one too."""
    quick = replace(ReplicationConfig(), heartbeat_ms=Millis(50))
    async with real_nodes(tmp_path, 3, replication=quick) as nodes:
        bootstrap = str(nodes.addresses[0])
        await nodes.wait_until(lambda: all(count > 2 for count in beats(nodes).values()))  # each has found the others
        before = errors(nodes)
        async with Admin(bootstrap) as admin:
            await admin.create_topic("orders", partitions=3, replication_factor=3)
        await nodes.wait_until(lambda: all(map(is_in_sync, nodes.nodes.values())))
        beaten = beats(nodes)
        async with Producer(bootstrap) as producer, Consumer(bootstrap) as consumer:
            consumer.assign([("orders", 0)])
            await producer.send("orders", b"one", partition=0)
            assert await consumer.poll(timeout=1)
        await nodes.wait_until(lambda: all(count >= beaten[each] + BEATS for each, count in beats(nodes).items()))
        assert errors(nodes) == before
