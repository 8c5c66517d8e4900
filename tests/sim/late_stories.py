"""Stories of late messages: of an old epoch, of a proposal overtaken by newer metadata, of a leader that the controller
has fenced without anyone knowing yet.

Setup as in stories.py. Node 0 is the only voter of the metadata quorum unless a story sets others.
"""

from __future__ import annotations

from collections.abc import Callable

from node.replicas.leader_replica import LeaderReplica
from replication.controller.image import ClusterImage
from testbed.sim import views
from testbed.sim.network import Envelope, Held
from testbed.sim.world import Simulation
from tests.sim.quorum_stories import active, voters_but
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.stories import TOPIC, committed, durable_offset, end, epoch, fenced, leads, with_records_of, write
from tidelog.types import NodeId


def holds(partition: int, offset: int) -> Callable[[Envelope], bool]:
    """Matches a message in which a follower reports, between fetches, that it holds everything below that offset."""

    def matches(envelope: Envelope) -> bool:
        reports = envelope.message.durable_positions
        return any(report.partition == partition and report.durable_offset == offset for report in reports)

    return matches


def asks_at(partition: int, offset: int) -> Callable[[Envelope], bool]:
    """Matches a follower's fetch at that offset."""

    def matches(envelope: Envelope) -> bool:
        asked = envelope.message.partitions
        return any(fetch.partition == partition and fetch.fetch_offset == offset for fetch in asked)

    return matches


def report_of_an_earlier_epoch(sim: Simulation) -> None:
    """Scenario 2, variant: a report of durable offsets from epoch 3 is delayed. The leader is replaced and the
    follower truncates its log. When the report arrives, the same process leads again, in epoch 5, with other
    records."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (leader, other, follower) = away_from_the_voter(sim)
    write(sim, p, "a", 6)
    sim.run_until(
        lambda: durable_offset(sim, follower, p) == durable_offset(sim, other, p) == 6,
        what="all hold the first records",
    )
    kept = sim.hold("Data.FetchStream", source=leader, target=other, part="answer", when=with_records_of(p))
    stuck = sim.hold("Data.FetchStream", source=follower, target=leader, when=holds(p, 7))
    asked = sim.hold("Data.FetchStream", source=follower, target=leader, when=asks_at(p, 7))
    sim.stall_disk(follower)
    sim.produce(TOPIC, b"b", acks="1", partition=p).wait()
    sim.run_until(lambda: asked.count > 0, what="the follower fetches on without waiting for its disk")
    asked.release()
    sim.release_disk(follower)
    sim.run_until(lambda: stuck.count > 0, what="the follower's report hangs")
    stuck.let_pass()
    first = epoch(sim, leader, p)
    sim.disconnect_link(leader, 0)
    sim.run_until(lambda: leads(sim, other, p), what="another node leads")
    kept.release()
    sim.run_until(lambda: end(sim, follower, p) == 6, what="the follower is truncated")
    sim.heal_link(leader, 0)
    sim.run_until(lambda: leader in sim.isr(TOPIC, p), what="the first leader is in sync again")
    sim.elect(TOPIC, p)
    sim.run_until(lambda: leads(sim, leader, p) and epoch(sim, leader, p) == first + 2, what="it leads again")
    both = (follower, other)
    sim.run_until(lambda: all(epoch(sim, node, p) == first + 2 for node in both), what="both follow it again")
    sim.stall_disk(follower)
    sim.produce(TOPIC, b"c", acks="1", partition=p).wait()
    sim.run_until(
        lambda: end(sim, follower, p) == durable_offset(sim, other, p) == 7, what="the follower has not synced it"
    )
    stuck.release()
    sim.run_for(0.5)
    assert committed(sim, p) == 6, "a report of an earlier epoch counted"
    sim.release_disk(follower)
    sim.must_heal()


def answer_to_an_older_proposal(sim: Simulation) -> None:
    """Scenario 5, variant: a joiner is admitted, and the answer arrives after newer metadata that fence and remove
    it. The leader ignores the old answer: it neither waits for that replica nor proposes with an old epoch."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (leader, other, joiner) = away_from_the_voter(sim)
    write(sim, p, "a", 5)
    sim.disconnect_link(joiner, leader)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: joiner not in sim.isr(TOPIC, p), what="the follower is removed for its lag")
    sim.run_for(0.5)  # the answer has arrived
    answers = sim.hold("Controller.AlterPartition", target=leader, part="answer")
    sim.heal_link(joiner, leader)
    sim.run_until(lambda: joiner in sim.isr(TOPIC, p) and answers.count > 0, what="it is admitted again")
    sim.kill(joiner)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader, other}, within=2.8, what="it is fenced and removed again")
    sim.run_for(0.1)  # the leader knows of it and still waits for its answer
    answers.release()
    sim.run_for(0.1)
    sent = sim.produce(TOPIC, b"c", partition=p)
    sim.run_until(lambda: sent.done, within=3, what="a record is committed without the removed replica")
    sim.must_heal()


