"""The remote tier: coordinators that die in each state of a segment, deletions, retention, lost epochs, damage."""

from __future__ import annotations

from storage.log.log import Log
from testbed.sim.workload import Transaction
from testbed.sim.world import Simulation
from tests.sim.deletion_requests import delete_records
from tests.sim.stories import TOPIC, end, leads
from tests.sim.tier_stories import (
    MINUTES,
    STARTED,
    coordinator,
    copied_end,
    ends_well,
    fill,
    finished,
    is_segment,
    known,
    leads_quorum,
    led_away_from_its_coordinator,
    start,
    wait_for_copies,
    wait_until_left,
)
from tidelog.errors import OffsetNotAvailable
from tidelog.types import REMOTE_LOG_METADATA_TOPIC


def delete_below(sim: Simulation, offset: int, p: int = 0) -> None:
    """Delete the records below an offset, as an operator does."""
    task = delete_records(sim, TOPIC, p, offset)
    sim.run_until(task.done, within=30, what="the deletion is answered")
    task.result()


def replace_coordinator(sim: Simulation, p: int) -> None:
    """Kill the node of the coordinator, and wait until the next one has loaded."""
    old = coordinator(sim, p)
    sim.kill(old)
    sim.run_until(lambda: coordinator(sim, p) not in (old, -1), within=30, what="another node is the coordinator")


# --- coordinators -----------------------------------------------------------------------------------------------------


def coordinator_dies_during_an_upload(sim: Simulation) -> None:
    """The next coordinator knows the copy that is under way, and its leader finishes it there."""
    p, _ = led_away_from_its_coordinator(sim)
    upload = sim.store.hold("put", is_segment)
    fill(sim, "a", 3, p)
    sim.run_until(lambda: upload.count > 0, what="a segment is uploaded")
    (begun,) = (each for each in known(sim, p) if each.state is STARTED)
    replace_coordinator(sim, p)
    upload.release()
    wait_for_copies(sim, 2, p)
    assert finished(sim, p)[0].segment_id == begun.segment_id, "it was copied once"
    fill(sim, "b", 2, p)
    ends_well(sim, 4, p)


def coordinator_dies_as_a_copy_is_finished(sim: Simulation) -> None:
    """That the copy is finished is committed, and the leader does not learn of it. It asks the next coordinator, and
    copies nothing a second time."""
    p, leader = led_away_from_its_coordinator(sim)
    answer = sim.hold("RemoteLogs.FinishCopy", target=leader, part="answer")
    fill(sim, "a", 3, p)
    sim.run_until(lambda: copied_end(sim, p) == 2, within=20, what="the copy is finished")
    answer.let_pass()
    replace_coordinator(sim, p)
    fill(sim, "b", 4, p)
    ends_well(sim, 6, p)
    assert [each.start_offset for each in finished(sim, p)] == [0, 2, 4], "each segment once"


def coordinator_dies_while_objects_are_removed(sim: Simulation) -> None:
    """The deletion of segments is committed and their objects are being removed. The next coordinator removes them."""
    p, _ = led_away_from_its_coordinator(sim)
    fill(sim, "a", 7, p)
    wait_for_copies(sim, 6, p)
    removal = sim.store.hold("delete")
    delete_below(sim, 5, p)
    sim.run_until(lambda: removal.count > 0, within=MINUTES, what="an object is to be removed")
    removal.let_pass()
    replace_coordinator(sim, p)
    sim.run_until(lambda: len(known(sim, p)) == 1, within=MINUTES, what="the objects are removed")
    removal.release()
    ends_well(sim, 6, p)


def removals_are_repeated(sim: Simulation) -> None:
    """The store does not answer while objects are to be removed: their segments are known until they are gone."""
    start(sim)
    fill(sim, "a", 7)
    wait_for_copies(sim, 6)
    sim.store.pace.away = True
    delete_below(sim, 4)
    sim.run_for(30)
    assert len(known(sim)) == 3, "no segment is forgotten"
    ends_well(sim, 6)
    assert len(known(sim)) == 1
    assert not sim.checkers.remote.orphans()


# --- uploads ----------------------------------------------------------------------------------------------------------


def late_upload_is_an_orphan(sim: Simulation) -> None:
    """The leader gives up an upload and copies the segment again. Then the first upload takes effect: its segment is
    gone, and nothing confuses its object with that of the second."""
    start(sim)
    upload = sim.store.hold("put", is_segment)
    fill(sim, "a", 3)
    sim.run_until(lambda: upload.count > 0, within=20, what="the first segment is uploaded")
    upload.let_pass()
    upload.give_up()
    wait_for_copies(sim, 2)
    upload.release()
    sim.run_for(5)
    assert len(sim.checkers.remote.orphans()) == 1
    fill(sim, "b", 2)
    ends_well(sim, 4)
    assert [each.start_offset for each in finished(sim)] == [0, 2]


