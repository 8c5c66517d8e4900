"""Sequences of events that break weaker replication rules, as stories over one simulated cluster.

Each story follows a scenario of the design to the point where a weaker rule would lose, mix up or block something, and
asserts the right outcome there. The checkers watch throughout, and at the end the cluster must recover.
test_scenarios.py runs each story as it is; test_mutants.py runs it with its rule weakened, when it must fail. Node 0 is
the only voter of the metadata quorum; where the partition's leader must die alone, stories keep it on another node.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from storage.files.file_system import read_file, write_file
from storage.log.log import Log
from testbed.sim import views
from testbed.sim.ledger import METADATA_LOG
from testbed.sim.network import Envelope
from testbed.sim.world import Simulation
from tidelog.types import LeaderEpoch

TOPIC = "orders"


def write(
    sim: Simulation, partition: int, prefix: str, count: int, acks: str = "all", asking: tuple[int, ...] | None = None
) -> None:
    """Write `count` records one after the other, each acknowledged. asking: the nodes asked for the leader (None:
    any), once all of them know it."""
    client = sim.client(asking)
    if asking is not None:
        newest = max(epoch(sim, node, partition) for node in asking)
        sim.run_until(
            lambda: all(epoch(sim, node, partition) >= newest for node in asking),
            what="all nodes asked know the leader",
        )
    for number in range(count):
        sim.produce(TOPIC, f"{prefix}{number}".encode(), acks=acks, partition=partition, client=client).wait()


def delete_below(sim: Simulation, leader: int, p: int, offset: int) -> None:
    """Delete the records of a partition below an offset, as an operator; its log then starts there."""
    node = sim.machines[leader].node
    assert node is not None
    assert views.delete_records(node, sim.partition(TOPIC, p).key, offset) == offset
    sim.ledger(TOPIC, p).deletions.accepted = offset
    sim.run_until(lambda: sim.log(leader, TOPIC, p).log_start_offset == offset, what="the leader's log starts there")


def end(sim: Simulation, node: int, partition: int) -> int:
    return sim.log(node, TOPIC, partition).log_end_offset


def durable_offset(sim: Simulation, node: int, partition: int) -> int:
    return sim.log(node, TOPIC, partition).durable_offset


def epoch(sim: Simulation, node: int, partition: int) -> LeaderEpoch:
    """The leader epoch that a node itself uses now; -1 if it is not running."""
    replica = sim.replica(node, TOPIC, partition)
    return LeaderEpoch(-1) if replica is None else replica.leader_epoch


def leads(sim: Simulation, node: int, partition: int) -> bool:
    """Whether the node leads by its own state."""
    replica = sim.replica(node, TOPIC, partition)
    return replica is not None and replica.leads


def committed(sim: Simulation, partition: int) -> int:
    return sim.ledger(TOPIC, partition).end


def fenced(sim: Simulation, node: int) -> bool:
    return any(each.node_id == node and each.fenced for each in sim.image().nodes.values())


# --- 1. same epoch, other bytes -------------------------------------------------------------------------------------


def same_epoch_other_bytes(sim: Simulation) -> None:
    """Rule 1: an epoch belongs to one incarnation. The leader's fsync is slow and its followers hold more than it
    does. All machines lose power; the old leader is back first and leads again, with other records at the same
    offsets."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    a, b, voter = 2, 1, 0
    p = sim.led_by(TOPIC, a)
    write(sim, p, "a", 5)
    first_epoch = epoch(sim, a, p)
    sim.stall_disk(a)
    for number in range(20):
        sim.produce(TOPIC, f"b{number}".encode(), partition=p)
    sim.run_until(
        lambda: durable_offset(sim, b, p) == durable_offset(sim, voter, p) == 25, what="the followers hold everything"
    )
    assert durable_offset(sim, a, p) == 5
    for node in sim.nodes:
        sim.power_off(node, forget_all=node == a)
    sim.release_disk(a)
    sim.restart(voter)
    sim.run_for(5)  # the other two are fenced, the highest number last: the old leader alone may lead
    sim.restart(a)
    sim.run_until(lambda: leads(sim, a, p), what="the old leader leads again")
    write(sim, p, "c", 30, acks="1")
    sim.restart(b)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {0, 1, 2}, what="all are in sync again")
    assert epoch(sim, a, p) > first_epoch
    sim.must_heal()


