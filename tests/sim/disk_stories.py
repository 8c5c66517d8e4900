"""Stories of nodes whose disks are busy or hang, or whose index and epoch files are corrupted. Setup as in
stories.py."""

from __future__ import annotations

from storage.log.log import Log
from testbed.sim import views
from testbed.sim.world import Simulation
from tests.sim.consumers import SimConsumer
from tests.sim.controller_stories import on_two_nodes
from tests.sim.directory_stories import lies_in_second, with_second_directories
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.stories import TOPIC, committed, durable_offset, fenced, leads, write
from tidelog.types import Offset

READ_WITHIN_S = 10


def topic_deleted_while_others_write(sim: Simulation) -> None:
    """A topic with many logs on each node is deleted. Clients that write to another topic get answers as fast as
    before: the event loop of no node waits for a disk."""
    sim.start(nodes=3, min_insync=2, partitions=3)
    sim.create_topic("many", partitions=40)
    for node in sim.nodes:
        sim.slow_disk(node, 5)
    client = sim.client()
    task = client.start(client.delete_topic("many"), "deletes the topic")
    for number in range(20):
        sim.produce(TOPIC, f"a{number}".encode(), partition=number % 3).wait(within=2)
    sim.run_until(task.done, what="the topic is gone")
    sim.must_heal()


def records_appended_during_a_flush(sim: Simulation) -> None:
    """A leader's disk is slow, and records arrive while it syncs: these count with the next flush, not with the one
    in progress. The machine loses power."""
    sim.start(nodes=3, min_insync=1, partitions=3)
    p = sim.led_by(TOPIC, 1)
    sim.slow_disk(1, 20)
    client = sim.client()
    sent = [sim.produce(TOPIC, f"a{number}".encode(), partition=p, client=client, acks="1") for number in range(30)]
    others = [sim.produce(TOPIC, f"b{number}".encode(), partition=p, acks="1") for number in range(30)]
    sim.run_until(lambda: sum(each.done for each in (*sent, *others)) > 30, what="some are acknowledged")
    sim.power_off(1, forget_all=True)
    sim.slow_disk(1, 1)
    sim.restart(1)
    sim.must_heal(lossy=True)


def index_rots(sim: Simulation) -> None:
    """Bits flip in every offset index of both replicas, and each entry points elsewhere. The log itself gives the
    right positions: each record can be read, and no replica leaves the set."""
    leader, follower = on_two_nodes(sim, 2, segment_bytes="2000", index_interval_bytes="1")
    write(sim, 0, "a" * 100, 40)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 40, what="both have all")
    for node in (leader, follower):  # drops the cached batch positions
        sim.kill(node)
        sim.restart(node)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader, follower} and sim.leader(TOPIC) >= 0, what="both are back")
    sim.run_for(3)  # the scrub has run
    for node in (leader, follower):
        disk = sim.machines[node].disk
        for path in views.files_in(disk, f"/data/{TOPIC}-0"):
            inode = views.inode_at(disk, path)
            if path.endswith(".index") and inode is not None:
                for position in range(3, len(inode.seen.data), 8):
                    disk.flip_bit(path, position, 0)
    tasks = []
    for offset in range(40):
        client, reading = sim.client(), sim.checkers.reading(sim.ledger(TOPIC), position=offset)
        tasks.append(client.start(client.read_to(TOPIC, 0, offset + 1, reading), f"reads {offset}"))
    sim.run_until(lambda: all(task.done() for task in tasks), within=READ_WITHIN_S, what="each offset is read")
    for task in tasks:
        task.result()
    sim.must_heal()


def epochs_rot_without_a_report(sim: Simulation) -> None:
    """In format v1 the leader epoch checkpoint is the only source of epochs. It is corrupted on one of three nodes
    that have all died, and the node cannot report it at its first start. At its second start it reports it too, and
    is not elected instead of the others."""
    sim.start(nodes=4, min_insync=2, partitions=12, message_format="v1")
    p, (rotten, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 10)
    sim.run_until(lambda: all(durable_offset(sim, node, p) == 10 for node in (rotten, *others)), what="all have all")
    for node in (rotten, *others):
        sim.kill(node)
    path = f"/data/{TOPIC}-{p}/leader-epoch-checkpoint"
    sim.machines[rotten].disk.flip_bit(path, 4, 7)
    sim.disconnect(rotten)
    sim.restart(rotten)
    sim.run_for(2)
    sim.kill(rotten)
    sim.heal(rotten)
    sim.restart(rotten)
    sim.run_for(1)
    for node in others:
        sim.restart(node)
    sim.must_heal()
    assert committed(sim, p) >= 10


