"""The Data service as its clients use it: an answer for each entry, bounded waits, and errors for wrong requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from node.replicas.replica_config import ReplicaConfig
from storage.log.log import Log
from testbed.sim.clock import SimClock
from tests.fakes.log_start import delete_records
from tests.node.wires import CALLER, TOPIC, Cluster, as_value, batch, endpoint_of, fetch_request
from tidelog.errors import (
    CorruptRecord,
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidRequiredAcks,
    NodeShuttingDown,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RecordTooLarge,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import iter_batches
from tidelog.types import Buffer, Offset, TopicId


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(partitions=2)
    cluster.set(0, leader=1)
    cluster.set(1, leader=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def values(records: Buffer) -> list[bytes | None]:
    return [record.value for found in iter_batches(records) for record in found.records()]


def entry(batch_id: int, records: bytes, *, index: int = 0, topic: TopicId = TOPIC) -> ProduceBatch:
    return ProduceBatch(correlation_id=batch_id, topic_id=topic.bytes, partition=index, records=records)


# --- produce ---


def test_a_rejected_entry_does_not_affect_the_others(cluster: Cluster) -> None:
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1_000,
        partitions=[
            entry(1, batch(b"a")),
            entry(2, bytes(damaged)),
            entry(3, batch(b"b"), index=9),
            entry(4, batch(b"c"), topic=TopicId(UUID(int=99))),
            entry(5, b""),
            entry(6, batch(b"d"), index=1),
            entry(7, batch(bytes(2 << 20))),
            entry(8, batch(b"e")),
        ],
    )
    answer = cluster.wait(cluster.service(1).produce(request, CALLER))
    codes = {produced.batch_id: produced.error.code for produced in answer.partitions}
    assert codes == {
        1: 0,
        2: CorruptRecord.code,
        3: UnknownTopicOrPartition.code,
        4: UnknownTopicId.code,
        5: InvalidRequest.code,
        6: 0,
        7: RecordTooLarge.code,
        8: 0,
    }
    assert values(cluster.contents(1)) == [b"a", b"e"]
    assert values(cluster.contents(1, 1)) == [b"d"]
    refused = [produced for produced in answer.partitions if produced.HasField("error")]
    assert {produced.base_offset for produced in refused} == {-1}
    assert {produced.error.written for produced in refused} == {1}, "certainly not written"


def test_an_older_or_newer_leader_epoch_is_rejected(cluster: Cluster) -> None:
    cluster.set(leader=1)
    assert [a.error.code for a in cluster.produce(1, batch(b"a"), epoch=1)] == [FencedLeaderEpoch.code]
    assert [a.error.code for a in cluster.produce(1, batch(b"a"), epoch=3)] == [UnknownLeaderEpoch.code]
    assert [a.error.code for a in cluster.produce(1, batch(b"a"), epoch=2)] == [0]


def test_an_acks_value_that_kafka_does_not_know_is_refused(cluster: Cluster) -> None:
    assert [a.error.code for a in cluster.produce(1, batch(b"a"), acks=2)] == [InvalidRequiredAcks.code]
    assert cluster.log(1).log_end_offset == 0


def test_a_stream_answers_each_entry_when_it_is_done(cluster: Cluster) -> None:
    cluster.run(0.1)
    stream = cluster.wait(cluster.wires.open_stream(endpoint_of(1), methods.DATA_PRODUCE_STREAM))
    cluster.machines[2].executor.holding = True
    slow = ProduceRequest(acks=-1, timeout_ms=30_000, partitions=[entry(1, batch(b"a"))])
    quick = ProduceRequest(acks=1, timeout_ms=30_000, partitions=[entry(2, batch(b"b"))])
    cluster.wait(stream.send(slow))
    cluster.wait(stream.send(quick))
    assert [a.batch_id for a in cluster.next(stream).partitions] == [2]
    cluster.machines[2].executor.release()
    assert [a.batch_id for a in cluster.next(stream).partitions] == [1]


def test_a_produce_stream_is_not_read_beyond_its_outstanding_limit() -> None:
    cluster = Cluster(config=ReplicaConfig(outstanding_max=3))
    cluster.set(leader=1)
    cluster.run(0.1)
    cluster.machines[2].executor.holding = True
    stream = cluster.wait(cluster.wires.open_stream(endpoint_of(1), methods.DATA_PRODUCE_STREAM))
    for number in range(10):
        request = ProduceRequest(acks=-1, timeout_ms=30_000, partitions=[entry(number, batch(b"a"))])
        cluster.wait(stream.send(request))
    cluster.run(0.5)
    assert cluster.log(1).log_end_offset == 3
    cluster.machines[2].executor.release()
    cluster.until(lambda: cluster.log(1).log_end_offset == 10)
    cluster.close()


def test_acks_none_is_never_answered_and_a_failure_ends_the_stream(cluster: Cluster) -> None:
    stream = cluster.wait(cluster.wires.open_stream(endpoint_of(1), methods.DATA_PRODUCE_STREAM))
    cluster.wait(stream.send(ProduceRequest(acks=0, timeout_ms=0, partitions=[entry(1, batch(b"a"))])))
    cluster.run(0.5)
    assert cluster.watermark(1) == 1
    wrong = cluster.wait(cluster.wires.open_stream(endpoint_of(2), methods.DATA_PRODUCE_STREAM))
    cluster.wait(wrong.send(ProduceRequest(acks=0, timeout_ms=0, partitions=[entry(1, batch(b"a"))])))
    with pytest.raises(NotLeaderOrFollower):
        cluster.wait(wrong.receive())


def test_waiting_produce_requests_get_the_next_leader_when_a_leadership_ends(cluster: Cluster) -> None:
    cluster.run(0.1)
    cluster.machines[2].executor.holding = True
    waiting = cluster.append(1, batch(b"a"))
    cluster.set(leader=3)
    cluster.until(waiting.done, within=0.1)
    [answer] = waiting.result().partitions
    assert answer.error is not None
    assert (answer.error.name, answer.error.written) == ("NOT_LEADER_OR_FOLLOWER", 3)
    assert answer.error.leader.node_id == 3


def test_waiting_fetches_get_the_next_leader_when_a_leadership_ends(cluster: Cluster) -> None:
    waiting = cluster.loop.create_task(cluster.service(1).fetch(fetch_request(0, max_wait_ms=60_000), CALLER))
    cluster.run(0.1)
    cluster.set(leader=3)
    cluster.until(waiting.done, within=0.1)
    [answer] = waiting.result().partitions
    assert answer.error is not None
    assert answer.error.code == NotLeaderOrFollower.code
    assert answer.error.leader.node_id == 3


def test_a_producer_that_closed_its_side_still_gets_its_answers(cluster: Cluster) -> None:
    cluster.run(0.1)
    cluster.machines[2].executor.holding = True
    stream = cluster.wait(cluster.wires.open_stream(endpoint_of(1), methods.DATA_PRODUCE_STREAM))
    cluster.wait(stream.send(ProduceRequest(acks=-1, timeout_ms=30_000, partitions=[entry(1, batch(b"a"))])))
    cluster.wait(stream.end())
    cluster.run(0.5)
    cluster.machines[2].executor.release()
    assert [a.batch_id for a in cluster.next(stream).partitions] == [1]
    assert cluster.wait(stream.receive()) is None


def test_a_stopping_node_rejects_new_requests_and_answers_waiting_ones(cluster: Cluster) -> None:
    cluster.run(0.1)
    cluster.machines[2].executor.holding = True
    waiting = cluster.append(1, batch(b"a"))
    cluster.wait(cluster.manager(1).stop())
    cluster.until(waiting.done, within=0.1)
    assert [a.error.code for a in cluster.produce(1, batch(b"b"))] == [NodeShuttingDown.code]
    with pytest.raises(NodeShuttingDown):
        cluster.fetch(1, 0)


# --- fetch ---


def test_a_waiting_fetch_is_answered_when_records_arrive(cluster: Cluster) -> None:
    request = fetch_request(0, max_wait_ms=5_000)
    waiting = cluster.loop.create_task(cluster.service(1).fetch(request, CALLER))
    cluster.run(0.5)
    assert not waiting.done()
    cluster.produce(1, batch(b"a"))
    cluster.until(waiting.done, within=0.1)
    assert values(waiting.result().partitions[0].records) == [b"a"]


def test_an_empty_fetch_is_answered_after_its_maximum_wait(cluster: Cluster) -> None:
    before = cluster.loop.time()
    fetched = cluster.fetch(1, 0, max_wait_ms=300)
    assert not fetched.records
    assert 0.29 < cluster.loop.time() - before < 0.45


def test_a_fetch_waits_for_its_minimum_of_bytes(cluster: Cluster) -> None:
    request = fetch_request(0, max_wait_ms=5_000, min_bytes=300)
    waiting = cluster.loop.create_task(cluster.service(1).fetch(request, CALLER))
    for number in range(5):
        assert not waiting.done(), f"after {number} batches of some 70 bytes"
        cluster.produce(1, batch(b"a"))
        cluster.run(0.1)
    cluster.until(waiting.done, within=0.2)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of all reads from now on."""
    reads: list[int] = []
    try_fetch = Log.try_fetch

    def counted(self: Log, offset: Offset, *rest: Any, **options: Any) -> Any:
        reads.append(offset)
        return try_fetch(self, offset, *rest, **options)

    monkeypatch.setattr(Log, "try_fetch", counted)
    return reads


