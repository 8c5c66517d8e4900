"""Sequences of events that would give one partition to two members of a group, lose what a group has read, or keep a
partition from being read.

Members are real consumers (members.py). Their callbacks, what they read and what they commit is judged throughout
(owners.py, member_readings.py, group_log.py). Sources: KIP-848, KIP-345, KIP-211.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from replication.coordination.partitioning import partition_of
from testbed.sim.coordination import GROUPS, TRANSACTIONS
from testbed.sim.coordinator_answers import ask, committed_offsets
from testbed.sim.machine import coordinator_settings
from testbed.sim.watched_transport import WatchedTransport
from testbed.sim.world import Simulation
from testbed.topic_requests import growing
from tests.sim.crowd import Crowd
from tests.sim.members import SimGroup, SimMember
from tests.sim.stories import TOPIC
from tidelog.errors import TidelogError, UnknownMemberId
from tidelog.protocol import methods
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import groups_pb2

GROUP = "readers"
SESSION_S = 3.0
"""The session timeout of members in stories."""


def begin(
    sim: Simulation, *, nodes: int = 3, partitions: int = 6, topics: tuple[str, ...] = (TOPIC,), **settings: Any
) -> SimGroup:
    """A cluster with coordinators, and a group without members. It has three voters, so that any one node may be lost.
    settings: as of coordinator_settings."""
    sim.start(
        voters=3,
        nodes=nodes,
        min_insync=2,
        partitions=partitions,
        topics=topics,
        coordinators=coordinator_settings(**{"partitions": 1, **settings}),
    )
    return SimGroup(sim, GROUP, topics)


def coordinator_place(sim: Simulation, key: str, topic: str = GROUPS) -> tuple[str, int]:
    """The partition of an internal topic that a group or transactional id belongs to."""
    return topic, partition_of(key, len(sim.topic(topic).partitions))


def coordinator_of(sim: Simulation, key: str, topic: str = GROUPS) -> int:
    """The node that coordinates a group or transactional id; -1 if there is none."""
    return sim.leader(*coordinator_place(sim, key, topic))


def transaction_coordinator_of(sim: Simulation, transactional_id: str) -> int:
    return coordinator_of(sim, transactional_id, TRANSACTIONS)


def wait_other_coordinator(sim: Simulation, former: int, key: str = GROUP, topic: str = GROUPS) -> int:
    """Wait until another node coordinates."""
    sim.run_until(lambda: coordinator_of(sim, key, topic) not in (former, -1), what=f"another node coordinates {key}")
    return coordinator_of(sim, key, topic)


def write_all(
    sim: Simulation, prefix: str, each: int, partitions: int = 6, asking: Sequence[int] | None = None
) -> None:
    """Write that many records to each partition, all acknowledged. asking: the nodes that are asked for leaders."""
    clients = [sim.client(asking) for _ in range(partitions)]
    sent = [
        sim.produce(TOPIC, f"{prefix}{partition}-{number}".encode(), partition=partition, client=clients[partition])
        for number in range(each)
        for partition in range(partitions)
    ]
    for one in sent:
        one.wait()


def is_read(group: SimGroup) -> bool:
    """Whether the group has committed everything that is there to be read."""
    for place in group.places():
        ledger = group.sim.ledger(*place)
        if ledger.passed_over(max(0, group.committed(place)), ledger.stable, decided=True) is not None:
            return False
    return True


def wait_read(group: SimGroup, within: float = 20.0) -> None:
    group.sim.run_until(lambda: is_read(group), within=within, what="the group has committed everything")


def joined(group: SimGroup, count: int, **options: Any) -> list[SimMember]:
    """That many members, each partition with an owner."""
    members = [group.join(**options) for _ in range(count)]
    group.settle()
    sizes = len(group.places()) // count
    group.sim.run_until(
        lambda: all(len(member.owned) >= sizes for member in members) and group.is_settled,
        what=lambda: f"partitions are shared evenly: {[len(member.owned) for member in members]}",
    )
    return members


def all_leave(group: SimGroup) -> None:
    """Every member that runs is closed."""
    running = [member for member in group.members if member.client.process.alive]
    for member in running:
        member.stop()
    group.sim.run_until(lambda: all(member.is_over for member in running), what="every member has left")


def values_of(group: SimGroup) -> list[bytes | None]:
    """Everything that the members of the group were given, sorted."""
    return sorted((value for member in group.members for value in member.values), key=lambda value: value or b"")


def finished(group: SimGroup) -> None:
    """The group reads everything, leaves, and the cluster is sound."""
    wait_read(group)
    all_leave(group)
    group.sim.must_heal()


# --- membership -----------------------------------------------------------------------------------------------------


def members_share_partitions(sim: Simulation) -> None:
    """KIP-848: a third member joins two. It gets its share, no partition is given up that does not move, and the others
    read on meanwhile."""
    group = begin(sim)
    first, second = joined(group, 2)
    write_all(sim, "a", 3)
    wait_read(group)
    before = {member: set(member.owned) for member in (first, second)}
    calls = {member: len(member.callbacks) for member in (first, second)}
    third = group.join()
    sim.run_until(lambda: len(third.owned) == 2 and group.is_settled, what="the third member has its share")
    for member in (first, second):
        given_up = {
            place for what, places in member.callbacks[calls[member] :] if what == "revoked" for place in places
        }
        assert given_up == before[member] - member.owned, f"{member} gave up {given_up} of {before[member]}"
        assert len(given_up) == 1, f"{member} gave up {given_up}, more than its share"
    write_all(sim, "b", 3)
    finished(group)
    assert len(values_of(group)) == 36, "a record was read twice"


def killed_member_is_replaced(sim: Simulation) -> None:
    """A member is killed: others read its partitions within the session timeout, from its last commit."""
    group = begin(sim)
    first, second = joined(group, 2)
    write_all(sim, "a", 3)
    wait_read(group)
    first.kill()
    write_all(sim, "b", 3)
    group.settle(SESSION_S + 1.0)
    wait_read(group)
    assert second.owned == set(group.places())
    finished(group)
    assert len(values_of(group)) == 36, "a record was read twice, or not at all"


def closed_member_is_replaced_at_once(sim: Simulation) -> None:
    """A member is closed: it commits and leaves, and its partitions have other owners within 100 ms, not at the next
    heartbeat."""
    group = begin(sim, heartbeat_ms=2_500)
    first, second = joined(group, 2)
    write_all(sim, "a", 3)
    wait_read(group)
    first.stop()
    sim.run_until(lambda: first.is_over, what="the member has left")
    group.settle(0.1)
    assert second.owned == set(group.places())
    write_all(sim, "b", 3)
    finished(group)
    assert len(values_of(group)) == 36, "a record was read twice"


def paused_member_is_fenced(sim: Simulation) -> None:
    """A member is paused beyond its session with records that it has read and not committed. Others read them again
    and commit; when it continues, nothing of what it had read is committed, and it joins again."""
    group = begin(sim)
    first, second = joined(group, 2, auto_commit_interval_ms=60_000)
    write_all(sim, "a", 3)
    sim.run_until(lambda: len(first.values) == 9, what="the first member has read its records")
    first.pause()
    sim.run_until(lambda: second.owned == set(group.places()), what="the second member has all partitions")
    sim.run_until(lambda: len(second.values) == 18, what="the second member reads what was not committed")
    first.resume()
    sim.run_until(
        lambda: any(what == "lost" for what, _ in first.callbacks), what="the first member knows that it was fenced"
    )
    sim.run_until(lambda: len(first.owned) == 3, what="it has joined again")
    group.settle()
    write_all(sim, "b", 1)
    sim.run_until(lambda: len(values_of(group)) >= 33, what="all is read")
    all_leave(group)
    assert is_read(group)
    sim.must_heal()


def late_commit_of_a_fenced_member(sim: Simulation) -> None:
    """A commit is in transit while its member is fenced and another one takes over and commits more. When it arrives it
    is refused: the committed offset does not go back."""
    group = begin(sim, partitions=1)
    (first,) = joined(group, 1, auto_commit=False)
    on_its_way = sim.hold("Groups.OffsetCommit", when=lambda envelope: envelope.source == first.client.process.name)
    write_all(sim, "a", 2, 1)
    sim.run_until(lambda: on_its_way.count > 0, what="a commit is in transit")
    first.pause()
    second = group.join()
    sim.run_until(lambda: len(second.owned) == 1, what="the second member has the partition")
    write_all(sim, "b", 2, 1)
    wait_read(group)
    committed = group.committed((TOPIC, 0))
    on_its_way.release()
    sim.run_for(1.0)
    assert group.committed((TOPIC, 0)) == committed
    first.kill()
    finished(group)


def late_commit_of_a_member(sim: Simulation) -> None:
    """A commit is in transit until its member has given it up and has committed more, in the same epoch. When it
    arrives it is refused: the committed offset does not go back."""
    group = begin(sim, partitions=1)
    (member,) = joined(group, 1, auto_commit=False, request_timeout_ms=800)
    late = sim.hold(
        "Groups.OffsetCommit",
        when=lambda envelope: envelope.source == member.client.process.name and late.count == 0,
    )
    write_all(sim, "a", 2, 1)
    sim.run_until(lambda: late.count > 0, what="a commit is in transit")
    write_all(sim, "b", 2, 1)
    wait_read(group)
    sim.run_until(lambda: group.committed((TOPIC, 0)) == 4, what="the member has committed more")
    late.release()
    sim.run_for(1.0)
    assert group.committed((TOPIC, 0)) == 4
    finished(group)


def revocation_waits_for_its_owner(sim: Simulation) -> None:
    """A partition is to move from a member that is slow to give it up. Nobody else gets it before that. A member that
    takes longer than its application may take between two polls leaves the group."""
    group = begin(sim, partitions=2)
    (first,) = joined(group, 1, max_poll_interval_ms=4_000)
    stuck = sim.loop.create_future()
    first.before_revoked = lambda: stuck
    second = group.join()
    sim.never(lambda: bool(second.owned), seconds=3.0, what="the partition has a second owner")
    sim.run_until(lambda: len(second.owned) >= 1, within=10, what="the slow member is fenced")
    sim.run_until(lambda: group.logged(first.member_id) is None or not first.owned, what="it owns nothing any more")
    stuck.set_result(None)
    group.settle()
    write_all(sim, "a", 2, 2)
    finished(group)


def member_never_confirms(sim: Simulation) -> None:
    """A member sends heartbeats and never reports that it gave a partition up. When its rebalance timeout has passed
    the coordinator removes it, and others get what it had; not before."""
    group = begin(sim, partitions=2)
    (stubborn,) = (crowd := Crowd(sim, GROUP, 1, rebalance_ms=3_000)).members
    sim.run_until(lambda: crowd.owned == set(group.places()), what="the member has all partitions")
    stubborn.is_stubborn = True
    member = group.join()
    sim.never(lambda: bool(member.owned), seconds=2.0, what="a partition has a second owner")
    sim.run_until(lambda: bool(member.owned), within=10, what="the coordinator removes the member")
    stubborn.is_stubborn = False
    write_all(sim, "a", 1, 2)
    sim.run_until(lambda: len(member.values) >= 1, what="the other member reads")
    all_leave(group)
    sim.must_heal()


def static_member_returns(sim: Simulation) -> None:
    """KIP-345: a static member is closed and comes back within its session: it has its partitions again, and the other
    member was never asked to give one up or to take one."""
    group = begin(sim)
    first = group.join(instance_id="one")
    second = group.join(instance_id="two")
    sim.run_until(lambda: len(first.owned) == len(second.owned) == 3, what="partitions are shared")
    write_all(sim, "a", 2)
    wait_read(group)
    had, calls = set(first.owned), len(second.callbacks)
    first.stop()
    sim.run_until(lambda: first.is_over, what="the first member is closed")
    sim.run_for(SESSION_S / 3)
    again = group.join(instance_id="one")
    sim.run_until(lambda: again.owned == had, within=SESSION_S, what="it has its partitions again")
    assert len(second.callbacks) == calls, f"the other member was disturbed: {second.callbacks[calls:]}"
    write_all(sim, "b", 2)
    finished(group)


def static_member_is_taken(sim: Simulation) -> None:
    """KIP-345: a second process with the instance id of a member that runs gets nothing; when the first one is killed,
    the second one takes its place once the session is over."""
    group = begin(sim)
    (first,) = joined(group, 1, instance_id="one")
    second = group.join(instance_id="one")
    sim.never(lambda: bool(second.owned), seconds=2.0, what="two members have one instance id")
    assert first.owned == set(group.places())
    first.kill()
    sim.run_until(lambda: second.owned == set(group.places()), within=10, what="the second process takes the place")
    write_all(sim, "a", 2)
    finished(group)


def new_partitions_are_assigned(sim: Simulation) -> None:
    """A topic gets more partitions, and one with a name that matches the pattern is created: members read them from
    their beginning."""
    group = begin(sim, partitions=2)
    member = group.join(topics=None, topic_pattern="ord.*")
    sim.run_until(lambda: len(member.owned) == 2, what="the member has the topic")
    grow(sim, TOPIC, 4)
    sim.run_until(lambda: len(member.owned) == 4, what="it has the new partitions")
    sim.create_topic("ordinary", partitions=2)
    sim.run_until(lambda: len(member.owned) == 6, what="it has the new topic")
    sim.create_topic("other", partitions=1)
    write_all(sim, "a", 2, 4)
    sim.produce("ordinary", b"x", partition=1).wait()
    sim.run_until(lambda: len(member.values) == 9, what="all is read")
    all_leave(group)
    assert not any(place[0] == "other" for _, places in member.callbacks for place in places)
    sim.must_heal()


def grow(sim: Simulation, topic: str, count: int) -> None:
    """Add partitions to a topic."""
    sim.admin(methods.ADMIN_CREATE_PARTITIONS, growing(topic=topic, count=count))


def rolling_restart_of_all_members(sim: Simulation) -> None:
    """Every member is closed and replaced, one after the other, while records are written: each record is read once."""
    group = begin(sim)
    joined(group, 3, auto_commit_interval_ms=60_000)
    for number in range(3):
        write_all(sim, f"{number}-", 2)
        old = group.members[number]
        old.stop()
        sim.run_until(lambda old=old: old.is_over, what="the member has left")  # type: ignore[misc]
        group.join()
        group.settle(5.0)
    write_all(sim, "last-", 2)
    finished(group)
    assert len(values_of(group)) == 48, "a record was read twice"


def records_in_processing_are_not_committed(sim: Simulation) -> None:
    """A member commits by itself while its application still works on the records of the last poll, and is killed: the
    next member reads those records again."""
    group = begin(sim, partitions=1)
    (first,) = joined(group, 1, auto_commit_interval_ms=200)
    first.processing = sim.loop.create_future
    write_all(sim, "a", 3, 1)
    sim.run_for(2)
    assert group.committed((TOPIC, 0)) <= 0, "records were committed that the application still works on"
    first.kill()
    second = group.join()
    sim.run_until(lambda: len(second.values) == 3, what="the next member reads the records")
    finished(group)


def member_commits_and_leaves(sim: Simulation) -> None:
    """A member commits what its last poll returned and is closed at once: the committed offset does not go back."""
    group = begin(sim, partitions=1)
    write_all(sim, "a", 3, 1)
    member = group.member()
    task = member.client.start(reads_and_leaves(member, 3), "reads, commits and leaves")
    sim.run_until(task.done, what="the member has left")
    task.result()
    assert group.committed((TOPIC, 0)) == 3
    sim.must_heal()


async def reads_and_leaves(member: SimMember, count: int) -> None:
    """Read that many records, commit, and leave without another poll."""
    await member.consumer.start()
    while len(member.values) < count:
        member.got(await member.consumer.poll(timeout=0.5))
    await member.consumer.commit()
    await member.consumer.close()


def tool_commits_beside_members(sim: Simulation) -> None:
    """A tool that is no member commits an offset: that is refused while the group has members, and accepted once they
    have left; the next member continues there."""
    group = begin(sim, partitions=1)
    joined(group, 1)
    write_all(sim, "a", 5, 1)
    wait_read(group)
    assert isinstance(tool_commits(sim, 2), UnknownMemberId), "the offset of a group with members was set"
    all_leave(group)
    assert tool_commits(sim, 2) is None
    member = group.join()
    sim.run_until(lambda: len(member.values) == 3, what="the member continues at the offset that was set")
    finished(group)


def tool_commits(sim: Simulation, offset: int, asking: Sequence[int] | None = None) -> TidelogError | None:
    """Commit an offset of the only partition without a membership. asking: the nodes that are asked where the
    coordinator is. Returns the refusal."""
    client = sim.client(asking)
    client.transport = WatchedTransport(  # type: ignore[assignment]
        client.transport, sim.loop, sim.coordination, name=client.process.name, resets=True
    )
    request = groups_pb2.OffsetCommitRequest(
        group_id=GROUP,
        member_epoch=-1,
        partitions=[groups_pb2.OffsetToCommit(topic=TOPIC, partition=0, offset=offset, leader_epoch=-1)],
    )
    work = ask(client, groups_pb2.COORDINATOR_TYPE_GROUP, GROUP, methods.GROUPS_OFFSET_COMMIT, request)
    task = client.start(work, "sets an offset")
    sim.run_until(task.done, what="the tool is answered")
    error = task.exception()
    if error is not None:
        assert isinstance(error, TidelogError), error
        return error
    (outcome,) = task.result().partitions
    return from_proto(outcome.error) if outcome.HasField("error") else None


def thousand_members_join_at_once(sim: Simulation) -> None:
    """A thousand members join a group within a second. Each gets its share, one partition for two members, in a few
    assignments: the group's epoch rises with each member, the assignment does not follow every one of them."""
    group = begin(sim, partitions=50)
    crowd = Crowd(sim, GROUP, 1_000)
    sim.run_until(lambda: crowd.is_settled, within=60, what=lambda: f"every member is settled: {crowd}")
    sim.run_until(lambda: crowd.owned == set(group.places()), within=5, what="every partition has an owner")
    log = sim.coordination.log_of(GROUP)
    assert log is not None
    assert len(log.groups[GROUP].registered()) == 1_000
    assert crowd.assignments < 200, f"{crowd.assignments} assignments for a thousand members"
    sim.must_heal()


