"""Stories of controller decisions while sets shrink, nodes come and go and replicas move, in a cluster of whole nodes.

They cover the history of Kafka's replication (KIP-841, KIP-903, KIP-966), reassignment, drain, and the scenarios of the
design about `min.insync.replicas`. test_scenarios.py runs each story as it is; test_mutants.py runs it with its rule
weakened. By default node 0 is the only voter of the metadata quorum and holds no replica.
"""

from __future__ import annotations

from node.replication_settings import ReplicationConfig
from storage.log.log import Log
from testbed.sim.loop import once_each
from testbed.sim.network import Envelope, Held
from testbed.sim.world import Simulation
from tests.sim.stories import TOPIC, admits, committed, durable_offset, end, epoch, fenced, leads, write
from tidelog.errors import EligibleLeadersNotAvailable
from tidelog.protocol.v1 import controller_pb2
from tidelog.types import Millis, NodeId


def eligible(sim: Simulation, partition: int) -> set[int]:
    return set(sim.partition(TOPIC, partition).elr)


def unclean_elections(sim: Simulation, node: int) -> int:
    """Those that the controller of this node counts."""
    running = sim.machines[node].node
    assert running is not None
    figures = running.metric_sources().controller
    assert figures is not None
    return figures.unclean_elections


def away_from_voter(sim: Simulation, nodes: int, *, replicas: int, min_insync: int, **configs: str) -> list[int]:
    """Start a cluster with a one-partition topic on nodes other than 0. Returns these nodes, the leader first."""
    sim.start(nodes=nodes, topics=())
    for attempt in range(20):
        name = TOPIC if attempt == 0 else f"{TOPIC}-{attempt}"
        sim.create_topic(name, replicas=replicas, min_insync=min_insync, configs=configs)
        if 0 not in sim.partition(name).replicas:
            break
    else:
        raise AssertionError("no topic is on the other nodes alone")
    if name != TOPIC:
        sim.reassign(TOPIC, 0, *sim.partition(name).replicas)
        sim.run_until(lambda: not moving(sim) and sim._whole(TOPIC), what="the topic is on the other nodes")
        sim.delete_topic(name)
    return [sim.leader(TOPIC), *sim.followers(TOPIC)]


def moving(sim: Simulation) -> bool:
    return any(state.adding or state.removing for state in sim.image().partitions())


def on_two_nodes(sim: Simulation, min_insync: int, **configs: str) -> tuple[int, int]:
    """Place a partition on two nodes, neither of them the voter. Returns its leader and its follower."""
    leader, follower = away_from_voter(sim, 3, replicas=2, min_insync=min_insync, **configs)
    return leader, follower


# --- KIP-966 --------------------------------------------------------------------------------------------------------


def last_replica_standing(sim: Simulation) -> None:
    """KIP-966: the replicas leave the set one after the other, and the last one loses power. A replica that left
    while two were in sync may lack what these two committed. A replica that left after that has everything and
    leads."""
    a, b, c = away_from_voter(sim, 4, replicas=3, min_insync=2)
    write(sim, 0, "a", 5)
    sim.kill(c)
    sim.run_until(lambda: sim.isr(TOPIC) == {a, b}, what="two are left")
    write(sim, 0, "b", 5)
    sim.kill(b)
    sim.run_until(lambda: sim.isr(TOPIC) == {a} and b in eligible(sim, 0), what="one is left, another is eligible")
    write(sim, 0, "only in the last one ", 3, acks="1")
    assert committed(sim, 0) == 10
    sim.power_off(a)
    sim.run_until(lambda: sim.leader(TOPIC) == -1, what="no node leads")
    sim.restart(c)
    sim.run_for(5)
    assert sim.leader(TOPIC) == -1
    sim.restart(b)
    sim.run_until(lambda: leads(sim, b, 0), what="the eligible one leads")
    assert a in eligible(sim, 0) or len(sim.isr(TOPIC)) > 1
    write(sim, 0, "c", 3)
    sim.restart(a)
    sim.must_heal()
    assert unclean_elections(sim, 0) == 0


