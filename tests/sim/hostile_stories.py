"""Stories of one hostile or faulty node, or any client that reaches a node's port, with false claims about itself and
others.

Setup as in stories.py. The stranger is a client process that sends requests of nodes.
"""

from __future__ import annotations

from typing import Any

from node.process.metadata_node import MetadataNode
from replication.raft.epoch_limits import EPOCH_JUMP, EPOCH_LAST, EPOCH_MAX
from replication.raft.quorum import Quorum
from replication.raft.quorum_events import BeginEpoch, Requested
from testbed.sim.machine import endpoint_of
from testbed.sim.world import Simulation
from tests.sim.quorum_stories import active, core, wait_active
from tests.sim.replication_stories import arrives, away_from_the_voter
from tests.sim.stories import TOPIC, committed, durable_offset, write
from tidelog.errors import InvalidRequest, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.v1 import controller_pb2, data_pb2, quorum_pb2
from tidelog.types import NodeId

STRANGER = 3
"""A number that no voter has, and a node of some stories."""


def ask(sim: Simulation, node: int, method: Method[Request, Answer], request: Request) -> Answer | TidelogError:
    """The answer of a node to a stranger."""
    client = sim.client()
    answers: list[Answer | TidelogError] = []

    async def call() -> None:
        try:
            answer = await client.transport.call(endpoint_of(node), method, request, timeout_ms=2_000)
            answers.append(answer)
        except TidelogError as error:
            answers.append(error)

    task = client.start(call(), f"says to node {node}: {method}")
    sim.run_until(task.done, within=5, what="the stranger has its answer")
    return answers[0]


def metadata_of(sim: Simulation, node: int) -> MetadataNode:
    running = sim.machines[node].node
    assert running is not None
    assert running._metadata is not None
    return running._metadata


def rules(sim: Simulation, node: int) -> Quorum:
    found = core(sim, node)
    assert found is not None, f"node {node} starts"
    return found


def says_who_leads(sim: Simulation, node: int, epoch: int, cluster: str | None = None) -> object:
    """A stranger claims to a node that it leads an epoch. cluster: the cluster ID in the request; by default the
    right one."""
    me = rules(sim, node).me
    begin = quorum_pb2.BeginQuorumEpochRequest(
        cluster_id=sim.image().cluster_id if cluster is None else cluster,
        leader_id=STRANGER,
        epoch=epoch,
        receiver=quorum_pb2.ReplicaKey(node_id=me.node_id, directory_id=me.directory_id.bytes),
    )
    return ask(sim, node, methods.QUORUM_BEGIN_QUORUM_EPOCH, begin)


def must_elect_again(sim: Simulation) -> None:
    """The active controller is lost; another one is elected, and writes continue."""
    old = active(sim)
    sim.kill(old)
    wait_active(sim, but=old)
    sim.restart(old)
    sim.must_heal()


def stranger_claims_to_lead(sim: Simulation) -> None:
    """One request names the cluster, the voter and a future epoch. The node named as leader is asked and denies it:
    epoch and leader stay."""
    sim.start(nodes=4, voters=3, topics=())
    before, leader = [rules(sim, node).epoch for node in range(3)], active(sim)
    for epoch in (before[0] + 1, EPOCH_JUMP, EPOCH_LAST, EPOCH_MAX):
        for node in range(3):
            says_who_leads(sim, node, epoch)
    sim.run_for(2)
    assert [rules(sim, node).epoch for node in range(3)] == before, "accepted an epoch in which no node was elected"
    assert active(sim) == leader
    must_elect_again(sim)


def stranger_names_no_cluster(sim: Simulation) -> None:
    """A request without a cluster ID, or for another replica, is refused before it reaches the quorum's rules."""
    sim.start(nodes=3, voters=3, topics=())
    for node in range(3):
        refused = says_who_leads(sim, node, 2, cluster="")
        assert isinstance(refused, TidelogError), "a request without a cluster ID is accepted"
        unknown = quorum_pb2.ReplicaKey(node_id=node, directory_id=b"\x00" * 16)
        end = quorum_pb2.EndQuorumEpochRequest(
            cluster_id=sim.image().cluster_id, leader_id=active(sim), epoch=rules(sim, node).epoch, receiver=unknown
        )
        ended = ask(sim, node, methods.QUORUM_END_QUORUM_EPOCH, end)
        assert isinstance(ended, TidelogError), "a request for another replica is accepted"
    must_elect_again(sim)


def stranger_asks_for_a_vote_in_the_last_epoch(sim: Simulation) -> None:
    """A vote request needs no proof, so its epoch raises the voters' epoch, but by one jump at most and never into
    the reserve."""
    sim.start(nodes=3, voters=3, topics=())
    for node in range(3):
        me, before = rules(sim, node).me, rules(sim, node).epoch
        for epoch in (EPOCH_MAX, EPOCH_LAST):
            key = quorum_pb2.ReplicaKey(node_id=me.node_id, directory_id=me.directory_id.bytes)
            vote = quorum_pb2.VoteRequest(
                cluster_id=sim.image().cluster_id,
                epoch=epoch,
                candidate=quorum_pb2.ReplicaKey(node_id=STRANGER, directory_id=b"\x03" * 16),
                voter=key,
                last_epoch=epoch,
                log_end=1 << 40,
            )
            ask(sim, node, methods.QUORUM_VOTE, vote)
        moved = rules(sim, node).epoch - before
        assert moved <= 3 * EPOCH_JUMP + 3, f"one vote request moves the epoch by {moved}"
    sim.run_until(lambda: active(sim) >= 0, within=20, what="a leader is elected, though epochs were lost")
    must_elect_again(sim)


