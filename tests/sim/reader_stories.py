"""What readers are given: by the leader, and by a follower that is nearer (KIP-392), of which epoch, up to where.

Told as in stories.py. Node 0 is the quorum's only voter; each node is in a rack of its own.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from tests.sim.machine import endpoint_of
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.stories import TOPIC, asks_for, committed, durable_offset, end, epoch, leads, with_records_of, write
from tests.sim.workload import Client
from tests.sim.world import Simulation
from tidelog.errors import FencedLeaderEpoch, OffsetNotAvailable, TidelogError
from tidelog.records.v2.record import Record

RACKS = ("a", "b", "c", "d")


def three_racks(sim: Simulation, *, min_insync: int) -> tuple[int, int, int, int]:
    """A partition on three nodes that the voter is none of: its number, its leader, and the two others."""
    sim.start(nodes=4, min_insync=min_insync, partitions=12, racks=RACKS)
    p, (leader, follower, other) = away_from_the_voter(sim)
    return p, leader, follower, other


def asked(sim: Simulation, client: Client, question: Coroutine[Any, Any, Any]) -> Any:
    """The answer to a reader's question. Raises its refusal."""
    task = client.start(question, "asks")
    sim.run_until(task.done, within=5, what="the reader is answered")
    return task.result()


def read_at(sim: Simulation, client: Client, node: int, p: int, offset: int, leader_epoch: int | None = None) -> int:
    """Read from a replica; the checkers see what it gives. Returns how many records."""
    records: list[Record] = asked(sim, client, client.fetch_at(endpoint_of(node), TOPIC, p, offset, leader_epoch))
    reading = sim.checkers.reading(sim.ledger(TOPIC, p), position=offset)
    for record in records:
        reading.got(record)
    return len(records)


def refused(sim: Simulation, client: Client, node: int, p: int, offset: int, leader_epoch: int | None = None) -> Any:
    """Why a replica gives nothing."""
    try:
        return read_at(sim, client, node, p, offset, leader_epoch)
    except TidelogError as error:
        return error


def reader_at_a_follower(sim: Simulation) -> None:
    """KIP-392: a reader is sent to the follower in its rack, which gives it what it knows to be committed and nothing
    that is not; what the follower does not have it says to be not there yet, not out of range."""
    p, leader, near, other = three_racks(sim, min_insync=2)
    write(sim, p, "a", 5)
    client = sim.client((leader,))
    assert asked(sim, client, client.nearest(TOPIC, p, 0, RACKS[near])) == near
    assert asked(sim, client, client.nearest(TOPIC, p, 0, RACKS[leader])) == -1
    sim.run_until(lambda: sim.log(near, TOPIC, p).high_watermark == 5, what="the follower hears of the watermark")
    assert read_at(sim, client, near, p, 0) == 5
    sim.stall_disk(other)
    sim.produce(TOPIC, b"b", acks="1", partition=p).wait()
    sim.run_until(lambda: end(sim, near, p) == durable_offset(sim, near, p) == 6, what="the follower has one more")
    assert committed(sim, p) == 5
    assert read_at(sim, client, near, p, 0) == 5, "a follower gives what is not committed"
    ahead = refused(sim, client, near, p, 7)
    assert isinstance(ahead, OffsetNotAvailable), "a follower calls out of range what it does not have yet"
    sim.release_disk(other)
    sim.run_until(lambda: sim.log(near, TOPIC, p).high_watermark == 6, what="the follower hears that it is committed")
    assert read_at(sim, client, near, p, 5) == 1
    sim.must_heal()