def eligible_replica_is_emptied(sim: Simulation) -> None:
    """Rule 6: an eligible replica comes back with an empty volume. It is no longer eligible, fetches everything
    again, and then leads."""
    leader, follower = on_two_nodes(sim, 2)
    write(sim, 0, "a", 10)
    sim.kill(follower)
    sim.run_until(lambda: eligible(sim, 0) == {follower}, what="the follower is eligible")
    sim.empty(follower)
    sim.restart(follower)
    sim.run_until(lambda: follower in sim.isr(TOPIC), what="it has fetched everything and is in sync")
    write(sim, 0, "b", 3)
    sim.kill(leader)
    sim.run_until(lambda: leads(sim, follower, 0), what="it leads")
    sim.restart(leader)
    sim.must_heal()


# --- 6. conflicting states of the set ------------------------------------------------------------------------------


def shrinks_as_the_minimum_grows(sim: Simulation) -> None:
    """Scenario 6: `min.insync.replicas` is raised from 1 to 2 while a follower lags. The leader learns of its
    smaller set but not of the new minimum. Alone, it commits nothing."""
    leader, follower = on_two_nodes(sim, 1)
    write(sim, 0, "a", 5)
    sim.disconnect_link(follower, leader)
    sim.produce(TOPIC, b"b")
    sim.run_for(4)
    assert sim.isr(TOPIC) == {leader, follower}
    updates = sim.hold("Quorum.FetchMetadata", target=leader, part="answer")
    sim.run_for(0.02)
    sim.alter_topic(TOPIC, min_insync_replicas="2", client=sim.client(nodes=(0,)))
    sim.run_for(1.7)  # the leader has removed the follower by now, by its own clock
    assert committed(sim, 0) == 5, "committed by one replica where two are required"
    updates.release()
    sim.run_until(lambda: sim.isr(TOPIC) == {leader}, what="the set shrinks")
    assert eligible(sim, 0) == {follower}
    assert committed(sim, 0) == 5
    sim.heal_link(follower, leader)
    sim.must_heal()


def minimum_shrinks_beside_an_eligible_replica(sim: Simulation) -> None:
    """Scenario 6, the reverse: the minimum is lowered from 2 to 1 while a replica is eligible. From then on the
    leader commits alone, so no replica is eligible any more. When the leader dies, the partition waits for it."""
    leader, follower = on_two_nodes(sim, 2)
    write(sim, 0, "a", 5)
    sim.disconnect_link(follower, leader)
    sim.produce(TOPIC, b"b", acks="1").wait()
    sim.run_until(lambda: eligible(sim, 0) == {follower}, what="the follower is eligible")
    sim.alter_topic(TOPIC, min_insync_replicas="1")
    write(sim, 0, "c", 5)
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC) == -1, what="the leader is fenced")
    sim.heal_link(follower, leader)
    sim.run_for(5)
    assert sim.leader(TOPIC) == -1
    sim.restart(leader)
    sim.must_heal()


def settings_apply_at_once(sim: Simulation) -> None:
    """A changed setting takes effect on every replica without a restart, and stays after one."""
    replicas = away_from_voter(sim, 4, replicas=3, min_insync=2, segment_bytes="100000")
    sim.alter_topic(TOPIC, segment_bytes="1000")
    write(sim, 0, "a" * 100, 30)
    sim.run_until(lambda: all(end(sim, node, 0) == 30 for node in replicas), what="all have all")
    for node in replicas:
        log = sim.log(node, TOPIC)
        assert isinstance(log, Log)
        assert len(log.segments) > 2
    sim.must_heal()


# --- unclean elections ----------------------------------------------------------------------------------------------