def follower_claims_a_position_beyond_the_log_end(sim: Simulation) -> None:
    """Scenario 2, variant: a process claims offsets in the name of a follower that the leader does not have. They
    count for nothing: what only the leader holds is not committed."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    sim.run_until(
        lambda: all(durable_offset(sim, node, p) == 3 for node in others), what="the followers hold everything"
    )
    for node in others:
        sim.stall_disk(node)
    sim.produce(TOPIC, b"b", acks="1", partition=p).wait()
    arrives(sim, leader, *(forged_fetch(sim, node, p, 1 << 40) for node in others))
    assert committed(sim, p) == 3, "what only the leader holds is committed"
    for node in others:
        sim.release_disk(node)
    sim.must_heal()


def stranger_fetches_for_a_follower(sim: Simulation) -> None:
    """A fetch in the name of each in-sync follower, with the largest number, on a stream that stays open. The follower
    takes its place again within a second, and stays in the set. A unary fetch in its name has no effect at all."""
    sim.start(nodes=4, min_insync=3, partitions=12)
    p, (leader, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    for offset, node in enumerate(others):  # a fetch from 0 agrees, one from 1 does not: it names no epoch
        forged = forged_fetch(sim, node, p, offset)
        refused = ask(sim, leader, methods.DATA_FETCH, forged)
        assert isinstance(refused, InvalidRequest), "a unary fetch of a follower is served"
        arrives(sim, leader, forged)
        must_commit(sim, p, b"b%d" % node)
        assert set(sim.isr(TOPIC, p)) == {leader, *others}
    sim.must_heal()


def must_commit(sim: Simulation, p: int, value: bytes) -> None:
    before = committed(sim, p)
    sim.produce(TOPIC, value, partition=p)
    sim.run_until(lambda: committed(sim, p) > before, within=1.5, what="all followers are in sync after a forged fetch")


def forged_fetch(sim: Simulation, node: int, p: int, offset: int) -> data_pb2.FetchRequest:
    """A fetch in the name of a node's process, as anything that can list the nodes may send it."""
    state = sim.partition(TOPIC, p)
    fetch = data_pb2.FetchPartition(
        fetch_id=2**63 - 1,
        topic_id=state.topic_id.bytes,
        partition=p,
        current_leader_epoch=state.leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=state.leader_epoch if offset > 1 else -1,
        durable_offset=offset,
    )
    replica = data_pb2.Replica(node_id=node, incarnation=sim.image().nodes[NodeId(node)].incarnation.bytes)
    return data_pb2.FetchRequest(replica=replica, max_wait_ms=60_000, partitions=[fetch])


def stranger_stops_a_node(sim: Simulation) -> None:
    """Heartbeats in the name of a node that ask to stop it: one, two in a row, which ends the drain, and one while the
    node is fenced. Its own heartbeats end the draining each time."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (victim, *_) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    for times in (1, 2, 8):
        for _ in range(times):
            ask(sim, active(sim), methods.CONTROLLER_HEARTBEAT, forged_stop(sim, victim))
        sim.run_until(lambda: not serves(sim, victim), within=1, what="the node is drained or stopped")
        sim.run_until(lambda: serves(sim, victim), within=1.5, what="the node serves again after a forged stop")
    sim.run_until(lambda: victim in sim.isr(TOPIC, p), within=5, what="the node is in sync again")
    sim.must_heal()


def serves(sim: Simulation, node: int) -> bool:
    entry = sim.image().nodes[NodeId(node)]
    return not entry.fenced and not entry.draining


def forged_stop(sim: Simulation, node: int) -> controller_pb2.HeartbeatRequest:
    """A heartbeat in the name of a node that says that it stops."""
    entry = sim.image().nodes[NodeId(node)]
    return controller_pb2.HeartbeatRequest(
        node_id=node, node_epoch=entry.node_epoch, metadata_offset=entry.node_epoch, ready=True, want_drain=True
    )


def handler_fails(sim: Simulation) -> None:
    """A request makes the rules of the active controller's node fail. The node answers with an error and continues."""
    sim.start(nodes=3, voters=3, topics=())
    leader = active(sim)
    failing, take = rules(sim, leader), rules(sim, leader)._take

    def broken(event: Any) -> Any:
        if isinstance(event, Requested) and isinstance(event.request, BeginEpoch):
            raise ZeroDivisionError("a defect")
        return take(event)

    failing._take = broken  # type: ignore[method-assign]
    for _ in range(3):
        answer = says_who_leads(sim, leader, 2)
        assert isinstance(answer, TidelogError)
        assert answer.kafka_name == "UNKNOWN_SERVER_ERROR", "a defect is reported as such"
    assert sim.machines[leader].up, "a request ended the process"
    assert metadata_of(sim, leader).view.leads
    failing._take = take  # type: ignore[method-assign]
    must_elect_again(sim)


ALL = [
    stranger_claims_to_lead,
    stranger_names_no_cluster,
    stranger_asks_for_a_vote_in_the_last_epoch,
    follower_claims_a_position_beyond_the_log_end,
    stranger_fetches_for_a_follower,
    stranger_stops_a_node,
    handler_fails,
]
