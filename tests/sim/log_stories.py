"""Stories of the log's part in replication: interrupted truncations, lost epochs, lost directories, cleaning above the
high watermark, a fixed durability, corruption that must not spread.

Setup as in stories.py. Node 0 is the only voter of the metadata quorum and holds no replica of the story's partition.
"""

from __future__ import annotations

from typing import Any

from storage.directory.log_cleaner import LogCleaner
from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from testbed.fake_disk import FakeDisk
from testbed.sim.healing import rotten_segments
from testbed.sim.world import Simulation
from tests.fakes.log_start import delete_old_segments
from tests.sim.controller_stories import eligible, on_two_nodes
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.stories import (
    TOPIC,
    asks_for,
    committed,
    delete_below,
    durable_offset,
    end,
    fenced,
    leads,
    old_epoch_reaches_one_follower,
    with_records_of,
    write,
)
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.types import INT64_MAX


def log_of(sim: Simulation, node: int, p: int) -> Log:
    log = sim.log(node, TOPIC, p)
    assert isinstance(log, Log)
    return log


def three_replicas(sim: Simulation, **configs: Any) -> tuple[int, int, int, int]:
    """A partition on three nodes other than the voter: its number, its leader, and the others in the order in which
    they lead next."""
    sim.start(nodes=4, min_insync=1, partitions=12, **configs)
    p, (leader, second, third) = away_from_the_voter(sim)
    return p, leader, second, third


# --- 3. truncation below the recovery point ---------------------------------------------------------------------------


def truncation_below_the_checkpoint(sim: Simulation) -> None:
    """Scenario 3, variant: the checkpoint file claims that all below 25 is on the disk. The log is truncated to 5
    and has reached 8 when its machine loses power; it is the last member of the set. It has lost nothing and leads
    again."""
    p, old, new, last = three_replicas(sim)
    old_epoch_reaches_one_follower(sim, p, old, new, last)
    log = log_of(sim, last, p)
    assert isinstance(log.directory, LogDirectory)
    log.directory.write_checkpoints()
    sim.run_for(0.1)
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p), what="the other follower leads")
    write(sim, p, "c", 3)
    assert durable_offset(sim, last, p) == end(sim, last, p) == 8
    sim.kill(new)
    sim.run_until(lambda: leads(sim, last, p), what="the last one leads")
    sim.power_off(last, forget_all=True)
    sim.run_until(lambda: fenced(sim, last), what="it is fenced")
    sim.restart(last)
    sim.run_until(lambda: leads(sim, last, p), within=10, what="it leads again with all durable records")
    sim.must_heal()


def truncation_of_messages_without_epochs(sim: Simulation) -> None:
    """Scenario 3, variant: a log of format v1, whose bytes contain no epoch, is truncated and has new records that
    are not on the disk yet when its machine loses power. The old records must not come back under the new epoch."""
    p, old, new, follower = three_replicas(sim, message_format="v1")
    old_epoch_reaches_one_follower(sim, p, old, new, follower)
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p), what="the other follower leads")
    sim.run_until(lambda: end(sim, follower, p) == 5, what="the follower is truncated")
    sim.hang_files(follower, ".log", "sync")
    client = sim.client(nodes=(new, follower))
    for number in range(30):
        sim.produce(TOPIC, f"c{number}".encode(), acks="1", partition=p, client=client)
    sim.run_until(lambda: end(sim, follower, p) == 35, what="the follower has the new records")
    sim.power_off(follower, forget_all=True)
    sim.release_disk(follower)
    sim.restart(follower)
    sim.run_until(lambda: follower in sim.isr(TOPIC, p) and committed(sim, p) == 35, what="it is in sync again")
    sim.must_heal()