# --- coordinators ---------------------------------------------------------------------------------------------------


def coordinator_is_killed_while_reconciling(sim: Simulation) -> None:
    """The coordinator is killed when it has decided that partitions move, before their owner has given them up. Its
    successor continues from the log: no partition has two owners, and each gets one."""
    group = begin(sim, nodes=4)
    (first,) = joined(group, 1)
    write_all(sim, "a", 2)
    wait_read(group)
    coordinator = coordinator_of(sim, GROUP)
    stuck = sim.loop.create_future()
    first.before_revoked = lambda: stuck
    second = group.join()
    sim.run_until(lambda: is_revoking(group, first), what="partitions are to be given up")
    sim.kill(coordinator)
    wait_other_coordinator(sim, coordinator)
    sim.never(lambda: bool(second.owned), seconds=1.0, what="a partition has a second owner")
    stuck.set_result(None)
    sim.run_until(lambda: len(second.owned) == 3 and group.is_settled, what="partitions are shared")
    write_all(sim, "b", 2)
    finished(group)


def is_revoking(group: SimGroup, member: SimMember) -> bool:
    """Whether the coordinator waits for the member to give partitions up."""
    log = group.sim.coordination.log_of(group.name)
    logged = None if log is None else log.groups[group.name].members.get(member.member_id)
    return logged is not None and bool(logged.revoking)


