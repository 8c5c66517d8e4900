"""Stories of the metadata quorum in a cluster of whole nodes: the scenarios of Kafka's raft simulation and those of the
Raft papers.

Three or five voters. The checkers verify that one node leads an epoch, that logs match, and that a leader has
everything that was committed. Each story ends with a cluster that recovers.
"""

from __future__ import annotations

from replication.raft.quorum import Quorum
from replication.raft.roles import Role
from testbed.sim import views
from testbed.sim.world import Simulation
from tests.sim.stories import TOPIC, write


def core(sim: Simulation, node: int) -> Quorum | None:
    """The state of the quorum's rules on a running node; None while it starts."""
    running = sim.machines[node].node
    metadata = None if running is None else running._metadata
    return None if metadata is None else metadata._quorum.core


def active(sim: Simulation, *, among: list[int] | None = None) -> int:
    """The active controller of the newest epoch, by its own state; -1 if there is none."""
    found = [(-1, -1)]
    for node in sim.nodes if among is None else among:
        state = core(sim, node)
        if state is not None and state.active:
            found.append((int(state.epoch), node))
    return max(found)[1]


def wait_active(sim: Simulation, *, but: int = -1, within: float = 5.0) -> int:
    """Wait until a node other than `but` is the active controller."""
    sim.run_until(lambda: active(sim) not in (-1, but), within=within, what="another node is the active controller")
    return active(sim)


def voters_but(sim: Simulation, node: int) -> list[int]:
    return [int(voter.node_id) for voter in sim.image().voters if voter.node_id != node]


def end(sim: Simulation, node: int) -> int:
    state = core(sim, node)
    return -1 if state is None else int(state.log.log_end)


# --- Kafka's raft simulation --------------------------------------------------------------------------------------


def initial_election(sim: Simulation) -> None:
    """Five nodes form a cluster of three voters: one leader is elected and every node learns of it."""
    sim.start(nodes=5, voters=3, topics=())
    assert active(sim) == 0
    assert voters_but(sim, -1) == [0, 1, 2]
    roles = [state.role for state in (core(sim, node) for node in sim.nodes) if state is not None]
    assert roles == [Role.LEADER, Role.FOLLOWER, Role.FOLLOWER, Role.OBSERVER, Role.OBSERVER]
    sim.create_topic(TOPIC, partitions=3)
    sim.must_heal()


def leader_failure(sim: Simulation) -> None:
    """The active controller is lost. Another one is soon active and fences the lost node by the heartbeats that the
    voters received; writes continue within five seconds of the loss."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    old = active(sim)
    p = sim.led_by(TOPIC, old)
    write(sim, p, "a", 5)
    sim.kill(old)
    lost_at = sim.loop.time()
    wait_active(sim, but=old)
    sent = sim.produce(TOPIC, b"after", partition=p)
    sim.run_until(lambda: sent.done, within=5.0 - (sim.loop.time() - lost_at), what="a write is acknowledged again")
    sim.restart(old)
    sim.must_heal()


def all_nodes_killed(sim: Simulation) -> None:
    """All machines lose power at once; committed decisions are still there."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    write(sim, 0, "a", 5)
    epoch = max(state.epoch for state in (core(sim, node) for node in sim.nodes) if state is not None)
    for node in sim.nodes:
        sim.power_off(node, forget_all=True)
    for node in sim.nodes:
        sim.restart(node)
    state = core(sim, wait_active(sim))
    assert state is not None
    assert state.epoch > epoch
    sim.must_heal()


