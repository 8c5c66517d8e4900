"""Sequences of events that would give one partition to two members of a classic group, or keep it from all of them.

What members are assigned and commit is judged throughout (classic_members.py, group_log.py). The rules of the core have
stories of their own, on a coordinator alone (tests/replication/classic_stories.py).
"""

from __future__ import annotations

from testbed.sim.client_faults import pause_client, resume_client
from testbed.sim.world import Simulation
from tests.sim.classic_members import SimClassicGroup
from tests.sim.group_stories import begin, coordinator_of, wait_other_coordinator
from tests.sim.stories import TOPIC

GROUP = "workers"


def begin_classic(sim: Simulation, members: int = 3) -> SimClassicGroup:
    """A cluster, and a settled classic group of dynamic members."""
    begin(sim)
    group = SimClassicGroup(sim, GROUP, (TOPIC,))
    for _ in range(members):
        group.join()
    group.settle()
    return group


def generation_of(group: SimClassicGroup) -> int:
    """The last recorded generation."""
    log = group.sim.coordination.log_of(group.name)
    return -1 if log is None else log.group(group.name).generation


def classic_members_share_partitions(sim: Simulation) -> None:
    """Goal: what the leader assigns reaches each member, once it is recorded. Method: members join and leave."""
    group = begin_classic(sim)
    assert all(len(member.places) == 2 for member in group.members), "each has its share"
    last = group.join()
    sim.run_until(lambda: bool(last.places), what="the fourth one has its share")
    group.settle()
    last.stop()
    sim.run_until(lambda: last.is_over, what="it has left")
    group.settle(within=2)
    sim.run_until(
        lambda: sim.coordination.log_of(GROUP).commits != set(),  # type: ignore[union-attr]
        what="offsets are committed",
    )


def killed_classic_member_is_replaced(sim: Simulation) -> None:
    """Goal: what a member had that died goes to others after its session. Method: kill one."""
    group = begin_classic(sim)
    group.members[0].kill()
    group.settle(within=15)


def paused_classic_member_is_fenced(sim: Simulation) -> None:
    """Goal: a member that was removed commits nothing. Method: pause one for longer than its session, and let it go on:
    it has not heard of the next generation when it commits again."""
    group = begin_classic(sim)
    paused = group.members[1]
    sim.run_for(2)
    pause_client(sim, paused.client)
    sim.run_until(
        lambda: paused.member_id not in sim.coordination.log_of(GROUP).group(GROUP).classic,  # type: ignore[union-attr]
        within=20,
        what="it is removed",
    )
    resume_client(sim, paused.client)
    group.settle()


def classic_coordinator_is_killed(sim: Simulation) -> None:
    """Goal: a group outlives its coordinator without a rebalance. Method: kill the node of the coordinator."""
    group = begin_classic(sim)
    before, former = generation_of(group), coordinator_of(sim, GROUP)
    sim.kill(former)
    wait_other_coordinator(sim, former, GROUP)
    sim.run_for(6)
    assert generation_of(group) == before, "the generation goes on"
    assert group.is_settled, "all have what they had"
    another = group.join()
    sim.run_until(lambda: bool(another.places), what="the next generation follows")
    assert generation_of(group) > before
    group.settle()


def classic_coordinator_dies_during_a_rebalance(sim: Simulation) -> None:
    """Goal: members that wait are not forgotten. Method: kill the coordinator when some have joined the next generation
    and their requests wait."""
    group = begin_classic(sim)
    former = coordinator_of(sim, GROUP)
    group.join()
    sim.run_for(0.15)
    sim.kill(former)
    wait_other_coordinator(sim, former, GROUP)
    group.settle()


def classic_member_dies_with_its_coordinator(sim: Simulation) -> None:
    """Goal: a member that died is removed by a coordinator that never heard of it. Method: kill both at once."""
    group = begin_classic(sim)
    former = coordinator_of(sim, GROUP)
    group.members[0].kill()
    sim.kill(former)
    wait_other_coordinator(sim, former, GROUP)
    group.settle(within=15)


def late_commit_of_a_removed_classic_member(sim: Simulation) -> None:
    """Goal: a member that was removed commits nothing. Method: hold its commit back until others have what it had."""
    group = begin_classic(sim)
    late = group.members[1]
    held = sim.network.hold(
        lambda each: each.method == "Groups.OffsetCommit" and each.source == late.client.process.name
    )
    sim.run_until(lambda: held.count > 0, what="it commits")
    pause_client(sim, late.client)
    late.is_stopping = True
    group.settle(within=20)
    held.release()
    sim.run_for(1)
    resume_client(sim, late.client)
    sim.run_until(lambda: late.is_over, within=20, what="it ends")


def static_classic_member_restarts(sim: Simulation) -> None:
    """Goal: a static member that restarts keeps its place, also at the next coordinator, and the process before it is
    fenced. Method: pause it, lose the coordinator, start another process, and let the first one go on."""
    begin(sim)
    group = SimClassicGroup(sim, GROUP, (TOPIC,))
    first, second = group.join(instance_id="i1"), group.join(instance_id="i2")
    group.settle()
    before, had = generation_of(group), set(first.places)
    pause_client(sim, first.client)
    former = coordinator_of(sim, GROUP)
    sim.kill(former)
    wait_other_coordinator(sim, former, GROUP)
    again = group.join(instance_id="i1")
    sim.run_until(lambda: again.places == had, within=10, what="its successor has what it had")
    resume_client(sim, first.client)
    sim.run_until(lambda: first.is_over, within=20, what="the process before it is fenced")
    first.stop()
    assert generation_of(group) == before, "no rebalance"
    assert second.generations == 1, "the other one went on"
    assert group.is_settled, "all have what they had"


ALL = [
    classic_members_share_partitions,
    killed_classic_member_is_replaced,
    paused_classic_member_is_fenced,
    classic_coordinator_is_killed,
    classic_coordinator_dies_during_a_rebalance,
    classic_member_dies_with_its_coordinator,
    late_commit_of_a_removed_classic_member,
    static_classic_member_restarts,
]
