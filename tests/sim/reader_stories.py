"""Stories of readers: at the leader and at a nearer follower (KIP-392), with epochs, up to the high watermark.

Setup as in stories.py. Node 0 is the only voter of the metadata quorum; each node is in its own rack.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from testbed.sim.machine import endpoint_of
from testbed.sim.workload import Client
from testbed.sim.world import Simulation
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.stories import TOPIC, asks_for, committed, durable_offset, end, epoch, leads, with_records_of, write
from tidelog.errors import FencedLeaderEpoch, OffsetNotAvailable, TidelogError
from tidelog.records.v2.record import Record

RACKS = ("a", "b", "c", "d")


def three_racks(sim: Simulation, *, min_insync: int) -> tuple[int, int, int, int]:
    """A partition on three nodes other than the voter: its number, its leader, and the two others."""
    sim.start(nodes=4, min_insync=min_insync, partitions=12, racks=RACKS)
    p, (leader, follower, other) = away_from_the_voter(sim)
    return p, leader, follower, other


def asked(sim: Simulation, client: Client, question: Coroutine[Any, Any, Any]) -> Any:
    """The answer to a reader's request. Raises the error of the answer."""
    task = client.start(question, "asks")
    sim.run_until(task.done, within=5, what="the reader is answered")
    return task.result()


def read_at(sim: Simulation, client: Client, node: int, p: int, offset: int, leader_epoch: int | None = None) -> int:
    """Read from a replica; the checkers verify the records. Returns how many there are."""
    records: list[Record] = asked(sim, client, client.fetch_at(endpoint_of(node), TOPIC, p, offset, leader_epoch))
    reading = sim.checkers.reading(sim.ledger(TOPIC, p), position=offset)
    for record in records:
        reading.got(record)
    return len(records)


def refused(sim: Simulation, client: Client, node: int, p: int, offset: int, leader_epoch: int | None = None) -> Any:
    """The error with which a replica refuses a read."""
    try:
        return read_at(sim, client, node, p, offset, leader_epoch)
    except TidelogError as error:
        return error


def reader_at_a_follower(sim: Simulation) -> None:
    """KIP-392: a reader is sent to the follower in its rack, which returns only records that it knows to be
    committed. For offsets that the follower does not have it answers "not available yet", not "out of range"."""
    p, leader, near, other = three_racks(sim, min_insync=2)
    write(sim, p, "a", 5)
    client = sim.client((leader,))
    assert asked(sim, client, client.nearest(TOPIC, p, 0, RACKS[near])) == near
    assert asked(sim, client, client.nearest(TOPIC, p, 0, RACKS[leader])) == -1
    sim.run_until(lambda: sim.log(near, TOPIC, p).high_watermark == 5, what="the follower has the high watermark")
    assert read_at(sim, client, near, p, 0) == 5
    sim.stall_disk(other)
    sim.produce(TOPIC, b"b", acks="1", partition=p).wait()
    sim.run_until(lambda: end(sim, near, p) == durable_offset(sim, near, p) == 6, what="the follower has one more")
    assert committed(sim, p) == 5
    assert read_at(sim, client, near, p, 0) == 5, "a follower returns uncommitted records"
    ahead = refused(sim, client, near, p, 7)
    assert isinstance(ahead, OffsetNotAvailable), "a follower reports a future offset as out of range"
    sim.release_disk(other)
    sim.run_until(lambda: sim.log(near, TOPIC, p).high_watermark == 6, what="the follower knows it as committed")
    assert read_at(sim, client, near, p, 5) == 1
    sim.must_heal()


