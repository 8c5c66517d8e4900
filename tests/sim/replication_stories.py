"""Stories of replication beyond the design's scenarios: the findings of Kafka's improvement proposals, in-sync sets
that are too small, full or failing disks, changes of leadership without a record.

Setup as in stories.py. Node 0 is the only voter of the metadata quorum; the leader and the followers of a partition
without a replica on it die alone.
"""

from __future__ import annotations

import contextlib
from typing import Any

from storage.log.log import Log
from testbed.sim.loop import once_each
from testbed.sim.machine import endpoint_of
from testbed.sim.network import Envelope
from testbed.sim.workload import Client, Fate
from testbed.sim.world import Simulation
from tests.fakes.log_start import delete_old_segments
from tests.sim.quorum_stories import wait_active
from tests.sim.stories import (
    TOPIC,
    admits,
    asks_for,
    committed,
    delete_below,
    durable_offset,
    end,
    epoch,
    fenced,
    leads,
    with_records_of,
    write,
)
from tidelog.errors import (
    DiskFull,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    OffsetNotAvailable,
    StaleNodeEpoch,
    TidelogError,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2, data_pb2


def away_from_the_voter(sim: Simulation) -> tuple[int, list[int]]:
    """A partition without a replica on node 0, and its replicas, the leader first."""
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    state = sim.partition(TOPIC, p)
    return p, [state.leader, *(int(node) for node in state.replicas if node != state.leader)]


# --- truncation: KIP-101, KIP-279 -----------------------------------------------------------------------------------


def watermark_does_not_truncate(sim: Simulation) -> None:
    """KIP-101: a leader dies as soon as a record is committed, before a follower knows that. No follower truncates
    the record, although it does not know it as committed; the crash of the next leader loses nothing either."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (first, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 5)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: committed(sim, p) == 6, what="the record is committed")
    sim.kill(first)
    sim.run_until(lambda: any(leads(sim, node, p) for node in others), what="a follower leads")
    second = sim.leader(TOPIC, p)
    (third,) = (node for node in others if node != second)
    sim.run_until(lambda: epoch(sim, third, p) == epoch(sim, second, p), what="the other follows")
    assert end(sim, third, p) == 6, "a committed record was truncated"
    sim.restart(first)
    sim.power_off(second, forget_all=True)
    sim.restart(second)
    sim.must_heal()


def epochs_that_only_a_follower_has(sim: Simulation) -> None:
    """KIP-279, scenario 15: leaders change quickly, and a replica has two epochs that the last leader does not know,
    both below the end of that leader's first epoch. The replica truncates in as many steps as needed."""
    sim.start(nodes=5, topics=())
    sim.create_topic(TOPIC, partitions=10, replicas=4, min_insync=1)
    p = sim.partition_where(TOPIC, lambda state: 0 not in state.replicas)
    a, f, d, c = (int(node) for node in sim.partition(TOPIC, p).replicas)
    assert sim.leader(TOPIC, p) == a
    write(sim, p, "a", 3)
    sim.run_until(
        lambda: all(durable_offset(sim, node, p) == 3 for node in (f, d, c)), what="all hold the first records"
    )
    for node in (f, d):
        sim.hold("Data.FetchStream", source=a, target=node, part="answer", when=with_records_of(p))
    write(sim, p, "only c has ", 2, acks="1")
    sim.run_until(lambda: durable_offset(sim, c, p) == 5, what="one follower has the first leader's last records")
    kept = sim.hold("Data.FetchStream", source=c, when=asks_for(p))
    sim.kill(a)
    sim.run_until(lambda: leads(sim, f, p), what="the second leader leads")
    write(sim, p, "b", 2, acks="1")
    sim.run_until(lambda: durable_offset(sim, d, p) == 5, what="the third has the second leader's records")
    sim.kill(f)
    sim.run_until(lambda: leads(sim, d, p), what="the third leads")
    write(sim, p, "c", 1, acks="1")
    sim.kill(d)
    sim.run_until(lambda: leads(sim, c, p), what="the fourth leads")
    assert end(sim, c, p) == 5
    kept.let_pass()
    write(sim, p, "d", 5)
    sim.restart(d)
    sim.run_until(
        lambda: sim.replica(d, TOPIC, p) is not None and end(sim, d, p) == end(sim, c, p) == 10,
        within=5,
        what="the third is truncated and has the new records",
    )
    sim.must_heal()


def empty_epochs(sim: Simulation) -> None:
    """Leaderships change without a record between them, then a leader dies with a record that no other replica has."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, replicas = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    for _ in range(4):
        leader = sim.leader(TOPIC, p)
        sim.kill(leader)
        sim.run_until(lambda gone=leader: sim.leader(TOPIC, p) not in (gone, -1), what="another leads")  # type: ignore[misc]
        sim.restart(leader)
        sim.run_until(lambda: sim.isr(TOPIC, p) == set(replicas), what="all are in sync")
    leader = sim.leader(TOPIC, p)
    for node in replicas:
        if node != leader:
            sim.hold("Data.FetchStream", source=leader, target=node, part="answer", when=with_records_of(p))
    write(sim, p, "b", 3, acks="1")
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (leader, -1), what="another node leads")
    write(sim, p, "c", 2)
    sim.restart(leader)
    sim.run_until(lambda: sim.isr(TOPIC, p) == set(replicas), what="all are in sync")
    sim.must_heal()


# --- sets that are too small ----------------------------------------------------------------------------------------


def too_small_a_set(sim: Simulation) -> None:
    """Rules 3 and 5: the in-sync set shrinks below the minimum. A waiting producer learns that its record is written
    but not committed, a later one that nothing was. With any `acks`, nothing is committed until the set has grown."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    for node in others:
        sim.kill(node)
    waiting = sim.produce(TOPIC, b"waits", partition=p)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader}, what="the leader is alone in sync")
    sim.run_until(lambda: waiting.done, within=1, what="the waiting producer has its answer")
    assert isinstance(waiting.error, NotEnoughReplicasAfterAppend), f"a set that is too small has committed {waiting}"
    late = sim.produce(TOPIC, b"late", partition=p)
    sim.run_until(lambda: late.error is not None, within=1, what="a later record is refused")
    assert isinstance(late.error, NotEnoughReplicas)
    write(sim, p, "alone", 2, acks="1")
    sim.run_for(1)
    assert committed(sim, p) == 3, "a set that is too small has committed"
    assert len(sim.read_committed(TOPIC, p)) == 3
    sim.restart(others[0])
    sim.run_until(lambda: late.done and committed(sim, p) == 7, what="all is committed")
    sim.must_heal()