# --- 2. a stale position counts -------------------------------------------------------------------------------------


def stale_position(sim: Simulation) -> None:
    """Rule 2: a fetch that disagrees with the leader's log counts for nothing. A member of the in-sync set holds
    records of an old epoch beyond the start of the new leader's epoch, and other records are there when its first
    fetch arrives."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    old, new, follower = sim.partition(TOPIC, p).replicas
    old_epoch_reaches_one_follower(sim, p, old, new, follower)
    first = sim.hold("Data.FetchStream", source=follower, target=new, when=asks_for(p))
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p), what="the other follower leads")
    assert sim.isr(TOPIC, p) == {new, follower}
    write(sim, p, "c", 10, acks="1")
    sim.run_until(lambda: first.count > 0, what="the member fetches for the first time")
    first.release()
    sim.run_until(lambda: committed(sim, p) == end(sim, new, p), what="the new records are committed")
    sim.must_heal()


def old_epoch_reaches_one_follower(sim: Simulation, p: int, leader: int, without: int, reached: int) -> None:
    """Write 5 committed records, then 20 that only the leader and one follower get."""
    write(sim, p, "a", 5)
    sim.hold("Data.FetchStream", source=leader, target=without, part="answer")
    sim.run_for(0.1)
    client = sim.client()
    for number in range(20):
        sim.produce(TOPIC, f"b{number}".encode(), acks="1", partition=p, client=client)
    sim.run_until(lambda: durable_offset(sim, reached, p) == 25, what="one follower holds the old epoch's records")
    assert end(sim, without, p) == 5


def asks_for(partition: int) -> Callable[[Envelope], bool]:
    def matches(envelope: Envelope) -> bool:
        return any(asked.partition == partition for asked in envelope.message.partitions)

    return matches


def watermark_of_a_diverging_answer(sim: Simulation) -> None:
    """Rule 2, variant: the leader has committed beyond the point where the follower's log diverges. The follower
    learns no high watermark before its truncation. Records fetched after it, but not synced, do not bring it into
    the set either."""
    sim.start(nodes=3, min_insync=1, partitions=3)
    old, follower, new = 2, 1, 0
    p = sim.led_by(TOPIC, old)
    old_epoch_reaches_one_follower(sim, p, old, new, follower)
    sim.pause(follower)
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p) and sim.isr(TOPIC, p) == {new}, what="the other follower leads alone")
    write(sim, p, "c", 10)
    new_epoch = epoch(sim, new, p)
    sim.resume(follower)
    sim.run_until(lambda: epoch(sim, follower, p) == new_epoch, what="the first follower learns of the new epoch")
    sim.run_until(lambda: end(sim, follower, p) == 5, what="the log is truncated")
    sim.stall_disk(follower)
    sim.run_until(lambda: end(sim, follower, p) == end(sim, new, p), what="it fetches again")
    sim.run_for(2)
    assert follower not in sim.isr(TOPIC, p)
    sim.release_disk(follower)
    sim.run_until(lambda: follower in sim.isr(TOPIC, p), what="it is in sync")
    sim.must_heal()


def synced(sim: Simulation, node: int, p: int) -> int:
    """The offset up to which the disk has the bytes of the log, whether or not the fsync has returned."""
    log = sim.log(node, TOPIC, p)
    assert isinstance(log, Log)
    file = views.inode_at(sim.machines[node].disk, log.active.path)
    return log.log_end_offset if file is not None and not file.pending else log.durable_offset


def flush_across_a_truncation(sim: Simulation) -> None:
    """Rule 2, variant: an fsync that began before a truncation of a follower's log ends after it. The follower does
    not hold the records that replaced the truncated ones."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    old, new, follower = sim.partition(TOPIC, p).replicas
    write(sim, p, "a", 5)
    sim.run_until(lambda: durable_offset(sim, follower, p) == 5, what="the follower holds the first records")
    sim.hold("Data.FetchStream", source=old, target=new, part="answer")
    sim.run_for(0.1)
    client = sim.client()
    sim.produce(TOPIC, b"b0", acks="1", partition=p, client=client)
    sim.run_until(lambda: synced(sim, follower, p) == end(sim, follower, p) == 6, what="its disk has the next one")
    assert durable_offset(sim, follower, p) == 5, "the fsync has ended already"
    sim.hang_syncs(follower)
    for number in range(10):
        sim.produce(TOPIC, f"b{number + 1}".encode(), acks="1", partition=p, client=client)
    sim.run_until(lambda: end(sim, follower, p) == 16, what="it has fetched more")
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p), what="the other follower leads")
    write(sim, p, "c", 3, acks="1")
    sim.run_until(
        lambda: end(sim, follower, p) == end(sim, new, p), what="the follower was truncated and has the new records"
    )
    assert durable_offset(sim, follower, p) <= 5
    sim.release_disk(follower)
    sim.run_until(lambda: committed(sim, p) == end(sim, new, p), what="the new records are committed")
    sim.must_heal()