def follower_that_is_no_member(sim: Simulation) -> None:
    """KIP-392: a follower outside the in-sync set may lack records for a long time, so no reader is sent there. What
    it returns to a reader that is still there is committed."""
    p, leader, near, _ = three_racks(sim, min_insync=1)
    write(sim, p, "a", 5)
    sim.run_until(lambda: sim.log(near, TOPIC, p).high_watermark == 5, what="the follower has the high watermark")
    client = sim.client((leader,))
    kept = sim.hold("Data.FetchStream", source=leader, target=near, part="answer", when=with_records_of(p))
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: near not in sim.isr(TOPIC, p), what="the follower is removed for its lag")
    sim.run_until(lambda: committed(sim, p) == 6, what="the others have committed")
    assert asked(sim, client, client.nearest(TOPIC, p, 0, RACKS[near])) == -1, "a reader is sent to a lagging follower"
    assert read_at(sim, client, near, p, 0) == 5
    kept.release()
    sim.must_heal()


def reader_of_an_older_epoch(sim: Simulation) -> None:
    """KIP-320 at a follower: a reader that does not know the next leader is refused by a follower that does, and
    looks up the leader again."""
    p, first, near, other = three_racks(sim, min_insync=1)
    write(sim, p, "a", 5)
    before = int(epoch(sim, first, p))
    client = sim.client((near, other))
    assert asked(sim, client, client.latest(TOPIC, p)) == 5
    sim.kill(first)
    sim.run_until(lambda: leads(sim, near, p) or leads(sim, other, p), what="another node leads")
    follower = other if leads(sim, near, p) else near
    sim.run_until(lambda: epoch(sim, follower, p) > before, what="the other one follows")
    refusal = refused(sim, client, follower, p, 0, before)
    assert isinstance(refusal, FencedLeaderEpoch), "a reader of an older epoch was answered"
    sim.must_heal()


def reader_of_records_to_be_truncated(sim: Simulation) -> None:
    """Scenario 7, variant: a follower has records of an old epoch that will be truncated, and its new leader has
    committed others beyond them. A reader at this follower gets neither."""
    p, old, new, follower = three_racks(sim, min_insync=1)
    write(sim, p, "a", 5)
    sim.run_until(lambda: sim.log(follower, TOPIC, p).high_watermark == 5, what="the follower knows them as committed")
    sim.hold("Data.FetchStream", source=old, target=new, part="answer", when=with_records_of(p))
    write(sim, p, "vanishes ", 3, acks="1")
    sim.run_until(lambda: durable_offset(sim, follower, p) == 8, what="the follower has the records to be truncated")
    asking = sim.hold("Data.FetchStream", source=follower, target=new, when=asks_for(p))
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p) and asking.count > 0, what="the follower fetches from the next leader")
    asking.let_pass()
    sim.pause(follower)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {new}, what="the follower is removed")
    write(sim, p, "c", 10, asking=(new,))
    sim.resume(follower)
    client = sim.client((new,))
    seen = 0
    asking.release()
    for _ in range(40):
        answer = refused(sim, client, follower, p, 0)
        seen = seen if isinstance(answer, TidelogError) else max(seen, answer)
        sim.run_for(0.01)
    assert seen >= 5, "the reader got what is committed"
    sim.must_heal()


def follower_returns_to_an_idle_topic(sim: Simulation) -> None:
    """A follower loses power and is back at once, with all records and an old high watermark. Its leader still
    considers the stream of the earlier incarnation as open. Nothing new is written; the follower must still learn
    the high watermark, or its readers would wait."""
    sim.start(nodes=3, min_insync=1, partitions=3)
    voter, p = 0, sim.led_by(TOPIC, 2)  # no replica is removed while the only voter is down
    write(sim, p, "a", 5)
    sim.run_until(lambda: sim.log(voter, TOPIC, p).high_watermark == 5, what="the follower knows them as committed")
    sim.power_off(voter, forget_all=True)
    sim.restart(voter)
    sim.run_until(lambda: sim.replica(voter, TOPIC, p) is not None, what="its replica is back")
    assert sim.log(voter, TOPIC, p).high_watermark < 5
    sim.run_until(lambda: sim.log(voter, TOPIC, p).high_watermark == 5, what="the follower learns what is committed")
    sim.must_heal()


ALL = (
    reader_at_a_follower,
    follower_that_is_no_member,
    reader_of_an_older_epoch,
    reader_of_records_to_be_truncated,
    follower_returns_to_an_idle_topic,
)
