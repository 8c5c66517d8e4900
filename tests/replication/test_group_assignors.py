"""The assignors: complete, balanced, sticky, deterministic, near."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.coordination.groups.assignor import Assignor, GroupAssignment, GroupSpec, MemberSpec
from replication.coordination.groups.mixed_assignor import assign_mixed
from replication.coordination.groups.range_assignor import assign_range
from replication.coordination.groups.target_assignment import preferred_assignor
from replication.coordination.groups.topic_catalog import Topic
from replication.coordination.groups.uniform_assignor import assign_uniform
from tests.replication.group_stories import Client, Coordinator, settle_all
from tidelog.types import TopicId

Flat = dict[str, set[tuple[int, int]]]


def topic(number: int, partitions: int, racks: tuple[str, ...] = ()) -> Topic:
    """A topic whose partitions have one replica each. racks: in turns."""
    near = tuple(frozenset({racks[index % len(racks)]}) for index in range(partitions)) if racks else ()
    return Topic(TopicId(UUID(int=number)), f"t{number}", partitions, near, 0)


def spec(
    topics: Mapping[int, Topic],
    members: Mapping[str, set[int]],
    targets: GroupAssignment | None = None,
    racks: Mapping[str, str] | None = None,
) -> GroupSpec:
    """members: the topics of each."""
    by_id: dict[UUID, Topic] = {each.topic_id: each for each in topics.values()}
    return GroupSpec(
        {
            member: MemberSpec(
                None,
                (racks or {}).get(member),
                frozenset(topics[number].topic_id for number in subscribed if number in topics),
                {each: frozenset(parts) for each, parts in (targets or {}).get(member, {}).items() if parts},
            )
            for member, subscribed in sorted(members.items())
        },
        {each: by_id[each] for each in by_id if any(each.int in subscribed for subscribed in members.values())},
    )


def subscribing(members: Iterable[str], topics: Iterable[int]) -> dict[str, set[int]]:
    """All members subscribe to all topics."""
    return {member: set(topics) for member in members}


def flat(assignment: GroupAssignment) -> Flat:
    return {
        member: {(each.int, index) for each, indexes in topics.items() for index in indexes}
        for member, topics in assignment.items()
    }


def check_complete(given_spec: GroupSpec, assignment: Flat) -> None:
    """Each partition of a subscribed topic has exactly one owner, and it subscribes to the topic."""
    owned = [partition for partitions in assignment.values() for partition in partitions]
    wanted = {
        (each.int, index)
        for each, known in given_spec.topics.items()
        if any(each in member.topics for member in given_spec.members.values())
        for index in range(known.partitions)
    }
    assert len(owned) == len(set(owned))
    assert set(owned) == wanted
    for member, partitions in assignment.items():
        assert {number for number, _ in partitions} <= {each.int for each in given_spec.members[member].topics}


subscriptions = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.sets(st.integers(1, 5), max_size=5), min_size=1, max_size=8
)
counts = st.dictionaries(st.integers(1, 5), st.integers(1, 12), max_size=5)


@pytest.mark.parametrize("assign", [assign_uniform, assign_range, assign_mixed])
@given(members=subscriptions, after=subscriptions, partitions=counts, partitions_after=counts)
def test_every_partition_has_one_owner_that_subscribes_to_it(
    assign: Assignor,
    members: dict[str, set[int]],
    after: dict[str, set[int]],
    partitions: dict[int, int],
    partitions_after: dict[int, int],
) -> None:
    """Also when members, topics and subscriptions change."""
    before = spec({number: topic(number, count) for number, count in partitions.items()}, members)
    first = assign(before)
    check_complete(before, flat(first))
    assert flat(assign(before)) == flat(first)
    now = spec({number: topic(number, count) for number, count in partitions_after.items()}, after, first)
    check_complete(now, flat(assign(now)))


@given(members=st.sets(st.text("abc", min_size=1), min_size=1, max_size=9), after=st.data(), partitions=counts)
def test_uniform_is_balanced_and_moves_as_little_as_balance_allows(
    members: set[str], after: st.DataObject, partitions: dict[int, int]
) -> None:
    topics = {number: topic(number, count) for number, count in partitions.items()}
    first = assign_uniform(spec(topics, subscribing(members, topics)))
    sizes = [len(owned) for owned in flat(first).values()] or [0]
    assert max(sizes) - min(sizes) <= 1
    others = after.draw(st.sets(st.text("abc", min_size=1), min_size=1, max_size=9))
    second = assign_uniform(spec(topics, subscribing(others, topics), first))
    old, new = flat(first), flat(second)
    total = sum(partitions.values())
    share, larger = divmod(total, len(others))
    had = sorted((len(old.get(member, ())) for member in others), reverse=True)
    can_stay = sum(min(size, share + (number < larger)) for number, size in enumerate(had))
    stayed = sum(len(new.get(member, set()) & old.get(member, set())) for member in others)
    assert stayed == can_stay


@given(members=subscriptions, partitions=counts)
def test_mixed_is_balanced_where_subscriptions_allow(members: dict[str, set[int]], partitions: dict[int, int]) -> None:
    """No partition has an owner with two more partitions than another subscriber of its topic."""
    given_spec = spec({number: topic(number, count) for number, count in partitions.items()}, members)
    assignment = assign_mixed(given_spec)
    sizes = {member: len(flat(assignment).get(member, ())) for member in given_spec.members}
    for member, topics in assignment.items():
        for each, indexes in topics.items():
            if indexes:
                others = [name for name, other in given_spec.members.items() if each in other.topics]
                assert sizes[member] - min(sizes[name] for name in others) < 2
    again = assign_mixed(
        spec({number: topic(number, count) for number, count in partitions.items()}, members, assignment)
    )
    assert flat(again) == flat(assignment), "nothing moves without a reason"


def test_range_gives_the_same_ranges_of_topics_alike() -> None:
    topics = {1: topic(1, 7), 2: topic(2, 7)}
    assignment = flat(assign_range(spec(topics, {"a": {1, 2}, "b": {1, 2}, "c": {1, 2}})))
    assert {
        member: sorted(index for number, index in owned if number == 1) for member, owned in assignment.items()
    } == {
        "a": [0, 1, 2],
        "b": [3, 4],
        "c": [5, 6],
    }
    for owned in assignment.values():
        assert {index for number, index in owned if number == 1} == {index for number, index in owned if number == 2}


def test_range_orders_static_members_by_instance() -> None:
    coordinator = Coordinator({"t": 2})
    first = Client(coordinator, "z", instance="i1", assignor="range")
    second = Client(coordinator, "a", instance="i2", assignor="range")
    dynamic = Client(coordinator, "0", assignor="range")
    for client in (first, second, dynamic):
        client.join()
    settle_all(first, second, dynamic)
    assert (first.partitions, second.partitions, dynamic.partitions) == ({("t", 0)}, {("t", 1)}, set())


def test_uniform_prefers_members_in_the_rack_of_a_replica() -> None:
    topics = {1: topic(1, 6, ("north", "south"))}
    members = subscribing("abc", topics)
    racks = {"a": "south", "b": "north"}
    assignment = flat(assign_uniform(spec(topics, members, None, racks)))
    assert {index % 2 for _, index in assignment["a"]} == {1}
    assert {index % 2 for _, index in assignment["b"]} == {0}
    wrong: GroupAssignment = {"a": {UUID(int=1): {0, 2, 4, 1, 3, 5}}}
    moved = flat(assign_uniform(spec(topics, {"a": {1}, "b": {1}}, wrong, racks)))
    assert {index for _, index in moved["a"]} == {1, 3, 5}, "it gives up what is far away"


def test_mixed_prefers_members_in_the_rack_of_a_replica() -> None:
    topics = {1: topic(1, 4, ("north", "south")), 2: topic(2, 1)}
    members = {"a": {1, 2}, "b": {1}, "c": {2}}
    assignment = flat(assign_mixed(spec(topics, members, None, {"a": "south", "b": "north"})))
    assert {index % 2 for number, index in assignment["a"] if number == 1} == {1}
    assert {index % 2 for number, index in assignment["b"]} == {0}


def test_racks_of_nodes_reach_the_assignor() -> None:
    coordinator = Coordinator({})
    first, second = Client(coordinator, "m1", rack="r2"), Client(coordinator, "m2", rack="r1")
    first.join()
    second.join()
    coordinator.change_topics({"t": 4}, racks={1: "r1", 2: "r2"})
    settle_all(first, second)
    assert first.partitions == {("t", 1), ("t", 3)}
    epoch = coordinator.group().group_epoch
    coordinator.change_topics({"t": 4}, racks={1: "r3", 2: "r2"})
    assert coordinator.group().group_epoch == epoch + 1, "a node moved to another rack"
    coordinator.change_topics({"t": 4}, racks={1: "r3", 2: "r2"})
    assert coordinator.group().group_epoch == epoch + 1


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    coordinator = Coordinator({"t": 2})
    first, second = Client(coordinator, "m1"), Client(coordinator, "m2", assignor="range")
    first.join()
    assert coordinator.group().assignor == "uniform"
    second.join()
    assert coordinator.group().assignor == "range"
    assert preferred_assignor((), ("range", "uniform")) == "range"