def one_of_two_directories_hangs(sim: Simulation) -> None:
    """Syncs and reads in one of a node's two directories hang for seconds. The node stays unfenced, and the replicas
    in its other directory stay in sync and take records."""
    sim.start(nodes=4, min_insync=2, partitions=24, directories=2)
    p, (victim, *_) = with_second_directories(sim, of_leader=False)
    write(sim, p, "a", 3)
    replicas = [int(state.partition) for state in sim.topic(TOPIC).partitions if victim in state.replicas]
    here = [q for q in replicas if not lies_in_second(sim, victim, q)]
    sim.hang_files(victim, "/more/", "sync", "sync_directory", "read", "rename", "remove")
    sim.produce(TOPIC, b"b", partition=p, acks="1")
    for number in range(8):
        for q in here[:2]:
            sim.produce(TOPIC, f"c{number} {q}".encode(), partition=q).wait(within=1)
        sim.run_for(1)
    assert not fenced(sim, victim), "the whole node hangs because of one directory"
    assert here and all(victim in sim.isr(TOPIC, q) for q in here)
    sim.release_disk(victim)
    sim.must_heal()


def unclean_leader_keeps_all_guarantees(sim: Simulation) -> None:
    """Records lost by an unclean election stay lost. From the first event of the new leader all guarantees hold
    again: its follower has what it acknowledged, and keeps it when it leads in turn."""
    leader, follower = on_two_nodes(sim, 1, unclean_leader_election_enable="true")
    write(sim, 0, "a", 5)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 5, what="the follower has the first records")
    sim.kill(follower)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader}, what="the leader is alone")
    write(sim, 0, "lost ", 5)
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC) == -1, what="no node leads")
    sim.restart(follower)
    sim.run_until(lambda: leads(sim, follower, 0), what="the follower leads, since the topic allows it")
    assert not sim.ledger(TOPIC).lossy, "losses are violations again"
    assert sim.ledger(TOPIC).end == 5
    sim.restart(leader)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader, follower}, what="both are in sync")
    records = sim.hold("Data.FetchStream", source=follower, target=leader, part="answer")
    sim.run_for(0.1)
    first = sim.produce(TOPIC, b"first")
    sim.never(lambda: first.done, seconds=0.3, what="acknowledged while only the leader has it")
    records.release()
    first.wait()
    write(sim, 0, "b", 5)
    sim.clog(follower, leader, 2)
    sent = sim.produce(TOPIC, b"c")
    sim.run_for(0.1)
    sim.kill(follower)
    sim.run_until(lambda: leads(sim, leader, 0), what="the old leader leads again")
    sim.restart(follower)
    sim.must_heal()
    values = sim.read_committed(TOPIC)
    assert b"lost 0" not in values
    assert [b"b%d" % number in values for number in range(5)] == [True] * 5
    assert sent.done


def record_is_read_from_a_sound_replica(sim: Simulation) -> None:
    """A leader's bytes are corrupt, its follower's are sound. Every reader gets the record in time: the read that
    detects the corruption makes another replica lead."""
    leader, follower = on_two_nodes(sim, 1, segment_bytes="1000")
    write(sim, 0, "a" * 100, 30)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 30, what="both have all")
    log = sim.log(leader, TOPIC)
    assert isinstance(log, Log)
    first = log.segments[0]
    sim.machines[leader].disk.flip_bit(first.path, first.size - 50)
    sim.scrub(leader, TOPIC)
    client = sim.client()
    reading = sim.checkers.reading(sim.ledger(TOPIC))
    task = client.start(client.read_to(TOPIC, 0, 30, reading), "reads all")
    sim.run_until(task.done, within=READ_WITHIN_S, what="the record is read in time")
    task.result()
    sim.must_heal()


def damage_that_a_consumer_finds(sim: Simulation) -> None:
    """A bit flips in a value in a leader's newest segment, which the scrub has not checked: only a check of the
    record detects it. A consumer gets the record in time because another replica then leads."""
    leader, follower = on_two_nodes(sim, 1)
    write(sim, 0, "a" * 100, 20)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 20, what="both have all")
    log = sim.log(leader, TOPIC)
    assert isinstance(log, Log)
    found = log.active.find(Offset(12))
    assert found is not None
    sim.machines[leader].disk.flip_bit(log.active.path, found.position + found.size - 20)
    client, reading = sim.client(), sim.checkers.reading(sim.ledger(TOPIC))
    consumer = SimConsumer(client, {(TOPIC, 0): reading}, decided=False, rack="")
    client.start(consumer.run(), "consumes")
    sim.run_until(lambda: reading.position >= 20, within=READ_WITHIN_S, what="all is read in time")
    sim.must_heal()


ALL = [
    topic_deleted_while_others_write,
    records_appended_during_a_flush,
    index_rots,
    epochs_rot_without_a_report,
    one_of_two_directories_hangs,
    unclean_leader_keeps_all_guarantees,
    record_is_read_from_a_sound_replica,
    damage_that_a_consumer_finds,
]