def unclean_election(sim: Simulation) -> None:
    """The volume of the last in-sync replica is lost. No node leads until an operator orders an election. The loss
    is reported, and the cluster continues with the records of the other replica."""
    leader, follower = on_two_nodes(sim, 1)
    write(sim, 0, "a", 5)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 5, what="the follower has the first records")
    sim.kill(follower)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader}, what="the leader is alone")
    write(sim, 0, "lost ", 5)
    sim.kill(leader)
    sim.run_until(lambda: fenced(sim, leader), what="the leader is fenced")
    sim.empty(leader)
    sim.restart(leader)
    sim.restart(follower)
    sim.run_until(lambda: not fenced(sim, leader) and not fenced(sim, follower), what="both are unfenced")
    sim.run_for(3)
    state = sim.partition(TOPIC)
    found = (state.leader, state.isr, state.elr, state.last_known_elr)
    assert found == (-1, (), (), (leader,)), "no leader, no in-sync and no eligible replica"
    sim.checkers.forgive(state.key, 5)
    outcome = sim.elect(TOPIC, 0, unclean=True)
    assert outcome.leader == follower
    assert f"records that only nodes {leader} had are lost" in outcome.loss
    sim.run_until(lambda: leads(sim, follower, 0), what="the follower leads")
    assert unclean_elections(sim, 0) == 1
    write(sim, 0, "b", 5)
    sim.must_heal(lossy=True)
    values = sim.read_committed(TOPIC)
    assert b"a4" in values
    assert b"lost 0" not in values


def unclean_election_without_a_live_replica(sim: Simulation) -> None:
    """An unclean election needs a replica that answers. A topic that allows it gets a leader as soon as there is
    one. Records that only the other replica has are lost, and readers continue at the new, lower end."""
    leader, follower = on_two_nodes(sim, 1, unclean_leader_election_enable="true")
    write(sim, 0, "a", 5)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 5, what="the follower has all")
    sim.kill(follower)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader}, what="the leader is alone")
    write(sim, 0, "lost ", 5)
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC) == -1, what="no node leads")
    try:
        sim.elect(TOPIC, 0, unclean=True)
    except EligibleLeadersNotAvailable:
        pass
    else:
        raise AssertionError("a leader was elected")
    sim.restart(follower)
    sim.run_until(lambda: leads(sim, follower, 0), what="the follower leads, since the topic allows it")
    sim.restart(leader)
    sim.must_heal()


# --- moving replicas ------------------------------------------------------------------------------------------------


def reassignment_under_load(sim: Simulation) -> None:
    """All replicas of a partition move to other nodes while clients write to it. One of the new replicas dies
    meanwhile."""
    replicas = away_from_voter(sim, 7, replicas=3, min_insync=2)
    others = [node for node in sim.nodes[1:] if node not in replicas]
    client = sim.client()
    sent = [sim.produce(TOPIC, f"a{number}".encode(), client=client) for number in range(300)]
    sim.run_until(lambda: committed(sim, 0) >= 20, what="some are written")
    late = sim.hold("Data.FetchStream", source=sim.leader(TOPIC), target=others[2], part="answer")
    sim.reassign(TOPIC, 0, *others)
    sim.run_until(lambda: set(others[:2]) <= sim.isr(TOPIC), what="two of three are in sync")
    assert set(sim.partition(TOPIC).replicas) == {*replicas, *others}
    sim.kill(others[2])
    late.release()
    sim.run_for(1)
    assert moving(sim)
    sim.restart(others[2])
    sim.run_until(lambda: not moving(sim), what="all have moved")
    assert set(sim.partition(TOPIC).replicas) == set(others)
    sim.run_until(once_each(sent, lambda each: each.done), what="every record has its answer")
    sim.must_heal()
    assert all(sim.replica(node, TOPIC) is None for node in replicas)


