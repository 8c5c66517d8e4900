"""Replicas that move from node to node, and topics that change: settings, partitions, the feature level."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replication.controller import features
from replication.controller.elections import why_leaderless
from replication.controller.events import (
    ChangedTopic,
    CreatePartitions,
    FeaturesUpdated,
    ReplicaAssignment,
    UpdateFeatures,
)
from replication.controller.image import PartitionState, apply
from replication.controller.metadata_records import ClusterRecord
from tests.replication.controlled import CLUSTER, Controlled, directory
from tidelog.errors import (
    FeatureUpdateFailed,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    NoReassignmentInProgress,
    TidelogError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tidelog.types import DirectoryId, NodeId


def five(minimum: int = 2) -> tuple[Controlled, int, int, int, list[int]]:
    """Five nodes, a partition on three; its leader, its followers, and the other two."""
    world = Controlled()
    world.start(1, 2, 3, 4, 5)
    a, b, c = world.made(min_insync_replicas=str(minimum)).replicas
    return world, a, b, c, sorted({1, 2, 3, 4, 5} - {a, b, c})


def test_a_replica_is_removed_only_when_the_added_one_is_in_sync() -> None:
    world, a, b, c, (d, _) = five()
    moving = world.reassign(world.partition().key, (a, b, d))
    assert isinstance(moving, PartitionState)
    assert (set(moving.replicas), moving.adding, moving.removing) == ({a, b, c, d}, (d,), (c,))
    assert moving.directory_of(NodeId(d)) == directory(d)
    assert world.propose(a, b) == world.partition()  # c lags: it goes no sooner for that
    assert set(world.partition().replicas) == {a, b, c, d}
    world.propose(a, b, c, d)
    state = world.partition()
    assert (state.replicas, set(state.isr), state.adding, state.removing) == ((a, b, d), {a, b, d}, (), ())
    assert state.leader == a


def test_all_replicas_move_and_the_leadership_with_them() -> None:
    world, a, b, c, (d, e) = five()
    world.reassign(world.partition().key, (d, e))
    epoch = world.partition().leader_epoch
    world.propose(a, b, c, d)
    assert world.partition().leader == a
    world.propose(a, b, c, d, e)
    state = world.partition()
    assert (state.replicas, set(state.isr), state.leader, state.leader_epoch) == ((d, e), {d, e}, d, epoch + 1)


def test_replicas_are_not_removed_below_the_minimum() -> None:
    world, a, b, c, (d, _) = five()
    world.propose(a, b)
    world.reassign(world.partition().key, (a, d, c))
    world.propose(a, b, d)
    assert set(world.partition().replicas) == {a, d, c}  # a and d are two
    world.reassign(world.partition().key, (a, b, c))
    assert isinstance(world.propose(a, d), PartitionState)
    assert set(world.partition().replicas) == {a, b, c, d}  # b is not in sync yet


def test_a_move_is_taken_back() -> None:
    world, a, b, c, (d, _) = five()
    before = world.partition()
    world.reassign(before.key, (a, b, d))
    back = world.reassign(before.key, None)
    assert isinstance(back, PartitionState)
    assert (set(back.replicas), back.adding, back.removing) == ({a, b, c}, (), ())
    assert isinstance(world.reassign(before.key, None), NoReassignmentInProgress)


def test_a_reassignment_is_replaced_by_another_and_its_added_replicas_are_removed() -> None:
    world, a, b, c, (d, e) = five()
    key = world.partition().key
    world.reassign(key, (a, b, d))
    state = world.reassign(key, (a, b, e))
    assert isinstance(state, PartitionState)
    assert (set(state.replicas), state.adding, state.removing) == ({a, b, c, e}, (e,), (c,))


def test_a_move_is_not_taken_back_to_replicas_of_which_none_is_in_sync() -> None:
    world, a, b, c, (d, e) = five(minimum=1)
    key = world.partition().key
    world.reassign(key, (d, e))
    world.propose(a, d)
    world.kill(a, alive=(b, c, d, e))
    assert world.partition().leader == d
    assert isinstance(world.reassign(key, None), InvalidReplicaAssignment)


def test_a_move_is_not_taken_back_from_under_the_only_replica_that_is_waited_for() -> None:
    """No replica is in sync: the added one is eligible, later it is the last known leader. Both times it has records
    that the others lack."""
    world, a, b, c, (d, _) = five()
    key = world.partition().key
    world.reassign(key, (b, c, d))
    world.propose(a, d)
    world.kill(d, alive=(a, b, c))
    assert (world.partition().isr, world.partition().elr) == ((a,), (d,))
    world.kill(a, alive=(b, c))
    world.register(a, run_number=2, directories={directory(77): -1})
    assert (world.partition().isr, world.partition().elr) == ((), (d,))
    assert isinstance(world.reassign(key, None), InvalidReplicaAssignment)
    world.register(d, run_number=2, directories={directory(78): -1})
    assert (world.partition().elr, world.partition().last_known_elr) == ((), (a,))
    assert isinstance(world.reassign(key, None), PartitionState)
    assert "the last leader" in why_leaderless(world.image, world.partition())


def test_another_leader_epoch_begins_where_a_replica_goes() -> None:
    """Its earlier reports must not count if it returns within one incarnation of its process."""
    world, a, b, c, (d, e) = five()
    key, epoch = world.partition().key, world.partition().leader_epoch
    world.reassign(key, (a, b, c, d))
    assert (world.partition().leader, world.partition().leader_epoch) == (a, epoch)
    world.reassign(key, None)
    assert (world.partition().leader, world.partition().leader_epoch) == (a, epoch + 1)
    world.reassign(key, (a, b, d))
    world.reassign(key, (a, b, e))
    assert (world.partition().leader, world.partition().leader_epoch) == (a, epoch + 2)
    world.propose(a, b, c, e)
    assert (world.partition().leader, world.partition().leader_epoch) == (a, epoch + 3)


def test_fewer_replicas_and_another_order_need_no_copying() -> None:
    world, a, b, c, _ = five()
    key = world.partition().key
    state = world.reassign(key, (b, a))
    assert isinstance(state, PartitionState)
    assert (state.replicas, set(state.isr), state.leader) == ((b, a), {a, b}, a)
    assert isinstance(world.reassign(key, ()), InvalidReplicaAssignment)
    assert isinstance(world.reassign(key, (a, a)), InvalidReplicaAssignment)
    assert isinstance(world.reassign(key, (a, 9)), InvalidReplicaAssignment)
    assert c not in world.partition().counted_on


def test_a_fenced_node_gets_no_replica_and_an_emptied_one_is_refilled() -> None:
    world, a, b, c, (d, e) = five()
    world.kill(e, alive=(a, b, c, d))
    assert isinstance(world.reassign(world.partition().key, (a, b, e)), InvalidReplicaAssignment)
    world.register(e, run_number=2, directories={DirectoryId(directory(77)): -1})
    world.beat(e)
    state = world.reassign(world.partition().key, (a, b, e))
    assert isinstance(state, PartitionState)
    assert state.directory_of(NodeId(e)) == directory(77)


def test_a_reassignment_ends_although_the_removed_node_has_ended() -> None:
    world, a, b, c, (d, _) = five()
    world.reassign(world.partition().key, (d, b, c))
    world.propose(a, b, c, d)
    assert set(world.partition().replicas) == {b, c, d}
    world.reassign(world.partition().key, (d, b, a))
    world.kill(c, alive=(a, b, d))
    world.propose(d, b, a, by=world.partition().leader)
    assert set(world.partition().replicas) == {a, b, d}


# --- settings, partitions, features ---


def test_settings_are_changed_one_by_one_and_checked_together() -> None:
    world, *_ = five()
    assert isinstance(world.alter(retention_ms="1000", cleanup_policy="compact"), ChangedTopic)
    assert world.topic().configs["retention.ms"] == "1000"
    world.alter(retention_ms=None)
    assert "retention.ms" not in world.topic().configs
    assert world.topic().configs["cleanup.policy"] == "compact"
    assert isinstance(world.alter(no_such_key="1"), InvalidConfig)
    assert isinstance(world.alter("nothing", retention_ms="1"), UnknownTopicOrPartition)


def test_a_topic_gets_more_partitions_never_fewer() -> None:
    world, *_ = five()
    before = world.partition()
    assert isinstance(world.ask(CreatePartitions("orders", 4)), ChangedTopic)
    partitions = world.topic().partitions
    assert [state.partition for state in partitions] == [0, 1, 2, 3]
    assert partitions[0] == before
    assert all(len(state.replicas) == 3 and state.leader == state.replicas[0] for state in partitions)
    assert isinstance(world.ask(CreatePartitions("orders", 4)), InvalidPartitions)
    assert isinstance(world.ask(CreatePartitions("orders", 3)), InvalidPartitions)


def grown(*replicas: tuple[int, ...], first: int, count: int = 0) -> CreatePartitions:
    assignments = tuple(ReplicaAssignment(tuple(map(NodeId, each))) for each in replicas)
    return CreatePartitions("orders", count, assignments=assignments, first=first)


def test_replicas_of_further_partitions_are_assigned_by_hand() -> None:
    world, *_ = five()
    end = world.end
    checked = replace(grown((5, 1, 2), first=1), validate_only=True)
    assert isinstance(world.ask(checked), ChangedTopic)
    assert world.end == end
    assert isinstance(world.ask(grown((5, 1, 2), (3, 4, 1), first=1)), ChangedTopic)
    added = world.topic().partitions[1:]
    assert [state.replicas for state in added] == [(5, 1, 2), (3, 4, 1)]
    assert [(state.leader, state.isr) for state in added] == [(5, (5, 1, 2)), (3, (3, 4, 1))]


@pytest.mark.parametrize(
    ("request_", "error", "words"),
    [
        (grown((1, 2, 3), first=0), InvalidPartitions, "has 1 partitions and cannot have 1"),
        (grown((1, 2, 3), first=2), InvalidReplicaAssignment, "gets 2 more, but replicas are assigned to 1"),
        (grown((1, 2, 3), (3, 1, 2), first=0), InvalidReplicaAssignment, "gets 1 more, but replicas are assigned to 2"),
        (grown((1, 2, 3), (1, 2), first=1), InvalidReplicaAssignment, "orders-2 cannot have 2 replicas"),
        (grown((1, 2, 7), first=1), InvalidReplicaAssignment, "node 7: it is not registered"),
        (grown((1, 1, 2), first=1), InvalidReplicaAssignment, "each only once"),
        (grown((), first=1), InvalidReplicaAssignment, "at least one"),
        (grown((1, 2, 3), first=1, count=2), InvalidRequest, "name either the number or the replicas"),
    ],
)
def test_replicas_that_further_partitions_cannot_have_are_refused(
    request_: CreatePartitions, error: type[TidelogError], words: str
) -> None:
    world, *_ = five()
    end = world.end
    answer = world.ask(request_)
    assert isinstance(answer, error), answer
    assert words in answer.message
    assert world.end == end


def test_a_controller_that_does_not_know_assigned_replicas_refuses_them() -> None:
    """The request without the fields that it does not read, as it reaches a controller of an earlier version."""
    world, *_ = five()
    assert isinstance(world.ask(CreatePartitions("orders", grown((5, 1, 2), first=1).count)), InvalidPartitions)


def test_a_reassignment_that_keeps_the_number_of_replicas_is_measured_by_the_one_in_progress() -> None:
    world, a, b, c, (d, e) = five()
    key = world.partition().key
    refused = world.reassign(key, (a, b), keeps_factor=True)
    assert isinstance(refused, InvalidReplicationFactor)
    assert "orders-0 has 3 replicas and cannot get 2" in refused.message
    assert isinstance(world.reassign(key, (a, b, c, d), keeps_factor=True), InvalidReplicationFactor)
    assert isinstance(world.reassign(key, (a, b, d), keeps_factor=True), PartitionState)
    assert set(world.partition().replicas) == {a, b, c, d}
    assert isinstance(world.reassign(key, (a, b, d, e), keeps_factor=True), InvalidReplicationFactor)
    assert isinstance(world.reassign(key, (a, d, e), keeps_factor=True), PartitionState)


def test_the_feature_level_is_raised_and_never_lowered() -> None:
    world, *_ = five()
    old = apply(world.controller.image, [(world.end, ClusterRecord(CLUSTER, 1))])
    world.controller.image = old
    world._write([ClusterRecord(CLUSTER, 1)], world.end)
    world.commit()
    assert isinstance(world.alter(retention_ms="1"), UnsupportedVersion)
    assert isinstance(world.reassign(world.partition().key, (1, 2, 3)), UnsupportedVersion)
    assert world.ask(UpdateFeatures(features.LATEST)) == FeaturesUpdated(features.LATEST)
    assert world.image.feature_level == features.LATEST
    assert isinstance(world.alter(retention_ms="1"), ChangedTopic)
    for level in (1, features.LATEST + 1):
        assert isinstance(world.ask(UpdateFeatures(level)), FeatureUpdateFailed)