def coordinator_moves_while_members_join(sim: Simulation) -> None:
    """The partition of the group moves to other nodes while members join and leave: they follow it, and keep what they
    have."""
    group = begin(sim, nodes=4)
    joined(group, 2)
    write_all(sim, "a", 2)
    place = coordinator_place(sim, GROUP)
    for round_number in range(3):
        others = [node for node in sim.nodes if node not in sim.partition(*place).replicas]
        stay = [node for node in sim.partition(*place).replicas if node != sim.leader(*place)]
        former = sim.leader(*place)
        sim.reassign(*place, others[0], *stay[:2])
        group.join()
        sim.run_until(
            lambda former=former: (
                sim.leader(*place) not in (former, -1)  # type: ignore[misc]
                and not sim.partition(*place).adding
                and not sim.partition(*place).removing
            ),
            what="the partition of the group has moved",
        )
        group.alive[0].stop()
        group.settle()
        write_all(sim, f"{round_number}-", 2)
    finished(group)


def silent_coordinator_is_replaced(sim: Simulation) -> None:
    """The coordinator is disconnected from all other nodes, and clients still reach it. It confirms nothing any
    more: no member joins there and no offset is committed there. The group continues at its successor, and what a
    member reads that only the former coordinator knows is not committed."""
    group = begin(sim, nodes=4)
    joined(group, 2, auto_commit=False)
    write_all(sim, "a", 2)
    wait_read(group)
    former = coordinator_of(sim, GROUP)
    sim.disconnect(former)
    wait_other_coordinator(sim, former)
    late = group.join()
    sim.run_until(lambda: len(late.owned) >= 2, what="a new member has its share")
    sim.run_until(
        lambda: all(former not in sim.isr(*place) and sim.leader(*place) >= 0 for place in group.places()),
        what="others lead and follow",
    )
    write_all(sim, "b", 2, asking=[node for node in sim.nodes if node != former])
    sim.heal(former)
    group.settle()  # until now a fenced member may believe the former coordinator that it still has its partitions
    finished(group)