# --- 4. joining by log end ------------------------------------------------------------------------------------------


def join_by_log_end(sim: Simulation) -> None:
    """Rule 4: a replica joins by its durable offset. It has fetched everything but its fsync hangs: it stays out."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    leader, follower, voter = 1, 2, 0
    p = sim.led_by(TOPIC, leader)
    write(sim, p, "a", 5)
    sim.disconnect_link(follower, leader)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader, voter}, what="the follower is removed for its lag")
    write(sim, p, "c", 10)
    sim.stall_disk(follower)
    sim.heal_link(follower, leader)
    sim.run_until(lambda: end(sim, follower, p) == end(sim, leader, p), what="the follower has fetched everything")
    assert durable_offset(sim, follower, p) < committed(sim, p)
    sim.run_for(3)
    assert sim.isr(TOPIC, p) == {leader, voter}
    for node in sim.nodes:
        sim.power_off(node, forget_all=True)
    sim.release_disk(follower)
    sim.restart(voter)
    sim.restart(follower)
    sim.run_for(5)
    assert not leads(sim, follower, p)
    sim.restart(leader)
    sim.must_heal()


# --- 5. a proposal that arrives late -------------------------------------------------------------------------------


def admits(node: int) -> Callable[[Envelope], bool]:
    """Matches an AlterPartition request that proposes an in-sync set with that node."""

    def matches(envelope: Envelope) -> bool:
        items = envelope.message.partitions
        return any(member.node_id == node for item in items for member in item.new_isr)

    return matches


def late_proposal(sim: Simulation) -> None:
    """Rule 3: a joiner counts until a higher partition epoch is known. The proposal stalls, and its retry is refused
    because the joiner was fenced meanwhile. The leader must not commit without the joiner while the first copy may
    still arrive."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    leader, joiner, voter = 1, 2, 0
    p = sim.led_by(TOPIC, leader)
    write(sim, p, "a", 5)
    sim.disconnect_link(joiner, leader)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader, voter}, what="the follower is removed for its lag")
    late = sim.hold("Controller.AlterPartition", source=leader, when=admits(joiner))
    sim.heal_link(joiner, leader)
    sim.run_until(lambda: late.count > 0, what="the leader proposes to add it again")
    late.let_pass()
    sim.pause(joiner)
    sim.run_until(lambda: fenced(sim, joiner), what="the joiner is fenced")
    sim.produce(TOPIC, b"c", partition=p).wait(within=30)
    sim.disconnect_link(joiner, leader)
    sim.resume(joiner)
    sim.run_until(lambda: not fenced(sim, joiner), what="the joiner is back")
    late.release()
    sim.run_for(1)
    assert joiner not in sim.isr(TOPIC, p)
    sim.heal_link(joiner, leader)
    sim.must_heal()


