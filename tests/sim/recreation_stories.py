"""Stories of replicas that are created again within one incarnation of their process, so that earlier reports of theirs
no longer count, and of replicas that cannot be created.

A process that has fetched a replica's records loses them in a reassignment or by corruption, and keeps its incarnation.
Setup as in stories.py; node 0 is the only voter of the metadata quorum and holds no replica.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from testbed.sim.checkers import ReadableLog
from testbed.sim.network import Envelope, Held
from testbed.sim.world import Simulation
from tests.sim.controller_stories import away_from_voter
from tests.sim.quorum_stories import active
from tests.sim.stories import TOPIC, admits, durable_offset, end, fenced, leads, with_records_of, write
from tidelog.protocol.v1 import data_pb2
from tidelog.types import NodeId


def says_it_has(count: int) -> Callable[[Envelope], bool]:
    """Matches a follower's request with a log end, or a durable offset, of at least `count`."""

    def matches(envelope: Envelope) -> bool:
        said: data_pb2.FetchRequest = envelope.message
        ends = [asked.fetch_offset for asked in said.partitions] + [
            report.durable_offset for report in said.durable_positions
        ]
        return any(end >= count for end in ends)

    return matches


def replica_moved_away_and_back(sim: Simulation) -> None:
    """Rule 2: a replica with all records is moved away, which deletes them, and back again. A fetch of its first
    stay arrives at the leader now: it does not count for the second."""
    leader, *others = away_from_voter(sim, 5, replicas=3, min_insync=1)
    (comes,) = [node for node in sim.nodes[1:] if node not in (leader, *others)]
    write(sim, 0, "a", 5)
    late = sim.hold("Data.FetchStream", source=comes, target=leader, when=says_it_has(5))
    sim.reassign(TOPIC, 0, leader, *others, comes)
    sim.run_until(
        lambda: late.count > 0 and durable_offset(sim, comes, 0) == 5, what="its report that it has all is in transit"
    )
    sim.reassign(TOPIC, 0)
    sim.run_until(lambda: sim.replica(comes, TOPIC) is None, what="its log is deleted")
    sim.reassign(TOPIC, 0, leader, *others, comes)
    sim.run_until(lambda: sim.replica(comes, TOPIC) is not None, what="its log is created again")
    arrives_before_records(sim, late, leader, comes)


def arrives_before_records(sim: Simulation, late: Held, leader: int, replica: int) -> None:
    """The held message arrives before the replica has fetched a record again."""
    records = sim.hold("Data.FetchStream", source=leader, target=replica, part="answer", when=with_records_of(0))
    late.release()
    sim.run_for(0.5)
    records.release()
    sim.run_until(lambda: replica in sim.isr(TOPIC), what="it is in sync")
    sim.must_heal()


def damaged_member_is_created_again(sim: Simulation) -> None:
    """Rule 6: a member of the set detects corruption of its log while it runs, is removed, and starts a new log. An
    earlier report that arrives late does not bring it back."""
    leader, rotten, _ = away_from_voter(sim, 4, replicas=3, min_insync=1, segment_bytes="1000")
    write(sim, 0, "a" * 100, 12)
    late = sim.hold("Data.FetchStream", source=rotten, target=leader, when=says_it_has(13))
    sim.produce(TOPIC, b"b", acks="1").wait()
    sim.run_until(lambda: late.count > 0 and durable_offset(sim, rotten, 0) == 13, what="it reports that it has all")
    must_be_created_again(sim, rotten)
    arrives_before_records(sim, late, leader, rotten)


def must_be_created_again(sim: Simulation, node: int) -> None:
    """The scrub finds corruption in a replica's log; the replica leaves its sets and starts a new log."""
    log = sim.log(node, TOPIC)
    assert isinstance(log, Log)
    sim.machines[node].disk.flip_bit(log.segments[0].path, 100)
    sim.scrub(node, TOPIC)
    assert log.damage is not None
    sim.run_until(lambda: log_of(sim, node) not in (None, log), what="it has a new log")


def log_of(sim: Simulation, node: int) -> ReadableLog | None:
    replica = sim.replica(node, TOPIC)
    return None if replica is None else replica.log


