"""The states of groups: what a story shows is in the table, and everything in the table is shown."""

from __future__ import annotations

from replication.coordination.group_requests import DeleteGroups
from replication.coordination.groups.states import GROUP_TRANSITIONS, MEMBER_TRANSITIONS, GroupState, MemberState
from tests.replication.group_stories import SESSION_MS, Client, Coordinator, settle_all


def test_a_group_passes_through_every_transition_of_the_table() -> None:
    coordinator = Coordinator({"t": 4})
    coordinator.commit_offset(0, 1)
    coordinator.ask(DeleteGroups(("g",)))
    first, second = Client(coordinator, "m1", instance="i1"), Client(coordinator, "m2")
    first.join()
    second.join()
    settle_all(first, second)
    first.leave(-2)
    first.join()
    coordinator.change_topics({"t": 6})
    second.leave()
    first.leave()
    first.join()
    second.join()
    first.leave()
    second.leave()
    first.join()
    first.leave(-2)
    coordinator.pass_time(SESSION_MS)
    coordinator.ask(DeleteGroups(("g",)))
    moves = {(source, target) for (source, _), target in GROUP_TRANSITIONS.items() if source is not target}
    assert coordinator.moves | {(GroupState.ASSIGNING, GroupState.EMPTY)} == moves


def test_the_last_members_of_a_large_group_may_leave_before_it_is_assigned_again() -> None:
    coordinator = Coordinator({"t": 4})
    clients = [Client(coordinator, f"m{number:02}") for number in range(20)]
    for client in clients:
        client.join()
    assert coordinator.group().state == "Assigning", "the pause of 1 ms for each 10 members is not over"
    coordinator.now_ms += SESSION_MS
    for decision in coordinator.machine.tick(coordinator.now):
        coordinator.commit(decision)
    assert coordinator.group().state == "Empty"
    assert (GroupState.ASSIGNING, GroupState.EMPTY) in coordinator.moves


def test_every_state_is_in_a_table() -> None:
    assert {state for state, _ in GROUP_TRANSITIONS} == set(GroupState)
    assert {state for state, _ in MEMBER_TRANSITIONS} == set(MemberState)