def damaged_segment_is_not_copied(sim: Simulation) -> None:
    """A bit flips in a closed segment of the leader before it is copied. The tier does not keep the damage: the segment
    is copied by a replica that has it sound."""
    start(sim, nodes=4, partitions=4)
    p = next(int(state.partition) for state in sim.topic(TOPIC).partitions if state.leader != 0)
    leader = sim.leader(TOPIC, p)
    upload = sim.store.hold("put", is_segment)
    fill(sim, "a", 7, p)
    sim.run_until(lambda: upload.count > 0, within=20, what="the first segment is uploaded")
    log = sim.log(leader, TOPIC, p)
    assert isinstance(log, Log)
    sim.machines[leader].disk.flip_bit(log.segments[1].path, 200)
    upload.release()
    sim.run_until(lambda: copied_end(sim, p) == 2, within=MINUTES, what="the sound segment before it is copied")
    sim.run_for(2)
    sim.scrub(leader, TOPIC, p)
    fill(sim, "b", 2, p)
    ends_well(sim, 8, p)


def topic_is_deleted_during_an_upload(sim: Simulation) -> None:
    """A topic is deleted while one of its segments is uploaded: its coordinator deletes all segments. Then the upload
    takes effect."""
    start(sim)
    fill(sim, "a", 5)
    wait_for_copies(sim, 4)
    upload = sim.store.hold("put", is_segment)
    fill(sim, "b", 2)
    sim.run_until(lambda: upload.count > 0, within=20, what="a segment is uploaded")
    key = sim.partition(TOPIC).key
    sim.delete_topic(TOPIC)
    sim.run_until(lambda: not sim.checkers.remote.segments(key), within=MINUTES, what="all segments are forgotten")
    assert not sim.store.there.objects
    upload.release()
    sim.run_for(5)
    assert len(sim.checkers.remote.orphans()) == 1
    sim.must_heal()


# --- retention --------------------------------------------------------------------------------------------------------


def retention_counts_both_tiers(sim: Simulation) -> None:
    """Retention by size: the log keeps that much in both tiers together, of which the nodes have the end."""
    start(sim, retention_bytes="4000")
    fill(sim, "a", 24)
    sim.run_until(lambda: bool(known(sim)) and known(sim)[0].start_offset > 8, within=MINUTES, what="segments expire")
    wait_until_left(sim, 22)
    ends_well(sim, 22)
    assert sim.ledger(TOPIC).size_from(sim.start_of(TOPIC, 0)) >= 4000


def retention_by_age(sim: Simulation) -> None:
    """Remote segments expire by age. The leader dies as the log start has moved: its successor continues."""
    start(sim, partitions=3, retention_ms="20000")
    p = sim.led_by(TOPIC, 1)
    fill(sim, "a", 9, p)
    wait_until_left(sim, 8, p)
    sim.run_until(lambda: sim.start_of(TOPIC, p) > 0, within=MINUTES, what="the oldest segments expire")
    sim.kill(1)
    sim.run_until(lambda: not known(sim, p), within=MINUTES, what="all that was copied has expired")
    fill(sim, "b", 4, p)
    sim.heal_everything()
    sim.must_heal()


def deletion_known_to_the_leader_alone(sim: Simulation) -> None:
    """An operator deletes records, and their segments with them. The leader dies before a follower has learned of the
    new log start: the next one neither finds damage nor brings the records back."""
    p, leader = led_away_from_its_coordinator(sim)
    fill(sim, "a", 11, p)
    wait_until_left(sim, 10, p)
    held = [sim.hold("Data.FetchStream", source=leader, target=node, part="answer") for node in sim.followers(TOPIC, p)]
    sim.run_for(0.2)
    task = delete_records(sim, TOPIC, p, 6)
    sim.run_until(lambda: len(finished(sim, p)) == 2, within=4, what="the segments are deleted")
    sim.kill(leader)
    for each in held:
        each.release()
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (leader, -1), within=30, what="a follower leads")
    fill(sim, "b", 2, p)
    sim.run_until(task.done, within=60, what="the deletion is answered")
    ends_well(sim, 12, p)
    assert sim.start_of(TOPIC, p) == 6


# --- leaders ----------------------------------------------------------------------------------------------------------


