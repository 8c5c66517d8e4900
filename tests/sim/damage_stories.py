"""Stories of restarts, and of corruption as an operator sees it and accepts its loss. Setup as in log_stories.py: node
0 is the only voter of the metadata quorum unless the story sets another one.
"""

from __future__ import annotations

import asyncio

from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from testbed.sim.readings import in_log
from testbed.sim.world import Simulation
from tests.sim.consumers import SimConsumer
from tests.sim.controller_stories import away_from_voter, eligible, on_two_nodes
from tests.sim.log_stories import remove_all, three_replicas
from tests.sim.stories import TOPIC, durable_offset, fenced, leads, write
from tidelog.errors import CorruptLog, CorruptRecord, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import Offset

# --- a clean stop and a reboot ---


def clean_stop_and_reboot_of_all(sim: Simulation) -> None:
    """All nodes are stopped cleanly, then all machines reboot. A topic with `durability=page-cache` was flushed
    before: the replica that left the set first is still eligible, and leads when it is back alone."""
    first, last = on_two_nodes(sim, 2, durability="page-cache")
    write(sim, 0, "a", 5)
    for node in (first, last, 0):
        sim.stop(node)
        sim.run_until(lambda node=node: not sim.machines[node].up, within=60, what=f"node {node} has stopped")  # type: ignore[misc]
    assert (sim.isr(TOPIC), eligible(sim, 0)) == ({last}, {first})
    for node in sim.nodes:
        sim.power_off(node, forget_all=True)
    for node in (0, first):
        sim.restart(node)
    sim.run_until(lambda: not fenced(sim, first), what="the eligible one is back")
    sim.run_until(lambda: sim.leader(TOPIC) == first, what="the eligible one leads: its stop was clean")
    assert (sim.isr(TOPIC), eligible(sim, 0)) == ({first}, {last}), "the other one may have as much"
    sim.restart(last)
    sim.must_heal()
    assert len(sim.read_committed(TOPIC)) == 6, "including the record that tested the write path"


# --- corruption in an active segment ---


def reads_all(sim: Simulation, p: int, wanted: int) -> asyncio.Task[None]:
    """A consumer that reads `wanted` records from the start; it ends with the first error that it gets."""
    client = sim.client()
    reading = sim.checkers.reading(sim.ledger(TOPIC, p), decided=False)
    consumer = SimConsumer(client, {(TOPIC, p): reading}, decided=False, rack="").consumer

    async def read() -> None:
        await consumer.start()
        consumer.assign([(TOPIC, p)])
        while reading.count < wanted:
            for found in await consumer.poll():
                reading.got(in_log(found))

    return client.start(read(), "reads all")


def rots(sim: Simulation, node: int, p: int, offset: int) -> Log:
    """Corrupt a byte of a record in the active segment of a replica's log."""
    log = sim.log(node, TOPIC, p)
    assert isinstance(log, Log)
    header = log.active.find(Offset(offset))
    assert header is not None
    sim.machines[node].disk.flip_bit(log.active.path, header.end - 2)
    return log


def reported_damage(sim: Simulation, p: int) -> tuple[int, str]:
    """The number of corrupt partitions in the cluster and the reason for this one, as reported to operators."""
    found = sim.admin(methods.ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest())
    asked = sim.admin(methods.ADMIN_EXPLAIN_PARTITIONS, admin_pb2.ExplainPartitionsRequest())
    causes = [cause for each in asked.partitions if each.partition.partition == p for cause in each.causes]
    return found.damaged_partitions, "; ".join(causes)


def consumer_reads_rot(sim: Simulation) -> None:
    """A record in the active segment of the leader is corrupted after all replicas have it: neither a follower nor
    the scrub reads it again. A consumer detects it and reports it. The leader verifies its own log and resigns,
    another replica serves the record, and the corrupt replica fetches its log again."""
    p, rotten, *followers = three_replicas(sim)
    write(sim, p, "a", 6)
    sim.run_until(lambda: all(durable_offset(sim, node, p) == 6 for node in followers), what="all have it")
    log = rots(sim, rotten, p, 3)
    reading = reads_all(sim, p, 6)
    sim.run_until(reading.done, within=8, what="the consumer has read all")
    reading.result()
    assert sim.leader(TOPIC, p) in followers, "a sound replica leads"
    sim.run_until(lambda: log.closed, what="the corrupt log is out of use")
    sim.run_until(lambda: sim.isr(TOPIC, p) == {rotten, *followers}, within=60, what="it has fetched its log again")
    assert reported_damage(sim, p) == (0, "")
    sim.must_heal()