def damaged_joiner_is_created_again(sim: Simulation) -> None:
    """Rule 6: a replica that is about to join detects corruption of its log. It starts a new log; its earlier
    reports, and a proposal based on them, count for nothing."""
    leader, rotten, _ = away_from_voter(sim, 4, replicas=3, min_insync=1, segment_bytes="1000")
    write(sim, 0, "a" * 100, 12)
    sim.disconnect_link(rotten, leader)
    sim.produce(TOPIC, b"b")
    sim.run_until(lambda: rotten not in sim.isr(TOPIC), what="the follower is removed for its lag")
    late = sim.hold("Controller.AlterPartition", source=leader, when=admits(rotten))
    sim.heal_link(rotten, leader)
    sim.run_until(lambda: late.count > 0, what="the leader proposes to add it again")
    must_be_created_again(sim, rotten)
    arrives_before_records(sim, late, leader, rotten)


def damage_found_at_the_start(sim: Simulation) -> None:
    """Rule 6: recovery finds a follower's log corrupt. The replica reports nothing of that log and starts a new one."""
    leader, rotten, _ = away_from_voter(sim, 4, replicas=3, min_insync=1)
    write(sim, 0, "a", 5)
    log = sim.log(rotten, TOPIC)
    assert isinstance(log, Log)
    path = log.segments[0].path
    sim.kill(rotten)
    sim.run_until(lambda: rotten not in sim.isr(TOPIC), what="it is removed")
    sim.machines[rotten].disk.flip_bit(path, 80)
    said = sim.hold("Data.FetchStream", source=rotten, target=leader, when=says_it_has(1))
    sim.restart(rotten)
    sim.run_until(lambda: sim.replica(rotten, TOPIC) is not None, what="it has a replica again")
    sim.run_until(lambda: end(sim, rotten, 0) == 0, within=1, what="the corrupt log is out of use")
    assert said.count == 0, "it reports positions of the corrupt log"
    said.release()
    sim.must_heal()


def topic_created_beside_a_failed_directory(sim: Simulation) -> None:
    """One log directory of a node has failed, the others work, and the controller does not know of it yet. A topic
    created then gets leaders on nodes that can lead it."""
    sim.start(nodes=3, min_insync=2, partitions=3, directories=2, voters=3)
    node = next(each for each in (2, 1) if each != active(sim))
    write(sim, 0, "a", 1)
    unheard = sim.hold("Controller.Heartbeat", source=node)
    sim.break_disk(node, "sync", path="/more/orders")
    sim.break_disk(node, "write", path="/more/orders")
    for p in range(3):
        sim.produce(TOPIC, b"b%d" % p, acks="1", partition=p)
    sim.run_until(lambda: sim.machines[node].has_offline_directory, what="the directory has failed")
    sim.create_topic("later", partitions=6, wait=False)
    sim.run_until(lambda: sim.image().topic("later") is not None, what="it is known")
    _, failed = (each.directory_id for each in sim.image().nodes[NodeId(node)].directories)
    led = [
        s.partition for s in sim.topic("later").partitions if s.leader == node and s.directory_of(s.leader) == failed
    ]
    assert led, "it leads a partition without a log"
    sim.run_until(lambda: node not in {sim.leader("later", p) for p in led}, within=1.5, what="others lead")
    unheard.release()
    for state in sim.topic("later").partitions:
        sent = sim.produce("later", b"c%d" % state.partition, partition=state.partition, timeout_ms=10_000)
        sent.wait(within=10)
    sim.must_heal()


