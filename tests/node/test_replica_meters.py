"""What replicas count while they lead and follow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node.observability.metric_sources import HostedPartition
from node.runtime.disk_times import APPEND
from tests.node.wires import Cluster, batch
from tidelog.types import NodeId


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(3)
    cluster.set(leader=NodeId(1))
    cluster.run(1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def isr_changes(cluster: Cluster) -> list[tuple[int, int]]:
    """Shrinks and expansions by node."""
    counted = [cluster.manager(node).meters.isr_changes for node in (1, 2, 3)]
    return [(each.shrinks, each.expansions) for each in counted]


def hosted(cluster: Cluster, node: int) -> HostedPartition:
    (replica,) = cluster.manager(node).partitions()
    return HostedPartition(replica, cluster.image.partition(replica.key))


def test_each_change_of_an_in_sync_set_is_counted_once_by_the_node_that_leads_since(cluster: Cluster) -> None:
    assert isr_changes(cluster) == [(0, 0), (0, 0), (0, 0)]
    cluster.set(isr=(NodeId(1), NodeId(2)))
    cluster.run(0.01)
    assert isr_changes(cluster) == [(1, 0), (0, 0), (0, 0)]
    cluster.until(lambda: len(cluster.state().isr) == 3, what="the leader proposes node 3 again")
    cluster.publish()
    cluster.run(0.01)
    assert isr_changes(cluster) == [(1, 1), (0, 0), (0, 0)]
    cluster.set(leader=NodeId(2), isr=(NodeId(2), NodeId(3)))
    cluster.run(0.01)
    assert isr_changes(cluster) == [(1, 1), (1, 0), (0, 0)]


def test_appends_and_replicated_bytes_are_counted_on_leader_and_followers(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a", b"b"))
    cluster.run(1)
    appends = {
        node: sum(sum(times.counts) for (_, what), times in cluster.manager(node).meters.disk_times if what == APPEND)
        for node in (1, 2, 3)
    }
    assert appends == {1: 1, 2: 1, 3: 1}
    meters = {node: next(iter(cluster.manager(node).topics))[1] for node in (1, 2, 3)}
    size = meters[1].bytes_in
    assert size > 0
    assert [each.replication_bytes_in for each in meters.values()] == [0, size, size]
    assert [each.replication_bytes_out for each in meters.values()] == [2 * size, 0, 0]
    assert hosted(cluster, 1).replica_lag == {"2": 0, "3": 0}
    assert hosted(cluster, 2).replica_lag == {}, "only the leader knows"
