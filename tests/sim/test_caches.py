"""When records of `durability=page-cache` may be lost: not while a member of either set has kept its power."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from replication.controller.image import EMPTY, ClusterImage, PartitionState, TopicState
from testbed.sim.caches import Caches
from tidelog.types import (
    DirectoryId,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    PartitionIndex,
    PartitionKey,
    TopicId,
)

TOPIC = TopicId(UUID(int=1))
KEY = PartitionKey(TOPIC, PartitionIndex(0))


def image(isr: tuple[int, ...], elr: tuple[int, ...] = (), *, durability: str = "page-cache") -> ClusterImage:
    """One partition on nodes 0 to 2, led by node 0."""
    state = PartitionState(
        TOPIC,
        PartitionIndex(0),
        (NodeId(0), NodeId(1), NodeId(2)),
        (DirectoryId(UUID(int=2)),) * 3,
        tuple(map(NodeId, isr)),
        tuple(map(NodeId, elr)),
        (),
        NodeId(0),
        LeaderEpoch(0),
        PartitionEpoch(0),
    )
    return replace(EMPTY, topics={TOPIC: TopicState("t", TOPIC, {"durability": durability}, (state,))})


def test_one_member_that_kept_its_power_is_enough() -> None:
    caches = Caches()
    assert caches.power_lost(0, image((0, 1))) == []
    assert caches.power_lost(1, image((0, 1))) == [KEY]


def test_an_eligible_replica_has_it_too() -> None:
    caches = Caches()
    assert caches.power_lost(0, image((0,), (1,))) == []
    assert caches.image_moved(image((0,), (1,)), image((0,))) == [KEY]


def test_it_is_lost_when_the_last_sure_member_leaves() -> None:
    caches = Caches()
    assert caches.power_lost(0, image((0, 1, 2))) == []
    assert caches.image_moved(image((0, 1, 2)), image((0, 1))) == []
    assert caches.image_moved(image((0, 1)), image((0,))) == [KEY]


def test_a_replica_admitted_again_counts_again() -> None:
    caches = Caches()
    before, without = image((0, 1)), image((1,))
    assert caches.power_lost(0, before) == []
    assert caches.image_moved(before, without) == []
    assert caches.image_moved(without, before) == []
    assert caches.power_lost(1, before) == []


def test_fsynced_records_are_not_lost() -> None:
    caches = Caches()
    synced = image((0,), durability="fsync")
    assert caches.power_lost(0, synced) == []
