"""Making and removing topics, and where their replicas go."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replication.controller.events import (
    ChangedTopic,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ReplicaAssignment,
)
from replication.controller.placement import place
from tests.replication.controlled import Controlled, directory
from tidelog.errors import (
    InconsistentTopicId,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    TooFewNodes,
    TopicExists,
    UnknownTopicOrPartition,
)
from tidelog.types import NO_NODE, NodeId, TopicId


def test_a_topic_has_its_partitions_led_and_in_sync_from_the_start() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    world.made(partitions=6, min_insync_replicas="2")
    topic = world.topic()
    assert (topic.name, topic.min_insync_replicas, len(topic.partitions)) == ("orders", 2, 6)
    for state in topic.partitions:
        assert state.leader == state.replicas[0]
        assert set(state.isr) == {1, 2, 3}
        assert state.directories == tuple(directory(node) for node in state.replicas)
    assert Counter(state.leader for state in topic.partitions) == {1: 2, 2: 2, 3: 2}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a" * 250, "__cluster_metadata", "a\n"])
def test_a_name_that_is_not_allowed_is_refused(name: str) -> None:
    world = Controlled()
    world.start(1)
    assert isinstance(world.create(name, replicas=1), InvalidTopic)


def test_counts_and_settings_are_checked_and_nothing_is_written() -> None:
    world = Controlled()
    world.start(1, 2)
    end = world.end
    assert isinstance(world.create(partitions=0, replicas=1), InvalidPartitions)
    assert isinstance(world.create(partitions=10_001, replicas=1), InvalidPartitions)
    assert isinstance(world.create(replicas=0), InvalidReplicationFactor)
    assert isinstance(world.create(replicas=3), TooFewNodes)
    assert isinstance(world.create(replicas=1, no_such_key="1"), InvalidConfig)
    assert world.end == end


def test_nodes_that_are_down_get_replicas_where_the_others_do_not_suffice() -> None:
    """With one of three nodes down, a topic with three replicas was refused, which Kafka creates."""
    world = Controlled()
    world.start(1, 2, 3)
    world.kill(3, alive=(1, 2))
    assert set(world.made("narrow", partitions=1, replicas=2).replicas) == {1, 2}
    created = world.create(partitions=4, replicas=3, min_insync_replicas="2")
    assert isinstance(created, ChangedTopic)
    assert "replicas on node 3, fenced" in created.warnings[0]
    for state in world.topic().partitions:
        assert set(state.replicas) == {1, 2, 3}
        assert (state.leader, state.replicas[2], state.elr) == (state.replicas[0], 3, ())
        assert state.isr == state.replicas[:2]
        assert state.directories == tuple(directory(node) for node in state.replicas)
    assert isinstance(world.ask(CreatePartitions("orders", 5)), ChangedTopic)
    assert set(world.partition(4).isr) == {1, 2}

    world.start(3, run_number=2)
    assert set(world.partition().isr) == {1, 2}, "it has nothing yet"
    world.propose(1, 2, 3)
    assert set(world.partition().isr) == {1, 2, 3}


def test_a_node_that_was_emptied_and_stopped_gets_a_replica_after_all_others() -> None:
    """There is no way to unregister it: a topic that is created while another node is down had replicas there, which
    nobody ever fetches."""
    world = Controlled()
    world.start(1, 2, 3)
    world.made("old", partitions=3, replicas=3)
    world.start(4, 5)
    world.kill(3, 4, 5, alive=(1, 2))
    world.made("orders", partitions=12, replicas=3)
    assert {state.replicas[2] for state in world.topic().partitions} == {3}
    world.made("wide", partitions=12, replicas=4)
    assert {state.replicas[2] for state in world.topic("wide").partitions} == {3}
    assert {state.replicas[3] for state in world.topic("wide").partitions} == {4, 5}


def test_a_node_that_is_down_never_leads_what_it_has_not_copied() -> None:
    world = Controlled()
    world.start(1, 2)
    world.kill(2, alive=(1,))
    assert world.made(replicas=2).isr == (1,)
    world.pass_time(2_200)
    world.start(2, run_number=2)
    assert (world.partition().leader, world.partition().isr) == (NO_NODE, (1,)), "only node 1 has records"
    world.start(1, run_number=2)
    assert world.partition().leader == 1


def test_replicas_are_refused_where_too_few_nodes_are_registered_or_none_runs() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    world.kill(3, alive=(1, 2))
    refused = world.create(replicas=4)
    assert isinstance(refused, TooFewNodes)
    assert "3 of 3 registered nodes are usable" in refused.message
    world.kill(1, 2)
    refused = world.create(replicas=1)
    assert isinstance(refused, TooFewNodes)
    assert "all 3 registered nodes" in refused.message


def test_a_node_that_is_being_stopped_gets_no_replica_before_it_has_stopped() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    world.made("held", replicas=1, partitions=3)  # node 3 hands over nothing while it leads alone
    world.beat(3, drain=True)
    assert isinstance(world.create(replicas=3), TooFewNodes)
    world.kill(3, alive=(1, 2))
    assert set(world.made(replicas=3).isr) == {1, 2}


def test_a_name_is_taken_once_even_before_the_first_is_committed() -> None:
    world = Controlled()
    world.start(1)
    world.hold_commits = True
    assert world.create(replicas=1) is None
    assert world.create(replicas=1) is None
    world.commit()
    assert isinstance(world.replies[world.requests - 1], ChangedTopic)
    assert isinstance(world.replies[world.requests], TopicExists)


def changed_id(answer: object) -> TopicId | None:
    assert isinstance(answer, ChangedTopic)
    return answer.topic_id


def test_validate_only_changes_nothing() -> None:
    world = Controlled()
    world.start(1)
    end = world.end
    assert changed_id(world.ask(CreateTopic("orders", 1, 1, {}, validate_only=True))) is None
    assert world.end == end


def by_hand(*replicas: tuple[int, ...], partitions: int = -1, factor: int = -1) -> CreateTopic:
    assigned = tuple(ReplicaAssignment(tuple(map(NodeId, each))) for each in replicas)
    return CreateTopic("orders", partitions, factor, {}, assignments=assigned)


def test_replicas_that_are_assigned_by_hand_are_where_they_are_assigned() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    assert isinstance(world.ask(by_hand((3, 1), (2, 3), (1, 2))), ChangedTopic)
    states = world.topic().partitions
    assert [each.replicas for each in states] == [(3, 1), (2, 3), (1, 2)]
    assert [(each.leader, each.isr) for each in states] == [(each.replicas[0], each.replicas) for each in states]
    assert [each.directories for each in states] == [tuple(map(directory, each.replicas)) for each in states]


def test_replicas_that_cannot_be_assigned_are_refused() -> None:
    """The numbers are -1 beside them: an earlier version, which does not know assignments, refuses that too."""
    world = Controlled()
    world.start(1, 2, 3)
    world.kill(3, alive=(1, 2))
    end = world.end
    for request, error, text in (
        (by_hand((1,), (1, 2)), InvalidReplicaAssignment, "orders-1 cannot have 2 replicas"),
        (by_hand((1, 1)), InvalidReplicaAssignment, "each only once"),
        (by_hand(()), InvalidReplicaAssignment, "name at least one"),
        (by_hand((1, 9)), InvalidReplicaAssignment, "node 9: it is not registered"),
        (by_hand((1, 2), (3,)), InvalidReplicaAssignment, "orders-1 cannot have 1 replicas"),
        (by_hand((3,)), InvalidReplicaAssignment, "none could lead"),
        (by_hand((1, 2), partitions=1), InvalidRequest, "either the numbers or the replicas"),
        (by_hand((1, 2), factor=2), InvalidRequest, "either the numbers or the replicas"),
        (by_hand(), InvalidPartitions, "-1 partitions"),
    ):
        refused = world.ask(request)
        assert type(refused) is error, request
        assert text in refused.message
    assert world.end == end


def test_replicas_that_are_assigned_to_a_node_that_is_down_are_not_in_sync() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    world.kill(3, alive=(1, 2))
    assert isinstance(world.ask(by_hand((3, 1), (2, 3))), ChangedTopic)
    assert [(each.replicas, each.leader, each.isr) for each in world.topic().partitions] == [
        ((3, 1), 1, (1,)),
        ((2, 3), 2, (2,)),
    ]


def test_a_topic_is_removed_by_name_or_by_its_id() -> None:
    world = Controlled()
    world.start(1)
    first = world.made(replicas=1).topic_id
    assert changed_id(world.ask(DeleteTopic("orders", first))) == first
    second = world.made(replicas=1).topic_id
    assert first != second
    assert isinstance(world.ask(DeleteTopic("orders", first)), InconsistentTopicId)
    assert changed_id(world.ask(DeleteTopic("", second))) == second
    assert isinstance(world.ask(DeleteTopic("orders")), UnknownTopicOrPartition)


def test_a_node_with_several_directories_fills_them_evenly() -> None:
    world = Controlled()
    world.register(1, directories={directory(10): -1, directory(11): -1, directory(12): -1})
    world.beat(1)
    world.made(partitions=9, replicas=1)
    assert Counter(state.directories[0] for state in world.topic().partitions) == {
        directory(10): 3,
        directory(11): 3,
        directory(12): 3,
    }


racks_of_nodes = st.dictionaries(
    st.integers(0, 30).map(NodeId), st.sampled_from(["", "a", "b", "c", "d"]), min_size=1, max_size=12
)


@given(racks_of_nodes, st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32))
def test_replicas_are_placed_on_different_nodes_and_as_many_racks_as_possible(
    racks: dict[NodeId, str], partitions: int, factor: int, seed: int
) -> None:
    factor = min(factor, len(racks))
    placed = place(racks, partitions, factor, random.Random(seed))
    leaders = Counter(replicas[0] for replicas in placed)
    assert len(placed) == partitions
    assert max(leaders.values()) - (0 if len(leaders) < len(racks) else min(leaders.values())) <= 1
    sizes = Counter(racks.values())
    for replicas in placed:
        assert len(set(replicas)) == factor
        used = Counter(racks[node] for node in replicas)
        assert len(used) == min(factor, len(sizes))
        for rack, count in used.items():  # no rack takes two more than another that had room
            assert all(count - used[other] <= 1 for other in sizes if used[other] < sizes[other])
            assert count <= sizes[rack]
    assert placed == place(racks, partitions, factor, random.Random(seed))


@given(racks_of_nodes, st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32), st.data())
def test_fenced_nodes_get_what_is_left_and_no_leadership(
    racks: dict[NodeId, str], partitions: int, factor: int, seed: int, data: st.DataObject
) -> None:
    factor = min(factor, len(racks))
    running = data.draw(st.sets(st.sampled_from(sorted(racks)), min_size=1))
    placed = place(racks, partitions, factor, random.Random(seed), fenced=racks.keys() - running)
    leaders = Counter(replicas[0] for replicas in placed)
    assert leaders.keys() <= running
    assert max(leaders.values()) - (0 if len(leaders) < len(running) else min(leaders.values())) <= 1
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len(running.intersection(replicas)) == min(factor, len(running))


def test_the_replicas_of_fenced_nodes_are_spread() -> None:
    placed = place(
        dict.fromkeys(map(NodeId, range(6)), ""), 12, 3, random.Random(3), fenced=[NodeId(n) for n in (2, 3, 4, 5)]
    )
    assert Counter(replicas[2] for replicas in placed) == {2: 3, 3: 3, 4: 3, 5: 3}


def test_followers_of_one_leader_are_spread() -> None:
    placed = place(dict.fromkeys(map(NodeId, range(4)), ""), 12, 2, random.Random(3))
    assert len(set(placed)) == 12
