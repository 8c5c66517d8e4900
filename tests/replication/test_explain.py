"""Explanations for operators: why a partition does not work, what a restart would stop; and how a move is throttled."""

from __future__ import annotations

import pytest

from replication.controller import explain as explain_module
from replication.controller.elections import electable
from replication.controller.events import DeleteTopic, ElectionType, ElectLeaders
from replication.controller.explain import OnDisks, RestartReview, awaited_replicas, explain, why_not_restart
from replication.controller.image import ClusterImage, PartitionState
from replication.controller.metadata_records import VotersRecord
from replication.partition.move_throttle import MoveThrottle
from replication.raft.voters import Voter
from tests.replication.controlled import Controlled, directory
from tidelog.types import Millis, NodeId


def three(minimum: int = 2) -> tuple[Controlled, int, int, int]:
    world = Controlled()
    world.start(1, 2, 3)
    first, second, third = world.made(min_insync_replicas=str(minimum)).replicas
    return world, first, second, third


def test_a_healthy_partition_has_nothing_to_explain() -> None:
    world, *_ = three()
    explanation = explain(world.image, world.partition())
    assert (explanation.healthy, explanation.readable, explanation.writable, explanation.steps) == (
        True,
        True,
        True,
        (),
    )


def test_a_set_below_the_minimum_can_be_read_and_names_the_nodes_to_start() -> None:
    world, a, b, c = three()
    world.kill(b, c, alive=(a,))
    explanation = explain(world.image, world.partition())
    assert (explanation.readable, explanation.writable) == (True, False)
    assert "min.insync.replicas is 2" in explanation.causes[0]
    assert set(explanation.steps) == {f"start node {b}", f"start node {c}"}


def test_a_partition_without_live_replicas_names_the_election_that_loses_records() -> None:
    world, a, b, c = three(minimum=1)
    world.kill(b, c, alive=(a,))
    world.kill(a)
    world.register(a, run_number=2, directories={directory(7): -1})
    explanation = explain(world.image, world.partition())
    assert (explanation.readable, explanation.writable) == (False, False)
    assert any("gone" in cause for cause in explanation.causes)
    assert any("--unclean" in step for step in explanation.steps)


def test_a_leader_on_a_full_disk_rejects_writes_and_names_possible_successors() -> None:
    """The metadata know nothing of it: the partition has its leader, and its set is full."""
    world, a, b, c = three()
    full = {directory(a): "the disk of /data is full: 0 bytes are free"}
    explanation = explain(world.image, world.partition(), OnDisks(full))
    assert (explanation.readable, explanation.writable) == (True, False)
    assert explanation.causes == (
        f"the leader, node {a}, rejects every write: the disk of /data is full: 0 bytes are free",
    )
    make_room, let_lead = explanation.steps
    assert f"free space on node {a}" in make_room
    assert f"`tidelog partition reassign orders-0 --replicas {b},{a},{c}`" in let_lead
    full[directory(b)] = full[directory(a)]
    assert f"--replicas {c},{a},{b}" in explain(world.image, world.partition(), OnDisks(full)).steps[1]
    full[directory(c)] = full[directory(a)]
    assert explain(world.image, world.partition(), OnDisks(full)).steps == (make_room,), "the others are full too"


def test_the_advice_for_a_leader_on_a_full_disk_works() -> None:
    world, a, b, c = three()
    world.reassign(world.partition().key, (b, a, c))
    world.ask(ElectLeaders(ElectionType.PREFERRED, (world.partition().key,)))
    state = world.partition()
    assert (state.leader, set(state.isr)) == (b, {a, b, c})
    assert explain(world.image, state, OnDisks({directory(a): "full"})).healthy, (
        "a member without room is no trouble until it lags"
    )


def test_a_follower_without_room_is_out_for_that() -> None:
    world, a, b, c = three()
    world.propose(a, b)
    explanation = explain(
        world.image, world.partition(), OnDisks({directory(c): "the disk of /data is full: 0 bytes are free"})
    )
    assert (explanation.readable, explanation.writable) == (True, True)
    assert explanation.causes == (f"replica {c} is out of sync: the disk of /data is full: 0 bytes are free",)
    assert explanation.steps[0].startswith(f"free space on node {c}")


def test_a_damaged_replica_is_named_with_its_lost_offsets() -> None:
    world, a, b, c = three()
    key = world.partition().key
    explanation = explain(
        world.image, world.partition(), OnDisks(damaged={(NodeId(b), key): "offsets 5..5 (file, byte 70)"})
    )
    assert (explanation.readable, explanation.writable, explanation.healthy) == (True, True, False)
    assert explanation.causes == (f"the log of replica {b} lost offsets 5..5 (file, byte 70)",)
    world.kill(b, c, alive=(a,))
    explanation = explain(
        world.image, world.partition(), OnDisks(damaged={(NodeId(a), key): "offsets 5..5 (file, byte 70)"})
    )
    assert "leads with a damaged log" in explanation.causes[0]
    assert f"start nodes {b}, {c}" in explanation.steps[0]
    assert "restore the file from a copy" in explanation.steps[0]
    assert "let consumers seek past them" in explanation.steps[0]
    assert "delete_records" not in explanation.steps[0], "no client can delete records"