def consumer_reads_rot_in_the_only_replica(sim: Simulation) -> None:
    """The same corruption in the only replica. It stays leader and refuses reads of that record by offset. The
    cluster's status names the lost offsets, the node, and the next step."""
    sim.start(nodes=3, topics=())
    sim.create_topic(TOPIC, replicas=1, partitions=3, min_insync=1)
    p = sim.led_by(TOPIC, 2)
    write(sim, p, "a", 6)
    rots(sim, 2, p, 3)
    reading = reads_all(sim, p, 6)
    sim.run_until(reading.done, within=15, what="the consumer has its error")
    assert isinstance(reading.exception(), CorruptLog | CorruptRecord)
    damaged, causes = reported_damage(sim, p)
    assert (damaged, sim.leader(TOPIC, p)) == (1, 2), "the status reports it"
    assert "it lost offsets 3..3" in causes
    sim.produce(TOPIC, b"b", partition=p).wait()
    assert sim.machines[2].node is not None
    (logs,) = sim.machines[2].node.metric_sources().directories
    assert sum(log.damage is not None for log in logs.directory.logs.values()) == 1


def time_lookup_reads_rot(sim: Simulation) -> None:
    """The record with the largest timestamp is corrupted on the leader. A lookup of that record by time detects it: the
    leader resigns, another replica answers the next lookup, and the corrupt replica fetches its log again."""
    p, rotten, *followers = three_replicas(sim)
    write(sim, p, "a", 6)
    sim.run_until(lambda: all(durable_offset(sim, node, p) == 6 for node in followers), what="all have it")
    sound = sim.log(rotten, TOPIC, p)
    assert isinstance(sound, Log)
    newest = sound.largest_timestamp(up_to=Offset(6))
    assert newest is not None
    log = rots(sim, rotten, p, newest.offset)
    client = sim.client()

    async def look_up() -> int:
        while True:
            try:
                return await client.newest(TOPIC, p)
            except TidelogError:
                client.forget(TOPIC, p)
                await client.sleep(0.2)

    looking = client.start(look_up(), "looks up the newest record")
    sim.run_until(looking.done, within=8, what="another replica leads and answers")
    assert looking.result() == newest.offset
    assert sim.leader(TOPIC, p) in followers, "a sound replica leads"
    sim.run_until(lambda: sim.isr(TOPIC, p) == {rotten, *followers}, within=60, what="it has fetched its log again")
    assert log.closed, "the corrupt log is out of use"
    sim.must_heal()


# --- a closed segment that is shorter than it was ---


def consumer_reads_a_truncated_segment(sim: Simulation) -> None:
    """Another program truncates a closed segment of the leader in the middle of a batch. A consumer that reaches it is
    given those records by another replica, and the truncated one is fetched again."""
    p, short, *followers = three_replicas(sim, segment_bytes="1000")
    write(sim, p, "a" * 50, 20)
    sim.run_until(lambda: all(durable_offset(sim, node, p) == 20 for node in followers), what="all have it")
    log = sim.log(short, TOPIC, p)
    assert isinstance(log, Log)
    assert len(log.segments) > 2
    sim.run_for(61)  # the scrub, which looks once a minute, has read the closed segments and comes back in a week
    last = list(log.segments[0].walk())[-1]
    file = sim.machines[short].disk.open(log.segments[0].path)
    file.truncate(last.position + 80)
    file.close()
    reading = reads_all(sim, p, 20)
    sim.run_until(reading.done, within=8, what="the consumer has read all")
    reading.result()
    assert sim.leader(TOPIC, p) in followers, "a sound replica leads"
    sim.run_until(lambda: sim.isr(TOPIC, p) == {short, *followers}, within=60, what="it is fetched again")
    assert log.closed, "the truncated log is out of use"
    assert reported_damage(sim, p) == (0, "")
    sim.must_heal()


# --- losses that an operator accepts ---


def kept_aside(sim: Simulation, node: int, name: str) -> list[str]:
    """Stray directories: copies of a log set aside on that node."""
    disk = sim.machines[node].disk
    return [f"/data/{each}" for each in disk.list("/data") if each.startswith(f"{name}.") and each.endswith("-stray")]


def size_of_logs(sim: Simulation, node: int, directory: str) -> int:
    disk = sim.machines[node].disk
    return sum(disk.size(f"{directory}/{name}") or 0 for name in disk.list(directory) if name.endswith(".log"))


