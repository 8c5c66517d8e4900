"""Members of groups and workers that speak Kafka's protocol, at the listener of simulated nodes: they join, leave, die
and are fenced, their connections are cut, and their coordinators are lost.

What they are given, read and commit is judged throughout, as that of all others (classic_members.py, kafka_members.py,
kafka_workers.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from replication.coordination.classic_requests import SyncGroup
from testbed.sim.client_faults import pause_client, resume_client
from testbed.sim.loop import MICROS
from testbed.sim.world import Simulation
from tests.sim.classic_group_stories import generation_of
from tests.sim.classic_members import SimClassicGroup, SimClassicMember
from tests.sim.group_stories import GROUP, begin, coordinator_of, wait_other_coordinator, wait_read, write_all
from tests.sim.kafka_members import SimKafkaMember
from tests.sim.kafka_workers import SimKafkaWorker
from tests.sim.members import SimGroup, SimMember
from tests.sim.pipelines import Pipeline
from tests.sim.stories import TOPIC
from tidelog.errors import TidelogError

RESULTS = "results"


def begin_classic(sim: Simulation, members: int = 3, **options: Any) -> SimClassicGroup:
    """A cluster, and a settled classic group of members that speak Kafka's protocol."""
    sim.network.has_kafka = True
    begin(sim)
    group = SimClassicGroup(sim, GROUP, (TOPIC,), **options)
    for _ in range(members):
        group.join(kafka=True)
    if members:
        group.settle()
    return group


def begin_shared(sim: Simulation) -> tuple[SimGroup, SimKafkaMember, SimMember]:
    """A cluster, and a settled group of a member that speaks Kafka's protocol and one of Tidelog's client."""
    sim.network.has_kafka = True
    group = begin(sim)
    ours, theirs = group.join(), group.join_by_kafka()
    sim.run_until(lambda: len(ours.owned) == len(theirs.owned) == 3, within=10, what="both have their shares")
    return group, theirs, ours


def must_end(sim: Simulation, *members: SimClassicMember | SimKafkaMember | SimMember) -> None:
    """All members leave."""
    for member in members:
        member.stop()
    sim.run_until(lambda: all(member.is_over for member in members), within=20, what="all members have left")


# --- classic groups ---------------------------------------------------------------------------------------------------


def classic_kafka_members_share_partitions(sim: Simulation) -> None:
    """Goal: what the leader assigns reaches each member, what they commit is committed, and a member that leaves is
    replaced at once. Method: members join, commit and leave; one of them by the other protocol."""
    group = begin_classic(sim)
    assert all(len(member.places) == 2 for member in group.members), "each has its share"
    last = group.join()
    sim.run_until(lambda: bool(last.places), within=3, what="the others join again, and it has its share")
    group.settle()
    sim.run_for(2)
    assert generation_of(group) == group.members[0].generation, "no rebalance without a cause"
    log = sim.coordination.log_of(GROUP)
    assert log is not None
    sim.run_until(lambda: log.commits != set(), what="offsets are committed")
    first = group.members[0]
    first.stop()
    sim.run_until(lambda: first.is_over, what="it has left")
    group.settle(within=2)
    must_end(sim, *group.alive)


def killed_classic_kafka_member_is_replaced(sim: Simulation) -> None:
    """Goal: what a member had that died goes to others after its session, however many heartbeats they send. Method:
    kill one."""
    group = begin_classic(sim)
    sim.run_for(1)
    group.members[0].kill()
    group.settle(within=5)
    must_end(sim, *group.alive)


def classic_kafka_member_is_fenced(sim: Simulation) -> None:
    """Goal: a member of an earlier generation commits nothing, and is told so. Method: pause one for longer than its
    session, and let it commit with what it had then."""
    group = begin_classic(sim)
    late = group.members[1]
    place, identity = min(late.places), late.identity
    pause_client(sim, late.client)
    late.is_stopping = True
    group.settle(within=20)
    resume_client(sim, late.client)
    task = late.client.start(late.calls.commit(place, 1 << 20, 0, identity), "commits late")
    sim.run_until(task.done, within=20, what="the late commit is answered")
    assert isinstance(task.exception(), TidelogError), "a member of an earlier generation commits"
    sim.run_until(lambda: late.is_over, within=20, what="it ends")
    must_end(sim, *group.alive)


def commit_of_an_earlier_generation(sim: Simulation) -> None:
    """Goal: a member of the group commits in its present generation only, and has the assignment of no other. Method:
    it asks with the generation that was the present one before another member joined."""
    group = begin_classic(sim, 2)
    member = group.members[0]
    place, before = min(member.places), member.identity
    another = group.join(kafka=True)
    sim.run_until(lambda: bool(another.places), what="the next generation has begun")
    group.settle()
    sync = SyncGroup(before.group_id, before.member_id, before.generation, None, "consumer", "range")
    asked: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "commit": lambda: member.calls.commit(place, 0, 0, before),
        "SyncGroup": lambda: member.calls.sync(sync),
    }
    for name, call in asked.items():
        task = member.client.start(call(), f"sends a {name} of its earlier generation")
        sim.run_until(task.done, within=20, what=f"the {name} is answered")
        assert isinstance(task.exception(), TidelogError), f"a {name} of an earlier generation counts"
    must_end(sim, *group.alive)


