"""Logs that are cut beside the event loop, on disks that take their time."""

from __future__ import annotations

from storage.log import Log
from tests.sim.checkers import ReadableLog
from tests.sim.stories import TOPIC, end, fenced, leads, old_epoch_reaches_one_follower, write
from tests.sim.world import Simulation


def is_being_cut(log: ReadableLog) -> bool:
    assert isinstance(log, Log)
    return log.cut is not None


def elected_in_the_middle_of_a_cut(sim: Simulation) -> None:
    """A follower is cut, its disk hangs, and it is elected meanwhile. Its node lives on, and leads when the log ends
    where it was to end: not before, over records that are going."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    old, new, follower = sim.partition(TOPIC, p).replicas
    old_epoch_reaches_one_follower(sim, p, old, new, follower)
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p), what="the other follower leads")
    sim.run_until(lambda: is_being_cut(sim.log(follower, TOPIC, p)), what="a cut is begun")
    sim.stall_disk(follower)
    sim.run_for(3)
    assert end(sim, follower, p) == 25, "the cut has not ended"
    assert not fenced(sim, follower), "its heartbeats go on"
    sim.kill(new)
    sim.run_until(lambda: sim.partition(TOPIC, p).leader == follower, what="the follower is elected")
    sim.run_for(1)
    assert not leads(sim, follower, p)
    sim.release_disk(follower)
    sim.run_until(lambda: leads(sim, follower, p), what="it leads")
    assert end(sim, follower, p) == 5
    write(sim, p, "d", 3)
    sim.must_heal()


ALL = [elected_in_the_middle_of_a_cut]