def test_a_fetch_in_a_closed_segment_does_not_wait_for_its_minimum_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed segment gets no further records, so waiting adds no bytes to the answer. Each closed segment takes one
    read and one answer; only a fetch of the active segment waits."""
    cluster = Cluster(segment_bytes="500", index_interval_bytes="100")
    cluster.set(0, leader=1)
    for number in range(60):
        cluster.produce(1, batch(b"%02d" % number))
    log = cluster.partition(1).log
    assert len(log.segments) >= 8
    reads, found, offset = count_reads(monkeypatch), [], 0
    while offset < log.active.base_offset:
        request = fetch_request(offset, max_wait_ms=5_000, min_bytes=100_000)
        task = cluster.loop.create_task(cluster.service(1).fetch(request, CALLER))
        cluster.run(0.001)
        assert task.done(), f"the fetch at offset {offset} waits"
        found += values(task.result().partitions[0].records)
        offset = len(found)
    assert reads == [segment.base_offset for segment in log.segments[:-1]]
    at_end = cluster.loop.create_task(
        cluster.service(1).fetch(fetch_request(offset, max_wait_ms=5_000, min_bytes=100_000), CALLER)
    )
    cluster.run(4)
    assert not at_end.done(), "the active segment may still get enough bytes"
    cluster.until(at_end.done, within=2)
    assert found + values(at_end.result().partitions[0].records) == [b"%02d" % number for number in range(60)]
    cluster.loop.raise_defects()
    cluster.close()


def test_a_fetch_whose_next_batch_has_no_room_does_not_wait_for_its_minimum_of_bytes(cluster: Cluster) -> None:
    """The three batches exceed the requested bytes, so the answer can contain only two."""
    cluster.produce(1, batch(b"a"), batch(b"b"), batch(b"c"))
    room = 3 * len(batch(b"a")) - 1
    request = fetch_request(0, max_wait_ms=5_000, min_bytes=room, max_bytes=room)
    waiting = cluster.loop.create_task(cluster.service(1).fetch(request, CALLER))
    cluster.run(0.001)
    assert waiting.done()
    assert values(waiting.result().partitions[0].records) == [b"a", b"b"]


def test_a_negative_number_of_bytes_asks_for_one_batch(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"), batch(b"b"))
    [fetched] = cluster.wait(cluster.service(1).fetch(fetch_request(0, max_bytes=-5), CALLER)).partitions
    assert values(fetched.records) == [b"a"], "an answer without records at once would be asked for again and again"


def test_a_later_fetch_of_a_partition_replaces_the_earlier_one(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"), batch(b"b"))
    stream = cluster.wait(cluster.wires.open_stream(endpoint_of(1), methods.DATA_FETCH_STREAM))
    cluster.wait(stream.send(fetch_request(2, max_wait_ms=60_000, fetch_id=1)))
    cluster.run(0.1)
    cluster.wait(stream.send(fetch_request(1, max_wait_ms=60_000, fetch_id=2)))
    [answer] = cluster.next(stream).partitions
    assert (answer.correlation_id, values(answer.records)) == (2, [b"b"])
    cluster.produce(1, batch(b"c"))
    cluster.wait(stream.send(fetch_request(2, max_wait_ms=60_000, fetch_id=3)))
    assert [a.correlation_id for a in cluster.next(stream).partitions] == [3]


def test_each_partition_of_a_fetch_is_answered_separately(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"), index=1)
    request = fetch_request(0, max_wait_ms=200, fetch_id=1)
    request.partitions.append(fetch_request(0, index=1, fetch_id=2).partitions[0])
    request.partitions.append(fetch_request(0, index=7, fetch_id=3).partitions[0])
    request.partitions.append(fetch_request(500, index=1, topic=TopicId(UUID(int=99)), fetch_id=4).partitions[0])
    stream = cluster.wait(cluster.wires.open_stream(endpoint_of(1), methods.DATA_FETCH_STREAM))
    cluster.wait(stream.send(request))
    at_once = {a.correlation_id: a for a in cluster.next(stream).partitions}
    assert set(at_once) == {2, 3, 4}
    assert values(at_once[2].records) == [b"a"]
    codes = {number: answer.error.code for number, answer in at_once.items() if answer.error is not None}
    assert codes == {3: UnknownTopicOrPartition.code, 4: UnknownTopicId.code}
    assert [a.correlation_id for a in cluster.next(stream).partitions] == [1]


def test_an_offset_outside_the_log_is_refused(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    assert cluster.fetch(1, 2).error.code == OffsetOutOfRange.code
    assert cluster.fetch(1, 1).error is None


def test_a_reader_beyond_the_watermark_of_a_new_leader_waits(cluster: Cluster) -> None:
    """The reader got the record from the old leader; the new leader does not yet know that it is committed."""
    cluster.produce(1, batch(b"a"))
    cluster.kill(1)
    cluster.machines[3].executor.holding = True
    cluster.wires.stalled = True
    cluster.log(2).high_watermark = 0
    cluster.set(0, leader=2, isr=(2, 3))
    fetched = cluster.fetch(2, 1)
    assert fetched.error is None
    assert not fetched.records
    cluster.wires.stalled = False


def test_a_reader_gets_the_offset_where_its_log_was_truncated(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.set(leader=1)
    cluster.produce(1, batch(b"b"))
    fetched = cluster.fetch(1, 2, last_epoch=1)
    assert (fetched.diverging.epoch, fetched.diverging.end_offset) == (1, 1)
    assert cluster.fetch(1, 2, last_epoch=2).diverging is None


def test_a_follower_that_must_truncate_gets_the_leaders_log_start(cluster: Cluster) -> None:
    """A follower with no epoch in common restarts at that offset. The answer has no records and no high watermark."""
    for value in (b"a", b"b"):
        cluster.produce(1, batch(value))
    cluster.set(leader=1)
    delete_records(cluster.log(1), Offset(1))
    fetched = cluster.fetch(1, 3, last_epoch=1)
    assert (fetched.diverging.end_offset, fetched.log_start_offset) == (2, 1)
    assert (fetched.high_watermark, fetched.last_stable_offset, bytes(fetched.records)) == (-1, -1, b"")


def test_answers_for_many_partitions_are_split_into_bounded_messages() -> None:
    cluster = Cluster(partitions=8, config=ReplicaConfig(response_bytes=100_000))
    for index in range(8):
        cluster.set(index, leader=1)
        cluster.produce(1, batch(bytes(60_000)), index=index)
    request = fetch_request(0)
    for index in range(1, 8):
        request.partitions.append(fetch_request(0, index=index, fetch_id=index).partitions[0])
    stream = cluster.wait(cluster.wires.open_stream(endpoint_of(1), methods.DATA_FETCH_STREAM))
    cluster.wait(stream.send(request))
    sizes: list[int] = []
    while sum(sizes) < 8:
        sizes.append(len(cluster.next(stream).partitions))
    assert sizes == [2, 2, 2, 2]
    cluster.close()


def test_a_topic_that_accepts_no_more_records_can_still_be_read(cluster: Cluster) -> None:
    """With `max.message.bytes=0`, the node tried to read zero bytes again and again, and never returned to its loop."""
    cluster.produce(1, batch(b"a"))
    topic = cluster.image.topics[TOPIC]
    closed = replace(topic, configs={**topic.configs, "max.message.bytes": "0"})
    cluster.image = replace(cluster.image, topics={TOPIC: closed})
    cluster.publish()
    session = cluster.sessions(1).open(CALLER)
    session.take(as_value(fetch_request(0)))
    assert session.next_bytes(0)[1] > 0
    cluster.sessions(1).close(session)
    assert cluster.fetch(1, 0).records


def test_a_consumer_cannot_report_a_durable_offset(cluster: Cluster) -> None:
    request = fetch_request(0)
    request.durable_positions.add(topic_id=TOPIC.bytes, partition=0, leader_epoch=1, durable_offset=5)
    with pytest.raises(InvalidRequest, match="durable positions"):
        cluster.wait(cluster.service(1).fetch(request, CALLER))


# --- offsets and epochs ---


def list_offset(cluster: Cluster, timestamp: int, *, node: int = 1, epoch: int = -1) -> data_pb2.ListedOffset:
    request = data_pb2.ListOffsetsRequest()
    request.partitions.add(topic_id=TOPIC.bytes, partition=0, current_leader_epoch=epoch, timestamp_ms=timestamp)
    answer: data_pb2.ListedOffset
    [answer] = cluster.wait(cluster.service(node).list_offsets(request, CALLER)).partitions
    return answer


def test_offsets_are_listed_by_position_and_by_timestamp(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a", b"b"))
    cluster.machines[2].executor.holding = True
    cluster.append(1, batch(b"c"))
    assert (list_offset(cluster, -1).offset, list_offset(cluster, -1).leader_epoch) == (2, 1)
    assert (list_offset(cluster, -2).offset, list_offset(cluster, -2).leader_epoch) == (0, 1)
    assert list_offset(cluster, -3).offset == 0
    assert list_offset(cluster, 1_700_000_000_000).offset == 0
    assert list_offset(cluster, 1_700_000_000_001).offset == -1
    assert list_offset(cluster, -4).offset == 0, "all of it is on the disk"
    assert list_offset(cluster, -5).offset == -1, "nothing of it is in a remote tier"
    assert list_offset(cluster, -6).error.code == InvalidRequest.code
    assert list_offset(cluster, -1, node=2).error.code == NotLeaderOrFollower.code
    assert list_offset(cluster, -1, epoch=7).error.code == UnknownLeaderEpoch.code


def test_searches_by_timestamp_leave_the_loop_to_others_after_each_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request with 1,000 timestamps read as many batches, and stopped a node for 13 s."""
    cluster.produce(1, batch(b"a", b"b"))
    events: list[str] = []
    search = Log.fetch_offset_by_timestamp

    def noted(log: Log, *args: Any, **options: Any) -> Any:
        events.append("search")
        return search(log, *args, **options)

    async def ask(timestamps: list[int]) -> list[int]:
        request = data_pb2.ListOffsetsRequest()
        for timestamp in timestamps:
            place = {"topic_id": TOPIC.bytes, "partition": 0, "current_leader_epoch": -1}
            request.partitions.add(**place, timestamp_ms=timestamp)
        answer = await cluster.service(1).list_offsets(request, CALLER)
        return [each.offset for each in answer.partitions]

    async def others() -> None:
        while len(events) < 40:
            events.append("other")
            await SimClock(cluster.loop).sleep_ms(0)

    async def story() -> list[Any]:
        asked: list[Any] = [ask([1_700_000_000_000, -1] * 10) for _ in range(2)]
        return await asyncio.gather(*asked, others())

    monkeypatch.setattr(Log, "fetch_offset_by_timestamp", noted)
    assert cluster.wait(story())[:2] == [[0, 2] * 10] * 2
    assert "search search" not in " ".join(events[:40])