def all_processes_killed(sim: Simulation) -> None:
    """All processes are killed and restarted on their machines. No node waits for the session of a dead process or
    for a former leader, although the voters are not back at the same moment."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    write(sim, 0, "a", 5)
    for node in sim.nodes:
        sim.kill(node)
    for node in sim.nodes:
        sim.restart(node, after=0.3 * node)
    began = sim.loop.time()
    for partition in range(3):
        write(sim, partition, "b", 1)
    assert sim.loop.time() - began < 1.5, "they waited for a former leader"
    sim.must_heal()


def majority_reachable(sim: Simulation) -> None:
    """Two of five voters are lost permanently: the others continue."""
    sim.start(nodes=5, voters=5, topics=())
    for node in (active(sim), 4):
        sim.kill(node)
    left = wait_active(sim)
    sim.run_until(lambda: sum(node.fenced for node in sim.image().nodes.values()) == 2, what="both are fenced")
    sim.create_topic(TOPIC, partitions=3, client=sim.client((left,)))
    write(sim, 0, "a", 3)
    sim.must_heal()


def back_to_back_failures(sim: Simulation) -> None:
    """Each new leader dies as soon as it is elected. Its predecessor, whose log is shorter, is back and is the first
    candidate."""
    sim.start(nodes=3, voters=3, min_insync=1, partitions=3)
    before = -1
    for number in range(5):
        leader = wait_active(sim, but=before)
        write(sim, number % 3, f"{number}-", 2)
        sim.power_off(leader) if number % 2 else sim.kill(leader)
        if before >= 0:
            others = [sim.hold("Quorum.Vote", source=node) for node in sim.nodes if node != before]
            stands = sim.hold("Quorum.Vote", source=before)
            sim.restart(before)
            sim.run_until(lambda stands=stands: stands.count > 0, what="the predecessor is a candidate")  # type: ignore[misc]
            stands.release()
            sim.run_for(0.1)
            for each in others:
                each.release()
        before = leader
        sim.restart(leader, after=2.5)
    sim.must_heal()


def one_node_loses_all_state(sim: Simulation) -> None:
    """A voter's directory is emptied (KIP-853): it is not a voter until it has been removed and added again. What
    was committed with its vote survives the loss of the old leader."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    leader = active(sim)
    emptied, other = voters_but(sim, leader)
    write(sim, 0, "a", 5)
    old = {voter.node_id: voter.directory_id for voter in sim.image().voters}
    sim.kill(emptied)
    sim.empty(emptied)
    sim.restart(emptied)
    sim.run_until(
        lambda: (
            len(sim.image().voters) == 3 and old != {each.node_id: each.directory_id for each in sim.image().voters}
        ),
        within=20,
        what="its new directory votes",
    )
    sim.run_until(lambda: sim.isr(TOPIC) == {0, 1, 2}, what="it is in sync again")
    sim.power_off(leader)
    assert wait_active(sim, but=leader) in (emptied, other)
    write(sim, 0, "b", 3)
    sim.must_heal()


def two_of_three_lose_all_state(sim: Simulation) -> None:
    """More is lost than a quorum survives: no node may be elected, since two new directories are no majority."""
    sim.start(nodes=3, voters=3, topics=())
    emptied = voters_but(sim, active(sim))
    left = active(sim)
    before = core(sim, left)
    for node in sim.nodes:
        sim.kill(node)
    for node in emptied:
        sim.empty(node)
    for node in sim.nodes:
        sim.restart(node)
    sim.run_for(20)
    state = core(sim, left)
    assert state is not None
    assert before is not None
    assert (active(sim), state.leads, state.epoch) == (-1, False, before.epoch), "elected, or a new directory has voted"


# --- Raft's own ---------------------------------------------------------------------------------------------------