def reassignment_is_cancelled(sim: Simulation) -> None:
    """A reassignment whose new replica cannot catch up is cancelled: the former replicas remain."""
    replicas = away_from_voter(sim, 5, replicas=3, min_insync=2)
    (other,) = [node for node in sim.nodes[1:] if node not in replicas]
    write(sim, 0, "a", 5)
    sim.stall_disk(other)
    sim.reassign(TOPIC, 0, *replicas[:2], other)
    write(sim, 0, "b", 5)
    sim.run_for(3)
    assert moving(sim)
    sim.reassign(TOPIC, 0)
    assert not moving(sim)
    state = sim.partition(TOPIC)
    assert set(state.replicas) == set(replicas)
    sim.run_until(lambda: epoch(sim, state.leader, 0) == state.leader_epoch, what="the leader knows its epoch")
    write(sim, 0, "c", 5)
    sim.must_heal()


def node_replaced_by_an_empty_one(sim: Simulation) -> None:
    """The machine of a node is lost, and another one with an empty disk takes its number. All its replicas are
    created again while the others serve."""
    sim.start(nodes=4, min_insync=2, partitions=8, voters=3)
    lost = 3
    for p in range(8):
        write(sim, p, "a", 3)
    sim.power_off(lost)
    sim.empty(lost)
    for p in range(8):
        write(sim, p, "b", 3)
    sim.restart(lost)
    sim.must_heal()
    assert any(lost in state.isr for state in sim.topic(TOPIC).partitions)


def preferred_leaders_return(sim: Simulation) -> None:
    """A node was down and others lead its partitions. After its restart it is elected again without a command, but
    not before it is in sync."""
    sim.start(nodes=3, min_insync=2, partitions=3, replication=ReplicationConfig(imbalance_check_ms=Millis(3_000)))
    away, voter = 2, 0
    p = sim.led_by(TOPIC, away)
    write(sim, p, "a", 5)
    sim.kill(away)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (away, -1), what="another node leads")
    write(sim, p, "b", 5)
    late = [sim.hold("Data.FetchStream", source=node, target=away, part="answer") for node in (voter, 1)]
    sim.restart(away)
    sim.run_until(lambda: not fenced(sim, away), what="it is unfenced")
    sim.never(lambda: sim.leader(TOPIC, p) == away, seconds=4, what="it leads before it is in sync")
    for one in late:
        one.release()
    sim.run_until(lambda: leads(sim, away, p), within=10, what="it leads again")
    write(sim, p, "c", 5)
    sim.must_heal()


# --- drain ----------------------------------------------------------------------------------------------------------


def stopped_before_it_was_ready(sim: Simulation) -> None:
    """A node gets SIGTERM while it is still fenced. Its heartbeat that reports it as ready arrives after the process
    has ended: the controller must not unfence a node that is down."""
    _, follower = on_two_nodes(sim, min_insync=1)
    write(sim, 0, "a", 3)
    sim.kill(follower)
    sim.run_until(lambda: fenced(sim, follower), what="the follower is fenced")
    late = sim.hold("Controller.Heartbeat", source=follower, when=says_ready)
    sim.restart(follower)
    sim.run_until(lambda: late.count > 0, what="it is ready")
    sim.run_for(0.05)
    sim.stop(follower)
    sim.run_until(lambda: not sim.machines[follower].up, what="it has ended")
    late.release()
    sim.run_for(0.5)
    assert fenced(sim, follower), "the controller unfenced a stopped node"
    sim.restart(follower)
    sim.must_heal()


def says_ready(envelope: Envelope) -> bool:
    """Matches a heartbeat of a node that may be unfenced and is not shutting down."""
    beat: controller_pb2.HeartbeatRequest = envelope.message
    return beat.ready and not beat.want_drain


