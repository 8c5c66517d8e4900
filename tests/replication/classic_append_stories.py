"""Stories of classic groups whose assignments cannot be recorded, on a coordinator alone."""

from __future__ import annotations

import pytest

from tests.replication.classic_clients import ClassicClient, said, synced
from tests.replication.classic_stories import world
from tests.replication.group_stories import Coordinator


def not_recorded(coordinator: Coordinator, client: ClassicClient) -> None:
    """The client asks for its assignment. The runtime refuses the decision, and applies nothing: its records may be too
    large."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "commit", lambda _: None)
        client.sync()


def assignment_that_cannot_be_recorded_reaches_nobody() -> None:
    coordinator = world()
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    first.join()
    second.join()
    coordinator.pass_time(6_000)
    first.look()
    second.look()
    second.sync()
    not_recorded(coordinator, first)
    second.look()
    assert second.assignment is None, "it is not recorded"
    assert coordinator.group().state == "CompletingRebalance", "the leader may try again"
    first.sync()
    second.look()
    assert second.assignment is not None


def leader_that_ends_after_such_an_assignment_is_removed() -> None:
    """Its client stops after the refusal: the others must not wait for it for ever."""
    coordinator = world()
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    first.join()
    second.join()
    coordinator.pass_time(6_000)
    first.look()
    second.look()
    second.sync()
    not_recorded(coordinator, first)
    coordinator.pass_time(10_000)
    second.look()
    assert type(second.error).__name__ == "RebalanceInProgress", "the session of the leader is over"
    second.join()
    synced(second)
    assert second.assignment == f"2:{second.member_id}".encode(), "the other one goes on alone"


def leader_that_does_not_assign_again_is_removed() -> None:
    """As if it had never assigned, although it sends heartbeats."""
    coordinator = world()
    first, second = ClassicClient(coordinator, "a"), ClassicClient(coordinator, "b")
    first.join()
    second.join()
    coordinator.pass_time(6_000)
    first.look()
    second.look()
    second.sync()
    not_recorded(coordinator, first)
    for _ in range(60):
        coordinator.pass_time(1_000)
        said(first.heartbeat)
    second.look()
    assert type(second.error).__name__ == "RebalanceInProgress", "the rebalance timeout is over"
    assert said(first.heartbeat) == "UnknownMemberId"
    assert "did not ask for its assignment" in coordinator.notices[-1]
