"""Stories of cores alone that a planted bug is to be caught by too, with disks and messages led by the hand."""

from __future__ import annotations

from dataclasses import replace

from replication.raft.quorum_events import MetadataLogChanged
from tests.replication.quorum_cluster import QuorumCluster, voters
from tidelog.types import Millis, Offset


def figure_8(cluster: QuorumCluster) -> None:
    """Raft, figure 8: a record of epoch 1 reaches the disks of a majority in epoch 3, that epoch's own record does not,
    and then a node of epoch 2 is elected that never had it. Five voters."""
    first = cluster.wait_leader()
    cluster.run(300)
    near, *far = (node for node in range(5) if node != first)
    for node in far:
        cluster.disconnected |= {(first, node), (node, first)}
    cluster.append(first, "old")
    cluster.run(200)
    assert cluster.replicas[near].entries[-1].value == "old"
    cluster.kill(first)
    cluster.kill(near)
    cluster.heal()
    cluster.slow_disks = set(far)
    cluster.run_until(lambda: any(cluster.core(node).leads for node in far))
    second = next(node for node in far if cluster.core(node).leads)
    cluster.sync(second)  # its epoch's record lies on its own disk alone
    for node in far:
        cluster.kill(node)
    third, last = (node for node in far if node != second)
    cluster.slow_disks = {near, third}
    for node in (first, near, third):
        cluster.start(node)
    cluster.run_until(lambda: any(cluster.core(node).leads for node in (first, near, third)))
    led = next(node for node in (first, near) if cluster.core(node).leads)
    behind = [node for node in (first, near, third) if node != led]
    cluster.slow_disks = set(behind)
    cluster.run_until(lambda: all(len(cluster.replicas[node].entries) > 2 for node in behind))
    for node in behind:
        replica = cluster.replicas[node]
        replica.durable_offset = 2  # the disk has come as far as "old"
        cluster.give(node, MetadataLogChanged(Millis(cluster.now), replica.view()))
    cluster.run(100)
    for node in (led, *behind):
        cluster.kill(node)
    cluster.slow_disks = set()
    for node in (second, third, last):
        cluster.start(node)
    assert cluster.wait_leader() == second
    assert "old" not in cluster.values()


def leader_that_removed_itself(cluster: QuorumCluster) -> None:
    """The leader of two voters removes itself and dies before the other voter has the record. No shorter log gets its
    vote; it becomes a candidate itself, by the set before (Raft's thesis, 4.2.2). Three nodes."""
    leader = cluster.wait_leader()
    cluster.run(500)
    cluster.isolate(leader)
    cluster.append(leader, "without me", voters(1 - leader))
    cluster.sync(leader)
    cluster.kill(leader)
    cluster.start(leader)
    cluster.run(3_000)
    assert not cluster.core(leader).leads, "its own vote does not count"
    cluster.heal()
    cluster.run_until(lambda: "without me" in cluster.values())
    assert cluster.wait_leader(but=leader) == 1 - leader
    cluster.run(3_000)
    assert not cluster.core(leader).is_voter


def voter_that_lost_its_log(cluster: QuorumCluster) -> None:
    """A voter's log was damaged, and emptied. Others relied on its durable records, so it neither votes nor becomes a
    candidate before it has them again; then it does both. Three voters."""
    leader = cluster.wait_leader()
    lost, behind = (node for node in range(3) if node != leader)
    cluster.isolate(behind)
    cluster.append(leader, "counted on")
    cluster.run_until(lambda: "counted on" in cluster.values())
    cluster.kill(lost)
    replica = cluster.replicas[lost]
    had = len(replica.entries)
    replica.entries, replica.durable_offset, replica.high_watermark = [], 0, 0
    replica.state = replace(replica.state, lost_end=Offset(had))
    cluster.kill(leader)
    cluster.heal()
    cluster.start(lost)
    cluster.run(10_000)
    assert not any(cluster.core(node).leads for node in (lost, behind)), "led without what was committed"
    cluster.start(leader)
    assert cluster.wait_leader() == leader
    cluster.run_until(lambda: len(replica.entries) >= had)
    cluster.run(500)
    cluster.kill(leader)
    assert cluster.wait_leader(but=leader) in (lost, behind), "with its vote there is a leader again"