def offsets_outlive_all_machines(sim: Simulation) -> None:
    """All machines lose power: members and committed offsets are those that were answered before."""
    group = begin(sim)
    joined(group, 2)
    for number in range(3):
        write_all(sim, f"{number}-", 1)
        wait_read(group)
    before = {place: group.committed(place) for place in group.places()}
    all_leave(group)
    for node in sim.nodes:
        sim.power_off(node, forget_all=True)
    for node in sim.nodes:
        sim.restart(node)
    client = sim.client()
    task = client.start(committed_offsets(client, GROUP), "asks for the offsets")
    sim.run_until(task.done, within=60, what="the coordinator answers")
    assert task.result() == before, "the committed offsets are others"
    joined(group, 2)
    write_all(sim, "b", 1)
    finished(group)
    assert len(values_of(group)) == 24, "a record was read twice"


def compacted_offsets_outlive_their_coordinator(sim: Simulation) -> None:
    """Offsets are committed so often that their log is compacted; then the coordinator is lost. Its successor loads the
    last offset of each partition."""
    group = begin(sim, nodes=4, segment_bytes=2_048)
    joined(group, 1, auto_commit=False)
    for number in range(15):
        write_all(sim, f"{number}-", 1)
        wait_read(group)
    log_place = coordinator_place(sim, GROUP)
    former = coordinator_of(sim, GROUP)
    sim.alter_topic(GROUPS, min_cleanable_dirty_ratio="0.01")
    sim.run_for(20)
    assert sim.ledger(*log_place).end > 90, "nothing to compact"
    sim.kill(former)
    wait_other_coordinator(sim, former)
    group.settle()
    write_all(sim, "b", 1)
    finished(group)
    assert len(values_of(group)) == 96, "a record was read twice"