def last_member_loses_power(sim: Simulation) -> None:
    """KIP-966: the replicas are lost one after the other, the last one in a power loss. The earlier ones come back
    first and wait."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, replicas = away_from_the_voter(sim)
    gone = []
    for number in range(3):
        write(sim, p, f"{number} ", 3)
        leader = sim.leader(TOPIC, p)
        sim.power_off(leader, forget_all=True)
        gone.append(leader)
        sim.run_until(lambda old=leader: sim.leader(TOPIC, p) != old, what="it is fenced")  # type: ignore[misc]
        sim.run_until(lambda: number == 2 or sim.leader(TOPIC, p) >= 0, what="the next one leads")  # noqa: B023
    assert sim.isr(TOPIC, p) == {gone[-1]}
    for node in gone[:2]:
        sim.restart(node)
    sim.run_for(5)
    assert sim.leader(TOPIC, p) == -1, "a replica without the last record leads"
    sim.restart(gone[-1])
    sim.run_until(lambda: sim.leader(TOPIC, p) == gone[-1], what="the last one leads")
    assert set(replicas) == set(gone)
    sim.must_heal()


def stuck_leader_hands_over(sim: Simulation) -> None:
    """Rule 4: a leader whose own fsync hangs resigns, and the others continue."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    sim.stall_disk(leader)
    sent = sim.produce(TOPIC, b"b", acks="1", partition=p)
    sim.run_for(1)
    assert not sent.done, "acknowledged by a leader that does not hold it"
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (leader, -1), within=10, what="the stuck leader resigns")
    assert leader not in sim.isr(TOPIC, p)
    sim.run_until(lambda: any(leads(sim, node, p) for node in others), what="another node leads")
    write(sim, p, "c", 2, asking=(sim.leader(TOPIC, p),))
    sim.must_heal()