def lost_answer_to_a_proposal(sim: Simulation) -> None:
    """Rule 3, variant: the first copy took effect, its answer is lost, the retry is refused as stale."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    leader, joiner, voter = 1, 2, 0
    p = sim.led_by(TOPIC, leader)
    write(sim, p, "a", 5)
    sim.disconnect_link(joiner, leader)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader, voter}, what="the follower is removed for its lag")
    sim.run_for(0.5)
    answers = sim.hold("Controller.AlterPartition", target=leader, part="answer")
    updates = sim.hold("Quorum.FetchMetadata", target=leader, part="answer")
    sim.heal_link(joiner, leader)
    sim.run_until(lambda: answers.count > 0, what="the joiner is admitted, and its leader does not learn of it")
    assert joiner in sim.isr(TOPIC, p)
    answers.let_pass()
    sim.disconnect_link(joiner, leader)
    sim.run_for(0.1)
    before = committed(sim, p)
    sent = sim.produce(TOPIC, b"c", partition=p)
    answers.break_connections()
    for number in range(10):  # the retry is refused; without metadata the leader would soon be fenced
        sim.produce(TOPIC, b"d%d" % number, partition=p)
        sim.run_for(0.1)
    assert committed(sim, p) == before, "committed without a member of the set"
    updates.release()
    sim.heal_link(joiner, leader)
    sim.run_until(lambda: sent.done, what="the record has its answer")
    sim.must_heal()


# --- 7. a late answer -----------------------------------------------------------------------------------------------


def late_answer(sim: Simulation) -> None:
    """Rule 2: a follower accepts an answer only for its outstanding fetch. An answer of an old epoch is delayed. A
    new leader makes the follower truncate its log, and the follower is catching up when the old answer arrives,
    beyond its log end."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    old, new, follower = sim.partition(TOPIC, p).replicas
    write(sim, p, "a", 5)
    sim.hold("Data.FetchStream", source=old, target=new, part="answer", when=with_records_of(p))
    write(sim, p, "b", 10, acks="1")
    sim.run_until(lambda: end(sim, follower, p) == 15, what="one follower has the old epoch's records")
    stuck = sim.hold("Data.FetchStream", source=old, target=follower, part="answer", when=with_records_of(p))
    sim.produce(TOPIC, b"the last of the old epoch", acks="1", partition=p)
    sim.run_until(lambda: stuck.count > 0, what="an answer is stuck")
    stuck.let_pass()
    sim.disconnect_link(old, 0)
    sim.run_until(lambda: leads(sim, new, p), what="the controller fences the old leader")
    write(sim, p, "c", 3, acks="1", asking=(new, follower))
    sim.run_until(lambda: end(sim, follower, p) == 8, what="the follower is truncated and has the first new records")
    rest = sim.hold("Data.FetchStream", source=new, target=follower, part="answer", when=with_records_of(p))
    write(sim, p, "d", 17, acks="1", asking=(new, follower))
    stuck.release()
    sim.run_for(0.3)
    rest.release()
    sim.run_until(lambda: committed(sim, p) == 25, what="the new records are committed")
    sim.must_heal()


def with_records_of(partition: int) -> Callable[[Envelope], bool]:
    def matches(envelope: Envelope) -> bool:
        return any(answer.partition == partition and len(answer.records) > 0 for answer in envelope.message.partitions)

    return matches


# --- 12. a topic created again -------------------------------------------------------------------------------------


