"""The metadata quorum under random messages, crashes, disconnections, empty volumes and changes of voters: safety after
every step, and once everything works again, a leader and one log."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from replication.raft.quorum_events import Called, ResignRequested
from replication.raft.voters import VoterSet
from tests.replication.quorum_cluster import QuorumCluster
from tidelog.types import Millis

NODE = st.integers(0, 4)


class QuorumMachine(RuleBasedStateMachine):
    """Five nodes, three of them voters at first. Messages are delivered in any order, doubled, or dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = QuorumCluster(nodes=5, voting=3)
        self.written = 0
        self.emptied = 0

    @rule(ms=st.sampled_from((10, 50, 300, 1_000, 2_000)))
    def time_passes(self, ms: int) -> None:
        self.cluster.tick(ms)

    @rule(ms=st.sampled_from((100, 1_000, 3_000)))
    def all_goes_well_for_a_while(self, ms: int) -> None:
        self.cluster.run(ms)

    @precondition(lambda self: self.cluster.wire)
    @rule(data=st.data(), count=st.integers(1, 6))
    def messages_arrive_in_any_order(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            if self.cluster.wire:
                self.cluster.deliver(data.draw(st.integers(0, len(self.cluster.wire) - 1)))

    @precondition(lambda self: self.cluster.wire)
    @rule(data=st.data())
    def a_message_is_lost(self, data: st.DataObject) -> None:
        source, target, _ = self.cluster.wire.pop(data.draw(st.integers(0, len(self.cluster.wire) - 1)))
        self.cluster.fetching -= {source, target}

    @rule(node=NODE)
    def a_disk_keeps_up(self, node: int) -> None:
        self.cluster.sync(node)

    @rule(node=NODE)
    def a_disk_is_slow(self, node: int) -> None:
        self.cluster.slow_disks ^= {node}

    @rule(node=NODE, keeps=st.floats(0, 1))
    def a_node_loses_power_or_starts(self, node: int, keeps: float) -> None:
        if self.cluster.replicas[node].core is None:
            self.cluster.start(node)
        else:
            self.cluster.kill(node, keeps=keeps)

    @rule(node=NODE, other=NODE)
    def a_link_is_cut_or_healed(self, node: int, other: int) -> None:
        if node != other:
            self.cluster.disconnected ^= {(node, other)}

    @rule()
    def all_links_are_healed(self) -> None:
        self.cluster.heal()

    @rule(node=NODE)
    def a_leader_appends(self, node: int) -> None:
        if self.cluster.replicas[node].active:
            self.written += 1
            self.cluster.append(node, self.written)

    @rule(node=NODE, member=NODE)
    def a_voter_is_added_or_removed(self, node: int, member: int) -> None:
        """As the controller does it: no other change pending, an active leader, a replica that has caught up, and a
        majority of the remaining voters has its directories."""
        cluster = self.cluster
        replica = cluster.replicas[node]
        if not replica.active:
            return
        view = replica.view()
        if replica.high_watermark < view.voters_end:
            return
        me = cluster.replicas[member].me
        if me in view.voters:
            left = VoterSet(view.voters.others(me))
            if left.is_majority({other.me for other in cluster.replicas.values()}):
                cluster.append(node, "removed", left)
        elif me in cluster.core(node).caught_up(Millis(cluster.now), 1_000) and len(view.voters.members) < 5:
            others = [voter for voter in view.voters.members if voter.node_id != member]
            if len(others) == len(view.voters.members):
                cluster.append(node, "added", VoterSet(tuple(sorted([*others, me]))))

    @precondition(lambda self: self.emptied < 1)
    @rule(node=NODE)
    def a_volume_is_emptied(self, node: int) -> None:
        """One at most, and of whatever set a log names a majority keeps its directories."""
        cluster = self.cluster
        kept = {replica.me for other, replica in cluster.replicas.items() if other != node}
        named = [entry.voters for replica in cluster.replicas.values() for entry in replica.entries if entry.voters]
        if not all(voters.is_majority(kept) for voters in (cluster.replicas[0].initial, *named)):
            return
        if cluster.replicas[node].core is not None:
            cluster.kill(node)
        cluster.empty(node)
        cluster.start(node)
        self.emptied += 1

    @rule(node=NODE)
    def a_node_drains(self, node: int) -> None:
        if self.cluster.replicas[node].core is not None:
            self.cluster.give(node, ResignRequested(Millis(self.cluster.now)))

    @rule(node=NODE)
    def a_node_is_called(self, node: int) -> None:
        if self.cluster.replicas[node].core is not None:
            self.cluster.give(node, Called(Millis(self.cluster.now)))

    def teardown(self) -> None:
        cluster = self.cluster
        cluster.heal()
        cluster.slow_disks = set()
        for node in cluster.replicas:  # a node that drained is no candidate in that incarnation
            if cluster.replicas[node].core is not None:
                cluster.kill(node)
            cluster.start(node)
        cluster.wire.clear()
        leader = cluster.wait_leader()
        cluster.append(leader, "the end")
        cluster.run_until(lambda: cluster.values()[-1:] == ["the end"])
        cluster.run_until(lambda: all(replica.entries == cluster.committed for replica in cluster.replicas.values()))


QuorumMachine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestQuorumMachine = QuorumMachine.TestCase


class ManyQuorums(QuorumMachine):
    """The same. Rare orders of messages need many examples, each of which takes a third of a second."""


ManyQuorums.TestCase.settings = settings(QuorumMachine.TestCase.settings, max_examples=80)
TestManyQuorums = pytest.mark.deep(ManyQuorums.TestCase)