def stuck_leader_hands_over_to_an_eligible_one(sim: Simulation) -> None:
    """Rule 4: the leader's own fsync hangs, and it is alone in the in-sync set. An eligible replica that does not
    reach it has everything that is committed. It leads, and the replicas that come back follow it."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, eligible, third) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    sim.kill(third)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader, eligible}, what="the third is fenced")
    sim.disconnect_link(eligible, leader)
    write(sim, p, "b", 1, acks="1")
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader}, within=15, what="the other member is behind")
    assert sim.partition(TOPIC, p).elr == (eligible,)
    sim.stall_disk(leader)
    sent = sim.produce(TOPIC, b"c", acks="1", partition=p, timeout_ms=60_000)
    sim.run_until(lambda: sim.leader(TOPIC, p) == eligible, within=15, what="the stuck leader resigns")
    assert leader not in sim.partition(TOPIC, p).counted_on
    sim.restart(third)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {eligible, third}, what="two are in sync again")
    write(sim, p, "d", 2, asking=(eligible,))
    sim.must_heal()
    assert sent.fate is Fate.UNKNOWN


def first_resignation_is_lost(sim: Simulation) -> None:
    """Rule 4: the controller does not answer when a stuck leader resigns. The leader resigns again."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, *_) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    lost = sim.hold("Controller.AlterPartition", source=leader)
    sim.stall_disk(leader)
    sim.produce(TOPIC, b"b", acks="1", partition=p)
    sim.run_until(lambda: lost.count > 0, within=10, what="the stuck leader resigns")
    sim.run_for(4)
    lost.let_pass()
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (leader, -1), within=10, what="it resigns again")
    sim.must_heal()


def all_stop_at_once(sim: Simulation) -> None:
    """Scenario 16: all nodes get SIGTERM. The last member stays in each set, and the cluster comes back completely."""
    sim.start(nodes=3, voters=3, min_insync=1, partitions=3)
    for p in range(3):
        write(sim, p, "a", 2)
    for node in sim.nodes:
        sim.stop(node)
    sim.run_until(lambda: not any(machine.up for machine in sim.machines.values()), within=60, what="all have stopped")
    for node in sim.nodes:
        sim.restart(node)
    wait_active(sim, within=15)
    sim.must_heal()


# --- answers to clients --------------------------------------------------------------------------------------------