def figure_8(sim: Simulation) -> None:
    """A record of an old epoch reaches a majority under a later leader of another epoch: its count alone commits
    nothing, and the final leader decides whether it stays."""
    sim.start(nodes=5, voters=5, topics=())
    first = active(sim)
    near, *far = voters_but(sim, first)
    for node in far:
        sim.disconnect_link(first, node)
        sim.disconnect_link(node, first)
    began = end(sim, near)
    client = sim.client((first,))
    client.start(client.create_topic("old", 1, 1, {}), "creates a topic in a minority")
    sim.run_until(lambda: end(sim, near) > began, within=1.5, what="one follower has the record")
    sim.power_off(first)
    sim.power_off(near)
    for node in far:
        sim.heal(node)
    second = wait_active(sim, but=first)
    sim.power_off(second)
    sim.restart(first)
    sim.restart(near)
    third = wait_active(sim, but=second, within=10)
    sim.kill(third)
    sim.restart(second)
    wait_active(sim, but=third, within=10)
    sim.create_topic(TOPIC, partitions=1, replicas=3, wait=False)
    sim.must_heal()


def old_record_waits_for_a_new_one(sim: Simulation) -> None:
    """The rule of Raft's figure 8 alone: a leader has a record of the previous epoch, and so has the old leader,
    which is a majority. It is committed with the first record of the new epoch, not before."""
    sim.start(nodes=3, voters=3, topics=())
    old = active(sim)
    new, other = voters_but(sim, old)
    sim.disconnect_link(old, other)
    sim.run_for(0.01)  # what was on its way has arrived
    client = sim.client((old,))
    client.start(client.create_topic("old", 1, 1, {}), "creates a topic")
    sim.run_until(lambda: end(sim, new) > end(sim, other), within=1.5, what="one follower has a record alone")
    sim.kill(old)
    fetches = sim.hold("Quorum.FetchMetadata", source=other, target=new)
    sim.run_until(lambda: _leads(sim, new), within=10, what="that follower leads")
    sim.heal_link(old, other)  # not before: the killed process may have sent the record, and its machine repeats that
    sim.restart(old)
    sim.run_for(1)
    fetches.release()
    sim.must_heal()


def minority_leader_returns(sim: Simulation) -> None:
    """The leader is disconnected and appends more records. It resigns, the others elect another leader, and when it is
    back its own records are truncated."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    old = active(sim)
    write(sim, 0, "a", 3)
    sim.disconnect(old)
    client = sim.client((old,))
    began = end(sim, old)
    client.start(client.create_topic("never", 1, 1, {}), "creates a topic in a minority")
    sim.run_until(lambda: end(sim, old) > began, within=1.5, what="the old leader has appended")
    new = wait_active(sim, but=old)
    state = core(sim, old)
    assert state is not None
    sim.run_until(lambda: not state.leads, within=3, what="the old leader has resigned")
    assert active(sim, among=[old]) == -1
    write_elsewhere = next(p for p in range(3) if sim.leader(TOPIC, p) != old)
    write(sim, write_elsewhere, "b", 3, asking=(new,))
    sim.heal(old)
    sim.must_heal()


def disconnected_voter_starts_no_epoch(sim: Simulation) -> None:
    """Pre-vote: a voter that is disconnected for long starts no epoch, and is a follower again when it is back."""
    sim.start(nodes=3, voters=3, topics=())
    leader = active(sim)
    state = core(sim, leader)
    assert state is not None
    epoch = state.epoch
    isolated = voters_but(sim, leader)[0]
    sim.disconnect(isolated)
    sim.run_for(15)
    sim.heal(isolated)
    sim.run_for(5)
    assert (active(sim), state.epoch) == (leader, epoch), "a disconnected voter started an epoch"
    sim.must_heal()


def one_way_disconnection_of_the_leader(sim: Simulation) -> None:
    """The leader receives from its followers, but they do not receive from it: no fetch is answered, so another
    leader is elected."""
    sim.start(nodes=3, voters=3, topics=())
    old = active(sim)
    for node in voters_but(sim, old):
        sim.disconnect_link(old, node)
    wait_active(sim, but=old, within=10)
    sim.must_heal()


def draining_controller_hands_over(sim: Simulation) -> None:
    """A graceful stop of the active controller: it names its successor, which takes over at once, also if nothing more
    is heard from the old one."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    old = active(sim)
    write(sim, 0, "a", 3)
    sim.stop(old)
    sim.run_until(lambda: not _leads(sim, old), within=45, what="it has resigned")
    sim.run_for(0.0001)  # its messages are sent
    sim.disconnect(old)
    resigned_at = sim.loop.time()
    wait_active(sim, but=old)
    assert sim.loop.time() - resigned_at < 0.5, "no successor was named"
    sim.must_heal()


