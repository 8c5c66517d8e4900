"""Stories of real consumers at a leader that was deposed and does not know it (KIP-320)."""

from __future__ import annotations

from typing import Any, NamedTuple

from testbed.sim.machine import endpoint_of
from testbed.sim.workload import Client
from testbed.sim.world import Simulation
from tests.sim.reader_stories import asked
from tests.sim.replication_stories import away_from_the_voter
from tests.sim.stories import TOPIC, committed, epoch, leads, write
from tests.sim.unclean_reader_stories import consumer_of, read_to
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.errors import LogTruncated, UnknownLeaderEpoch
from tidelog.protocol import methods
from tidelog.protocol.v1 import data_pb2
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, PartitionIndex, TopicPartition


class Deposed(NamedTuple):
    """A leader whose log ends at 8 and that does not know its successor, the nodes that do, and a consumer with the
    metadata of the former's epoch."""

    p: int
    leader: int
    others: tuple[int, ...]
    client: Client
    consumer: Consumer

    def epoch(self, sim: Simulation) -> LeaderEpoch:
        """The epoch of the next leader."""
        return max(epoch(sim, node, self.p) for node in self.others)

    def read_from(self, sim: Simulation, offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> list[ConsumerRecord]:
        """Seek there and read some records. Raises what the consumer raises."""

        async def seek_and_read() -> list[ConsumerRecord]:
            await self.consumer.seek((TOPIC, self.p), Offset(offset), leader_epoch=leader_epoch)
            return await read_to(self.consumer, 1)

        reading = self.client.start(seek_and_read(), "reads on")
        sim.run_until(reading.done, within=10, what="the consumer reads on or has an error")
        records: list[ConsumerRecord] = reading.result()
        return records


def depose(sim: Simulation, **options: Any) -> Deposed:
    """Disconnect a leader from all other nodes after 8 records; the next one commits 4 more. Clients reach both."""
    sim.start(nodes=4, min_insync=1, partitions=12)
    p, (old, *others) = away_from_the_voter(sim)
    write(sim, p, "a", 8)
    client = sim.client()
    consumer = consumer_of(sim, client, p, **options)
    reading = client.start(read_to(consumer, 8), "reads")
    sim.run_until(reading.done, within=10, what="the consumer has read the first records")
    sim.disconnect(old)
    sim.run_until(lambda: any(leads(sim, node, p) for node in others), what="another node leads")
    write(sim, p, "b", 4, asking=tuple(others))
    sim.run_until(lambda: committed(sim, p) == 12, what="they are committed")
    assert leads(sim, old, p), "the former leader knows of the next one"
    return Deposed(p, old, tuple(others), client, consumer)


def committed_offset_at_a_deposed_leader(sim: Simulation) -> None:
    """A member continues at offset 10, which another one committed in the next epoch, with metadata of the former. The
    deposed leader's log ends at 8: the member must not take that for a truncation."""
    deposed = depose(sim)
    try:
        records = deposed.read_from(sim, 10, deposed.epoch(sim))
    except LogTruncated as error:
        raise AssertionError(f"a deposed leader is believed: {error}") from error
    assert records[0].value == b"b2"
    sim.must_heal()


def newer_epoch_is_asked_of_a_deposed_leader(sim: Simulation) -> None:
    """A node that is asked about a record of an epoch newer than its own does not know it. It does not say that the
    logs diverge: it may be deposed."""
    deposed = depose(sim)
    place: Any = {
        "topic_id": sim.partition(TOPIC, deposed.p).key.topic_id.bytes,
        "partition": deposed.p,
        "current_leader_epoch": epoch(sim, deposed.leader, deposed.p),
    }
    newer = deposed.epoch(sim)
    fetch = data_pb2.FetchPartition(fetch_offset=10, last_fetched_epoch=newer, max_bytes=1_000, **place)
    question = data_pb2.EpochQuestion(leader_epoch=newer, **place)
    requests: list[tuple[Any, Any]] = [
        (methods.DATA_FETCH, data_pb2.FetchRequest(partitions=[fetch])),
        (methods.DATA_OFFSET_FOR_LEADER_EPOCH, data_pb2.OffsetForLeaderEpochRequest(partitions=[question])),
    ]
    for method, request in requests:
        call = deposed.client.transport.call(endpoint_of(deposed.leader), method, request, timeout_ms=1_000)
        (answer,) = asked(sim, deposed.client, call).partitions
        code = 0 if answer.error is None else answer.error.code
        assert code == UnknownLeaderEpoch.code, f"a deposed leader judges a newer epoch: {answer}"
    sim.must_heal()


def out_of_range_at_a_deposed_leader(sim: Simulation) -> None:
    """A consumer that is to continue at the start of the log if its position is out of range seeks to offset 10,
    without an epoch. Its metadata name the deposed leader, whose log ends at 8: it must not read everything again."""
    deposed = depose(sim, on_out_of_range="earliest")
    records = deposed.read_from(sim, 10)
    assert records[0].offset == 10, f"a deposed leader is believed: reading continues at {records[0].offset}"
    sim.must_heal()


def ends_at_a_deposed_leader(sim: Simulation) -> None:
    """The consumer seeks to offset 10 with the epoch in which it was committed, then asks for the end of the log. The
    end that the deposed leader names lies before what is committed."""
    deposed = depose(sim)
    key = TOPIC, deposed.p

    async def end_after_a_seek() -> int:
        await deposed.consumer.seek(key, Offset(10), leader_epoch=deposed.epoch(sim))
        return (await deposed.consumer.end_offsets([key]))[TopicPartition(TOPIC, PartitionIndex(deposed.p))]

    end = asked(sim, deposed.client, end_after_a_seek())
    assert end == 12, f"a deposed leader is believed: the log ends at {end}"
    sim.must_heal()


ALL = (
    committed_offset_at_a_deposed_leader,
    newer_epoch_is_asked_of_a_deposed_leader,
    out_of_range_at_a_deposed_leader,
    ends_at_a_deposed_leader,
)