def new_leader_does_not_know_the_end(sim: Simulation) -> None:
    """KIP-207: a new leader has everything that is committed but may not know it yet. Until it does, it does not
    report the end of the committed log."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (first, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 5)
    sim.run_for(1)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: committed(sim, p) == 6, what="the record is committed")
    sim.kill(first)
    for node in others:
        sim.disconnect_link(node, next(other for other in others if other != node))
    sim.run_until(lambda: any(leads(sim, node, p) for node in others), what="a follower leads")
    leader = next(node for node in others if leads(sim, node, p))
    assert sim.log(leader, TOPIC, p).high_watermark == 5
    asked = sim.client((leader,))
    early = asked.start(reported_end(sim, asked, p), "asks for the end")
    sim.run_until(early.done, within=1, what="it is answered")
    assert isinstance(early.exception(), OffsetNotAvailable), f"an end before it is known: {early.exception()}"
    for node in others:
        sim.heal(node)
    sim.run_until(lambda: sim.log(leader, TOPIC, p).high_watermark == 6, what="the leader knows")
    late = asked.start(reported_end(sim, asked, p), "asks for the end again")
    sim.run_until(late.done, within=1, what="it is answered")
    assert late.result() == 6
    sim.must_heal()


async def reported_end(sim: Simulation, client: Client, p: int) -> int:
    """The end of the committed log as the leader reports it; the checkers verify it too."""
    asked_at = sim.ledger(TOPIC, p).end
    epoch_of_it, offset = await client.reported_end(TOPIC, p)
    sim.checkers.reported_end(sim.ledger(TOPIC, p), epoch_of_it, offset, asked_at)
    return offset


def committed_records_are_read_without_another_fetch(sim: Simulation) -> None:
    """A leader alone in its set holds everything when it begins, and its high watermark checkpoint is old. What is
    committed can be read at once, without a further fetch or write."""
    sim.start(nodes=3, topics=())
    sim.create_topic(TOPIC, replicas=1, partitions=3, min_insync=1)
    p = sim.led_by(TOPIC, 2)
    write(sim, p, "a", 5)
    sim.kill(2)
    sim.run_until(lambda: fenced(sim, 2), what="the leader is fenced")
    sim.restart(2)
    sim.run_until(lambda: leads(sim, 2, p), what="it leads again")
    assert sim.log(2, TOPIC, p).high_watermark == 5, "a leader alone in its set waits for others"
    assert len(sim.read_committed(TOPIC, p)) == 5
    sim.must_heal()


def ack_of_another_epoch(sim: Simulation) -> None:
    """Scenario 11: a record waits for the high watermark; its leader is replaced, truncates it and leads again, and the
    high watermark passes that offset with another record. The first record must not be acknowledged."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (old, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    for node in others:
        sim.disconnect_link(node, old)
    client = sim.client((old,))
    task = client.start(client.leader(TOPIC, p), "looks the leader up")
    sim.run_until(task.done, what="it knows")
    waiting = sim.produce(TOPIC, b"waits", partition=p, client=client, timeout_ms=60_000)
    sim.run_until(lambda: end(sim, old, p) == 4, what="the record is appended")
    sim.disconnect(old)
    sim.run_until(lambda: any(leads(sim, node, p) for node in others), what="another node leads")
    new = next(node for node in others if leads(sim, node, p))
    sent = sim.produce(TOPIC, b"other", partition=p, client=sim.client((new,)))
    sim.heal(old)
    sim.run_until(lambda: sent.done and end(sim, old, p) == 4 and epoch(sim, old, p) == epoch(sim, new, p))
    sim.run_until(lambda: old in sim.isr(TOPIC, p), what="the old leader is in sync again")
    sim.run_for(0.2)
    assert waiting.fate is not Fate.ACKNOWLEDGED
    sim.stop(new)
    sim.must_heal()
    assert waiting.fate is Fate.UNKNOWN


def reader_behind_the_end_of_its_epoch(sim: Simulation) -> None:
    """KIP-320: a reader sends the epoch of its last record. If the leader's records of that epoch end before it, the
    reader gets the diverging epoch and not other records."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (old, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 5)
    first_epoch = int(epoch(sim, old, p))
    sim.kill(old)
    sim.run_until(lambda: any(leads(sim, node, p) for node in others), what="another node leads")
    write(sim, p, "b", 5, asking=tuple(others))
    client = sim.client(others)
    task = client.start(client.truncation(TOPIC, p, 7, first_epoch), "reads on from offset 7")
    sim.run_until(task.done, within=5, what="it is answered")
    assert task.result() == (first_epoch, 5), "a reader received records of another epoch"
    sim.must_heal()


# --- positions of other epochs and incarnations --------------------------------------------------------------------


def heard_from(sim: Simulation, follower: int, leader: int, p: int) -> data_pb2.FetchRequest:
    """The fetch of one partition that the follower's present incarnation sends to its leader."""
    heard: list[Any] = []

    def note(envelope: Envelope) -> bool:
        if asks_for(p)(envelope):
            heard.append(envelope.message)
        return False

    sim.hold("Data.FetchStream", source=follower, target=leader, when=note)
    sim.produce(TOPIC, b"to be fetched by %d" % follower, acks="1", partition=p)  # idle ones are not listed
    sim.run_until(lambda: bool(heard), what="the follower fetches")
    said = data_pb2.FetchRequest()
    said.CopyFrom(heard[-1])
    kept = next(asked for asked in said.partitions if asked.partition == p)
    del said.partitions[:], said.durable_positions[:]
    said.partitions.append(kept)
    said.max_wait_ms = 0
    return said