def unclean_election_keeps_sound_batches(sim: Simulation) -> None:
    """A batch of the last member's log is corrupt, and no replica has more. The operator gets the offsets that would
    be lost, then orders the election. All other records stay and reach the other replicas, and a copy of the corrupt
    log is kept."""
    last, *others = away_from_voter(sim, 4, replicas=3, min_insync=1)
    write(sim, 0, "a", 2)
    for node in others:
        sim.kill(node)
    sim.run_until(lambda: sim.isr(TOPIC) == {last}, what="the last one is alone")
    write(sim, 0, "b", 8)
    log = sim.log(last, TOPIC)
    assert isinstance(log, Log)
    header = log.active.find(Offset(4))
    assert header is not None
    path, at = log.active.path, header.position
    sim.kill(last)
    for byte in range(4):
        sim.machines[last].disk.flip_bit(path, at + 9 + 10 * byte, 5)  # neither its length nor its contents are right
    for node in (last, *others):
        sim.restart(node)
    sim.run_until(lambda: not any(node.fenced for node in sim.image().nodes.values()), what="all nodes are unfenced")
    sim.run_for(3)
    assert sim.leader(TOPIC) == -1, "elected without its durable records"
    before = size_of_logs(sim, last, f"/data/{TOPIC}-0")
    outcome = expected_loss(sim)
    assert (outcome.leader, sim.leader(TOPIC)) == (last, -1), "a dry run changes nothing"
    assert "4..4 cannot be read" in outcome.loss, f"one offset is lost, reported: {outcome.loss}"
    assert not kept_aside(sim, last, f"{TOPIC}-0")
    sim.checkers.may_have_lost(sim.partition(TOPIC).key)
    assert sim.elect(TOPIC, 0, unclean=True).leader == last
    sim.run_until(lambda: leads(sim, last, 0), what="it leads")
    copies = kept_aside(sim, last, f"{TOPIC}-0")
    assert [size_of_logs(sim, last, copy) for copy in copies] == [before], "the copy has the whole corrupt log"
    sim.must_heal(lossy=True)
    values = sim.read_committed(TOPIC)
    assert values[:9] == [b"a0", b"a1", b"b0", b"b1", *(b"b%d" % number for number in range(3, 8))], "others stay"
    assert sim.isr(TOPIC) == {last, *others}


def damaged_without_a_leader(sim: Simulation) -> tuple[int, int, Log]:
    """The last member of the set is gone. Of the other replica, which had left before, a record rots, and the scrub
    finds it: the last member, the other one, and its log."""
    last, other = on_two_nodes(sim, 1, segment_bytes="1000")
    write(sim, 0, "a" * 50, 20)
    sim.run_until(lambda: durable_offset(sim, other, 0) == 20, what="both have the first records")
    sim.kill(other)
    sim.run_until(lambda: sim.isr(TOPIC) == {last}, what="the last one is alone")
    write(sim, 0, "b", 5)
    sim.kill(last)
    sim.run_until(lambda: sim.leader(TOPIC) == -1, what="no replica leads")
    sim.restart(other)
    sim.run_until(lambda: not fenced(sim, other), what="the other one is back")
    log = sim.log(other, TOPIC)
    assert isinstance(log, Log)
    header = log.segments[1].find(log.segments[1].base_offset)
    assert header is not None
    sim.machines[other].disk.flip_bit(log.segments[1].path, header.end - 2)
    sim.scrub(other, TOPIC)
    sim.run_for(5)
    return last, other, log


def expected_loss(sim: Simulation) -> admin_pb2.PartitionOutcome:
    """What an unclean election would lose, as a dry run reports it to an operator."""
    request = admin_pb2.ElectLeadersRequest(
        type=admin_pb2.ELECTION_TYPE_UNCLEAN,
        partitions=[admin_pb2.TopicPartitionId(topic=TOPIC, partition=0)],
        validate_only=True,
    )
    (outcome,) = sim.admin(methods.ADMIN_ELECT_LEADERS, request).partitions
    return outcome


def unclean_election_of_the_damaged_replica_out_of_sync(sim: Simulation, *, restarts: bool) -> None:
    """The only reachable replica was out of sync and is found damaged while no replica leads. Its log stays: the
    operator learns which offset is lost, and all others are there after the election. restarts: its node restarts
    before that."""
    last, other, log = damaged_without_a_leader(sim)
    lost = log.segments[1].base_offset
    assert not kept_aside(sim, other, f"{TOPIC}-0"), "set aside while no replica leads"
    if restarts:
        sim.kill(other)
        sim.run_until(lambda: fenced(sim, other), what="it is fenced")
        sim.restart(other)
        sim.run_until(lambda: not fenced(sim, other), what="it is back again")
        sim.run_for(3)
    outcome = expected_loss(sim)
    assert (outcome.leader, sim.leader(TOPIC)) == (other, -1)
    assert "log end 20" in outcome.loss, f"it says: {outcome.loss}"
    assert f" {lost}..{lost} cannot be read" in outcome.loss, f"one offset is lost, it says: {outcome.loss}"
    sim.checkers.may_have_lost(sim.partition(TOPIC).key)
    assert sim.elect(TOPIC, 0, unclean=True).leader == other
    sim.run_until(lambda: leads(sim, other, 0), what="it leads")
    assert len(kept_aside(sim, other, f"{TOPIC}-0")) == 1, "the damaged log is kept"
    assert len(sim.read_committed(TOPIC)) == 19, "all others stay"
    sim.restart(last)  # it keeps the record that its leader has lost: they agree on every epoch
    sim.run_until(lambda: sim.isr(TOPIC) == {last, other}, within=60, what="both are in sync")
    write(sim, 0, "c", 3)
    assert len(sim.read_committed(TOPIC)) == 22