def topic_created_again(sim: Simulation) -> None:
    """Rule 1: every position carries the topic ID. A follower that has not learned of the new topic fetches the old
    one at its end; this counts for nothing in the new one."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    deaf, voter = 2, 0
    led = [state.partition for state in sim.topic(TOPIC).partitions if state.leader == 1]
    for p in led:
        write(sim, p, "a", 20)
    sim.run_until(lambda: all(durable_offset(sim, deaf, p) == 20 for p in led), what="the follower holds everything")
    updates = sim.hold("Quorum.FetchMetadata", source=voter, target=deaf, part="answer")
    sim.run_for(0.02)
    others = sim.client(nodes=(0, 1))
    while True:  # until a partition is led where the old one was
        sim.delete_topic(TOPIC, client=others)
        sim.create_topic(TOPIC, partitions=3, client=others, wait=False)
        sim.run_until(lambda: sim.image().topic(TOPIC) is not None, what="the new topic is known")
        if any(sim.leader(TOPIC, p) == 1 for p in led):
            break
    for state in sim.topic(TOPIC).partitions:
        if state.leader == 1:
            sim.run_until(lambda p=state.partition: leads(sim, 1, p), what="it is led")  # type: ignore[misc]
            for number in range(25):
                sim.produce(TOPIC, f"b{number}".encode(), partition=state.partition, client=sim.client(nodes=(0, 1)))
    sim.run_for(1)
    assert all(committed(sim, state.partition) == 0 for state in sim.topic(TOPIC).partitions if state.leader == 1)
    updates.release()
    sim.must_heal()


# --- rules without a scenario, needed by every replicated log ------------------------------------------------------


def committed_outlives_its_leader(sim: Simulation) -> None:
    """Rule 6: leaders come from the in-sync set. One follower is disconnected and misses a record; the leader is lost;
    only the replica with the record may lead."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    leader, straggler, voter = 1, 2, 0
    p = sim.led_by(TOPIC, leader)
    write(sim, p, "a", 3)
    sim.disconnect_link(straggler, leader)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: straggler not in sim.isr(TOPIC, p), what="the straggler is removed")
    write(sim, p, "c", 3)
    sim.kill(leader)
    sim.stall_disk(straggler)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (leader, -1), what="another node leads")
    sim.run_for(1)
    assert leads(sim, voter, p)
    sim.release_disk(straggler)
    sim.heal(straggler)
    sim.run_until(lambda: straggler in sim.isr(TOPIC, p), what="the straggler is in sync")
    sim.restart(leader)
    sim.must_heal()


def all_machines_lose_power(sim: Simulation) -> None:
    """`durability=fsync`: every member of the set has synced what was acknowledged."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    for p in range(3):
        write(sim, p, "a", 5)
    for node in sim.nodes:
        sim.power_off(node, forget_all=True)
    for node in sim.nodes:
        sim.restart(node)
    sim.must_heal()
    assert all(len(sim.read_committed(TOPIC, p)) == 6 for p in range(3))


def voter_starts_on_a_full_disk(sim: Simulation) -> None:
    """A full disk refuses writes and does no other harm: the only voter has no free space for its vote, waits, and
    leads once there is some."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    write(sim, 0, "a", 3)
    voter = 0
    sim.kill(voter)
    sim.break_disk(voter, "write", error=errno.ENOSPC, path="quorum-state", times=3)
    sim.restart(voter)
    sim.run_until(lambda: leads_quorum(sim, voter), what="the voter leads the quorum again")
    sim.must_heal()


def only_voter_has_not_voted_yet(sim: Simulation) -> None:
    """A node that leads by its own vote alone reports it only after the vote is on its disk. The process ends before
    that, and its next incarnation leads in the same epoch, which no other node has seen."""
    sim.start(nodes=3, min_insync=2)
    write(sim, 0, "a", 3)
    voter = 0
    sim.kill(voter)
    sim.break_disk(voter, "write", error=errno.ENOSPC, path="quorum-state", times=1_000)
    sim.restart(voter)
    sim.never(lambda: leads_quorum(sim, voter), seconds=2, what="it leads without having voted")
    sim.power_off(voter)
    sim.repair_disk(voter)
    sim.restart(voter)
    sim.run_until(lambda: leads_quorum(sim, voter), what="the voter leads the quorum again")
    sim.must_heal()


