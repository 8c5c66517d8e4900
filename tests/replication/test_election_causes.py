"""Each election is counted by why it was held."""

from __future__ import annotations

from replication.controller.events import ElectionCause, ElectionType, ElectLeaders
from tests.replication.controlled import Controlled, directory


def three() -> tuple[Controlled, int, int, int]:
    """Three nodes, one partition; its leader and the two others in the order of the replicas."""
    world = Controlled()
    world.start(1, 2, 3)
    world.made(min_insync_replicas="1")
    first, second, third = world.partition().replicas
    return world, first, second, third


def test_a_new_topic_is_no_election() -> None:
    world, *_ = three()
    assert world.elected == []


def test_a_leader_that_fails_and_one_that_is_preferred_again() -> None:
    world, a, b, c = three()
    world.kill(a, alive=(b, c))
    assert world.elected == [ElectionCause.FAILED]
    world.start(a, run_number=2)
    world.propose(a, b, c)
    world.ask(ElectLeaders(ElectionType.PREFERRED, (world.partition().key,)))
    assert world.elected == [ElectionCause.FAILED, ElectionCause.PREFERRED]


def test_a_leader_that_drains_and_one_that_leaves_its_set() -> None:
    world, a, _, _ = three()
    world.beat(a, drain=True)
    assert world.elected == [ElectionCause.DRAINED]
    leader, *others = world.partition().isr
    world.propose(*others, by=leader)
    assert world.elected == [ElectionCause.DRAINED, ElectionCause.RESIGNED]


def test_a_partition_without_leader_whose_replica_returns() -> None:
    world, a, b, c = three()
    world.kill(b, c, alive=(a,))
    world.kill(a)
    assert world.elected == [], "it has no leader, so none was elected"
    world.start(a, run_number=2)
    assert world.elected == [ElectionCause.RETURNED]


def test_a_leader_that_a_reassignment_leaves_out() -> None:
    world, a, b, c = three()
    world.start(4)
    world.reassign(world.partition().key, (b, c, 4))
    world.propose(a, b, c, 4)
    assert world.partition().leader != a
    assert world.elected == [ElectionCause.REASSIGNED]


def test_an_unclean_one() -> None:
    world, a, b, c = three()
    world.kill(b, c, alive=(a,))
    world.kill(a)
    world.start(b, c, run_number=2)
    world.register(a, run_number=2, directories={directory(7): -1})
    world.beat(a)
    world.ask(ElectLeaders(ElectionType.UNCLEAN, (world.partition().key,)))
    world.tell({a: (-1, 0), b: (3, 10), c: (2, 99)}, directories={a: directory(7)})
    assert world.elected == [ElectionCause.UNCLEAN]
