"""Callers that ask for too much, or never read their answers: what they cost the node is bounded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node.limits import ENTRIES_MAX, UNSENT_MAX
from tests.node.wires import CALLER, TOPIC, Cluster, batch, fetch_request
from tidelog._wire import PartitionProduce, ProduceRequest
from tidelog.errors import InvalidRequest
from tidelog.v1 import data_pb2


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.set(leader=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def test_a_request_with_too_many_entries_is_refused_whole(cluster: Cluster) -> None:
    service = cluster.service(1)
    entry = PartitionProduce(batch_id=1, topic_id=TOPIC.bytes, leader_epoch=-1, records=batch(b"a"))
    with pytest.raises(InvalidRequest, match="at most"):
        cluster.wait(service.produce(ProduceRequest(acks=-1, partitions=[entry] * (ENTRIES_MAX + 1)), CALLER))
    fetch = fetch_request(0)
    fetch.partitions.extend(data_pb2.FetchPartition() for _ in range(ENTRIES_MAX))
    with pytest.raises(InvalidRequest, match="at most"):
        cluster.wait(service.fetch(fetch, CALLER))
    with pytest.raises(InvalidRequest, match="at most"):
        questions = data_pb2.ListOffsetsRequest(
            partitions=[data_pb2.ListOffsetsPartition() for _ in range(ENTRIES_MAX + 1)]
        )
        cluster.wait(service.list_offsets(questions, CALLER))
    assert cluster.log(1).log_end_offset == 0


def test_a_stream_that_is_not_read_is_not_served_further(cluster: Cluster) -> None:
    desk = cluster.manager(1).open_desk(CALLER)
    for index in range(1, UNSENT_MAX):
        desk.take(fetch_request(0, index=index))  # no such partition
    cluster.wait(desk.wait_room())
    desk.take(fetch_request(0, index=UNSENT_MAX))
    waiting = cluster.loop.create_task(desk.wait_room())
    cluster.run(1.0)
    assert not waiting.done()
    assert len(desk.collect(1 << 20)) == UNSENT_MAX
    cluster.until(waiting.done, within=0.001)
    cluster.manager(1).close_desk(desk)


def test_fetches_that_were_answered_long_before_their_time_leave_nothing(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    desk = cluster.manager(1).open_desk(CALLER)
    for _ in range(3_000):
        desk.take(fetch_request(0, max_wait_ms=60_000))
        [answer] = desk.collect(1 << 20)
        assert len(answer.records) > 0
    assert len(desk._deadlines) < 1_100
    desk.take(fetch_request(1, max_wait_ms=500, fetch_id=77))
    assert desk.collect(1 << 20) == []
    cluster.run(0.6)
    assert [answer.fetch_id for answer in desk.collect(1 << 20)] == [77], "the one that waits is still answered in time"
    cluster.manager(1).close_desk(desk)