def refused_fetch_is_sent_again(sim: Simulation) -> None:
    """A follower that learns of a leadership before the leader does is refused, and retries until it is accepted."""
    sim.start(nodes=3, min_insync=3, topics=())
    late = 1
    updates = sim.hold("Quorum.FetchMetadata", target=late, part="answer")
    sim.run_for(0.02)
    sim.create_topic(TOPIC, partitions=3, client=sim.client(nodes=(0, 2)), wait=False)
    sim.run_for(1)
    updates.release()
    p = sim.led_by(TOPIC, late)
    sim.produce(TOPIC, b"a", partition=p)
    sim.run_until(lambda: committed(sim, p) == 1, what="the first record is committed")
    sim.must_heal()


def stopped_while_connecting(sim: Simulation) -> None:
    """A node that gets SIGTERM while it connects to a leader ends all the same, and its stream with it."""
    sim.start(nodes=3, min_insync=1, partitions=3)
    leader, follower = 1, 2
    write(sim, sim.led_by(TOPIC, leader), "a", 3)
    for source, target in ((0, leader), (leader, 0)):
        sim.disconnect_link(source, target)  # only the follower is refused a connection, which does not suffice
    sim.kill(leader)
    sim.restart(leader)
    sim.disconnect(leader)  # it cannot register, so its former incarnation leads until the session ends
    sim.stop(follower)
    node = sim.machines[follower].node
    assert node is not None
    replicas = node.replicas
    assert replicas is not None
    sim.run_until(lambda: replicas.stopping, within=45, what="the node was drained")
    sim.heal(leader)
    sim.run_until(lambda: not sim.machines[follower].up, within=45, what="the node has stopped")
    sim.must_heal()


def directory_fails_before_ready(sim: Simulation) -> None:
    """Rule 6: a node is unfenced only when the number of its registration is in every directory that it named. One
    directory fails at that moment. It has the last in-sync copy of a partition, so the node must not count with an
    older copy."""
    sim.start(nodes=3, min_insync=1, partitions=6, directories=2)
    last = 2
    manager = sim.machines[last].replicas()
    led = [replica for replica in manager if replica.leads and isinstance(replica.log, Log)]
    p = next(int(r.key.partition) for r in led if isinstance(r.log, Log) and r.log.path.startswith("/more/"))
    write(sim, p, "a", 3)
    for other in (0, 1):
        sim.disconnect_link(other, last)
    sim.produce(TOPIC, b"b", acks="1", partition=p).wait()
    sim.run_until(lambda: sim.isr(TOPIC, p) == {last}, what="the others are removed for their lag")
    sim.kill(last)
    sim.heal(last)
    sim.run_until(lambda: fenced(sim, last), what="the last member is fenced")
    sim.break_disk(last, "write", path="/more/registration")
    sim.restart(last)
    sim.run_until(lambda: not sim.machines[last].up, what="it ends before it is ready")
    sim.repair_disk(last)
    sim.must_heal()


def rot_found_by_the_scrub(sim: Simulation) -> None:
    """Rule 6, detected later: an old byte of the leader's log is corrupted. The scrub finds it, the leader reports
    it, hands over leadership and fetches its log again. The corruption does not spread, and what was committed stays
    complete."""
    sim.start(nodes=3, min_insync=2, partitions=3, segment_bytes="1000")
    rotten = 1
    p = sim.led_by(TOPIC, rotten)
    write(sim, p, "a" * 50, 40)
    log = sim.log(rotten, TOPIC, p)
    assert isinstance(log, Log)
    assert len(log.segments) > 3
    first_epoch = epoch(sim, rotten, p)
    sim.machines[rotten].disk.flip_bit(log.segments[1].path, 100)
    sim.run_until(lambda: log.closed, within=120, what="the corrupt log is out of use")
    assert log.damage is not None, "the scrub has found it"
    write(sim, p, "b", 3)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {0, 1, 2}, within=60, what="it is in sync again")
    assert sim.log(rotten, TOPIC, p) is not log
    assert epoch(sim, rotten, p) > first_epoch
    sim.must_heal()


