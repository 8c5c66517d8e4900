"""Damage found while a node runs: its heartbeat reports it, and the replica leaves its set (design, section 4, rule
6)."""

from __future__ import annotations

from dataclasses import replace

from replication.controller.events import HeartbeatAnswer
from tests.replication.controlled import Controlled
from tidelog.types import LeaderEpoch, PartitionIndex

ROT = "checksum of the batch at offset 17"


def three(world: Controlled) -> None:
    world.start(1, 2, 3)
    world.made()


def test_a_damaged_follower_leaves_the_set() -> None:
    world = Controlled()
    three(world)
    before = world.partition()
    victim = next(node for node in before.isr if node != before.leader)
    assert world.beat(victim, damaged={before.key: ROT}) == HeartbeatAnswer(fenced=False, drained=False)
    after = world.partition()
    assert victim not in after.isr
    assert len(after.isr) == 2
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert any(ROT in report for report in world.reports)


def test_reports_of_an_epoch_end_with_it() -> None:
    """The replica starts again within one incarnation of its process: an earlier fetch must not count for its new
    log."""
    world = Controlled()
    three(world)
    state = world.partition()
    victim = next(node for node in state.isr if node != state.leader)
    world.beat(victim, damaged={state.key: ROT}, used_in=state.leader_epoch)
    after = world.partition()
    assert victim not in after.isr
    assert (after.leader, after.leader_epoch) == (state.leader, state.leader_epoch + 1)
    world.beat(victim, damaged={state.key: ROT}, used_in=state.leader_epoch)
    assert world.partition() == after


def test_a_damaged_replica_outside_the_sets_waits_for_another_epoch_too() -> None:
    world = Controlled()
    three(world)
    leader, stays, out = world.partition().replicas
    world.propose(leader, stays)
    state = world.partition()
    world.beat(out, damaged={state.key: ROT}, used_in=LeaderEpoch(state.leader_epoch - 1))
    assert world.partition() == state
    for _ in range(3):
        world.beat(out, damaged={state.key: ROT}, used_in=state.leader_epoch)
    after = world.partition()
    assert (after.isr, after.leader, after.leader_epoch) == (state.isr, leader, state.leader_epoch + 1)


def test_a_damaged_leader_hands_over_in_the_same_record() -> None:
    world = Controlled()
    three(world)
    before = world.partition()
    world.beat(before.leader, damaged={before.key: ROT})
    after = world.partition()
    assert before.leader not in (*after.isr, after.leader)
    assert after.leader_epoch == before.leader_epoch + 1


def test_the_last_member_stays_and_leads_on() -> None:
    world = Controlled()
    world.start(1, 2)
    world.made(replicas=2)
    leader = world.partition().leader
    world.propose(leader)
    before = world.partition()
    world.beat(leader, damaged={before.key: ROT})
    assert world.partition() == before


def test_a_report_is_written_once_and_one_about_others_is_nothing() -> None:
    world = Controlled()
    three(world)
    state = world.partition()
    victim = next(node for node in state.isr if node != state.leader)
    for _ in range(5):
        world.beat(victim, damaged={state.key: ROT})
    assert world.partition().partition_epoch == state.partition_epoch + 1
    assert sum(ROT in report for report in world.reports) == 1
    gone = replace(state.key, partition=PartitionIndex(7))
    assert world.beat(victim, damaged={gone: ROT}) == HeartbeatAnswer(fenced=False, drained=False)


def test_it_may_join_again_once_it_has_caught_up() -> None:
    world = Controlled()
    three(world)
    state = world.partition()
    victim = next(node for node in state.isr if node != state.leader)
    world.beat(victim, damaged={state.key: ROT})
    world.propose(*state.isr)
    assert set(world.partition().isr) == set(state.isr)