def follower_knows_fewer_copies(sim: Simulation) -> None:
    """A follower was not told of the last copies when it becomes the leader. It asks first, and copies none of them
    again."""
    start(sim, partitions=3)
    p = sim.led_by(TOPIC, 1)
    fill(sim, "a", 3, p)
    wait_until_left(sim, 2, p)
    lists = [sim.hold("RemoteLogs.ListRemoteSegments", source=node) for node in (0, 2)]
    fill(sim, "b", 6, p)
    wait_for_copies(sim, 8, p)
    wait_until_left(sim, 8, p, nodes=(1,))
    for each in lists:
        each.let_pass()
    sim.kill(1)
    fill(sim, "c", 2, p)
    ends_well(sim, 10, p)
    starts = [each.start_offset for each in finished(sim, p)]
    assert starts == [0, 2, 4, 6, 8], "each segment once"


def apart_from_its_coordinator(sim: Simulation) -> tuple[int, int]:
    """A partition of two replicas with its coordinator on another node, and its leader."""
    start(sim, nodes=4, partitions=8, replicas=2)
    sim.run_until(
        lambda: sim.image().topic(REMOTE_LOG_METADATA_TOPIC) is not None, within=60, what="leaders have registered"
    )
    sim.run_for(3)
    for state in sim.topic(TOPIC).partitions:
        p = int(state.partition)
        if state.leader and coordinator(sim, p) not in state.replicas and not leads_quorum(sim, state.leader):
            return p, state.leader
    raise AssertionError("every coordinator has a replica")


def new_leader_reads_what_it_knew(sim: Simulation) -> None:
    """A follower becomes the leader, and the coordinator does not answer its lists: it answers reads of what it knew to
    be in the store, and no question for which it must know all."""
    p, leader = apart_from_its_coordinator(sim)
    fill(sim, "a", 11, p)
    wait_until_left(sim, 10, p)
    lists = sim.hold("RemoteLogs.ListRemoteSegments")
    sim.kill(leader)
    sim.run_until(
        lambda: lists.count > 0 and sim.leader(TOPIC, p) not in (leader, -1),
        within=30,
        what="the follower leads, and lists what is in the tier",
    )
    assert len(sim.read_committed(TOPIC, p)) == 11
    client = sim.client()
    asked = client.start(client.newest(TOPIC, p), "asks for the newest record")
    sim.run_until(asked.done, within=30, what="the question is answered")
    assert isinstance(asked.exception(), OffsetNotAvailable), "a later segment may have it"
    lists.release()
    ends_well(sim, 10, p)


def new_leader_knew_segments_that_are_deleted(sim: Simulation) -> None:
    """The same, after a deletion of records of which the new leader has not learned. It cannot read these records, and
    tells no reader that they are lost: its log start follows."""
    p, leader = apart_from_its_coordinator(sim)
    fill(sim, "a", 11, p)
    wait_until_left(sim, 10, p)
    held = sim.hold("Data.FetchStream", source=leader, target=sim.followers(TOPIC, p)[0], part="answer")
    sim.run_for(0.2)
    deletion = delete_records(sim, TOPIC, p, 6)
    sim.run_until(lambda: len(known(sim, p)) == 2, within=5, what="the segments are deleted, and their objects gone")
    lists = sim.hold("RemoteLogs.ListRemoteSegments")
    sim.kill(leader)
    held.let_pass()
    sim.run_until(
        lambda: lists.count > 0 and sim.leader(TOPIC, p) not in (leader, -1), within=30, what="the follower leads"
    )
    assert sim.start_of(TOPIC, p) == 0, "it does not know of the deletion"
    client = sim.client()
    reading = sim.checkers.reading(sim.ledger(TOPIC, p), decided=False, position=0)
    reads = client.start(client.read_to(TOPIC, p, 11, reading), "reads from the first record on")
    sim.run_for(3)
    assert not reads.done(), "it waits"
    lists.release()
    sim.run_until(reads.done, within=60, what="it goes on at the new log start")
    reads.result()
    sim.run_until(deletion.done, within=60, what="the deletion is answered")
    ends_well(sim, 10, p)