def arrives(sim: Simulation, leader: int, *said: data_pb2.FetchRequest) -> TidelogError | None:
    """Late requests arrive at a leader, on a stream that stays open. Returns the first error in its answers."""
    client = sim.client()
    errors: list[TidelogError] = []

    async def call() -> None:
        stream = await client.transport.open_stream(endpoint_of(leader), methods.DATA_FETCH_STREAM)
        for each in said:
            await stream.send(each)
        with contextlib.suppress(TidelogError):  # the follower takes its place again
            while (answer := await stream.receive()) is not None:
                errors.extend(each.error for each in answer.partitions if each.error is not None)

    client.start(call(), "is late")
    sim.run_for(1)
    return errors[0] if errors else None


def fetch_of_an_older_epoch(sim: Simulation) -> None:
    """Rule 1: a follower's fetch of an older epoch arrives in the next one. It is refused and counts for nothing."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (first, leader, follower) = away_from_the_voter(sim)
    write(sim, p, "a", 2)
    said = heard_from(sim, follower, first, p)
    sim.kill(first)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (first, -1), what="another node leads")
    if sim.leader(TOPIC, p) == follower:
        leader, follower = follower, leader
        said.replica.CopyFrom(heard_from(sim, follower, leader, p).replica)
    sim.run_until(lambda: leads(sim, leader, p), what="another node knows that it leads")
    assert isinstance(arrives(sim, leader, said), FencedLeaderEpoch), "a fetch of an older epoch was answered"
    sim.must_heal()


def fetch_of_an_earlier_incarnation(sim: Simulation) -> None:
    """Rule 1: a fetch of a dead process arrives when its node is back as another incarnation. It counts for nothing."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (leader, follower, _) = away_from_the_voter(sim)
    write(sim, p, "a", 5)
    said = heard_from(sim, follower, leader, p)
    sim.kill(follower)
    sim.run_until(lambda: fenced(sim, follower), what="the follower is fenced")
    sim.restart(follower)
    sim.run_until(lambda: follower in sim.isr(TOPIC, p), what="it is in sync as another process")
    assert isinstance(arrives(sim, leader, said), StaleNodeEpoch), "a fetch of an earlier incarnation was answered"
    sim.must_heal()


def report_of_another_stream(sim: Simulation) -> None:
    """Scenario 2, variant: a follower's report on a closed stream arrives after those on its present one. Only the
    stream on which its fetch agreed with the log may report durable offsets."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (leader, follower, other) = away_from_the_voter(sim)
    write(sim, p, "a", 5)
    said = heard_from(sim, follower, leader, p)
    sim.run_until(
        lambda: durable_offset(sim, follower, p) == durable_offset(sim, other, p) == committed(sim, p) == 6,
        what="all hold everything",
    )
    sim.stall_disk(follower)
    sim.produce(TOPIC, b"b", acks="1", partition=p).wait()
    sim.run_until(
        lambda: end(sim, follower, p) == durable_offset(sim, other, p) == 7, what="the follower has not synced it"
    )
    asked = said.partitions[0]
    said.durable_positions.add(
        topic_id=asked.topic_id, partition=p, leader_epoch=asked.current_leader_epoch, durable_offset=7
    )
    del said.partitions[:]
    arrives(sim, leader, said)
    assert committed(sim, p) == 6, "another stream's report counted"
    sim.release_disk(follower)
    sim.must_heal()


# --- admission to the set: KIP-841, KIP-903 -----------------------------------------------------------------------


def unfit_joiner(sim: Simulation, *, back: bool) -> None:
    """A leader's proposal is delayed; meanwhile the joiner is fenced, or is back as another process."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, joiner, _) = away_from_the_voter(sim)
    write(sim, p, "a", 5)
    sim.disconnect_link(joiner, leader)
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: joiner not in sim.isr(TOPIC, p), what="the follower is removed for its lag")
    late = sim.hold("Controller.AlterPartition", source=leader, when=admits(joiner))
    sim.heal_link(joiner, leader)
    sim.run_until(lambda: late.count > 0, what="the leader proposes to add it again")
    sim.disconnect_link(joiner, leader)
    sim.kill(joiner)
    sim.run_until(lambda: fenced(sim, joiner), what="the joiner is fenced")
    if back:
        sim.restart(joiner)
        sim.run_until(lambda: not fenced(sim, joiner), what="the joiner is back")
    late.release()
    sim.never(lambda: joiner in sim.isr(TOPIC, p), seconds=0.5, what="admitted although it is not the proposed one")
    late.let_pass()
    sim.must_heal()


