"""Stories of real consumers whose records are lost in unclean elections."""

from __future__ import annotations

from typing import Any

from testbed.sim.clock import SimClock
from testbed.sim.workload import Client
from testbed.sim.world import Simulation
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.stories import TOPIC, committed, end, epoch, fenced, leads, write
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.errors import LogTruncated
from tidelog.types import EpochEnd, Offset


def consumer_of(sim: Simulation, client: Client, p: int, **options: Any) -> Consumer:
    """The real consumer, at the start of the partition."""
    consumer = Consumer(
        [str(endpoint) for endpoint in client.bootstrap],
        max_wait_ms=50,
        transport=client.transport,
        clock=SimClock(client.loop),
        rng=client.rng,
        **options,
    )

    async def begin() -> None:
        await consumer.start()
        consumer.assign([(TOPIC, p)])

    task = client.start(begin(), "begins to read")
    sim.run_until(task.done, within=1, what="the consumer has started")
    return consumer


async def read_to(consumer: Consumer, offset: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while not found or found[-1].offset < offset - 1:
        found += await consumer.poll()
    return found


def older_epoch_ends_behind_the_reader(sim: Simulation) -> None:
    """KIP-320: a disconnected leader appends 4 more records in its epoch, where the next leader writes 2 in
    another one. The reader reads those 2. Then an unclean election lets the first leader lead: its own, older epoch
    ends after the reader's position. The reader gets LogTruncated, not the two records at its position, and
    continues from where the logs agree."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (old, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 8)
    sim.run_until(lambda: all(end(sim, node, p) == 8 for node in others), what="the followers have them")
    older = epoch(sim, old, p)
    sim.disconnect(old)
    write(sim, p, "alone ", 4, acks="1", asking=(old,))
    sim.run_until(lambda: any(leads(sim, node, p) for node in others), what="another node leads")
    write(sim, p, "b", 2, asking=tuple(others))
    sim.run_until(lambda: committed(sim, p) == 10, what="they are committed")
    client = sim.client()
    consumer = consumer_of(sim, client, p)
    reading = client.start(read_to(consumer, 10), "reads")
    sim.run_until(reading.done, within=10, what="the reader has read it all")
    for node in others:
        sim.kill(node)
    sim.run_until(lambda: all(fenced(sim, node) for node in others), what="the others are fenced")
    sim.heal(old)
    sim.run_until(lambda: not fenced(sim, old), what="the first leader is unfenced")
    sim.checkers.forgive(sim.partition(TOPIC, p).key, 8)
    sim.elect(TOPIC, p, unclean=True)
    sim.run_until(lambda: leads(sim, old, p), what="it leads uncleanly")
    assert end(sim, old, p) == 12
    reading = client.start(read_to(consumer, 12), "reads on")
    sim.run_until(reading.done, within=10, what="the reader continues or has an error")
    failure = reading.exception()
    assert isinstance(failure, LogTruncated), f"the reader at 10 got {reading.result()[0].value!r}"
    assert failure.diverging == EpochEnd(older, Offset(8)), f"the logs agree up to {failure.diverging}"

    async def again() -> list[ConsumerRecord]:
        await consumer.seek((TOPIC, p), Offset(8), leader_epoch=older)
        return await read_to(consumer, 12)

    reading = client.start(again(), "reads on from there")
    sim.run_until(reading.done, within=10, what="the reader has the present records")
    assert [record.value for record in reading.result()] == [b"alone %d" % number for number in range(4)]
    sim.must_heal(lossy=True)


ALL = (older_epoch_ends_behind_the_reader,)