def messages_without_their_epoch(sim: Simulation) -> None:
    """Scenario 3, variant: in format v1 only the leader epoch checkpoint maps records to epochs. The last member
    dies as soon as it has written some records of a new epoch. When it leads again, it must not take them for the
    records of the old epoch that another node has at the same offsets."""
    p, old, new, last = three_replicas(sim, message_format="v1")
    write(sim, p, "a", 5)
    for node in (new, last):
        sim.hold("Data.FetchStream", source=old, target=node, part="answer", when=with_records_of(p))
    write(sim, p, "only the old leader has ", 20, acks="1")
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p), what="another node leads")
    sim.hang_files(last, ".log", "sync")
    write(sim, p, "c", 3, acks="1", asking=(new, last))
    sim.run_until(lambda: end(sim, last, p) == 8, what="the last one has written the new records")
    sim.kill(new)
    sim.run_until(lambda: leads(sim, last, p), what="the last one leads")
    sim.kill(last)
    sim.release_disk(last)
    sim.run_until(lambda: fenced(sim, last), what="it is fenced")
    sim.restart(last)
    sim.run_until(lambda: leads(sim, last, p), what="it leads again")
    assert end(sim, last, p) == 8
    sim.restart(old)
    sim.run_until(lambda: old in sim.isr(TOPIC, p), what="the old leader is in sync")
    sim.must_heal()


# --- 8. a member with an empty log -----------------------------------------------------------------------------------


def epochs_are_lost(sim: Simulation) -> None:
    """Scenario 8: an eligible replica of format v1 has lost its leader epoch checkpoint. It counts as corrupt: first
    it is no longer eligible, then it fetches its log again from the start. The leader dies meanwhile."""
    leader, lossy = on_two_nodes(sim, 2, message_format="v1")
    write(sim, 0, "a", 10)
    sim.kill(lossy)
    sim.run_until(lambda: eligible(sim, 0) == {lossy}, what="the follower is eligible")
    sim.machines[lossy].disk.remove(f"/data/{TOPIC}-0/leader-epoch-checkpoint")
    kept = sim.hold("Data.FetchStream", source=leader, target=lossy, part="answer", when=with_records_of(0))
    sim.restart(lossy)
    sim.run_until(lambda: not fenced(sim, lossy) and kept.count > 0, what="it is unfenced and fetches again")
    assert eligible(sim, 0) == set(), "a replica without its epochs is eligible"
    sim.kill(leader)
    sim.never(lambda: leads(sim, lossy, 0), seconds=4, what="led from a log without its records")
    kept.release()
    sim.must_heal()


# --- 9. directories
# -------------------------------------------------------------------------------------------------------


def remove_all(disk: FakeDisk, directory: str) -> None:
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        if disk.is_directory(path):
            remove_all(disk, path)
            disk.remove_directory(path)
        else:
            disk.remove(path)


def one_of_two_directories_is_gone(sim: Simulation) -> None:
    """Scenario 9, variant: one of the last member's two log directories is replaced by an empty one. A partition
    from it must not be led with an empty log, although its replica was created again in the remaining directory.
    Partitions of the remaining directory are unchanged."""
    sim.start(nodes=4, min_insync=1, partitions=24, directories=2)
    away = [state for state in sim.topic(TOPIC).partitions if 0 not in state.replicas]
    p = next(state.partition for state in away if log_of(sim, state.leader, state.partition).path.startswith("/more/"))
    last, others = sim.leader(TOPIC, p), sim.followers(TOPIC, p)
    kept = next(
        replica.key.partition
        for replica in sim.machines[last].replicas()
        if isinstance(replica.log, Log) and replica.log.path.startswith("/data/")
    )
    for each in (p, kept):
        write(sim, each, f"a{each} ", 3)
    for node in others:
        sim.kill(node)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {last}, what="it is the last member")
    write(sim, p, "b", 3)
    sim.kill(last)
    sim.run_until(lambda: fenced(sim, last), what="it is fenced")
    remove_all(sim.machines[last].disk, "/more")
    for node in (last, *others):
        sim.restart(node)
    sim.run_until(lambda: not any(fenced(sim, node) for node in (last, *others)), what="all are unfenced")
    sim.never(lambda: sim.leader(TOPIC, p) >= 0, seconds=3, what="led with an empty log")
    assert durable_offset(sim, last, kept) >= 3


# --- 10. cleaning above the watermark ---------------------------------------------------------------------------------


def clean(log: Log) -> None:
    """Clean all that may be cleaned of a compacted log, as the maintenance does periodically."""

    def trouble(error: TidelogError) -> None:
        raise error

    now = log.directory.clock.wall_ms()
    cleaner = LogCleaner(map_bytes=1 << 16, bytes_per_second=INT64_MAX, on_failure=trouble)
    piece = cleaner.begin([log], now)
    while piece is not None:
        piece = cleaner.settle(piece.work(), now, started=now, ended=now)


