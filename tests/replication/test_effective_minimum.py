"""`min.insync.replicas` above the number of replicas counts as that number, as in Kafka, and is warned of."""

from __future__ import annotations

import pytest

from replication.controller.events import ChangedTopic, CreatePartitions
from replication.controller.explain import explain
from replication.controller.image import PartitionState
from tests.replication.controlled import Controlled


def test_a_minimum_above_the_replicas_counts_as_their_number() -> None:
    world = Controlled()
    world.start(1)
    state = world.made(replicas=1, min_insync_replicas="3")
    assert world.image.min_insync(state) == 1
    assert explain(world.image, state).writable, "its one replica is in sync"


def test_no_replica_is_eligible_beside_a_set_with_all_replicas() -> None:
    """Two replicas and a minimum of three: the second one alone commits nothing, so the first stays eligible."""
    world = Controlled()
    world.start(1, 2)
    a, b = world.made(replicas=2, min_insync_replicas="3").replicas
    assert explain(world.image, world.partition()).writable
    world.kill(a, alive=(b,))
    explanation = explain(world.image, world.partition())
    assert (world.partition().elr, explanation.writable) == ((a,), False)
    assert "min.insync.replicas is 2" in explanation.causes[0], "the minimum in force is named, not the unreachable one"
    world.start(a, run_number=2)
    assert isinstance(world.propose(a, b), PartitionState)
    assert world.partition().elr == ()


def test_replicas_being_added_do_not_raise_the_effective_minimum() -> None:
    """One replica becomes three: until they have come, the one commits alone as before."""
    world = Controlled()
    world.start(1, 2, 3)
    (a,) = world.made(replicas=1, min_insync_replicas="2").replicas
    b, c = {1, 2, 3} - {a}
    moving = world.reassign(world.partition().key, (a, b, c))
    assert isinstance(moving, PartitionState)
    assert world.image.min_insync(moving) == 1
    world.propose(a, b, c)
    assert (world.partition().adding, world.image.min_insync(world.partition())) == ((), 2)


def test_an_eligible_set_is_emptied_where_fewer_replicas_lower_the_effective_minimum() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    a, b, c = world.made(min_insync_replicas="3").replicas
    world.kill(b, alive=(a, c))
    assert world.partition().elr == (b,)
    world.reassign(world.partition().key, (a, c))
    assert (set(world.partition().isr), world.partition().elr) == ({a, c}, ())
    assert world.image.min_insync(world.partition()) == 2


@pytest.mark.parametrize("minimum", ["1", "2"])
def test_a_minimum_that_the_replicas_can_reach_is_no_warning(minimum: str) -> None:
    world = Controlled()
    world.start(1, 2)
    created = world.create(replicas=2, min_insync_replicas=minimum)
    assert isinstance(created, ChangedTopic)
    altered = world.alter(min_insync_replicas="1")
    assert isinstance(altered, ChangedTopic)
    assert created.warnings == altered.warnings == ()


def test_a_minimum_above_the_replicas_is_warned_of_at_creation_and_when_settings_or_partitions_change() -> None:
    world = Controlled()
    world.start(1, 2)
    created = world.create(replicas=2, min_insync_replicas="3")
    altered = world.alter(min_insync_replicas="4")
    grown = world.ask(CreatePartitions("orders", 2))
    for answer, wanted in ((created, 3), (altered, 4), (grown, 4)):
        assert isinstance(answer, ChangedTopic | ChangedTopic)
        (warning,) = answer.warnings
        assert f"min.insync.replicas={wanted}" in warning
        assert "the effective value is 2" in warning
    assert world.alter(retention_ms="1000").warnings == (), "that was no change of the minimum"  # type: ignore[union-attr]