def fenced_joiner(sim: Simulation) -> None:
    """KIP-841: a fenced node joins no set."""
    unfit_joiner(sim, back=False)


def joiner_of_another_incarnation(sim: Simulation) -> None:
    """KIP-903: a proposal names incarnations; a dead process joins no set although its node is back."""
    unfit_joiner(sim, back=True)


# --- disks ----------------------------------------------------------------------------------------------------------


def full_disk(sim: Simulation, *, of_the_leader: bool) -> None:
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, follower, _) = away_from_the_voter(sim)
    node = leader if of_the_leader else follower
    write(sim, p, "a", 3)
    sim.fill_disk(node, room=3_000)
    client = sim.client()
    sent = [
        sim.produce(TOPIC, f"b{number} ".encode() + b"." * 1_000, partition=p, client=client) for number in range(12)
    ]
    if of_the_leader:
        sim.run_until(lambda: any(isinstance(one.error, DiskFull) for one in sent), what="a record finds no free space")
        sim.run_for(3)
        asked = sim.admin(methods.ADMIN_EXPLAIN_PARTITIONS, admin_pb2.ExplainPartitionsRequest())
        reported = {each.partition.partition: each for each in asked.partitions}[p]
        assert (reported.readable, reported.writable) == (True, False)
        assert f"the leader, node {leader}, rejects every write: the disk of /data is full" in reported.causes[0]
        assert f"`tidelog partition reassign {TOPIC}-{p} --replicas {follower}," in reported.steps[1]
    else:
        sim.run_until(once_each(sent, lambda one: one.done), what="the others continue")
        sim.run_until(lambda: follower not in sim.isr(TOPIC, p), what="the full replica is removed")
    sim.fill_disk(node, room=None)
    sim.run_until(once_each(sent, lambda one: one.done), what="with free space all are written")
    assert sent[-1].fate is Fate.ACKNOWLEDGED
    assert not any(one.fate is Fate.REFUSED for one in sent)
    sim.run_until(lambda: node in sim.isr(TOPIC, p), what="it continues by itself")
    sim.must_heal()


def leader_with_a_full_disk(sim: Simulation) -> None:
    """A leader without free space refuses records as certainly not written, and continues when there is space."""
    full_disk(sim, of_the_leader=True)


def follower_with_a_full_disk(sim: Simulation) -> None:
    """A follower without free space leaves the set and the others continue; with free space it catches up."""
    full_disk(sim, of_the_leader=False)


