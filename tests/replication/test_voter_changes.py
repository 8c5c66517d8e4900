"""Voters change one at a time: which leave, which join, and when nothing may change; and which nodes a new controller
counts as silent."""

from __future__ import annotations

from uuid import UUID

from replication.common_events import ClockTicked
from replication.controller.events import (
    Activated,
    HeartbeatReceived,
    Registered,
    RemoveVoter,
    Resigned,
    VotersReviewed,
)
from replication.raft.voters import ReplicaKey
from tests.replication.controlled import SESSION_MS, Controlled, directory
from tidelog.errors import InvalidRequest, VoterChangePending, VoterNotFound
from tidelog.types import Incarnation, Millis, NodeId


def key(node: int, directory_number: int | None = None) -> ReplicaKey:
    return ReplicaKey(NodeId(node), directory(node if directory_number is None else directory_number))


def cluster(*nodes: int) -> Controlled:
    controlled = Controlled()
    controlled.start(*nodes)
    return controlled


def come_back(controlled: Controlled, node: int, with_directory: int) -> None:
    """Another incarnation of the node, with a new volume."""
    assert isinstance(controlled.register(node, run_number=2, directories={directory(with_directory): -1}), Registered)
    controlled.beat(node)


def review(controlled: Controlled, *caught_up: ReplicaKey) -> list[ReplicaKey]:
    controlled.handle(VotersReviewed(controlled.now, caught_up))
    return [ReplicaKey(voter.node_id, voter.directory_id) for voter in controlled.replayed().voters]


def test_a_set_grows_by_one_that_has_caught_up_until_it_has_as_many_as_wanted() -> None:
    controlled = cluster(0, 1, 2, 3)
    assert review(controlled) == []
    assert review(controlled, key(1)) == [key(1)]
    all_voters = (key(0), key(1), key(2), key(3))
    assert review(controlled, *all_voters) == [key(0), key(1)]
    assert review(controlled, *all_voters) == [key(0), key(1), key(2)]
    assert review(controlled, *all_voters) == [key(0), key(1), key(2)]


def test_nothing_changes_before_the_last_change_is_committed() -> None:
    controlled = cluster(0, 1, 2)
    controlled.hold_commits = True
    assert review(controlled, key(0), key(1)) == [key(0)]
    assert review(controlled, key(0), key(1)) == [key(0)]
    controlled.commit()
    assert review(controlled, key(0), key(1)) == [key(0), key(1)]


def test_a_new_controller_changes_nothing_before_all_that_it_found_is_committed() -> None:
    controlled = cluster(0, 1)
    review(controlled, key(0))
    controlled.hold_commits = True
    controlled.activate()
    assert review(controlled, key(0), key(1)) == [key(0)]
    controlled.commit()
    assert review(controlled, key(0), key(1)) == [key(0), key(1)]


def test_a_voter_that_returned_with_another_directory_is_removed_and_may_be_added_again() -> None:
    controlled = cluster(0, 1, 2)
    for _ in range(3):
        review(controlled, key(0), key(1), key(2))
    controlled.pass_time(SESSION_MS + 400, 0, 1)
    assert review(controlled, key(0), key(1)) == [key(0), key(1), key(2)], "it is only silent"
    come_back(controlled, 2, with_directory=22)
    assert review(controlled, key(0), key(1)) == [key(0), key(1)]
    assert review(controlled, key(0), key(1), key(2, 22)) == [key(0), key(1), key(2, 22)]


def test_the_last_voter_is_never_removed() -> None:
    controlled = cluster(0)
    review(controlled, key(0))
    controlled.pass_time(SESSION_MS + 400)
    come_back(controlled, 0, with_directory=9)
    assert review(controlled, key(0, 9)) == [key(0)]


def test_a_controller_knows_which_nodes_were_silent_before_it_led() -> None:
    """Node 1 has sent heartbeats lately, node 2 has not: only node 2 is fenced at once."""
    controlled = cluster(1, 2)
    controlled.handle(Resigned())
    for _ in range(10):
        controlled.now = Millis(controlled.now + 250)
        controlled.handle(HeartbeatReceived(controlled.now, NodeId(1)))
    controlled.handle(Activated(controlled.now, controlled.replayed(), NodeId(99), Incarnation(UUID(int=99))))
    controlled.handle(ClockTicked(Millis(controlled.now + 10)))
    fenced = {node.node_id: node.fenced for node in controlled.replayed().nodes.values()}
    assert fenced == {1: False, 2: True}


def removed(controlled: Controlled, node: int, directory_number: int | None = None) -> object:
    directory_id = None if directory_number is None else directory(directory_number)
    return controlled.ask(RemoveVoter(NodeId(node), directory_id))


def test_an_operator_removes_a_lost_voter_and_another_node_replaces_it() -> None:
    controlled = cluster(0, 1, 2, 3)
    all_voters = (key(0), key(1), key(2), key(3))
    for _ in range(3):
        review(controlled, *all_voters)
    assert isinstance(removed(controlled, 2), InvalidRequest), "it is alive"
    assert isinstance(removed(controlled, 3), VoterNotFound)
    controlled.pass_time(SESSION_MS + 400, 0, 1, 3)
    assert isinstance(removed(controlled, 2, directory_number=7), VoterNotFound)
    controlled.hold_commits = True
    assert removed(controlled, 2) is None, "not committed yet"
    assert isinstance(removed(controlled, 2), VoterChangePending | None)
    controlled.hold_commits = False
    controlled.commit()
    assert review(controlled, *all_voters) == [key(0), key(1), key(3)]


def test_the_only_voter_cannot_be_removed() -> None:
    controlled = cluster(0, 1)
    review(controlled, key(0))
    controlled.pass_time(SESSION_MS + 400, 1)
    assert isinstance(removed(controlled, 0), InvalidRequest)


def test_no_voter_is_removed_while_too_few_of_the_others_are_alive() -> None:
    """The record would be on one disk only: two of the three could neither elect a leader without it nor commit it."""
    controlled = cluster(0, 1, 2)
    for _ in range(3):
        review(controlled, key(0), key(1), key(2))
    controlled.pass_time(SESSION_MS + 400, 0)
    refused = removed(controlled, 2)
    assert isinstance(refused, InvalidRequest)
    assert "only 1 of the 2 other voters" in refused.message
    assert len(controlled.replayed().voters) == 3