def has_proposed(sim: Simulation, node: int, p: int) -> bool:
    """Whether this leader has proposed an in-sync set."""
    running, key = sim.machines[node].node, sim.partition(TOPIC, p).key
    manager = None if running is None else running.replicas
    replica = None if manager is None else manager.registry.find(key.topic_id.bytes, key.partition)
    return replica is not None and isinstance(replica.role, LeaderReplica) and replica.role.proposed_on >= 0


def leaver_counts_until_it_is_out(sim: Simulation) -> None:
    """Rule 3: a member whose removal is proposed counts until the removal is known to be committed. The proposal is
    delayed. Alone, the leader commits nothing that another leader may lack."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (leader, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 5)
    for node in others:
        sim.disconnect_link(node, leader)
    stuck = sim.hold("Controller.AlterPartition", source=leader)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: has_proposed(sim, leader, p), what="the leader proposes to continue alone")
    sim.produce(TOPIC, b"c", acks="1", partition=p)
    sim.never(lambda: committed(sim, p) > 5, seconds=1, what="committed without members of the set")
    stuck.release()
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader} and committed(sim, p) == 7, what="it commits alone")
    sim.must_heal()


def leader_proposes_to_continue_alone(sim: Simulation) -> tuple[int, int, int, Held]:
    """A partition on two nodes that do not vote, one of which is disconnected. Returns the active controller, the
    leader, the follower, and the leader's proposal, which is held back."""
    sim.start(nodes=5, voters=3, min_insync=1, topics=())
    controller = active(sim)
    sim.create_topic(TOPIC, replicas=2)
    sim.reassign(TOPIC, 0, 3, 4)
    sim.run_until(lambda: sim.isr(TOPIC) == {3, 4} == set(sim.partition(TOPIC).replicas), what="it is on 3 and 4")
    leader, (follower,) = sim.leader(TOPIC), sim.followers(TOPIC)
    sim.run_until(lambda: [node for node in sim.nodes if leads(sim, node, 0)] == [leader], what="all know the leader")
    write(sim, 0, "a", 5)
    sim.disconnect_link(follower, leader)
    sim.produce(TOPIC, b"b")
    proposal = sim.hold("Controller.AlterPartition", source=leader)
    sim.run_until(lambda: proposal.count > 0, what="the leader proposes to continue alone")
    return controller, leader, follower, proposal


def nothing_is_committed(sim: Simulation, controller: int) -> list[Held]:
    """From now on no other voter acknowledges anything to the active controller."""
    return [sim.hold("Quorum.FetchMetadata", source=voter, target=controller) for voter in voters_but(sim, controller)]


def answer_waits_for_the_commit(sim: Simulation) -> None:
    """The controller answers only with committed changes. A controller appends a leader's proposal and is lost
    before any other voter has it: the leader has committed nothing on the strength of it."""
    controller, leader, follower, proposal = leader_proposes_to_continue_alone(sim)
    fetches = nothing_is_committed(sim, controller)
    updates = sim.hold("Quorum.FetchMetadata", source=controller, part="answer")
    proposal.release()
    sim.run_until(lambda: set(sole(sim, controller)) == {leader}, within=1, what="the controller has appended it")
    sim.never(lambda: committed(sim, 0) > 5, seconds=0.3, what="committed by an uncommitted change of the set")
    sim.power_off(controller, forget_all=True)
    for one in (*fetches, updates):
        one.let_pass()
    sim.heal_link(follower, leader)
    sim.must_heal()


def sole(sim: Simulation, controller: int) -> tuple[NodeId, ...]:
    """The in-sync set on which the controller decides."""
    state = decided(sim, controller).partition(sim.partition(TOPIC).key)
    return () if state is None else state.isr


def proposal_meets_an_uncommitted_election(sim: Simulation) -> None:
    """Scenario 6, third part: the controller has appended the election of another leader, not committed yet, when
    the old leader proposes a set. The controller judges it by what is appended: the old leader no longer leads."""
    controller, old, new, late = leader_proposes_to_continue_alone(sim)
    beats = sim.hold("Controller.Heartbeat", source=old)
    sim.run_for(1.5)
    fetches = nothing_is_committed(sim, controller)
    sim.run_until(lambda: decided(sim, controller).nodes[NodeId(old)].fenced, within=1, what="its election is appended")
    assert not fenced(sim, old), "the election is committed"
    late.release()
    sim.run_for(0.05)
    for one in (*fetches, beats):
        one.release()
    sim.run_until(lambda: leads(sim, new, 0), what="the other node leads")
    sim.run_for(0.2)
    assert sim.isr(TOPIC) == {new}, "a set of the old leader took effect under the new one"
    sim.heal_link(new, old)
    sim.must_heal()


def decided(sim: Simulation, node: int) -> ClusterImage:
    """The image on which a node's controller decides, committed or not."""
    running = sim.machines[node].node
    assert running is not None
    return views.decided(running)


ALL = (
    report_of_an_earlier_epoch,
    answer_to_an_older_proposal,
    leaver_counts_until_it_is_out,
    answer_waits_for_the_commit,
    proposal_meets_an_uncommitted_election,
)