def failed_sync_is_not_repeated(sim: Simulation) -> None:
    """Scenario 14: an fsync fails, and the bytes that it was to save are lost even if a later fsync succeeds. The
    directory goes offline: a power loss then loses nothing that was acknowledged."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, follower, _) = away_from_the_voter(sim)
    write(sim, p, "a", 3)
    sim.break_disk(follower, "sync", path=f"/data/{TOPIC}-{p}")
    write(sim, p, "b", 5)
    sim.run_for(1)
    write(sim, p, "c", 5)
    for node in (leader, follower):
        sim.power_off(node, forget_all=True)
    sim.repair_disk(follower)
    sim.must_heal()


def retention_stops_at_the_watermark(sim: Simulation) -> None:
    """Scenario 10: records are old enough for retention but not committed. They stay until they are committed."""
    sim.start(nodes=4, min_insync=2, partitions=12, segment_bytes="1000", retention_ms="1000")
    p, (leader, *others) = away_from_the_voter(sim)
    for node in others:
        sim.disconnect_link(node, leader)
    sim.disconnect_link(leader, others[0])
    client = sim.client()
    for number in range(10):
        sim.produce(TOPIC, f"{number} ".encode() + b"." * 400, acks="1", partition=p, client=client)
    log = sim.log(leader, TOPIC, p)
    sim.run_until(lambda: log.log_end_offset == 10, what="the records are appended")
    assert isinstance(log, Log)
    delete_old_segments(log, log.directory.clock.wall_ms() + 3_600_000)  # as the maintenance does
    assert log.log_start_offset <= committed(sim, p), "uncommitted records were deleted"
    sim.must_heal()


def follower_below_the_log_start(sim: Simulation) -> None:
    """The records at the log end of a follower that is down are deleted. It restarts at the leader's log start."""
    sim.start(nodes=4, min_insync=2, partitions=12, segment_bytes="1000", retention_ms="1000")
    p, (leader, follower, _) = away_from_the_voter(sim)
    sim.kill(follower)
    write(sim, p, "." * 400, 12)
    log = sim.log(leader, TOPIC, p)
    assert isinstance(log, Log)
    sim.jump_clock(leader, 3_600_000)
    delete_old_segments(log, log.directory.clock.wall_ms())
    assert log.log_start_offset > 0
    sim.restart(follower)
    sim.run_until(lambda: follower in sim.isr(TOPIC, p), what="the follower is in sync")
    assert sim.log(follower, TOPIC, p).log_start_offset == log.log_start_offset
    sim.must_heal()


def leader_starts_within_a_batch(sim: Simulation) -> None:
    """An operator deletes records up to the middle of a batch. A replica that joins then starts there and gets the
    whole batch."""
    sim.start(nodes=4, min_insync=2, partitions=12)
    p, (leader, follower, _) = away_from_the_voter(sim)
    producer = sim.producer(linger_ms=20)
    batch = [producer.send(TOPIC, b"%d" % number, p) for number in range(5)]
    assert [sent.wait() for sent in batch] == [0, 1, 2, 3, 4]
    delete_below(sim, leader, p, 3)
    sim.kill(follower)
    sim.run_until(lambda: follower not in sim.isr(TOPIC, p), what="the follower is removed")
    sim.empty(follower)
    sim.restart(follower)
    sim.run_until(lambda: follower in sim.isr(TOPIC, p), what="the emptied replica is in sync")
    sim.run_until(lambda: sim.log(follower, TOPIC, p).log_start_offset == 3, what="it starts where the leader does")
    write(sim, p, "more ", 2)
    sim.must_heal()


ALL = (
    watermark_does_not_truncate,
    epochs_that_only_a_follower_has,
    empty_epochs,
    too_small_a_set,
    last_member_loses_power,
    stuck_leader_hands_over,
    stuck_leader_hands_over_to_an_eligible_one,
    first_resignation_is_lost,
    all_stop_at_once,
    new_leader_does_not_know_the_end,
    committed_records_are_read_without_another_fetch,
    ack_of_another_epoch,
    reader_behind_the_end_of_its_epoch,
    fetch_of_an_older_epoch,
    fetch_of_an_earlier_incarnation,
    report_of_another_stream,
    fenced_joiner,
    joiner_of_another_incarnation,
    leader_with_a_full_disk,
    follower_with_a_full_disk,
    failed_sync_is_not_repeated,
    retention_stops_at_the_watermark,
    follower_below_the_log_start,
    leader_starts_within_a_batch,
)