def unclean_election_of_a_replica_found_damaged(sim: Simulation) -> None:
    unclean_election_of_the_damaged_replica_out_of_sync(sim, restarts=False)


def unclean_election_of_a_replica_that_starts_damaged(sim: Simulation) -> None:
    unclean_election_of_the_damaged_replica_out_of_sync(sim, restarts=True)


def damaged_replica_waits_for_a_leader(sim: Simulation) -> None:
    """The same, but the last member comes back and leads: now the damaged log is set aside and fetched again."""
    last, other, log = damaged_without_a_leader(sim)
    assert not kept_aside(sim, other, f"{TOPIC}-0"), "set aside while no replica leads"
    sim.restart(last)
    sim.run_until(lambda: sim.isr(TOPIC) == {last, other}, within=60, what="it is fetched again")
    assert log.closed
    assert len(sim.read_committed(TOPIC)) == 25
    sim.must_heal()


def unclean_election_of_a_log_that_is_gone(sim: Simulation) -> None:
    """The directory of the only log is deleted by hand. Nobody leads, and no empty log takes its place, until an
    operator accepts the loss: then its node creates the log and takes new records."""
    [only] = away_from_voter(sim, 3, replicas=1, min_insync=1)
    log = f"/data/{TOPIC}-0"
    write(sim, 0, "a", 5)
    sim.run_until(lambda: durable_offset(sim, only, 0) == 5, what="they are durable")
    sim.kill(only)
    sim.run_until(lambda: fenced(sim, only), what="it is fenced")
    remove_all(sim.machines[only].disk, log)
    sim.machines[only].disk.remove_directory(log)
    sim.restart(only)
    sim.run_until(lambda: not fenced(sim, only), what="it is back")
    sim.never(lambda: sim.leader(TOPIC) >= 0, seconds=3, what="led with an empty log")
    assert not sim.machines[only].disk.is_directory(log), "created before the loss was accepted"
    sim.checkers.may_have_lost(sim.partition(TOPIC).key)
    assert sim.elect(TOPIC, 0, unclean=True).leader == only
    sim.run_until(lambda: leads(sim, only, 0), what="it leads with a new log")
    write(sim, 0, "b", 3)
    sim.must_heal(lossy=True)


def unclean_leader_has_fewer_records(sim: Simulation) -> None:
    """The only member of the set is down, and an operator lets a replica with fewer records lead. After its restart
    the member removes committed records from its log and keeps a copy of it."""
    leader, follower = on_two_nodes(sim, 1)
    write(sim, 0, "a", 5)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 5, what="the follower has the first records")
    sim.kill(follower)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader}, what="the leader is alone")
    write(sim, 0, "given up ", 5)
    log = sim.log(leader, TOPIC)
    assert isinstance(log, Log)
    assert isinstance(log.directory, LogDirectory)
    log.directory.write_checkpoints()
    sim.run_for(0.1)
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC) == -1, what="no node leads")
    before = size_of_logs(sim, leader, f"/data/{TOPIC}-0")
    sim.restart(follower)
    sim.run_until(lambda: not fenced(sim, follower), what="the follower is back")
    sim.checkers.may_have_lost(sim.partition(TOPIC).key)
    assert sim.elect(TOPIC, 0, unclean=True).leader == follower
    write(sim, 0, "b", 3)
    sim.restart(leader)
    sim.must_heal(lossy=True)
    copies = kept_aside(sim, leader, f"{TOPIC}-0")
    assert [size_of_logs(sim, leader, copy) for copy in copies] == [before], "the copy has the removed records"
    assert b"given up 0" not in sim.read_committed(TOPIC)


ALL = (
    clean_stop_and_reboot_of_all,
    consumer_reads_rot,
    consumer_reads_rot_in_the_only_replica,
    time_lookup_reads_rot,
    consumer_reads_a_truncated_segment,
    unclean_election_keeps_sound_batches,
    unclean_election_of_a_replica_found_damaged,
    unclean_election_of_a_replica_that_starts_damaged,
    damaged_replica_waits_for_a_leader,
    unclean_election_of_a_log_that_is_gone,
    unclean_leader_has_fewer_records,
)