def vote_on_a_hanging_disk(sim: Simulation) -> None:
    """A vote is answered only after it is on the disk: a voter whose disk hangs elects no node."""
    sim.start(nodes=3, voters=3, topics=())
    old = active(sim)
    voter, candidate = voters_but(sim, old)
    sim.stall_disk(voter)
    sim.kill(old)
    sim.never(
        lambda: _leads(sim, voter) or _leads(sim, candidate),
        seconds=10,
        what="elected by a vote that was not durable",
    )
    sim.release_disk(voter)
    wait_active(sim, within=10)
    sim.must_heal()


def voters_lose_power_one_after_the_other(sim: Simulation) -> None:
    """Every voter loses power once while the cluster continues: votes and acknowledged records survive."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    for number in range(6):
        sim.power_off(number % 3, forget_all=True)
        sim.run_for(0.3)
        sim.restart(number % 3)
        sim.run_for(0.7)
    sim.must_heal()


def voter_whose_mark_fails(sim: Simulation) -> None:
    """A voter has made records durable but cannot write its durable mark: its directory goes offline, and it
    acknowledges nothing more. With the third voter down, nothing is committed on its acknowledgement."""
    sim.start(nodes=3, voters=3, min_insync=1)
    leader = wait_active(sim)
    follower, other = (node for node in sim.nodes if node != leader)
    sim.kill(other)
    sim.run_for(3)
    sim.break_disk(follower, "write", path="/data/held-offset-marks")
    client = sim.client((leader,))
    client.start(client.create_topic("more", 1, 2, {}), "creates a topic")
    sim.run_until(lambda: not sim.machines[follower].up, what="the voter ends")
    sim.repair_disk(follower)
    sim.must_heal()


def forgotten_vote(sim: Simulation) -> None:
    """A voter votes and loses power before it learns of the leader that it elected. The old leader is back and asks
    for its vote in the same epoch."""
    sim.start(nodes=3, voters=3, topics=())
    old = active(sim)
    voter, candidate = voters_but(sim, old)
    sim.hold("Quorum.Vote", source=voter)
    updates = sim.hold("Quorum.FetchMetadata", source=candidate, target=voter, part="answer")
    begins = sim.hold("Quorum.BeginQuorumEpoch", source=candidate, target=voter)
    sim.kill(old)
    sim.run_until(lambda: _leads(sim, candidate), within=10, what="the candidate is elected")
    sim.pause(candidate)
    sim.power_off(voter, forget_all=True)
    sim.restart(voter)
    sim.restart(old)
    sim.run_until(lambda: _leads(sim, old), within=10, what="the old leader leads again")
    sim.resume(candidate)
    updates.let_pass()
    begins.let_pass()
    sim.must_heal()


def emptied_voter_votes_again(sim: Simulation) -> None:
    """Scenario 16: a voter votes and loses its directory before it learns of the leader that it elected. The old
    leader is back and is a candidate in the same epoch: the new directory does not vote (KIP-853)."""
    sim.start(nodes=3, voters=3, topics=())
    old = active(sim)
    voter, candidate = voters_but(sim, old)
    sim.hold("Quorum.Vote", source=voter)
    updates = sim.hold("Quorum.FetchMetadata", source=candidate, target=voter, part="answer")
    begins = sim.hold("Quorum.BeginQuorumEpoch", source=candidate, target=voter)
    sim.kill(old)
    sim.run_until(lambda: _leads(sim, candidate), within=5, what="the candidate is elected")
    sim.pause(candidate)
    sim.kill(voter)
    sim.empty(voter)
    sim.restart(voter)
    sim.restart(old)
    sim.never(lambda: _leads(sim, old), seconds=6, what="elected by a directory that is not a voter")
    sim.resume(candidate)
    updates.let_pass()
    begins.let_pass()
    sim.must_heal()


def short_log_gets_no_vote(sim: Simulation) -> None:
    """A voter that missed what the others committed is the first candidate; no voter that has these records may vote
    for it."""
    sim.start(nodes=3, voters=3, topics=())
    old = active(sim)
    straggler, other = voters_but(sim, old)
    sim.disconnect(straggler)
    sim.create_topic("missed", replicas=1, wait=False, client=sim.client((old, other)))
    standing = sim.hold("Quorum.Vote", source=other)
    sim.kill(old)
    sim.heal(straggler)
    sim.run_for(8)
    assert active(sim) == -1
    standing.release()
    assert wait_active(sim) == other
    sim.must_heal()


def emptied_first_node(sim: Simulation) -> None:
    """The node configured to form the cluster loses its volume while all nodes are down: it must join, not form
    another one."""
    sim.start(nodes=3, voters=3, min_insync=2, partitions=3)
    cluster = sim.image().cluster_id
    write(sim, 0, "a", 3)
    for node in sim.nodes:
        sim.kill(node)
    sim.empty(0)
    for node in sim.nodes:
        sim.restart(node)
    sim.never(lambda: bool(clusters(sim) - {"", cluster}), seconds=5, what="another cluster is formed")
    assert clusters(sim) == {cluster}, "not all nodes are in one cluster"
    sim.must_heal()


def clusters(sim: Simulation) -> set[str]:
    """The cluster IDs of the running nodes, as far as each knows from the metadata; "" if it knows none yet."""
    running = (machine.node for machine in sim.machines.values())
    return {views.image(node).cluster_id for node in running if node is not None}


def configured_voters_are_none_yet(sim: Simulation) -> None:
    """Scenario 16: a cluster of one voter is configured to have three. The configuration makes no node a voter until
    the metadata log does: two nodes that missed the last decisions elect no leader, however long the node that has
    them is down."""
    sim.start(nodes=3, voters=1, topics=())
    for node in (1, 2):
        sim.kill(node)
    sim.create_topic("missed", replicas=1, wait=False)
    sim.run_until(lambda: sim.image().topic("missed") is not None, what="the only voter decides alone")
    sim.kill(0)
    for node in sim.nodes:
        sim.machines[node].configure_voters(3)
    for node in (1, 2):
        sim.restart(node)
    sim.never(lambda: active(sim) >= 0, seconds=10, what="elected by nodes that are only configured to vote")
    sim.restart(0)
    sim.run_until(lambda: voters_but(sim, -1) == [0, 1, 2], within=10, what="the only voter adds the others")
    assert sim.image().topic("missed") is not None
    sim.power_off(0)
    wait_active(sim, but=0)
    sim.create_topic(TOPIC, partitions=1, replicas=2, wait=False)
    sim.must_heal()


def _leads(sim: Simulation, node: int) -> bool:
    state = core(sim, node)
    return state is not None and state.leads


ALL = (
    initial_election,
    leader_failure,
    all_nodes_killed,
    all_processes_killed,
    majority_reachable,
    back_to_back_failures,
    one_node_loses_all_state,
    two_of_three_lose_all_state,
    figure_8,
    old_record_waits_for_a_new_one,
    minority_leader_returns,
    disconnected_voter_starts_no_epoch,
    one_way_disconnection_of_the_leader,
    draining_controller_hands_over,
    vote_on_a_hanging_disk,
    voters_lose_power_one_after_the_other,
    forgotten_vote,
    voter_whose_mark_fails,
    emptied_voter_votes_again,
    short_log_gets_no_vote,
    emptied_first_node,
    configured_voters_are_none_yet,
)
