"""Flipped bits in a random world: on which nodes they flip, which bytes are restored, and that none remains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from storage.log.log import Log
from testbed.sim.healing import what_is_missing
from testbed.sim.world import Simulation
from tests.sim import random_world
from tests.sim.controller_stories import on_two_nodes
from tests.sim.plan import Fault, Kind, make_plan
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.rot import Rot
from tests.sim.stories import TOPIC, write
from tidelog.errors import CorruptRecord
from tidelog.records.v2.header import LEADER_EPOCH_AT
from tidelog.types import Offset


@pytest.fixture
def world() -> Iterator[Simulation]:
    """Three nodes with a replica of the one partition, with several segments."""
    with Simulation(5) as sim:
        sim.start(nodes=3, min_insync=1, segment_bytes="1000")
        write(sim, 0, "a" * 100, 30)
        sim.run_for(1)
        yield sim


@pytest.fixture(autouse=True)
def reads_go_to_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits flip in files only, so reads must not be answered from the recent appends in memory."""
    monkeypatch.setattr("testbed.sim.world.RECENT_BYTES", (0,))


def flip_bits(sim: Simulation, rot: Rot, node: int, count: int = 1) -> list[str]:
    """Flip a bit `count` times. Returns the notes about flipped bits."""
    before = len(sim.trace.lines)
    for number in range(count):
        rot.flip_in_log(Fault(float(number), Kind.ROT, node, 0, 1.0, number % 2))
    return [line for line in sim.trace.lines[before:] if "flips" in line]


def log_of(sim: Simulation, node: int) -> Log:
    log = sim.log(node, TOPIC)
    assert isinstance(log, Log)
    return log


def test_a_corrupt_member_is_fetched_again_and_replicates_no_damage(world: Simulation) -> None:
    node, rot = world.leader(TOPIC), Rot(world)
    assert flip_bits(world, rot, node, 5)
    log = log_of(world, node)
    rot.scrub(Fault(0.0, Kind.ROT, node, 0, 1.0, 0.0))
    world.must_heal()
    assert log.closed, "the corrupt log is still in use"
    assert len(world.read_committed(TOPIC)) == 31


def rot_epoch(sim: Simulation, node: int, partition: int, offset: int) -> Log:
    """Flip a bit in the leader epoch of the batch there, which no checksum covers."""
    log = sim.log(node, TOPIC, partition)
    assert isinstance(log, Log)
    segment = next(segment for segment in reversed(log.segments) if segment.base_offset <= offset)
    batch = segment.find(Offset(offset))
    assert batch is not None
    sim.machines[node].disk.flip_bit(segment.path, batch.position + LEADER_EPOCH_AT + 3, 3)
    return log


@pytest.mark.parametrize("size", [1, 600], ids=["one segment", "a segment each"])
def test_an_epoch_that_rots_is_refused_by_a_follower_and_fetched_again_from_another_replica(size: int) -> None:
    """The leader detects it in its own log, hands over, and fetches its log again."""
    with Simulation(6) as sim:
        sim.start(nodes=4, min_insync=1, partitions=4, segment_bytes="1000")
        p, (late, *others) = away_from_the_voter(sim)
        write(sim, p, "a" * size, 4)
        sim.kill(late)
        sim.run_until(lambda: sim.isr(TOPIC, p) == set(others), within=30, what="the others are the set")
        write(sim, p, "b" * size, 4)
        leader = sim.leader(TOPIC, p)
        log = rot_epoch(sim, leader, p, 4)
        sim.restart(late)
        sim.must_heal()
        assert log.closed, "the corrupt log is still in use"
        assert sim.isr(TOPIC, p) == {late, *others}
        written = [f"{letter * size}{number}".encode() for letter in "ab" for number in range(4)]
        assert sim.read_committed(TOPIC, p)[:8] == written


def test_an_epoch_that_rots_on_the_only_member_is_sent_as_it_was() -> None:
    """A follower refuses the batch, and no other replica has it. The leader has the epoch in its cache and sends the
    batch with that. Once the follower is in sync it leads, and the corrupt log is fetched again."""
    with Simulation(5) as sim:
        leader, follower = on_two_nodes(sim, 1)
        write(sim, 0, "a", 3)
        sim.kill(follower)
        sim.run_until(lambda: sim.isr(TOPIC, 0) == {leader}, within=30, what="the leader is alone")
        write(sim, 0, "b", 4)
        log = rot_epoch(sim, leader, 0, 4)
        sim.restart(follower)
        sim.run_until(lambda: sim.leader(TOPIC, 0) == follower, within=30, what="the sound replica leads")
        assert log.damage is not None
        assert log.damage.readable
        assert len(sim.read_committed(TOPIC, 0)) == 7
        sim.must_heal()


