"""Stories of log truncations on an executor while the disk is slow."""

from __future__ import annotations

from storage.log.log import Log
from testbed.sim.checkers import ReadableLog
from testbed.sim.world import Simulation
from tests.sim.controller_stories import on_two_nodes
from tests.sim.stories import TOPIC, durable_offset, end, fenced, leads, old_epoch_reaches_one_follower, write


def is_being_truncated(log: ReadableLog) -> bool:
    assert isinstance(log, Log)
    return log.truncation is not None


def elected_during_a_truncation(sim: Simulation) -> None:
    """A follower truncates its log, its disk hangs, and it is elected meanwhile. Its node keeps running. It leads
    once the truncation is complete, not before, since records above the target are still in the log."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    old, new, follower = sim.partition(TOPIC, p).replicas
    old_epoch_reaches_one_follower(sim, p, old, new, follower)
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p), what="the other follower leads")
    sim.run_until(lambda: is_being_truncated(sim.log(follower, TOPIC, p)), what="a truncation is in progress")
    sim.stall_disk(follower)
    sim.run_for(3)
    assert end(sim, follower, p) == 25, "the truncation has not ended"
    assert not fenced(sim, follower), "its heartbeats continue"
    sim.kill(new)
    sim.run_until(lambda: sim.partition(TOPIC, p).leader == follower, what="the follower is elected")
    sim.run_for(1)
    assert not leads(sim, follower, p)
    sim.release_disk(follower)
    sim.run_until(lambda: leads(sim, follower, p), what="it leads")
    assert end(sim, follower, p) == 5
    write(sim, p, "d", 3)
    sim.must_heal()


def watermark_checkpoint_above_a_truncation(sim: Simulation) -> None:
    """A leader alone commits up to 80, and its checkpoint has this high watermark. The other replica is elected
    uncleanly with 40. The first one truncates its log to 40, fetches 50 records that are not committed, and is
    killed. After its start none of those counts as committed."""
    leader, follower = on_two_nodes(sim, 1, unclean_leader_election_enable="true")
    write(sim, 0, "a", 40)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 40, what="the follower has the first records")
    sim.kill(follower)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader}, what="the leader is alone")
    write(sim, 0, "lost ", 40)
    sim.run_for(6)  # the checkpoint is written every 5 seconds
    sim.kill(leader)
    sim.run_until(lambda: fenced(sim, leader), what="the leader is fenced")
    sim.alter_topic(TOPIC, min_insync_replicas="2")
    sim.restart(follower)
    sim.run_until(lambda: leads(sim, follower, 0), what="the follower leads")
    client = sim.client()
    for number in range(50):
        sim.produce(TOPIC, f"b{number}".encode(), acks="1", client=client)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 90, what="it has 50 more")
    proposals = sim.hold("Controller.AlterPartition", source=follower)
    sim.restart(leader)
    sim.run_until(lambda: not fenced(sim, leader), what="the first one is unfenced")
    sim.run_until(lambda: durable_offset(sim, leader, 0) == 90, what="it was truncated and has them too")
    assert sim.log(leader, TOPIC).high_watermark == 40
    sim.kill(leader)
    sim.disconnect_link(leader, follower)
    sim.restart(leader)
    sim.run_until(lambda: sim.replica(leader, TOPIC) is not None, what="it has its replica again")
    watermark = sim.log(leader, TOPIC).high_watermark
    assert watermark <= 40, f"a watermark of {watermark} was restored with the log"
    sim.heal_link(leader, follower)
    proposals.release()
    sim.must_heal(lossy=True)


ALL = [elected_during_a_truncation, watermark_checkpoint_above_a_truncation]