def compaction_stops_at_the_watermark(sim: Simulation) -> None:
    """Scenario 10: a key's committed value is followed by one that is not committed. The cleaner keeps both. After a
    change of leadership the second one is truncated, and the first is still there."""
    p, old, new, other = three_replicas(
        sim, cleanup_policy="compact", min_cleanable_dirty_ratio="0", segment_bytes="1000"
    )
    filler = b"." * 400
    for number in range(4):
        sim.produce(TOPIC, b"v1 %d " % number + filler, partition=p, key=b"k%d" % number).wait()
    for node in (new, other):
        sim.hold("Data.FetchStream", source=old, target=node, part="answer", when=with_records_of(p))
    client = sim.client()
    for number in range(8):
        value = b"v2 %d " % number + filler
        sim.produce(TOPIC, value, acks="1", partition=p, key=b"k%d" % (number % 4), client=client)
    sim.run_until(lambda: durable_offset(sim, old, p) == 12, what="the leader has other values, and no other replica")
    assert committed(sim, p) == 4
    clean(log_of(sim, old, p))
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p) or leads(sim, other, p), what="another node leads")
    sim.restart(old)
    sim.run_until(lambda: old in sim.isr(TOPIC, p), what="the old leader is truncated and in sync")
    sim.must_heal()


def deletion_known_to_the_leader_alone(sim: Simulation) -> None:
    """An operator deletes records, and the leader dies before the others learn of it. The next leader still has
    them: the log of the old leader starts above that of its new leader. It follows, and no reader misses an existing
    record."""
    p, old, new, other = three_replicas(sim)
    write(sim, p, "a", 5)
    updates = sim.hold("Data.FetchStream", source=old, part="answer")
    delete_below(sim, old, p, 3)
    sim.kill(old)
    updates.let_pass()
    sim.run_until(lambda: leads(sim, new, p) or leads(sim, other, p), what="another node leads")
    sim.restart(old)
    sim.run_until(lambda: old in sim.isr(TOPIC, p), what="the old leader is in sync")
    write(sim, p, "b", 2)
    starts = [log_of(sim, node, p).log_start_offset for node in (old, sim.leader(TOPIC, p))]
    assert starts == [3, 0]
    sim.must_heal()


def member_has_only_its_own_epoch_left(sim: Simulation) -> None:
    """A leader has deleted everything older than its epoch when another node takes over, which does not know of that
    and has no record of its epoch. It starts a new log, but not below the high watermark: it is a member and may
    lead next."""
    p, first, second, third = three_replicas(sim)
    write(sim, p, "a", 3)
    sim.stop(first)
    sim.run_until(lambda: leads(sim, second, p) or leads(sim, third, p), what="another node leads")
    leader = second if leads(sim, second, p) else third
    sim.run_until(lambda: not sim.machines[first].up, within=45, what="the first has stopped")
    sim.restart(first)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {first, second, third}, what="all are in sync")
    sim.run_until(lambda: sim.leader(TOPIC, p) == leader and committed(sim, p) == 3, what="it still leads")
    others = sorted({first, second, third} - {leader})
    kept = [sim.hold("Data.FetchStream", source=leader, target=node, part="answer") for node in others]
    sim.produce(TOPIC, b"of its epoch", acks="1", partition=p).wait()
    log = log_of(sim, leader, p)
    log.roll(log.directory.clock.wall_ms())
    delete_below(sim, leader, p, 3)
    delete_old_segments(log, log.directory.clock.wall_ms())
    sim.elect(TOPIC, p)
    sim.run_until(lambda: leads(sim, first, p), what="the preferred leader leads again")
    sim.run_until(lambda: end(sim, leader, p) == 3, what="the other one has a new log")
    assert log_of(sim, leader, p).log_start_offset == 3
    for answers in kept:
        answers.let_pass()
    sim.must_heal()


# --- 13. a change of the durability ----------------------------------------------------------------------------------