def test_an_epoch_that_rots_on_the_only_replica_costs_its_readers_nothing() -> None:
    """After a restart an operator has to let it lead; nothing is truncated then."""
    with Simulation(5) as sim:
        leader, follower = on_two_nodes(sim, 1)
        write(sim, 0, "a", 3)
        sim.kill(follower)
        sim.run_until(lambda: sim.isr(TOPIC, 0) == {leader}, within=30, what="the leader is alone")
        write(sim, 0, "b", 4)
        log = rot_epoch(sim, leader, 0, 4)
        assert len(sim.read_committed(TOPIC, 0)) == 7
        assert log.log_end_offset == 7
        sim.kill(leader)
        sim.restart(leader)
        sim.run_for(5)
        assert sim.leader(TOPIC, 0) == -1
        sim.elect(TOPIC, 0, unclean=True)
        sim.run_until(lambda: sim.leader(TOPIC, 0) == leader, what="it leads")
        assert sim.read_committed(TOPIC, 0)[:7] == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2", b"b3"]


def test_a_world_is_not_healed_while_a_flipped_bit_is_in_use(world: Simulation) -> None:
    node = world.any_follower(TOPIC)
    world.machines[node].disk.flip_bit(log_of(world, node).active.path, 70)
    world.run_for(1)
    assert "corrupt" in what_is_missing(world)
    world.scrub(node, TOPIC)
    world.must_heal()


def test_no_bit_flips_in_the_last_member_and_one_that_becomes_it_is_restored() -> None:
    with Simulation(6) as sim:
        sim.start(nodes=4, min_insync=1, partitions=4)
        p, (last, *others) = away_from_the_voter(sim)
        write(sim, p, "a" * 100, 30)
        sim.run_for(1)
        rot, disk = Rot(sim), sim.machines[last].disk
        for other in others:
            sim.kill(other)
        sim.run_until(lambda: sim.isr(TOPIC, p) == {last}, what="it is the last one")
        assert flip_bits(sim, rot, last, 12) == []
        for other in others:
            sim.restart(other)
        sim.run_until(lambda: len(sim.isr(TOPIC, p)) == 3, what="it is one of three again")
        flips = flip_bits(sim, rot, last, 12)
        assert flips
        assert all(f"/{TOPIC}-{p}/" in line for line in flips), "an empty log has no bits to lose"
        for other in others:
            sim.kill(other)
        sim.run_until(lambda: not rot.flipped, what="its bytes are restored")
        with disk.as_written():
            assert not disk.rots
        sim.must_heal()
        written = [f"{'a' * 100}{number}".encode() for number in range(30)]
        assert sim.read_committed(TOPIC, p)[:30] == written


def test_a_machine_that_loses_power_keeps_no_rot_that_it_could_not_name(world: Simulation) -> None:
    node, rot = world.any_follower(TOPIC), Rot(world)
    assert flip_bits(world, rot, node, 10)
    world.power_off(node, forget_all=True)
    rot.power_lost()
    assert all(rot._is_known(flipped) for flipped in rot.flipped)
    world.restart(node)
    world.must_heal()


def test_a_reader_gets_a_corrupt_record_from_the_next_leader(world: Simulation) -> None:
    node = world.leader(TOPIC)
    log = log_of(world, node)
    world.machines[node].disk.flip_bit(log.segments[0].path, 90)
    client = world.client()
    task = client.start(client.fetch(TOPIC, 0, 0), "reads")
    world.run_until(task.done, what="it is answered")
    assert isinstance(task.exception(), CorruptRecord)
    world.scrub(node, TOPIC)
    assert len(world.read_committed(TOPIC)) == 30
    world.must_heal()


@pytest.mark.parametrize("seed", [3, 8])
def test_worlds_full_of_rot_heal(seed: int) -> None:
    plan = make_plan(seed, 3, 8.0)
    rots = tuple(Fault(1.0 + number / 2, Kind.ROT, seed % 3, 0, 0.7, number / 12) for number in range(12))
    kept = tuple(fault for fault in plan.faults if fault.kind is not Kind.ROT)
    lines: list[str] = []
    outcome = random_world.run(replace(plan, faults=(*kept, *rots)), show=lines.append)
    assert outcome.failure is None
    assert any("flips" in line for line in lines)


def test_a_replica_that_becomes_the_last_one_is_restored_before_it_registers() -> None:
    """All nodes stop and come back while no controller decides. The corrupt node comes last: the others, which have
    everything that it had, have left the set to it by then."""
    with Simulation(6) as sim:
        sim.start(nodes=4, min_insync=1, partitions=4)
        p, (corrupt, *others) = away_from_the_voter(sim)
        write(sim, p, "a" * 100, 30)
        sim.run_for(1)
        rot = Rot(sim)
        assert flip_bits(sim, rot, corrupt, 12)
        sim.kill(0)
        sim.kill(corrupt)
        for other in others:
            sim.kill(other)
            sim.restart(other)
        sim.run_for(0.2)
        last = sim.hold("Controller.RegisterNode", source=corrupt)
        sim.restart(corrupt)
        sim.restart(0)
        sim.run_until(lambda: sim.isr(TOPIC, p) == {corrupt} and last.count > 0, what="the others have left the set")
        last.release()
        sim.must_heal()
        assert len(sim.read_committed(TOPIC, p)) == 31