def rot_that_a_follower_refuses(sim: Simulation) -> None:
    """Scenario 15, second half: the end of the leader's log is corrupted while a follower is down. After its restart
    the follower refuses the bytes. The leader verifies the corruption, hands over leadership, and fetches its log
    again from the sound replicas."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    rotten, away, whole = 1, 2, 0
    p = sim.led_by(TOPIC, rotten)
    write(sim, p, "a", 3)
    sim.kill(away)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {rotten, whole}, what="the dead one is removed")
    log = sim.log(rotten, TOPIC, p)
    assert isinstance(log, Log)
    log.directory.recent_appends.bytes_max = 0  # followers are answered from the file
    write(sim, p, "b", 3)
    first_epoch = epoch(sim, rotten, p)
    sim.machines[rotten].disk.flip_bit(log.active.path, log.active.size - 2)
    sim.restart(away)
    sim.run_until(lambda: log.closed, within=15, what="the corrupt log is out of use")
    write(sim, p, "c", 3)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {0, 1, 2}, within=60, what="it is in sync again")
    assert epoch(sim, whole, p) > first_epoch
    sim.must_heal()


def directory_of_another_cluster(sim: Simulation) -> None:
    """A node gets a disk of another cluster as its second directory. The node ignores it and changes nothing on it;
    what belongs there is created again in the first directory."""
    sim.start(nodes=3, min_insync=2, partitions=6, directories=2)
    for p in range(6):
        write(sim, p, "a", 2)
    node, disk = 2, sim.machines[2].disk
    sim.stop(node)
    sim.run_until(lambda: not sim.machines[node].up, within=45, what="the node has stopped")
    properties = read_file(disk, "/more/meta.properties")
    assert properties is not None
    ours = next(line for line in properties.splitlines() if line.startswith(b"cluster.id="))
    theirs = properties.replace(ours, b"cluster.id=AAAAAAAAAAAAAAAAAAAAAA")
    write_file(disk, "/more/meta.properties", theirs)
    logs = [name for name in disk.list("/more") if name.startswith(TOPIC)]
    assert logs
    sim.restart(node)
    sim.run_until(lambda: sim.machines[node].has_offline_directory, what="it runs without that directory")
    sim.run_until(lambda: not fenced(sim, node), what="it is unfenced")
    sim.must_heal()
    assert read_file(disk, "/more/meta.properties") == theirs
    assert [name for name in disk.list("/more") if name.startswith(TOPIC)] == logs


def leads_quorum(sim: Simulation, node: int) -> bool:
    """Whether the node leads the metadata quorum by its own state."""
    return any(view.leads for view in sim.machines[node].replicas(metadata=True) if view.name == METADATA_LOG)


ALL = (
    same_epoch_other_bytes,
    stale_position,
    watermark_of_a_diverging_answer,
    flush_across_a_truncation,
    join_by_log_end,
    late_proposal,
    lost_answer_to_a_proposal,
    late_answer,
    topic_created_again,
    committed_outlives_its_leader,
    all_machines_lose_power,
    voter_starts_on_a_full_disk,
    only_voter_has_not_voted_yet,
    refused_fetch_is_sent_again,
    stopped_while_connecting,
    directory_fails_before_ready,
    rot_found_by_the_scrub,
    rot_that_a_follower_refuses,
    directory_of_another_cluster,
)