def durability_is_fixed(sim: Simulation) -> None:
    """Scenario 13: a topic with `durability=page-cache` cannot be changed to `fsync`, since earlier records are not
    synced. An eligible replica whose machine has rebooted is no longer eligible."""
    leader, rebooted = on_two_nodes(sim, 2, durability="page-cache")
    write(sim, 0, "a", 5)
    refusal: TidelogError | None = None
    try:
        sim.alter_topic(TOPIC, durability="fsync")
    except InvalidConfig as error:
        refusal = error
    sim.kill(rebooted)
    sim.run_until(lambda: eligible(sim, 0) == {rebooted}, what="the follower is eligible")
    sim.power_off(rebooted, forget_all=True)
    kept = sim.hold("Data.FetchStream", source=leader, target=rebooted, part="answer", when=with_records_of(0))
    sim.restart(rebooted)
    sim.run_until(lambda: not fenced(sim, rebooted) and kept.count > 0, what="it is unfenced and lacks everything")
    assert eligible(sim, 0) == set(), "unsynced records count as synced"
    sim.kill(leader)
    sim.never(lambda: leads(sim, rebooted, 0), seconds=4, what="led without what was acknowledged")
    kept.release()
    sim.must_heal()
    assert refusal is not None, "the durability was changed"


def page_cache_is_lost_with_the_power(sim: Simulation) -> None:
    """Rule 6: a follower of a topic with `durability=page-cache` loses power with all unsynced records, and is back
    before its session ends. It is in neither set any more and does not lead when the leader is lost."""
    leader, rebooted = on_two_nodes(sim, 2, durability="page-cache")
    write(sim, 0, "a", 5)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader, rebooted}, what="both are in sync")
    kept = sim.hold("Data.FetchStream", source=leader, target=rebooted, part="answer", when=with_records_of(0))
    sim.power_off(rebooted, forget_all=True)
    sim.restart(rebooted)
    sim.run_until(lambda: kept.count > 0, what="it is unfenced and lacks everything")
    sim.kill(leader)
    sim.never(lambda: leads(sim, rebooted, 0), seconds=4, what="led without what was acknowledged")
    kept.release()
    sim.restart(leader)
    sim.must_heal()
    assert len(sim.read_committed(TOPIC)) == 6


# --- 14. an fsync fails, then succeeds ------------------------------------------------------------------------------