def segments_of_a_lost_epoch(sim: Simulation) -> None:
    """The leader alone commits and copies what an unclean election then takes away. Its successor copies its own
    segments, and no reader is given the lost records. The lost segments are kept for a while, and then deleted; a
    follower passes them over, also one that ends behind its high watermark."""
    start(sim, nodes=4, partitions=12, replicas=2, unclean_leader_election_enable="true")
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    leader, other = sim.leader(TOPIC, p), sim.followers(TOPIC, p)[0]
    fill(sim, "a", 5, p)
    sim.run_until(lambda: end(sim, other, p) == 5, what="both have the first records")
    sim.kill(other)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader}, within=30, what="the leader is alone")
    for number in range(20):  # small ones: a segment of theirs reaches further than the next leader's log
        sim.produce(TOPIC, b"lost %d" % number, partition=p).wait(within=60)
    wait_for_copies(sim, 10, p)
    wait_until_left(sim, 10, p, nodes=(leader,))
    lost = {each.segment_id for each in finished(sim, p) if each.end_offset > 5}
    sim.read_committed(TOPIC, p)  # what was read is in the cache of the leader
    sim.kill(leader)
    sim.restart(other)
    sim.run_until(lambda: leads(sim, other, p), within=60, what="the other one leads")
    fill(sim, "b", 4, p)
    sim.restart(leader)
    wait_until_left(sim, 8, p)
    ids = {each.segment_id for each in finished(sim, p)}
    assert lost < ids, "lost segments are kept for a while"
    sim.run_until(
        lambda: lost.isdisjoint(each.segment_id for each in known(sim, p)),
        within=MINUTES,
        what="what was lost is not in the tier",
    )
    fill(sim, "c", 4, p)
    ends_well(sim, 12, p)
    values = sim.read_committed(TOPIC, p)
    assert not any(value is not None and value.startswith(b"lost") for value in values)


def empty_replica_is_elected_by_mistake(sim: Simulation) -> None:
    """An unclean election makes an empty replica the leader of a long history, which it does not believe. The objects
    are kept for a while, in which an operator could take the election back, and then deleted."""
    start(sim, nodes=4, partitions=12, replicas=2, unclean_leader_election_enable="true")
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    leader, other = sim.leader(TOPIC, p), sim.followers(TOPIC, p)[0]
    fill(sim, "a", 7, p)
    wait_until_left(sim, 6, p)
    history = {each.segment_id for each in finished(sim, p)}
    sim.kill(other)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader}, within=30, what="the leader is alone")
    sim.kill(leader)
    sim.empty(other)
    sim.restart(other)
    sim.run_until(lambda: leads(sim, other, p), within=60, what="the empty one leads")
    fill(sim, "b", 3, p)
    sim.run_until(lambda: len(finished(sim, p)) == 4, within=20, what="it copies its own segment")
    assert history < {each.segment_id for each in finished(sim, p)}, "what was there is kept for a while"
    sim.restart(leader)
    wait_until_left(sim, 2, p)
    assert history < {each.segment_id for each in finished(sim, p)}, "the other's segment leaves both nodes meanwhile"
    sim.run_until(
        lambda: history.isdisjoint(each.segment_id for each in known(sim, p)),
        within=MINUTES,
        what="what was there is not in the tier",
    )
    fill(sim, "c", 4, p)
    ends_well(sim, 6, p)


def aborted_transaction_in_the_tier(sim: Simulation) -> None:
    """An aborted transaction fills segments that are only in the store; its marker is in a later one, or on the nodes
    only. Readers of decided transactions are given none of it."""
    start(sim)
    transaction, following = Transaction(70, 0), Transaction(71, 0)
    for number in range(4):
        sim.produce_in(transaction, TOPIC, f"aborted {number} ".encode().ljust(400, b".")).wait()
        sim.produce_in(following, TOPIC, f"kept {number} ".encode().ljust(400, b".")).wait()
    sim.run_for(5)
    assert not finished(sim), "nothing is copied while it is undecided"
    sim.decide(transaction, commit=False)
    sim.decide(following, commit=True)
    fill(sim, "a", 3)
    wait_until_left(sim, 8)
    values = sim.read_decided(TOPIC)
    assert len(values) == 7
    ends_well(sim, 10)


ALL = (
    coordinator_dies_during_an_upload,
    coordinator_dies_as_a_copy_is_finished,
    coordinator_dies_while_objects_are_removed,
    removals_are_repeated,
    late_upload_is_an_orphan,
    damaged_segment_is_not_copied,
    topic_is_deleted_during_an_upload,
    retention_counts_both_tiers,
    retention_by_age,
    deletion_known_to_the_leader_alone,
    follower_knows_fewer_copies,
    new_leader_reads_what_it_knew,
    new_leader_knew_segments_that_are_deleted,
    segments_of_a_lost_epoch,
    empty_replica_is_elected_by_mistake,
    aborted_transaction_in_the_tier,
)
