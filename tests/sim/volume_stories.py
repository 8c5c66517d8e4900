"""Stories of volumes: the last in-sync member comes back with an older copy of its volume, an empty one, or a damaged
one."""

from __future__ import annotations

from testbed.fake_disk import FakeDisk
from testbed.sim.world import Simulation
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.stories import TOPIC, fenced, leads, write


def alone_in_sync(sim: Simulation) -> tuple[int, int, FakeDisk]:
    """A partition whose leader is the only member and is not running, and an earlier copy of its volume."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (last, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    copy = sim.machines[last].disk.twin()
    sim.kill(last)
    sim.run_until(lambda: last not in sim.isr(TOPIC, p), what="it is removed")
    sim.restart(last)
    sim.run_until(lambda: last in sim.isr(TOPIC, p), what="it is in sync again")
    for node in others:
        sim.kill(node)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {last} and leads(sim, last, p), what="the last one leads alone")
    write(sim, p, "b", 3)
    sim.kill(last)
    sim.run_until(lambda: fenced(sim, last), what="the last one is fenced")
    for node in others:
        sim.restart(node)
    return p, last, copy


def check_that_no_replica_leads(sim: Simulation, p: int, last: int, disk: FakeDisk) -> None:
    """With another volume the last member does not lead; with its own it does."""
    own, sim.machines[last].disk = sim.machines[last].disk, disk
    sim.restart(last)
    sim.run_until(lambda: not fenced(sim, last), what="it is unfenced with another volume")
    sim.run_for(3)
    assert sim.leader(TOPIC, p) == -1, "led from a volume without the records"
    sim.kill(last)
    sim.run_until(lambda: fenced(sim, last), what="it is fenced again")
    sim.machines[last].disk = own


def volume_restored_from_a_copy(sim: Simulation) -> None:
    """Scenario 9: the last member's volume is restored from an earlier copy with the same ID. It does not lead, and
    the others are not truncated to it."""
    p, last, copy = alone_in_sync(sim)
    check_that_no_replica_leads(sim, p, last, copy)


def volume_restored_from_a_copy_of_the_last_run(sim: Simulation) -> None:
    """Scenario 9, the variant that nothing in the cluster tells: the copy was taken while the last member ran, so its
    registration number is the newest. It leads without records that were acknowledged. Followers that knew them as
    committed keep copies of their logs before they follow, and say where."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (last, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    copy = sim.machines[last].disk.twin()
    write(sim, p, "b", 3)
    sim.run_for(10)  # the others write to their checkpoints what is committed
    for node in others:
        sim.kill(node)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {last}, what="it is the only member")
    sim.kill(last)
    sim.run_until(lambda: fenced(sim, last), what="it is fenced")
    sim.machines[last].disk = copy
    sim.checkers.may_have_lost(sim.partition(TOPIC, p).key)
    for node in (last, *others):
        sim.restart(node)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {last, *others}, what="the others follow it")
    assert sim.read_committed(TOPIC, p) == [b"a0", b"a1", b"a2"]
    for node in others:
        disk = sim.machines[node].disk
        aside = [name for name in disk.list("/data") if name.startswith(f"{TOPIC}-{p}.") and name.endswith("-stray")]
        assert len(aside) == 1, "a copy of the log"
        (segment,) = [name for name in disk.list(f"/data/{aside[0]}") if name.endswith(".log")]
        path = f"/data/{aside[0]}/{segment}"
        assert b"b2" in disk.open(path).pread(disk.size(path) or 0, 0), "with the records that the leader lacks"


def last_member_is_emptied(sim: Simulation) -> None:
    """Scenario 9, variant: the last member's volume is replaced by an empty one. No replica leads with an empty log.
    With the original volume everything is as before."""
    p, last, _ = alone_in_sync(sim)
    check_that_no_replica_leads(sim, p, last, FakeDisk())
    sim.restart(last)
    sim.must_heal()
    assert len(sim.read_committed(TOPIC, p)) == 7


def last_member_is_damaged(sim: Simulation) -> None:
    """Scenario 8, variant: a durable byte of the last member is corrupted while it is down. Recovery does not take
    that for a torn tail: the member does not lead without its durable records."""
    p, last, _ = alone_in_sync(sim)
    disk = sim.machines[last].disk
    path = next(f"/data/{name}" for name in disk.list("/data") if name.startswith(f"{TOPIC}-{p}"))
    segment = next(f"{path}/{name}" for name in disk.list(path) if name.endswith(".log"))
    disk.flip_bit(segment, (disk.size(segment) or 0) - 5)
    sim.restart(last)
    sim.run_until(lambda: not fenced(sim, last), what="it is unfenced")
    sim.run_for(3)
    assert sim.leader(TOPIC, p) == -1, "led without its durable records"


ALL = (
    volume_restored_from_a_copy,
    volume_restored_from_a_copy_of_the_last_run,
    last_member_is_emptied,
    last_member_is_damaged,
)