def failed_sync_is_rewritten_by_recovery(sim: Simulation) -> None:
    """Scenario 14: an fsync fails, and the process is restarted on the same machine. Its recovery finds the records
    in the page cache, which marks them as clean: an fsync alone would succeed and save nothing. Recovery writes them
    again first, and a power loss then loses no durable record."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, follower, _) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    sim.run_until(lambda: durable_offset(sim, follower, p) == 3, what="the follower holds the first records")
    sim.break_disk(follower, "sync", path=f"/data/{TOPIC}-{p}")
    write(sim, p, "b", 1)
    sim.run_until(lambda: not sim.machines[follower].up, what="its only directory fails, and it ends")
    sim.repair_disk(follower)
    sim.restart(follower)
    sim.run_until(lambda: sim.replica(follower, TOPIC, p) is not None, what="it has recovered")
    assert end(sim, follower, p) == 4, "the page cache has what the fsync was to save"
    sim.run_until(lambda: follower in sim.isr(TOPIC, p), what="it is in sync")
    write(sim, p, "c", 2)
    for node in (leader, follower):
        sim.power_off(node, forget_all=True)
    sim.must_heal()


# --- corruption ------------------------------------------------------------------------------------------------------


def one_corrupt_replica(sim: Simulation) -> None:
    """An old byte of a follower's log is corrupted. The scrub finds it; the replica leaves the set, fetches its log
    again, and leads with sound records after the others are lost."""
    p, leader, rotten, other = three_replicas(sim, segment_bytes="1000")
    write(sim, p, "a" * 50, 20)
    log = log_of(sim, rotten, p)
    assert len(log.segments) > 2
    sim.machines[rotten].disk.flip_bit(log.segments[1].path, 100)
    sim.run_until(lambda: log.closed, within=75, what="the corrupt log is out of use")  # the scrub runs once a minute
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader, rotten, other}, what="it has fetched again and is in sync")
    sim.kill(leader)
    sim.kill(other)
    sim.run_until(lambda: leads(sim, rotten, p), what="it leads")
    assert len(sim.read_committed(TOPIC, p)) == 20
    sim.must_heal()


def rot_before_the_first_fetch(sim: Simulation) -> None:
    """Scenario 15, second half: what the leader has just written is corrupted before it is fetched. Both followers
    refuse it and would leave the set one after the other although they are sound. The leader detects that its own
    bytes are corrupt and resigns."""
    p, rotten, *followers = three_replicas(sim)
    write(sim, p, "a", 3)
    asking = [sim.hold("Data.FetchStream", source=node, target=rotten, when=asks_for(p)) for node in followers]
    sim.produce(TOPIC, b"b", acks="1", partition=p).wait()
    sim.run_until(lambda: all(one.count > 0 for one in asking), what="the followers fetch the next one")
    log = log_of(sim, rotten, p)
    log.directory.recent_appends.bytes_max = 0  # followers are answered from the file
    sim.produce(TOPIC, b"rots", acks="1", partition=p).wait()
    sim.machines[rotten].disk.flip_bit(log.active.path, log.active.size - 2)
    for one in asking:
        one.release()
    sim.run_until(lambda: log.closed, within=4, what="the corrupt log is out of use")
    assert sim.leader(TOPIC, p) in followers
    write(sim, p, "c", 3)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {rotten, *followers}, what="it has fetched again and is in sync")
    sim.must_heal()


def rot_moves_a_batch(sim: Simulation) -> None:
    """The last batch of a closed segment claims offsets of the following ones: no checksum covers a base offset. A
    follower that comes back must not get this batch; the leader detects the corruption and hands over."""
    p, rotten, away, whole = three_replicas(sim, segment_bytes="1000")
    sim.kill(away)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {rotten, whole}, what="the dead one is removed")
    write(sim, p, "a" * 100, 40)
    log = log_of(sim, rotten, p)
    first, *behind = log.segments
    assert len(behind) > 3
    last = list(first.walk())[-1]
    assert last.base_offset == 4
    sim.machines[rotten].disk.flip_bit(first.path, last.position + 7, 4)  # the base offset is now 20
    sim.restart(away)
    sim.run_until(lambda: log.closed, within=75, what="the corrupt log is out of use")  # the scrub runs once a minute
    sim.run_until(lambda: sim.isr(TOPIC, p) == {rotten, away, whole}, within=60, what="all are in sync again")
    assert len(sim.read_committed(TOPIC, p)) == 40
    sim.must_heal()


def rot_moves_a_message(sim: Simulation) -> None:
    """In format v1, committed message 8 claims offset 9: no checksum covers that either. A follower that comes back
    must not take it for message 9, and end where the leader does without what lies there."""
    p, rotten, away, whole = three_replicas(sim, message_format="v1")
    write(sim, p, "a", 6)
    sim.kill(away)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {rotten, whole}, what="the dead one is removed")
    log = log_of(sim, rotten, p)
    log.directory.recent_appends.bytes_max = 0  # followers are answered from the file
    write(sim, p, "b", 4)
    before_last, _ = list(log.active.walk())[-2:]
    assert before_last.base_offset == 8
    sim.machines[rotten].disk.flip_bit(log.active.path, before_last.position + 7, 0)
    sim.restart(away)
    sim.run_until(lambda: log.closed, within=10, what="the follower's fetch shows that the leader's log is corrupt")
    sim.run_until(lambda: sim.isr(TOPIC, p) == {rotten, away, whole}, within=60, what="all are in sync again")
    assert len(sim.read_committed(TOPIC, p)) == 10
    sim.must_heal()


# --- sparse epochs ----------------------------------------------------------------------------------------------------


def sparse_epochs(sim: Simulation) -> None:
    """A replica comes back with records of an epoch that the others never had, and without the entries for it:
    retention has removed everything that was written before. It finds no common prefix and starts at the leader's
    log start."""
    p, old, new, other = three_replicas(sim, segment_bytes="1000", retention_ms="1000")
    write(sim, p, "a", 3)
    for node in (new, other):
        sim.hold("Data.FetchStream", source=old, target=node, part="answer", when=with_records_of(p))
    write(sim, p, "only the old leader has ", 20, acks="1")
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p), what="another node leads")
    write(sim, p, "." * 400, 10)
    for node in (new, other):
        log = log_of(sim, node, p)
        sim.jump_clock(node, 3_600_000)
        delete_old_segments(log, log.directory.clock.wall_ms())
    sim.kill(new)
    sim.run_until(lambda: leads(sim, other, p), what="the third leads and knows no epoch before the second's")
    log = log_of(sim, other, p)
    start = log.log_start_offset
    assert 3 < start < 23, "the old leader's own records reach beyond the others' log start"
    assert all(entry.epoch > 0 for entry in log.epochs.entries)
    sim.restart(old)
    sim.run_until(lambda: old in sim.isr(TOPIC, p), what="the old leader is in sync")
    assert log_of(sim, old, p).log_start_offset == start
    sim.must_heal()


def clocks_were_wrong_for_a_while(sim: Simulation) -> None:
    """All clocks are a minute ahead and are then corrected: records that were expired by them are gone. Records
    written from then on stay for the whole retention time."""
    retention_s = 20
    sim.start(min_insync=2, segment_bytes="1000", retention_ms=str(retention_s * 1_000), cleaning=True)
    log = log_of(sim, sim.leader(TOPIC), 0)
    write(sim, 0, "a" * 400, 6)
    for node in sim.nodes:
        sim.jump_clock(node, 60_000)
    sim.run_until(lambda: log.log_start_offset == 6, within=5, what="records expired by these clocks are removed")
    for node in sim.nodes:
        sim.jump_clock(node, -60_000)
    write(sim, 0, "b" * 400, 6)
    began = sim.loop.time()
    sim.run_until(lambda: log.log_start_offset > 6, within=2 * retention_s, what="expired records are removed")
    assert sim.loop.time() - began > retention_s * 0.95, "records were removed before their time"
    sim.must_heal()


def follower_is_damaged_as_its_leader_dies(sim: Simulation) -> None:
    """A follower detects corruption and stops. Before the controller learns of it, the leader, which hangs, is fenced
    and the follower is elected, the only member of the set. It leads with its sound records until the old leader is
    back with all records and takes over."""
    leader, rotten = on_two_nodes(sim, 1, segment_bytes="1000")
    write(sim, 0, "a" * 100, 12)
    sim.run_until(lambda: durable_offset(sim, rotten, 0) == 12, what="the follower has all")
    log = log_of(sim, rotten, 0)
    sim.pause(leader)
    sim.run_for(1.5)
    beats = sim.hold("Controller.Heartbeat", source=rotten)
    sim.machines[rotten].disk.flip_bit(log.segments[0].path, 100)
    sim.scrub(rotten, TOPIC)
    sim.run_until(lambda: fenced(sim, leader), what="the leader is fenced")
    sim.kill(leader)
    beats.release()
    sim.run_until(lambda: leads(sim, rotten, 0), what="the corrupt replica leads with its sound records")
    write(sim, 0, "b", 3, acks="1")
    sim.restart(leader)
    sim.run_until(lambda: leads(sim, leader, 0), within=60, what="the old leader leads again")
    sim.must_heal()


def alone_with_damage(sim: Simulation, p: int, rotten: int, follower: int) -> None:
    """A leader detects corruption and stops because its follower could lead. The follower hangs already, and is
    killed later; once it is fenced, the corrupt replica leads again."""
    log = log_of(sim, rotten, p)
    sim.pause(follower)
    sim.run_for(1.5)
    beats = sim.hold("Controller.Heartbeat", source=rotten)
    resigning = sim.hold("Controller.AlterPartition", source=rotten)
    sim.machines[rotten].disk.flip_bit(log.segments[0].path, 100)
    sim.scrub(rotten, TOPIC, p)
    assert not leads(sim, rotten, p)
    sim.run_until(lambda: fenced(sim, follower), what="the follower is fenced")
    sim.kill(follower)
    beats.release()
    resigning.release()
    sim.run_until(lambda: leads(sim, rotten, p), what="the corrupt replica leads with its sound records")


def leader_is_damaged_as_its_follower_dies(sim: Simulation) -> None:
    """A leader detects corruption and stops because its follower could lead. The follower is dead and is fenced
    before it is elected. The leader, alone in its set, continues in its epoch with its sound records until the
    follower is back."""
    rotten, follower = on_two_nodes(sim, 1, segment_bytes="1000")
    write(sim, 0, "a" * 100, 12)
    sim.run_until(lambda: durable_offset(sim, follower, 0) == 12, what="the follower has all")
    alone_with_damage(sim, 0, rotten, follower)
    write(sim, 0, "b", 3, acks="1")
    sim.restart(follower)
    sim.run_until(lambda: leads(sim, follower, 0), within=60, what="the follower leads")
    sim.must_heal()


def leader_begins_again_in_its_epoch(sim: Simulation) -> None:
    """A corrupt leader that had stopped is the only member left and continues in its epoch. The leader before it
    comes back with records of its own above the start of that epoch; these are truncated, although the log is longer
    by now."""
    p, old, rotten, other = three_replicas(sim, segment_bytes="1000")
    write(sim, p, "a" * 100, 12)
    sim.run_until(
        lambda: durable_offset(sim, rotten, p) == durable_offset(sim, other, p) == 12, what="all have the first records"
    )
    lost = [
        sim.hold("Data.FetchStream", source=old, target=node, part="answer", when=with_records_of(p))
        for node in (rotten, other)
    ]
    write(sim, p, "only the old leader has ", 3, acks="1")
    sim.kill(old)
    sim.run_until(lambda: leads(sim, rotten, p), what="another node leads")
    write(sim, p, "b", 5)
    alone_with_damage(sim, p, rotten, other)
    for one in lost:
        one.let_pass()
    sim.restart(old)
    sim.run_until(lambda: leads(sim, old, p), within=60, what="the old leader has all and leads")
    sim.restart(other)
    sim.must_heal()


def known_damage_outlives_a_restart(sim: Simulation) -> None:
    """A follower detects corruption and is restarted before it has reported it. Its log was durable long ago, so no
    recovery reads it. The node still knows of the corruption, fetches the log again, and leads with sound records."""
    leader, rotten = on_two_nodes(sim, 1, segment_bytes="1000")
    write(sim, 0, "a" * 100, 12)
    sim.run_until(lambda: durable_offset(sim, rotten, 0) == 12, what="the follower has all")
    log = log_of(sim, rotten, 0)
    assert isinstance(log.directory, LogDirectory)
    log.directory.write_checkpoints()
    sim.run_for(0.1)
    beats = sim.hold("Controller.Heartbeat", source=rotten)
    sim.machines[rotten].disk.flip_bit(log.segments[0].path, 100)
    sim.scrub(rotten, TOPIC)
    sim.run_for(0.1)
    sim.kill(rotten)
    beats.let_pass()
    sim.restart(rotten)
    sim.run_for(0.2)  # before the next run of the scrub
    assert not list(rotten_segments(sim)), "it continues with a flipped bit"
    sim.run_for(2)
    sim.run_until(lambda: sim.isr(TOPIC) == {leader, rotten}, what="it is in sync")
    sim.kill(leader)
    sim.run_until(lambda: leads(sim, rotten, 0), what="it leads")
    assert len(sim.read_committed(TOPIC)) == 12
    sim.must_heal()


ALL = (
    failed_sync_is_rewritten_by_recovery,
    truncation_below_the_checkpoint,
    truncation_of_messages_without_epochs,
    messages_without_their_epoch,
    epochs_are_lost,
    one_of_two_directories_is_gone,
    compaction_stops_at_the_watermark,
    deletion_known_to_the_leader_alone,
    member_has_only_its_own_epoch_left,
    durability_is_fixed,
    page_cache_is_lost_with_the_power,
    one_corrupt_replica,
    rot_before_the_first_fetch,
    rot_moves_a_batch,
    rot_moves_a_message,
    clocks_were_wrong_for_a_while,
    follower_is_damaged_as_its_leader_dies,
    leader_is_damaged_as_its_follower_dies,
    leader_begins_again_in_its_epoch,
    known_damage_outlives_a_restart,
    sparse_epochs,
)