def test_a_new_leader_does_not_report_the_latest_offset_before_it_knows_the_watermark(cluster: Cluster) -> None:
    """KIP-207."""
    cluster.produce(1, batch(b"a"))
    cluster.kill(1)
    cluster.wires.stalled = True
    cluster.log(2).high_watermark = 0
    cluster.set(leader=2, isr=(2, 3))
    assert list_offset(cluster, -1, node=2).error.code == OffsetNotAvailable.code
    assert list_offset(cluster, -2, node=2).offset == 0
    cluster.wires.stalled = False
    cluster.until(lambda: cluster.watermark(2) == 1)
    assert list_offset(cluster, -1, node=2).offset == 1


def test_the_end_offsets_of_leader_epochs(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a", b"b"))
    cluster.set(leader=1)
    cluster.produce(1, batch(b"c"))
    request = data_pb2.OffsetForLeaderEpochRequest()
    for epoch in (0, 1, 2):
        request.partitions.add(topic_id=TOPIC.bytes, partition=0, current_leader_epoch=2, leader_epoch=epoch)
    request.partitions.add(topic_id=TOPIC.bytes, partition=0, current_leader_epoch=1, leader_epoch=1)
    *answers, fenced = cluster.wait(cluster.service(1).offset_for_leader_epoch(request, CALLER)).partitions
    assert [(a.end.epoch, a.end.end_offset) for a in answers] == [(0, 0), (1, 2), (2, 3)]
    assert fenced.error.code == FencedLeaderEpoch.code


def test_a_leader_does_not_judge_a_newer_epoch_than_its_own(cluster: Cluster) -> None:
    """It may be deposed: that its log diverges, or that the offset is out of range, would be out of date."""
    cluster.produce(1, batch(b"a", b"b"))
    request = data_pb2.OffsetForLeaderEpochRequest()
    for current in (-1, 1):
        request.partitions.add(topic_id=TOPIC.bytes, partition=0, current_leader_epoch=current, leader_epoch=2)
    answers = cluster.wait(cluster.service(1).offset_for_leader_epoch(request, CALLER)).partitions
    assert [answer.error.code for answer in answers] == 2 * [UnknownLeaderEpoch.code]
    for offset in (2, 7):
        assert cluster.fetch(1, offset, last_epoch=2).error.code == UnknownLeaderEpoch.code


def refused_fetch(cluster: Cluster, offset: int) -> Any:
    request = fetch_request(offset)
    request.partitions[0].refused = True
    [fetched] = cluster.wait(cluster.service(1).fetch(request, CALLER)).partitions
    return fetched


def test_a_client_that_reports_sound_bytes_as_damaged_does_not_depose_the_leader(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"), batch(b"b"))
    for offset in (0, 1, 0):
        answer = refused_fetch(cluster, offset)
        assert not answer.error
        assert len(answer.records) > 0
    assert cluster.partition(1).leader is not None
    assert cluster.log(1).damage is None


def test_a_client_that_reports_damaged_bytes_makes_the_leader_resign(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"), batch(b"b"))
    log = cluster.log(1)
    cluster.machines[1].disk.flip_bit(log.active.path, log.active.size - 2)
    assert not cluster.fetch(1, 1).error, "a leader does not check what it sends"
    assert type(refused_fetch(cluster, 1).error) is NotLeaderOrFollower
    assert cluster.partition(1).leader is None
    assert log.damage is not None
    assert (log.damage.first_offset, log.damage.end_offset) == (1, 2)