def follower_that_is_no_member(sim: Simulation) -> None:
    """KIP-392: a follower that has fallen out of the set may lack much for long, so no reader is sent there. What it
    gives to one that is there still is committed."""
    p, leader, near, _ = three_racks(sim, min_insync=1)
    write(sim, p, "a", 5)
    sim.run_until(lambda: sim.log(near, TOPIC, p).high_watermark == 5, what="the follower hears of the watermark")
    client = sim.client((leader,))
    kept = sim.hold("Data.FetchStream", source=leader, target=near, part="answer", when=with_records_of(p))
    sim.produce(TOPIC, b"b", partition=p)
    sim.run_until(lambda: near not in sim.isr(TOPIC, p), what="the follower is removed for its lag")
    sim.run_until(lambda: committed(sim, p) == 6, what="the others have committed")
    assert asked(sim, client, client.nearest(TOPIC, p, 0, RACKS[near])) == -1, "a reader is sent to one that lags"
    assert read_at(sim, client, near, p, 0) == 5
    kept.release()
    sim.must_heal()


def reader_of_an_older_epoch(sim: Simulation) -> None:
    """KIP-320 at a follower: a reader that has not heard of the next leader is refused by a follower that has, and
    looks the leader up again."""
    p, first, near, other = three_racks(sim, min_insync=1)
    write(sim, p, "a", 5)
    before = int(epoch(sim, first, p))
    client = sim.client((near, other))
    assert asked(sim, client, client.latest(TOPIC, p)) == 5
    sim.kill(first)
    sim.run_until(lambda: leads(sim, near, p) or leads(sim, other, p), what="another leads")
    follower = other if leads(sim, near, p) else near
    sim.run_until(lambda: epoch(sim, follower, p) > before, what="the other follows")
    refusal = refused(sim, client, follower, p, 0, before)
    assert isinstance(refusal, FencedLeaderEpoch), "a reader of an older epoch was answered"
    sim.must_heal()


def reader_of_what_vanishes(sim: Simulation) -> None:
    """Scenario 7, variant: a follower has records of an old epoch that are going to be cut, and its new leader has
    committed others beyond them. Whoever reads at the follower meanwhile is given neither."""
    p, old, new, follower = three_racks(sim, min_insync=1)
    write(sim, p, "a", 5)
    sim.run_until(lambda: sim.log(follower, TOPIC, p).high_watermark == 5, what="the follower knows them as committed")
    sim.hold("Data.FetchStream", source=old, target=new, part="answer", when=with_records_of(p))
    write(sim, p, "vanishes ", 3, acks="1")
    sim.run_until(lambda: durable_offset(sim, follower, p) == 8, what="the follower has what is going to vanish")
    asking = sim.hold("Data.FetchStream", source=follower, target=new, when=asks_for(p))
    sim.kill(old)
    sim.run_until(lambda: leads(sim, new, p) and asking.count > 0, what="the follower asks the next leader")
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
    assert seen >= 5, "the reader was given what is committed"
    sim.must_heal()


def follower_back_in_a_quiet_topic(sim: Simulation) -> None:
    """A follower loses power and is back at once, with all records and less of the watermark than was committed. Its
    leader still holds the stream of its earlier life for open. Nothing new is written; the follower hears all the same
    what is committed, or its readers would wait."""
    sim.start(nodes=3, min_insync=1, partitions=3)
    voter, p = 0, sim.led_by(TOPIC, 2)  # nobody is taken out while the only voter is away
    write(sim, p, "a", 5)
    sim.run_until(lambda: sim.log(voter, TOPIC, p).high_watermark == 5, what="the follower knows them as committed")
    sim.power_off(voter, forget_all=True)
    sim.restart(voter)
    sim.run_until(lambda: sim.replica(voter, TOPIC, p) is not None, what="it is back")
    assert sim.log(voter, TOPIC, p).high_watermark < 5
    sim.run_until(lambda: sim.log(voter, TOPIC, p).high_watermark == 5, what="the follower hears what is committed")
    sim.must_heal()


ALL = (
    reader_at_a_follower,
    follower_that_is_no_member,
    reader_of_an_older_epoch,
    reader_of_what_vanishes,
    follower_back_in_a_quiet_topic,
)
