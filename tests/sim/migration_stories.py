"""Sequences of events in which the members of a group change their protocol one by one, and that would give a partition
to two of them, keep it from all of them, or let a fenced one commit.

What members are given and commit is judged throughout (owners.py, classic_members.py, group_log.py). The rules of the
core have stories of their own, on a coordinator alone (tests/replication/migration_stories.py).
"""

from __future__ import annotations

from functools import partial

from testbed.sim.client_faults import pause_client, resume_client
from testbed.sim.world import Simulation
from tests.sim.classic_members import SimClassicGroup, SimClassicMember
from tests.sim.group_stories import GROUP, begin, coordinator_of, wait_other_coordinator, write_all
from tests.sim.members import SimGroup, SimMember


def begin_both(sim: Simulation, *, cooperative: bool = False, classic: int = 2) -> tuple[SimGroup, SimClassicGroup]:
    """A cluster, and a settled group of members that speak the classic protocol."""
    group = begin(sim)
    others = SimClassicGroup(sim, GROUP, group.topics, cooperative=cooperative, beside=group)
    write_all(sim, "r", 2)
    for _ in range(classic):
        others.join()
    group.settle()
    return group, others


def is_classic(sim: Simulation) -> bool:
    """Whether the committed log has the group as a classic one."""
    log = sim.coordination.log_of(GROUP)
    return log is not None and bool(log.group(GROUP).classic)


def upgraded(sim: Simulation, group: SimGroup) -> SimMember:
    """A member of KIP-848 that has joined the classic group, and has its share."""
    new = group.join()
    sim.run_until(lambda: bool(new.owned), what="the new member has its share")
    assert not is_classic(sim), "it is a consumer group"
    return new


def _has_its_share(member: SimMember | SimClassicMember) -> bool:
    return bool(member.owned if isinstance(member, SimMember) else member.places)


def roll(sim: Simulation, group: SimGroup, others: SimClassicGroup) -> None:
    """Replace each classic member by one of KIP-848, and each of these by a classic one."""
    for leaver in list(others.members):
        joined = group.join()
        sim.run_until(partial(_has_its_share, joined), within=6, what="the new member has its share")
        group.settle(within=6)
        leaver.stop()
        group.settle(within=6)
    assert not is_classic(sim), "it is a consumer group"
    for closed in list(group.members):
        another = others.join()
        sim.run_until(partial(_has_its_share, another), within=6, what="the classic member has its share")
        group.settle(within=6)
        closed.stop()
        group.settle(within=6)
    sim.run_until(lambda: is_classic(sim), what="it is a classic group again")
    group.settle(within=6)


def eager_group_rolls_there_and_back(sim: Simulation) -> None:
    """Goal: no partition is without an owner for longer than a rebalance takes. Method: change the members of a group
    one by one, to the new protocol and back."""
    roll(sim, *begin_both(sim))


def cooperative_group_rolls_there_and_back(sim: Simulation) -> None:
    """Goal: as above, with members that read on while they join again."""
    roll(sim, *begin_both(sim, cooperative=True))


def upgrade_meets_a_rebalance(sim: Simulation) -> None:
    """Goal: no request is left waiting for a generation that will not come. Method: a member of KIP-848 joins while one
    of a classic group waits for another, which is paused."""
    group, others = begin_both(sim)
    pause_client(sim, others.members[0].client)
    waiting = others.join()
    sim.run_until(lambda: bool(waiting.member_id), what="it is told its id")
    sim.run_for(1)
    group.join()
    sim.run_until(lambda: bool(waiting.places), within=5, what="it has its share")
    resume_client(sim, others.members[0].client)
    group.settle()


def slow_member_gives_up(sim: Simulation) -> None:
    """Goal: a partition has no second reader while a cooperative member has not given it up. Method: hold back the
    request by which it learns what it is to give up."""
    group, others = begin_both(sim, cooperative=True)
    slow = others.members[0]
    had = set(slow.places)
    held = sim.network.hold(lambda each: each.method == "Groups.SyncGroup" and each.source == slow.client.process.name)
    new = group.join()
    sim.run_until(lambda: held.count > 0, what="it has joined, and asks for its assignment")
    sim.run_for(1)
    assert not new.owned & had, "it reads on"
    held.release()
    sim.run_until(lambda: bool(new.owned & had), within=6, what="it has given something up")
    group.settle()


def coordinator_dies_after_an_upgrade(sim: Simulation) -> None:
    """Goal: the next coordinator knows what the members of the former classic group have. Method: kill the coordinator
    as soon as the group is a consumer group, while they have not joined it yet."""
    group, others = begin_both(sim, cooperative=True)
    group.join()
    sim.run_until(lambda: not is_classic(sim), what="it is a consumer group")
    former = coordinator_of(sim, GROUP)
    sim.kill(former)
    wait_other_coordinator(sim, former)
    group.settle()
    assert all(member.places for member in others.members), "all have their shares"


def coordinator_dies_after_a_downgrade(sim: Simulation) -> None:
    """Goal: what the last member of KIP-848 had gets an owner. Method: kill the coordinator as soon as the group is a
    classic one, before its members have heard of it."""
    group, _ = begin_both(sim)
    new = upgraded(sim, group)
    group.settle()
    new.stop()
    sim.run_until(lambda: is_classic(sim), what="it is a classic group")
    former = coordinator_of(sim, GROUP)
    sim.kill(former)
    wait_other_coordinator(sim, former)
    group.settle()


def last_member_of_the_new_protocol_dies(sim: Simulation) -> None:
    """Goal: the others share what it had. Method: kill it."""
    group, others = begin_both(sim, cooperative=True)
    new = upgraded(sim, group)
    group.settle()
    new.kill()
    sim.run_until(lambda: is_classic(sim), what="it is a classic group")
    group.settle(within=10)
    assert not any(member.fenced for member in others.members), "they read on meanwhile"


def paused_classic_member_commits_late(sim: Simulation) -> None:
    """Goal: a classic member of a consumer group that was removed commits nothing. Method: hold its commit back until
    others have what it had."""
    group, others = begin_both(sim)
    upgraded(sim, group)
    group.settle()
    late = others.members[0]
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


def killed_classic_member_is_replaced_in_a_consumer_group(sim: Simulation) -> None:
    """Goal: what it had goes to others after its own session. Method: kill a classic member that never joined the
    consumer group, since it died with the upgrade."""
    group, others = begin_both(sim)
    others.members[0].kill()
    upgraded(sim, group)
    group.settle(within=15)


ALL = [
    eager_group_rolls_there_and_back,
    cooperative_group_rolls_there_and_back,
    upgrade_meets_a_rebalance,
    slow_member_gives_up,
    coordinator_dies_after_an_upgrade,
    coordinator_dies_after_a_downgrade,
    last_member_of_the_new_protocol_dies,
    paused_classic_member_commits_late,
    killed_classic_member_is_replaced_in_a_consumer_group,
]