def member_dies_with_its_coordinator(sim: Simulation) -> None:
    """A member and the coordinator are killed at once. The successor knows the member from the log, gives it a session,
    and removes it when that is over."""
    group = begin(sim, nodes=4)
    first, second = joined(group, 2)
    write_all(sim, "a", 2)
    wait_read(group)
    former = coordinator_of(sim, GROUP)
    first.kill()
    sim.kill(former)
    wait_other_coordinator(sim, former)
    sim.run_until(lambda: second.owned == set(group.places()), within=10, what="the other member has all partitions")
    write_all(sim, "b", 2)
    finished(group)


def commit_is_not_replicated(sim: Simulation) -> None:
    """The coordinator appends a commit that its followers do not get, and is lost: the member was not told that its
    offset is committed, and repeats the commit at the successor."""
    group = begin(sim, nodes=4, partitions=1)
    (member,) = joined(group, 1, auto_commit=False)
    write_all(sim, "a", 2, 1)
    wait_read(group)
    place, former = coordinator_place(sim, GROUP), coordinator_of(sim, GROUP)
    followers = [node for node in sim.partition(*place).replicas if node != former]
    for node in followers:
        sim.disconnect_link(former, node)
    committing = member.client.start(commits_again(member), "commits again")
    sim.run_for(1.0)
    assert not committing.done(), "a commit was answered that the followers do not have"
    sim.power_off(former, forget_all=True)
    for node in followers:
        sim.heal_link(former, node)
    wait_other_coordinator(sim, former)
    sim.restart(former)
    group.settle()
    write_all(sim, "b", 2, 1)
    wait_read(group)
    finished(group)