def test_a_restart_is_safe_only_while_others_can_continue() -> None:
    world, a, b, c = three()
    assert why_not_restart(world.image, NodeId(a)) == []
    world.kill(c, alive=(a, b))
    assert why_not_restart(world.image, NodeId(a)) == [
        "acks=all would be rejected (min.insync.replicas) by orders-0",
    ]
    world.kill(b, alive=(a,))
    assert why_not_restart(world.image, NodeId(a)) == ["no other replica could lead orders-0"]
    assert why_not_restart(world.image, NodeId(9)) == ["node 9 is not registered"]


def test_a_restart_must_leave_the_quorum_a_majority() -> None:
    world, a, b, c = three(minimum=1)
    voters = tuple(Voter(NodeId(node), directory(node), {}) for node in (a, b, c))
    world._write([VotersRecord(voters)], world.end)
    world.activate()
    assert why_not_restart(world.image, NodeId(a)) == []
    world.kill(c, alive=(a, b))
    (reason,) = why_not_restart(world.image, NodeId(a))
    assert "no majority" in reason


def test_only_what_other_nodes_can_end_is_worth_a_wait() -> None:
    """With all replicas in sync and all voters running, a restart interrupts what has no other replica or voter."""
    world = Controlled()
    world.start(1, 2, 3)
    two = world.made(replicas=2, min_insync_replicas="2").replicas
    one = NodeId(two[0])
    world._write([VotersRecord(tuple(Voter(NodeId(node), directory(node), {}) for node in two))], world.end)
    world.activate()
    assert len(why_not_restart(world.image, one)) == 2, "the quorum, and acks=all"
    assert RestartReview(NodeId(one)).reasons(world.image, if_it_can_pass=True) == []
    world.kill(two[1], alive=(two[0], 3))
    assert RestartReview(NodeId(one)).reasons(world.image, if_it_can_pass=True) == [
        "no other replica could lead orders-0"
    ]


def test_a_restart_that_is_judged_again_and_again_looks_only_at_what_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that is to stop asks twice a second, and serves meanwhile."""
    world, a, b, c = three()
    world.made("events", min_insync_replicas="2")
    looked: list[str] = []

    def counting(image: ClusterImage, state: PartitionState, node_id: NodeId) -> bool:
        looked.append(image.topics[state.topic_id].name)
        return electable(image, state, node_id)

    monkeypatch.setattr(explain_module, "electable", counting)
    review = RestartReview(NodeId(a))
    assert review.reasons(world.image) == []
    assert {*looked} == {"orders", "events"}
    looked.clear()
    assert review.reasons(world.image) == []
    assert looked == [], "nothing has changed"
    state = world.partition()
    world.propose(a, b, by=state.leader, state=state)
    refused = ["acks=all would be rejected (min.insync.replicas) by orders-0"]
    assert review.reasons(world.image) == refused
    assert {*looked} == {"orders"}
    world.propose(a, b, c, by=state.leader, state=world.partition())
    assert review.reasons(world.image) == []
    world.kill(c, alive=(a, b))
    assert review.reasons(world.image) == [f"{refused[0]}, events-0"]
    world.kill(b, alive=(a,))
    assert review.reasons(world.image) == ["no other replica could lead orders-0, events-0"]
    world.ask(DeleteTopic("orders"))
    assert review.reasons(world.image) == ["no other replica could lead events-0"]


def test_a_node_waits_for_its_replicas_while_another_one_has_all_of_its_own() -> None:
    world, a, b, c = three()
    assert awaited_replicas(world.image, NodeId(c)) == []
    world.propose(a, b)
    assert awaited_replicas(world.image, NodeId(c)) == ["orders-0"]
    assert awaited_replicas(world.image, NodeId(b)) == []
    world.kill(b, alive=(a, c))
    assert awaited_replicas(world.image, NodeId(c)) == ["orders-0"], "the leader has all of its own"
    world.kill(a, alive=(c,))
    assert awaited_replicas(world.image, NodeId(c)) == [], "nothing leads that could be fetched"


def test_no_node_waits_where_all_lack_something() -> None:
    """Each lacks records of a partition that another one leads: if each waited, no node would ever be ready."""
    world, *_ = three()
    world.made("more", partitions=3)
    for partition in range(3):
        state = world.partition(partition, "more")
        world.propose(*state.replicas[:2], state=state)
    lacking = [world.partition(partition, "more").replicas[2] for partition in range(3)]
    assert set(lacking) == {1, 2, 3}, "placement gives each node one of the last replicas"
    assert [awaited_replicas(world.image, node) for node in lacking] == [[], [], []]
    state = world.partition(2, "more")
    world.propose(*state.replicas, state=state)
    assert [awaited_replicas(world.image, node) for node in lacking] == [["more-0"], ["more-1"], []]


def test_a_replica_that_a_reassignment_adds_is_not_waited_for() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    state = world.made(replicas=2)
    (third,) = {1, 2, 3} - set(state.replicas)
    world.reassign(state.key, (*state.replicas, third))
    assert third in world.partition().adding
    assert awaited_replicas(world.image, NodeId(third)) == []


def test_a_throttle_lets_pass_its_rate_and_one_fetch_more() -> None:
    throttle, passed = MoveThrottle(1_000), 0
    for now in range(0, 10_000, 10):
        if throttle.is_open(Millis(now)):
            throttle.spend(300, Millis(now))
            passed += 300
    assert 9_000 <= passed <= 10_300
    free = MoveThrottle(0)
    free.spend(10**9, Millis(0))
    assert free.is_open(Millis(0))
