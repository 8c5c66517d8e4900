"""Data directories that fail while their node runs (KIP-858): what lies in them leaves its sets at once, the node's
other directories serve on. Told as in stories.py; each node has two directories, the first holds the metadata log.
"""

from __future__ import annotations

from storage.log.log import Log
from tests.sim.stories import TOPIC, committed, leads, write
from tests.sim.world import Simulation
from tidelog.types import NO_NODE, NodeId

LAG_S = 5
"""After so long a leader takes a silent follower out by itself."""


def lies_in_second(sim: Simulation, node: int, partition: int) -> bool:
    log = sim.log(node, TOPIC, partition)
    assert isinstance(log, Log)
    return log.path.startswith("/more/")


def with_second_directories(sim: Simulation, *, of_leader: bool) -> tuple[int, list[int]]:
    """A partition without a replica on node 0 whose leader, or one of whose followers, has its log in its second
    directory. Returns it and its replicas, that one first."""
    for state in sim.topic(TOPIC).partitions:
        p = int(state.partition)
        for victim in map(int, state.replicas):
            if 0 in state.replicas or (victim == state.leader) != of_leader or not lies_in_second(sim, victim, p):
                continue
            return p, [victim, *(int(node) for node in state.replicas if node != victim)]
    raise AssertionError("no partition lies so")


def fails(sim: Simulation, node: int) -> None:
    """The node's second directory fails, at the latest with the next write or fsync in it."""
    sim.break_disk(node, "sync", path="/more/", times=-1)
    sim.break_disk(node, "write", path="/more/", times=-1)


def directory_of_a_follower_fails(sim: Simulation) -> None:
    """A directory fails under a follower. It is taken out by its node's word: nobody waits for its lag. What it has in
    its other directory stays in sync."""
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
    sim.mend_disk(victim)
    sim.must_heal()


def directory_of_a_leader_fails(sim: Simulation) -> None:
    """A directory fails under a leader. Others lead by the same word. Started again, the node finds the directory well,
    and goes on with what it has there."""
    sim.start(nodes=4, min_insync=2, partitions=24, directories=2)
    p, (victim, *_) = with_second_directories(sim, of_leader=True)
    write(sim, p, "a", 3)
    fails(sim, victim)
    sim.produce(TOPIC, b"b", partition=p, acks="1")
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (victim, NO_NODE), within=0.25, what="another leads")
    write(sim, p, "c", 3)
    sim.mend_disk(victim)
    sim.run_until(lambda: victim in sim.isr(TOPIC, p), what="it is in sync again")
    assert lies_in_second(sim, victim, p)
    sim.must_heal()


def directory_of_an_eligible_replica_fails(sim: Simulation) -> None:
    """A replica whose directory has failed stays eligible: it has all that is committed. It is not elected while it
    cannot read that, and leads once its node is back with the directory."""
    sim.start(nodes=4, topics=(), directories=2)
    sim.create_topic(TOPIC, partitions=24, replicas=2, min_insync=2)
    p, (victim, leader) = with_second_directories(sim, of_leader=False)
    write(sim, p, "a", 3)
    fails(sim, victim)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: set(sim.partition(TOPIC, p).elr) == {victim}, within=1, what="it is eligible")
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC, p) == NO_NODE, what="the leader is given up")
    sim.run_for(2)
    assert sim.leader(TOPIC, p) == NO_NODE, "a replica leads that cannot read its log"
    sim.mend_disk(victim)
    sim.run_until(lambda: sim.leader(TOPIC, p) == NodeId(victim), what="it leads with what it has")
    assert committed(sim, p) == 3
    sim.restart(leader)
    sim.must_heal()


def leader_is_damaged_beside_a_failed_directory(sim: Simulation) -> None:
    """The other replica's directory has failed, though its node is there: a leader that finds damage has nobody to hand
    over to, and serves on what it can. The other one leads once its directory is back."""
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
    sim.never(lambda: not leads(sim, rotten, p), seconds=2, what="nobody serves it")
    sim.mend_disk(victim)
    sim.run_until(lambda: leads(sim, victim, p), what="the other one leads")
    assert committed(sim, p) >= 3
    sim.must_heal()


ALL = [
    directory_of_a_follower_fails,
    directory_of_a_leader_fails,
    directory_of_an_eligible_replica_fails,
    leader_is_damaged_beside_a_failed_directory,
]