def last_member_is_damaged_for_good(sim: Simulation) -> None:
    """The last member's log is corrupt, and no other replica has the rest. An operator lets it lead with its sound
    records."""
    sim.start(nodes=3, topics=())
    sim.create_topic(TOPIC, replicas=1, partitions=3, min_insync=1)
    node = 2
    p = sim.led_by(TOPIC, node)
    write(sim, p, "a", 5)
    log = sim.log(node, TOPIC, p)
    assert isinstance(log, Log)
    path = log.segments[0].path
    sim.kill(node)
    sim.run_until(lambda: sim.leader(TOPIC, p) == -1, what="it is fenced")
    sim.machines[node].disk.flip_bit(path, 80)
    sim.restart(node)
    sim.run_until(lambda: not any(n.fenced for n in sim.image().nodes.values()), what="all are unfenced")
    sim.run_for(3)
    assert sim.leader(TOPIC, p) == -1
    sim.checkers.may_have_lost(sim.partition(TOPIC, p).key)
    sim.elect(TOPIC, p, unclean=True)
    sim.run_until(lambda: sim.leader(TOPIC, p) == node, what="it leads")
    sim.must_heal(lossy=True)


def replica_comes_back_in_another_directory(sim: Simulation) -> None:
    """Rule 6: replicas are moved away and back without their node learning of either move. The metadata name another
    of its log directories now. The log that the node continues with must be in that directory, or it would be judged
    by a directory without its records."""
    sim.start(nodes=4, min_insync=1, partitions=24, directories=2)
    comes = NodeId(3)
    states = [s for s in sim.topic(TOPIC).partitions if comes in s.replicas and s.leader not in (0, comes)]
    one = states[0]
    two = next(state for state in states if state.directory_of(comes) != one.directory_of(comes))
    for state in (one, two):
        write(sim, state.partition, "a", 3)
    updates = sim.hold("Quorum.FetchMetadata", target=comes, part="answer")
    sim.run_for(0.02)
    for back in ((one, two), (two, one)):  # the chosen directory depends on the free space of the two
        for state in back:
            sim.reassign(TOPIC, state.partition, *(node for node in state.replicas if node != comes))
        for state in back:
            sim.reassign(TOPIC, state.partition, *state.replicas)
        if sim.partition(TOPIC, one.partition).directory_of(comes) != one.directory_of(comes):
            break
    updates.release()
    for state in (one, two):
        named = sim.partition(TOPIC, state.partition).directory_of(comes)
        assert named != state.directory_of(comes)
        sim.run_until(lambda p=state.partition: comes in sim.isr(TOPIC, p), what="it is in sync")  # type: ignore[misc]
        log = sim.log(comes, TOPIC, state.partition)
        assert isinstance(log, Log)
        assert isinstance(log.directory, LogDirectory)
        assert log.directory.directory_id == named, "it continues in a directory that the metadata do not name"
    sim.must_heal()


def late_registration(sim: Simulation) -> None:
    """Rule 6: a registration arrives long after its process has ended, and so has the next one. Accepting it would
    turn the node's own directory into an older copy of itself: a registration is refused unless its process has seen
    the last registration of its node."""
    leader, *others = away_from_voter(sim, 4, replicas=3, min_insync=1)
    write(sim, 0, "a", 3)
    sim.kill(leader)
    sim.run_until(lambda: fenced(sim, leader), what="it is fenced")
    late = sim.hold("Controller.RegisterNode", source=leader)
    sim.restart(leader)
    sim.run_until(lambda: late.count > 0, what="it registers")
    late.let_pass()
    sim.run_until(lambda: leader in sim.isr(TOPIC), what="it has registered, with another attempt, and is in sync")
    for node in others:
        sim.kill(node)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader} and leads(sim, leader, 0), what="it is the last one")
    write(sim, 0, "b", 3)
    sim.kill(leader)
    sim.run_until(lambda: fenced(sim, leader), what="it is fenced")
    sim.restart(leader)
    sim.run_until(lambda: leads(sim, leader, 0), what="it leads again")
    sim.kill(leader)
    sim.run_until(lambda: fenced(sim, leader), what="it is fenced again")
    late.release()
    sim.run_for(1)
    sim.must_heal()
    assert len(sim.read_committed(TOPIC)) == 7


ALL = (
    replica_moved_away_and_back,
    damaged_member_is_created_again,
    damaged_joiner_is_created_again,
    damage_found_at_the_start,
    topic_created_beside_a_failed_directory,
    last_member_is_damaged_for_good,
    replica_comes_back_in_another_directory,
    late_registration,
)