def drain_under_load(sim: Simulation) -> None:
    """A node is stopped while clients write to its partitions: other nodes lead them before it ends, and no
    acknowledged record is lost. After its restart it is elected where it is preferred."""
    leader, *others = away_from_voter(sim, 4, replicas=3, min_insync=2)
    client = sim.client()
    sent = [sim.produce(TOPIC, f"a{number}".encode(), client=client) for number in range(100)]
    sim.run_until(lambda: committed(sim, 0) >= 5, what="some are written")
    updates = [sim.hold("Quorum.FetchMetadata", target=node, part="answer") for node in others]
    sim.run_for(0.02)
    sim.stop(leader)
    sim.run_until(lambda: sim.leader(TOPIC) not in (leader, -1), what="another node is elected")
    sim.run_for(1)
    assert sim.machines[leader].up, "it ends only when the other nodes know"
    for held_back in updates:
        held_back.release()
    sim.run_until(lambda: not sim.machines[leader].up, within=45, what="the node has stopped")
    sim.run_until(once_each(sent, lambda each: each.done), what="every record has its answer")
    sim.restart(leader)
    sim.run_until(lambda: leader in sim.isr(TOPIC), what="it is in sync again")
    preferred = sim.partition(TOPIC).replicas[0]
    if sim.leader(TOPIC) != preferred:
        assert sim.elect(TOPIC, 0).leader == preferred
    sim.run_until(lambda: leads(sim, preferred, 0), what="the preferred leader leads")
    sim.must_heal()


def all_drain_at_once(sim: Simulation) -> None:
    """Scenario 16: all three nodes get SIGTERM at once. Each one ends, the last member of each set stays in it, and
    leads again in whatever order they come back."""
    sim.start(nodes=3, min_insync=2, partitions=6, voters=3)
    for p in range(6):
        write(sim, p, "a", 3)
    for node in sim.nodes:
        sim.stop(node)
    sim.run_until(lambda: not any(machine.up for machine in sim.machines.values()), within=90, what="all have stopped")
    assert all(state.isr for state in sim.topic(TOPIC).partitions), "the last member stays in the set"
    for node in sorted(sim.nodes, key=lambda node: sim.rng.random()):
        sim.restart(node)
        sim.run_for(3)
    sim.must_heal()


# --- admission to the set ------------------------------------------------------------------------------------------


def late_admission(sim: Simulation, leader: int, joiner: int) -> Held:
    """The joiner is out of the set and has caught up. Holds back the leader's proposal to admit it."""
    write(sim, 0, "a", 5)
    sim.disconnect_link(joiner, leader)
    sim.produce(TOPIC, b"b")
    sim.run_until(lambda: joiner not in sim.isr(TOPIC), what="the follower is removed for its lag")
    stuck = sim.hold("Controller.AlterPartition", source=leader, when=admits(joiner))
    sim.heal_link(joiner, leader)
    sim.run_until(lambda: stuck.count > 0, what="the leader proposes to add it again")
    sim.disconnect_link(joiner, leader)
    return stuck


def topic_created_while_a_node_is_down(sim: Simulation) -> None:
    """A topic gets a replica on a node that is down, as in Kafka. It is not in sync before it has copied what is
    committed without it, and others may then be missing."""
    sim.start(nodes=3, topics=())
    sim.kill(2)
    sim.run_until(lambda: fenced(sim, 2), what="node 2 is fenced")
    sim.create_topic(TOPIC, replicas=3, min_insync=2, wait=False)
    sim.run_until(lambda: leads(sim, sim.leader(TOPIC), 0), what="a node that runs leads")
    assert (sim.isr(TOPIC), set(sim.partition(TOPIC).replicas)) == ({0, 1}, {0, 1, 2})
    write(sim, 0, "a", 5)
    sim.restart(2)
    sim.run_until(lambda: 2 in sim.isr(TOPIC), what="the new replica is in sync")
    sim.kill(1)
    write(sim, 0, "b", 5)
    sim.restart(1)
    sim.must_heal()


def fenced_node_is_not_admitted(sim: Simulation) -> None:
    """KIP-841: the proposal to admit a replica arrives after its node was fenced."""
    leader, joiner, _ = away_from_voter(sim, 4, replicas=3, min_insync=1)
    stuck = late_admission(sim, leader, joiner)
    sim.kill(joiner)
    sim.run_until(lambda: fenced(sim, joiner), what="the joiner is fenced")
    stuck.release()
    sim.run_for(1)
    assert joiner not in sim.isr(TOPIC)
    sim.heal_link(joiner, leader)
    sim.must_heal()


