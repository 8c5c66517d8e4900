"""Every story of classic groups; and their descriptions."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from replication.coordination.classic_requests import DescribeClassicGroups, DescribedClassicGroup
from replication.coordination.groups import classic_members
from tests.replication import classic_append_stories, classic_static_stories, classic_stories
from tests.replication.classic_clients import ClassicClient, said
from tests.replication.classic_stories import pair, world
from tests.replication.group_stories import Client, Coordinator

STORIES = [
    each
    for stories in (classic_stories, classic_static_stories, classic_append_stories)
    for each in vars(stories).values()
    if inspect.isfunction(each) and each.__module__ == stories.__name__ and not inspect.signature(each).parameters
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_ends_well(story: Callable[[], None]) -> None:
    """Traps 15 and 19, in the stories that name them."""
    story()


def test_members_that_never_join_leave_no_more_groups_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a group of its own: such groups were kept for half an hour, however many there were. Those that were
    asked for last still join."""
    monkeypatch.setattr(classic_members, "INVITED_MAX", 50)
    coordinator = Coordinator({"t": 4})
    clients = [ClassicClient(coordinator, "a", group_id=f"g{number}", session_ms=1_800_000) for number in range(200)]
    for client in clients:
        client.send_join()
    assert len(coordinator.machine._state.classic) == 50
    clients[-1].send_join()
    assert said(clients[0].send_join) == "UnknownMemberId"
    coordinator.pass_time(3_000)
    clients[-1].look()
    assert clients[-1].generation == 1


def test_a_group_is_described_with_the_bytes_of_its_members() -> None:
    coordinator = world()
    first, second = pair(coordinator)
    Client(coordinator, "m", group_id="h").join()
    coordinator.commit_offset(0, 1, group_id="o")
    group, other, offsets, missing = described(coordinator, "g", "h", "o", "x")
    assert (group.state, group.protocol_type, group.protocol) == ("Stable", "consumer", "range")
    assert {each.member_id: each.assignment for each in group.members} == {
        first.member_id: first.assignment,
        second.member_id: second.assignment,
    }
    assert {each.metadata for each in group.members} == {b"topics t"}
    assert (offsets.state, offsets.error) == ("Empty", None), "a group with nothing but offsets"
    assert {type(each.error).__name__ for each in (other, missing)} == {"GroupIdNotFound"}, "a consumer group is none"
    first.join()
    (group,) = described(coordinator, "g")
    assert (group.state, group.protocol) == ("PreparingRebalance", ""), "the next generation may use another one"
    assert {(each.metadata, each.assignment) for each in group.members} == {(b"", b"")}


def described(coordinator: Coordinator, *group_ids: str) -> tuple[DescribedClassicGroup, ...]:
    answer = coordinator.ask(DescribeClassicGroups(group_ids))
    groups: tuple[DescribedClassicGroup, ...] = answer.groups
    return groups