def static_classic_kafka_member_restarts(sim: Simulation) -> None:
    """Goal: a static member that restarts keeps its place, and the process before it is fenced. Method: pause it, start
    another process, and let the first one go on."""
    group = begin_classic(sim, 0)
    first, second = group.join(instance_id="i1", kafka=True), group.join(instance_id="i2", kafka=True)
    group.settle()
    before, had = generation_of(group), set(first.places)
    pause_client(sim, first.client)
    again = group.join(instance_id="i1", kafka=True)
    sim.run_until(lambda: again.places == had, within=10, what="its successor has what it had")
    resume_client(sim, first.client)
    sim.run_until(lambda: first.is_over, within=20, what="the process before it is fenced")
    first.stop()
    assert generation_of(group) == before, "no rebalance"
    assert second.generations == 1, "the other one went on"
    assert group.is_settled, "all have what they had"


def connections_of_classic_members_are_cut(sim: Simulation) -> None:
    """Goal: a request that has no answer is sent again, and its member stays one member; also while the coordinator
    moves. Method: cut connections while members join, and kill the coordinator."""
    group = begin_classic(sim, cooperative=True)
    for _ in range(8):
        if sim.rng.random() < 0.4:
            group.join(kafka=sim.rng.random() < 0.7)
        sim.run_for(sim.rng.uniform(0.05, 0.8))
        sim.network.cut_byte_streams(0.7, MICROS // 2)
    group.settle()
    former = coordinator_of(sim, GROUP)
    sim.kill(former)
    wait_other_coordinator(sim, former)
    sim.network.cut_byte_streams(0.7, MICROS // 2)
    group.settle()
    must_end(sim, *group.alive)


# --- consumer groups --------------------------------------------------------------------------------------------------


def kafka_member_shares_a_group(sim: Simulation) -> None:
    """Goal: a member that speaks Kafka's protocol and Tidelog's consumer share the partitions, and read everything
    once. Method: both read; one of them leaves, then another one joins."""
    group, theirs, ours = begin_shared(sim)
    write_all(sim, "a", 3)
    wait_read(group)
    assert Counter([*ours.values, *theirs.values]) == Counter(b"a%d-%d" % (p, n) for p in range(6) for n in range(3))
    epoch = theirs.epoch
    sim.run_for(2)
    assert (theirs.epoch, len(theirs.owned)) == (epoch, 3), "heartbeats change nothing"
    ours.stop()
    sim.run_until(lambda: len(theirs.owned) == 6, within=6, what="it has all partitions")
    write_all(sim, "b", 2)
    wait_read(group)
    another = group.join()
    sim.run_until(lambda: len(another.owned) == len(theirs.owned) == 3, within=3.5, what="it has given up its half")
    theirs.stop()
    sim.run_until(lambda: len(another.owned) == 6, within=2.5, what="it has left, and the other one has all partitions")
    write_all(sim, "c", 2)
    wait_read(group)
    must_end(sim, another)


def static_kafka_member_returns(sim: Simulation) -> None:
    """Goal: a static member that restarts within its session has what it had, without a rebalance. Method: stop it, and
    start another process of its instance id."""
    sim.network.has_kafka = True
    group = begin(sim)
    first, ours = group.join_by_kafka(instance_id="i1"), group.join()
    sim.run_until(lambda: len(ours.owned) == len(first.owned) == 3, what="both have their shares")
    had, epoch = set(first.owned), first.epoch
    must_end(sim, first)
    again = group.join_by_kafka(instance_id="i1")
    sim.run_until(lambda: again.owned == had, within=2.5, what="it has what it had")
    assert again.epoch == epoch, "no rebalance"
    write_all(sim, "a", 2)
    wait_read(group)
    must_end(sim, again, ours)


def paused_kafka_member_is_fenced(sim: Simulation) -> None:
    """Goal: a member that was removed reads again from what others have committed, and commits nothing before. Method:
    pause it for longer than its session, write, and let it go on."""
    group, theirs, ours = begin_shared(sim)
    write_all(sim, "a", 2)
    wait_read(group)
    pause_client(sim, theirs.client)
    sim.run_until(lambda: len(ours.owned) == 6, within=15, what="the other one has all partitions")
    write_all(sim, "b", 2)
    wait_read(group)
    resume_client(sim, theirs.client)
    group.settle()
    write_all(sim, "c", 2)
    wait_read(group)
    must_end(sim, theirs, ours)


def connections_of_kafka_members_are_cut(sim: Simulation) -> None:
    """Goal: a heartbeat whose answer is lost is sent again with all that the member has. Method: cut connections while
    members come and go and records are written; kill the coordinator."""
    group, theirs, ours = begin_shared(sim)
    for turn in range(6):
        write_all(sim, f"{turn}-", 2)
        another = group.join_by_kafka()
        sim.run_for(sim.rng.uniform(0.1, 1.0))
        sim.network.cut_byte_streams(0.7, MICROS // 2)
        sim.run_for(sim.rng.uniform(0.1, 1.0))
        another.stop()
    former = coordinator_of(sim, GROUP)
    sim.kill(former)
    wait_other_coordinator(sim, former)
    group.settle()
    write_all(sim, "last", 2)
    wait_read(group)
    must_end(sim, theirs, ours)


# --- transactions -----------------------------------------------------------------------------------------------------


def begin_pipeline(sim: Simulation, **options: Any) -> Pipeline:
    """A cluster and a pipeline of two workers that speak Kafka's protocol, of which one has committed. options: as of
    SimKafkaWorker."""
    sim.network.has_kafka = True
    begin(sim, nodes=4, partitions=4)
    sim.create_topic(RESULTS, partitions=2, min_insync=2)
    line = Pipeline(sim, TOPIC, RESULTS)
    for number in range(2):
        line.worker_by_kafka(number, **options)
    write_all(sim, "first-", 3, 4)
    sim.run_until(lambda: any(each.committed for each in line.kafka_workers), what="a transaction is committed")
    return line


def has_open_transaction(sim: Simulation, worker: SimKafkaWorker) -> bool:
    """Whether a worker has sent records of a transaction that is not decided."""
    name = worker.client.process.name
    return any(
        each.instance.name == name and each.sent and each.told is each.committed is None
        for each in sim.coordination.transactions.all
    )


def must_finish(line: Pipeline) -> None:
    """Everything has its result, and the workers end."""
    line.finish()
    running = [worker for worker in line.kafka_workers if worker.client.process.alive]
    for worker in running:
        worker.stop()
    line.sim.run_until(lambda: all(worker.is_over for worker in running), what="every worker has ended")


def kafka_workers_are_killed(sim: Simulation) -> None:
    """Goal: each record has one result. Method: kill each worker within a transaction, and start another one with its
    transactional id."""
    line = begin_pipeline(sim, pause=0.3)
    for number in range(2):
        write_all(sim, f"{number}-", 3, 4)
        sim.run_for(0.2)
        line.kafka_workers[number].kill()
        line.worker_by_kafka(number)
        sim.run_for(1)
    write_all(sim, "last-", 2, 4)
    must_finish(line)


def late_worker_is_fenced(sim: Simulation) -> None:
    """Goal: offsets of a worker that the group has removed do not count, although its producer is not fenced. Method:
    pause it within a transaction until the other one has its partitions, and let it go on."""
    line = begin_pipeline(sim, pause=0.5, transaction_timeout_ms=30_000)
    first, second = line.kafka_workers
    sim.run_until(lambda: line.group.is_settled, what="both have their shares")
    write_all(sim, "b", 3, 4)
    sim.run_until(lambda: has_open_transaction(sim, first), what="the first one has an open transaction")
    first.pause()
    sim.run_until(
        lambda: second.member is not None and second.member.owned == set(line.group.places()),
        within=20,
        what="the second worker has all partitions",
    )
    write_all(sim, "c", 2, 4)
    first.resume()
    must_finish(line)


def connections_of_kafka_workers_are_cut(sim: Simulation) -> None:
    """Goal: a step of a transaction that is sent again has its effect once; also while the coordinators move. Method:
    cut connections, and kill nodes."""
    line = begin_pipeline(sim)
    for turn in range(6):
        write_all(sim, f"{turn}-", 2, 4)
        sim.network.cut_byte_streams(0.7, MICROS // 2)
        if turn % 3 == 2:
            sim.restart(sim.kill(coordinator_of(sim, line.group.name)), after=2)
            sim.run_for(3)
    must_finish(line)


CLASSIC = (
    classic_kafka_members_share_partitions,
    killed_classic_kafka_member_is_replaced,
    classic_kafka_member_is_fenced,
    commit_of_an_earlier_generation,
    static_classic_kafka_member_restarts,
    connections_of_classic_members_are_cut,
)
CONSUMERS = (
    kafka_member_shares_a_group,
    static_kafka_member_returns,
    paused_kafka_member_is_fenced,
    connections_of_kafka_members_are_cut,
)
TRANSACTIONS = (kafka_workers_are_killed, late_worker_is_fenced, connections_of_kafka_workers_are_cut)
ALL = (*CLASSIC, *CONSUMERS, *TRANSACTIONS)
