"""UnregisterBroker: what `kafka-cluster unregister` asks for is the removal of a node, with the same refusals."""

from __future__ import annotations

import pytest

from node.listeners.kafka.kafka_nodes import UNREGISTER_BROKER
from replication.controller.events import NodeUnregistered, UnregisterNode
from testbed.sim.world import Simulation
from tests.node.kafka_exchanges import answered, begun, exchanged, request
from tests.sim.kafka_client import KafkaClient
from tests.sim.stories import fenced
from tidelog.errors import (
    ClusterAuthorizationFailed,
    InvalidRequest,
    NodeIdNotRegistered,
    TidelogError,
    UnsupportedVersion,
    VoterChangePending,
)
from tidelog.types import NodeId, Offset

RETRIABLE = 7
"""REQUEST_TIMED_OUT: Java's client asks again."""


def test_the_request_names_a_node_and_the_answer_has_no_more_than_an_error() -> None:
    message = request("UnregisterBroker").UnregisterBrokerRequest(3)
    assert begun(UNREGISTER_BROKER, 0, message)[1] == UnregisterNode(NodeId(3))
    answer = exchanged(UNREGISTER_BROKER, 0, message, NodeUnregistered(removed_voter=True, metadata_offset=Offset(9)))
    assert (answer.error_code, answer.error_message) == (0, None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ClusterAuthorizationFailed("not you"), 31),
        (UnsupportedVersion("feature level 7"), 35),
        (InvalidRequest("node 3 is alive"), 42),
        (NodeIdNotRegistered("there is no node 3"), 102),
        (VoterChangePending("the last change is not committed yet"), RETRIABLE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TidelogError) else "",
)
def test_a_refusal_has_the_number_and_the_text_of_the_error(error: TidelogError, code: int) -> None:
    exchange, _ = begun(UNREGISTER_BROKER, 0, request("UnregisterBroker").UnregisterBrokerRequest(3))
    answer = answered(UNREGISTER_BROKER, 0, exchange.refuse(error))
    assert (answer.error_code, answer.error_message) == (code, error.message)


def test_a_node_that_is_gone_is_removed_over_kafkas_protocol() -> None:
    """By any node, once it is fenced and has no replicas. A second request names the nodes that are left."""
    with Simulation(1, voters=3) as sim:
        sim.network.has_kafka = True
        sim.start(nodes=4, topics=())
        kafka = KafkaClient(sim.client([0]))

        async def ask(node: int) -> tuple[int, str | None]:
            message = request("UnregisterBroker").UnregisterBrokerRequest(node)
            answer = await (await kafka.any_wire()).ask("UnregisterBroker", message)
            return answer.error_code, answer.error_message

        def removed(node: int) -> tuple[int, str | None]:
            task = kafka.client.start(ask(node), f"unregisters node {node}")
            sim.run_until(task.done, within=10, what="the request is answered")
            outcome: tuple[int, str | None] = task.result()
            return outcome

        code, why = removed(3)
        assert (code, "node 3 is alive" in str(why)) == (42, True)
        sim.kill(3)
        sim.run_until(lambda: fenced(sim, 3), what="node 3 is fenced")
        assert removed(3) == (0, None)
        assert sorted(sim.image().nodes) == [0, 1, 2]
        code, why = removed(3)
        assert (code, "it was removed before" in str(why), "the registered nodes are 0, 1, 2" in str(why)) == (
            102,
            True,
            True,
        )
