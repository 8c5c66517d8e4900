"""Lookup of coordinators and calls to them: what is asked again, where, and what is not."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.client.coordinator_nodes import NODES, Nodes
from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import CoordinatorKind, Coordinators
from tidelog.clock import MachineClock
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    NotCoordinator,
    TidelogError,
)
from tidelog.protocol import methods
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import groups_pb2 as pb
from tidelog.types import Endpoint

GROUP = CoordinatorKind.GROUP


def coordinators(nodes: Nodes) -> Coordinators:
    return Coordinators(Cluster(NODES, nodes, MachineClock(), Random(3)), Random(3))


async def ask(found: Coordinators, **options: Any) -> None:
    def error_of(answer: pb.DeleteGroupsResponse) -> TidelogError | None:
        return from_proto(answer.groups[0].error) if answer.groups[0].HasField("error") else None

    request = pb.DeleteGroupsRequest(group_ids=["g"])
    wanted: dict[str, Any] = {"timeout_ms": 3_000, **options}
    await found.call(GROUP, "g", methods.GROUPS_DELETE_GROUPS, request, error_of=error_of, **wanted)


async def test_a_coordinator_is_remembered_until_it_refuses() -> None:
    nodes = Nodes()
    found = coordinators(nodes)
    for _ in range(3):
        await ask(found)
    assert (len(nodes.lookups), nodes.calls) == (1, [NODES[0]] * 3)
    nodes.coordinator = dict.fromkeys(NODES, NODES[1])
    nodes.on_call = lambda to: NotCoordinator("moved") if to == NODES[0] else None
    await ask(found)
    assert (len(nodes.lookups), nodes.calls[3:]) == (2, [NODES[0], NODES[1]])


async def test_a_node_with_old_metadata_does_not_mislead_for_ever() -> None:
    """Two of three nodes know the new coordinator, the one that answered last does not."""
    nodes = Nodes()
    found = coordinators(nodes)
    await ask(found)
    (stale,) = nodes.lookups
    for node in NODES:
        nodes.coordinator[node] = NODES[0] if node == stale else NODES[1]
    nodes.on_call = lambda to: NotCoordinator("moved") if to == NODES[0] else None
    await ask(found)
    assert nodes.calls[-1] == NODES[1]


@pytest.mark.parametrize("error", [CoordinatorLoadInProgress("loading"), CoordinatorNotAvailable("no leader")])
async def test_a_coordinator_that_is_not_ready_is_asked_again(error: TidelogError) -> None:
    nodes = Nodes()
    answers = [error, error]
    nodes.on_call = lambda _to: answers.pop() if answers else None
    await ask(coordinators(nodes))
    assert len(nodes.calls) == 3
    assert len(nodes.lookups) == (1 if isinstance(error, CoordinatorLoadInProgress) else 3)


async def test_what_may_be_applied_is_repeated_only_if_that_does_no_harm() -> None:
    nodes = Nodes()
    answers: list[TidelogError] = [ConnectionLost("broke")]
    nodes.on_call = lambda _to: answers.pop() if answers else None
    await ask(coordinators(nodes))
    assert len(nodes.calls) == 2
    answers.append(ConnectionLost("broke"))
    with pytest.raises(ConnectionLost):
        await ask(coordinators(nodes), repeats_unknown=False)
    assert len(nodes.calls) == 3
    answers.append(ConnectionFailed("refused"))
    await ask(coordinators(nodes), repeats_unknown=False)
    assert len(nodes.calls) == 5, "what was never sent is sent again"


async def test_what_does_not_go_away_is_raised_at_once_and_the_rest_after_the_timeout() -> None:
    nodes = Nodes()
    nodes.coordinator = dict.fromkeys(NODES, GroupAuthorizationFailed("no"))
    with pytest.raises(GroupAuthorizationFailed):
        await ask(coordinators(nodes))
    assert len(nodes.lookups) == 1
    nodes.coordinator = dict.fromkeys(NODES, CoordinatorNotAvailable("the topic is being created"))
    with pytest.raises(CoordinatorNotAvailable, match="being created"):
        await ask(coordinators(nodes), timeout_ms=400)
    assert 3 <= len(nodes.lookups) <= 8
    nodes.coordinator = dict.fromkeys(NODES, ConnectionFailed("FindCoordinator at node: refused"))
    with pytest.raises(ConnectionFailed, match="no node of the cluster answered"):
        await ask(coordinators(nodes), timeout_ms=200)


async def test_many_keys_are_asked_about_together_and_each_has_its_outcome() -> None:
    nodes = Nodes()
    found = coordinators(nodes)
    asked: list[tuple[Endpoint, list[str]]] = []

    async def send(to: Endpoint, keys: list[str]) -> dict[str, str | TidelogError]:
        asked.append((to, keys))
        again = len(asked) == 1
        return {key: NotCoordinator("moved") if again and key == "b" else f"{key}!" for key in keys}

    assert await found.call_each(GROUP, ["a", "b", "c", "a"], send, timeout_ms=3_000) == {
        "a": "a!",
        "b": "b!",
        "c": "c!",
    }
    assert asked == [(NODES[0], ["a", "b", "c"]), (NODES[0], ["b"])]
    assert len(nodes.lookups) == 2

    async def refuse(to: Endpoint, keys: list[str]) -> dict[str, str | TidelogError]:
        raise ConnectionFailed(f"{to} is down")

    outcome = await found.call_each(GROUP, ["a"], refuse, timeout_ms=200)
    assert isinstance(outcome["a"], ConnectionFailed)
