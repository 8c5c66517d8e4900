"""Stories of log directories that fail while their node runs (KIP-858): their replicas leave the in-sync sets at once,
and the node's other directories continue. Setup as in stories.py; each node has two directories, and the first one
holds the metadata log.
"""

from __future__ import annotations

from storage.log.log import Log
from testbed.sim.world import Simulation
from tests.sim.stories import TOPIC, committed, leads, write
from tidelog.types import NO_NODE, NodeId

LAG_S = 5
"""After that many seconds a leader removes a lagging follower by itself."""


def lies_in_second(sim: Simulation, node: int, partition: int) -> bool:
    log = sim.log(node, TOPIC, partition)
    assert isinstance(log, Log)
    return log.path.startswith("/more/")


def with_second_directories(sim: Simulation, *, of_leader: bool) -> tuple[int, list[int]]:
    """Find a partition without a replica on node 0 whose leader, or one of whose followers, has its log in its
    second directory. Returns it and its replicas, that one first."""
    for state in sim.topic(TOPIC).partitions:
        p = int(state.partition)
        for victim in map(int, state.replicas):
            if 0 in state.replicas or (victim == state.leader) != of_leader or not lies_in_second(sim, victim, p):
                continue
            return p, [victim, *(int(node) for node in state.replicas if node != victim)]
    raise AssertionError("no partition has such replicas")


def fails(sim: Simulation, node: int) -> None:
    """The node's second directory fails, at the latest with the next write or fsync in it."""
    sim.break_disk(node, "sync", path="/more/", times=-1)
    sim.break_disk(node, "write", path="/more/", times=-1)


def directory_of_a_follower_fails(sim: Simulation) -> None:
    """A directory fails under a follower. Its node reports it, and the replica leaves the set at once, without the
    wait for its lag. The replicas in the other directory stay in sync."""
    sim.start(nodes=4, min_insync=2, partitions=24, directories=2)
    p, (victim, leader, other) = with_second_directories(sim, of_leader=False)
    write(sim, p, "a", 3)
    replicas = [int(state.partition) for state in sim.topic(TOPIC).partitions if victim in state.replicas]
    here = [q for q in replicas if not lies_in_second(sim, victim, q)]
    fails(sim, victim)
    sim.produce(TOPIC, b"b", partition=p).wait(within=LAG_S / 5)
    assert sim.isr(TOPIC, p) == {leader, other}
    sim.run_for(2 * LAG_S)
    assert here and all(victim in sim.isr(TOPIC, q) for q in here), "the other directory works"
    sim.repair_disk(victim)
    sim.must_heal()


def directory_of_a_leader_fails(sim: Simulation) -> None:
    """A directory fails under a leader. Its node reports it, and other nodes lead. After a restart the node finds
    the directory sound and continues with its logs."""
    sim.start(nodes=4, min_insync=2, partitions=24, directories=2)
    p, (victim, *_) = with_second_directories(sim, of_leader=True)
    write(sim, p, "a", 3)
    fails(sim, victim)
    sim.produce(TOPIC, b"b", partition=p, acks="1")
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (victim, NO_NODE), within=0.25, what="another node leads")
    write(sim, p, "c", 3)
    sim.repair_disk(victim)
    sim.run_until(lambda: victim in sim.isr(TOPIC, p), what="it is in sync again")
    assert lies_in_second(sim, victim, p)
    sim.must_heal()


def directory_of_an_eligible_replica_fails(sim: Simulation) -> None:
    """A replica in a failed directory stays eligible, since it has everything that is committed. It is not elected
    while it cannot read its log, and leads once its node has restarted with the directory."""
    sim.start(nodes=4, topics=(), directories=2)
    sim.create_topic(TOPIC, partitions=24, replicas=2, min_insync=2)
    p, (victim, leader) = with_second_directories(sim, of_leader=False)
    write(sim, p, "a", 3)
    fails(sim, victim)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: set(sim.partition(TOPIC, p).elr) == {victim}, within=1, what="it is eligible")
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC, p) == NO_NODE, what="the leader is fenced")
    sim.run_for(2)
    assert sim.leader(TOPIC, p) == NO_NODE, "a replica that cannot read its log leads"
    sim.repair_disk(victim)
    sim.run_until(lambda: sim.leader(TOPIC, p) == NodeId(victim), what="it leads with what it has")
    assert committed(sim, p) == 3
    sim.restart(leader)
    sim.must_heal()


def leader_is_damaged_beside_a_failed_directory(sim: Simulation) -> None:
    """The directory of the other replica has failed, though its node runs. A leader that detects corruption has no
    successor and continues with its sound records. The other replica leads once its directory is back."""
    sim.start(nodes=4, topics=(), directories=2)
    sim.create_topic(TOPIC, partitions=24, replicas=2, min_insync=2)
    p, (victim, rotten) = with_second_directories(sim, of_leader=False)
    write(sim, p, "a" * 100, 3)
    fails(sim, victim)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: set(sim.partition(TOPIC, p).elr) == {victim}, within=1, what="it is eligible")
    log = sim.log(rotten, TOPIC, p)
    assert isinstance(log, Log)
    sim.machines[rotten].disk.flip_bit(log.active.path, 100)
    sim.scrub(rotten, TOPIC, p)
    sim.run_until(lambda: leads(sim, rotten, p), within=2, what="it serves what is sound")
    sim.never(lambda: not leads(sim, rotten, p), seconds=2, what="no node serves it")
    sim.repair_disk(victim)
    sim.run_until(lambda: leads(sim, victim, p), what="the other one leads")
    assert committed(sim, p) >= 3
    sim.must_heal()


ALL = [
    directory_of_a_follower_fails,
    directory_of_a_leader_fails,
    directory_of_an_eligible_replica_fails,
    leader_is_damaged_beside_a_failed_directory,
]