def draining_node_is_not_admitted(sim: Simulation) -> None:
    """Rule 4: the proposal to admit a replica arrives while its node is draining, which its leader does not know."""
    leader, joiner, other = away_from_voter(sim, 4, replicas=3, min_insync=1)
    stuck = late_admission(sim, leader, joiner)
    updates = [sim.hold("Quorum.FetchMetadata", target=node, part="answer") for node in (leader, other)]
    sim.run_for(0.02)
    sim.stop(joiner)
    sim.run_until(lambda: sim.image().nodes[NodeId(joiner)].draining, within=2, what="it is draining")
    beats = sim.hold("Controller.Heartbeat", source=joiner)  # it does not learn that it may stop
    stuck.release()
    sim.never(lambda: joiner in sim.isr(TOPIC), seconds=0.3, what="admitted although it is draining")
    for one in (*updates, beats):
        one.release()
    sim.run_until(lambda: not sim.machines[joiner].up, within=45, what="it has stopped")
    sim.must_heal()


def stale_incarnation_is_not_admitted(sim: Simulation) -> None:
    """KIP-903: the proposal names an earlier incarnation of the joiner, whose positions the leader had seen. The
    present incarnation lost these records in a power loss, and the leader has received nothing from it yet."""
    leader, joiner, _ = away_from_voter(sim, 4, replicas=3, min_insync=1, durability="page-cache")
    stuck = late_admission(sim, leader, joiner)
    sim.power_off(joiner, forget_all=True)
    sim.run_until(lambda: fenced(sim, joiner), what="the joiner is fenced")
    sim.restart(joiner)
    sim.run_until(lambda: not fenced(sim, joiner), what="its next incarnation is unfenced")
    stuck.release()
    sim.run_for(0.5)
    assert joiner not in sim.isr(TOPIC), "admitted by the positions of its earlier incarnation"
    sim.heal_link(joiner, leader)
    sim.must_heal()


def proposal_of_a_former_leader(sim: Simulation) -> None:
    """KIP-497: a proposal of a former leader changes nothing."""
    leader, joiner, other = away_from_voter(sim, 4, replicas=3, min_insync=1)
    stuck = late_admission(sim, leader, joiner)
    stuck.let_pass()
    before = epoch(sim, leader, 0)
    sim.disconnect_link(joiner, other)
    sim.pause(leader)
    sim.run_until(lambda: leads(sim, other, 0), what="another node leads")
    assert epoch(sim, other, 0) > before
    sim.disconnect_link(leader, other)
    sim.resume(leader)
    sim.run_until(lambda: not fenced(sim, leader), what="the old leader is unfenced")
    write(sim, 0, "c", 5)
    stuck.release()
    sim.run_for(0.5)
    assert sim.isr(TOPIC) == {other}, "a proposal of an old epoch took effect"
    sim.heal_link(leader, other)
    sim.heal_link(joiner, other)
    sim.heal_link(joiner, leader)
    sim.must_heal()


ALL = (
    last_replica_standing,
    eligible_replica_is_emptied,
    shrinks_as_the_minimum_grows,
    minimum_shrinks_beside_an_eligible_replica,
    settings_apply_at_once,
    unclean_election,
    unclean_election_without_a_live_replica,
    reassignment_under_load,
    reassignment_is_cancelled,
    node_replaced_by_an_empty_one,
    preferred_leaders_return,
    stopped_before_it_was_ready,
    drain_under_load,
    all_drain_at_once,
    topic_created_while_a_node_is_down,
    fenced_node_is_not_admitted,
    draining_node_is_not_admitted,
    stale_incarnation_is_not_admitted,
    proposal_of_a_former_leader,
)
