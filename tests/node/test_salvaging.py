"""A damaged replica that is elected, while the metadata change their mind and the disk has no room."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.node.wires import TOPIC, Cluster, batch
from tidelog.records import iter_batches
from tidelog.types import NO_NODE


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Only node 3 can be elected, and its log is damaged below its durable offset."""
    cluster = Cluster()
    cluster.set(leader=1)
    cluster.produce(1, batch(b"a"), batch(b"b"), batch(b"c"))
    cluster.stop(3)
    disk = cluster.machines[3].disk
    disk.flip_bit("/data/t-0/00000000000000000000.log", 65)
    disk.remove("/data/.kafka_cleanshutdown")
    disk.remove("/data/recovery-point-offset-checkpoint")
    cluster.start(3)
    cluster.run(1.0)
    assert cluster.log(3).damage is not None
    cluster.set(leader=NO_NODE, isr=(), last_known_elr=(3,))
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def elect_on_a_full_disk(cluster: Cluster) -> None:
    """The salvage is in progress, and will fail."""
    cluster.machines[3].executor.holding = True
    cluster.machines[3].disk.fail("link", error=errno.ENOSPC, times=-1)
    cluster.set(leader=3, isr=(3,), last_known_elr=())
    cluster.run(0.1)
    assert cluster.partition(3).log.closed


def test_lost_records_are_removed_once_there_is_free_space(cluster: Cluster) -> None:
    elect_on_a_full_disk(cluster)
    cluster.machines[3].executor.release()
    cluster.run(5.0)
    assert cluster.partition(3).leader is None
    cluster.machines[3].disk.heal()
    cluster.until(lambda: cluster.partition(3).leader is not None, within=20.0)
    found = [record.value for each in iter_batches(cluster.contents(3)) for record in each.records()]
    assert found == [b"b", b"c"]


def test_a_replica_that_others_lead_by_then_is_fetched_again(cluster: Cluster) -> None:
    elect_on_a_full_disk(cluster)
    cluster.set(leader=1, isr=(1, 2))
    cluster.machines[3].executor.release()
    cluster.until(lambda: cluster.state().isr == (1, 2, 3), within=10.0)
    assert cluster.contents(3) == cluster.contents(1)
    cluster.stop(3)
    assert cluster.machines[3].disk.size("/data/.kafka_cleanshutdown") is not None, "nothing damaged is left"


def test_a_replica_moved_away_during_the_salvage_is_deleted(cluster: Cluster) -> None:
    elect_on_a_full_disk(cluster)
    state = cluster.state()
    cluster.set(leader=1, isr=(1, 2), replicas=state.replicas[:2], directories=state.directories[:2])
    cluster.machines[3].executor.release()
    cluster.run(1.0)
    assert cluster.manager(3).registry.find(TOPIC.bytes, 0) is None


def test_a_replica_of_a_topic_deleted_during_the_salvage_is_deleted(cluster: Cluster) -> None:
    elect_on_a_full_disk(cluster)
    cluster.image = replace(cluster.image, topics={}, topic_ids={})
    cluster.publish()
    cluster.machines[3].executor.release()
    cluster.run(1.0)
    assert cluster.manager(3).registry.find(TOPIC.bytes, 0) is None