async def commits_again(member: SimMember) -> None:
    """Commit the present positions once more; without a coordinator it is unknown whether they are."""
    with contextlib.suppress(TidelogError):
        await member.consumer.commit()


def client_writes_an_internal_topic(sim: Simulation) -> None:
    """A client sends a record to the topic of the offsets: it is refused, and the coordinator is not harmed."""
    group = begin(sim, partitions=1)
    joined(group, 1)
    sent = sim.produce(GROUPS, b"nonsense", key=b"nonsense")
    sim.run_until(lambda: sent.done, what="the client has its answer")
    assert sent.error is not None, "a client has written to an internal topic"
    write_all(sim, "a", 2, 1)
    finished(group)


MEMBERS: tuple[Callable[[Simulation], None], ...] = (
    members_share_partitions,
    killed_member_is_replaced,
    closed_member_is_replaced_at_once,
    paused_member_is_fenced,
    late_commit_of_a_fenced_member,
    late_commit_of_a_member,
    revocation_waits_for_its_owner,
    member_never_confirms,
    static_member_returns,
    static_member_is_taken,
    new_partitions_are_assigned,
    rolling_restart_of_all_members,
    records_in_processing_are_not_committed,
    member_commits_and_leaves,
    tool_commits_beside_members,
    thousand_members_join_at_once,
)
COORDINATORS: tuple[Callable[[Simulation], None], ...] = (
    coordinator_is_killed_while_reconciling,
    coordinator_moves_while_members_join,
    silent_coordinator_is_replaced,
    offsets_outlive_all_machines,
    compacted_offsets_outlive_their_coordinator,
    member_dies_with_its_coordinator,
    commit_is_not_replicated,
    client_writes_an_internal_topic,
)
ALL = (*MEMBERS, *COORDINATORS)
