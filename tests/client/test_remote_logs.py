"""What of partitions is in the object store, of leaders that describe a long history in many pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.client.jumping_clock import WaitsNotAtAll
from tests.client.memory_cluster import memory_cluster
from tests.replication.remote_segments import FINISHED, SECTIONS
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.errors import RequestTimedOut, UnknownServerError, UnknownTopicId
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.message_mapping import write_message
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import data_pb2, remote_logs_pb2
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId
from tidelog.types import (
    Endpoint,
    EpochStart,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
)

RECORDS = 12
"""In each partition, and in a segment each but the last, which was not copied yet."""
STORE = "s3://bucket/history"
ANSWER_MS, PATIENCE_MS = 1_000, 2_500


def segment(topic_id: bytes, partition: int, offset: int) -> remote_logs_pb2.RemoteSegment:
    made = RemoteSegment(
        segment_id=RemoteSegmentId(UUID(int=offset + 1)),
        topic_id=TopicId(UUID(bytes=topic_id)),
        partition=PartitionIndex(partition),
        start_offset=Offset(offset),
        end_offset=Offset(offset + 1),
        leader_epochs=(EpochStart(LeaderEpoch(0), Offset(offset)),),
        max_timestamp=Millis(7),
        log_size=1_000,
        copied_in=LeaderEpoch(0),
        node_id=NodeId(0),
        changed_ms=Millis(9),
        state=FINISHED,
        sections=SECTIONS,
    )
    return write_message(remote_logs_pb2.RemoteSegment, made)


class Leader:
    """Describes one segment in an answer, which takes a second. What is beside it in the answer gets no URL, nor
    does the last answer, which has no segment."""

    def __init__(self, clock: WaitsNotAtAll) -> None:
        self.clock = clock
        self.requests: list[data_pb2.DescribeRemoteLogsRequest] = []
        self.answers_nothing_from: int | None = None
        self.refuses_from: int | None = None
        self.before_first: Callable[[], None] | None = None
        self.lost: list[int] = []
        """Start offsets of lost segments, behind the end of the log."""
        self.topic_id: bytes | None = None
        """Of the only topic that it knows; None: it believes each request."""

    async def answer(
        self, request: data_pb2.DescribeRemoteLogsRequest, timeout_ms: int
    ) -> data_pb2.DescribeRemoteLogsResponse:
        self.requests.append(request)
        if self.before_first is not None and len(self.requests) == 1:
            self.before_first()
        await self.clock.sleep_ms(min(ANSWER_MS, timeout_ms))
        if timeout_ms < ANSWER_MS:
            raise RequestTimedOut(f"{timeout_ms} ms passed")
        full = iter([False])
        return data_pb2.DescribeRemoteLogsResponse(
            partitions=[self._described(each, is_full=next(full, True)) for each in request.partitions]
        )

    def _described(self, asked: data_pb2.RemoteLogQuestion, *, is_full: bool) -> data_pb2.DescribedRemoteLog:
        described = data_pb2.DescribedRemoteLog(
            topic_id=asked.topic_id, partition=asked.partition, next_offset=asked.start_offset
        )
        if self.topic_id not in (None, asked.topic_id):
            described.error.CopyFrom(to_proto(UnknownTopicId("the topic was deleted")))
        elif asked.lost:
            described.next_offset, described.store_url = self._lose(described, asked), STORE
        elif asked.start_offset == self.refuses_from:
            described.error.CopyFrom(to_proto(RequestTimedOut("the leader is busy")))
        elif asked.start_offset == RECORDS - 1:
            described.next_offset = RECORDS
        elif not is_full and asked.start_offset != self.answers_nothing_from:
            described.segments.append(segment(asked.topic_id, asked.partition, asked.start_offset))
            described.next_offset, described.store_url = asked.start_offset + 1, STORE
        return described

    def _lose(self, described: data_pb2.DescribedRemoteLog, asked: data_pb2.RemoteLogQuestion) -> int:
        """Add a lost segment, if there is one in the range. Returns where to continue."""
        offset = next((each for each in self.lost if each >= asked.start_offset), None)
        if offset is None:
            return asked.end_offset
        copy = segment(asked.topic_id, asked.partition, offset)
        described.lost.append(data_pb2.LostRemoteSegment(segment=copy, since_ms=11, deleted_at_ms=12))
        return offset + 1


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    described, call = Leader(WaitsNotAtAll()), GrpcTransport.call

    async def answered(self: GrpcTransport, to: Endpoint, method: Any, request: Any, *, timeout_ms: int) -> Any:
        if method is methods.DATA_DESCRIBE_REMOTE_LOGS:
            return await described.answer(request, timeout_ms)
        return await call(self, to, method, request, timeout_ms=timeout_ms)

    monkeypatch.setattr(GrpcTransport, "call", answered)
    return described


async def fill(bootstrap: str, partitions: int) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(RECORDS * partitions):
            await producer.send("orders", b"one", partition=number % partitions)


async def test_a_history_of_many_pages_has_time_for_each_of_them(leader: Leader) -> None:
    """24 answers of a second each, and a patience of two and a half: each answer is progress."""
    async with memory_cluster(1) as cluster:
        cluster.create("orders", 2)
        await fill(cluster.bootstrap, 2)
        async with Admin(cluster.bootstrap, clock=leader.clock, patience_ms=PATIENCE_MS) as admin:
            found = await admin.describe_remote_segments("orders")
    assert [(key.partition, len(remote.segments)) for key, remote in sorted(found.items())] == [(0, 11), (1, 11)]
    for remote in found.values():
        assert [each.start_offset for each in remote.segments] == list(range(11))
        assert remote.store_url == STORE, "an answer without one does not replace it"
    assert len([each for each in leader.requests if not each.partitions[0].lost]) == 24


async def test_lost_segments_of_a_log_that_is_empty_are_told_in_pages(leader: Leader) -> None:
    leader.lost = [0, 40, 1 << 40]
    async with memory_cluster(1) as cluster:
        cluster.create("orders", 1)
        async with Admin(cluster.bootstrap, clock=leader.clock, patience_ms=PATIENCE_MS) as admin:
            [found] = (await admin.describe_remote_segments("orders")).values()
    assert ([each.segment.start_offset for each in found.lost], found.segments) == (leader.lost, ())
    assert {(each.since_ms, each.deleted_at_ms, found.store_url) for each in found.lost} == {(11, 12, STORE)}


async def test_a_leader_that_stops_answering_in_the_middle_ends_the_call_after_its_patience(leader: Leader) -> None:
    leader.refuses_from = 6
    async with memory_cluster(1) as cluster:
        cluster.create("orders", 1)
        await fill(cluster.bootstrap, 1)
        async with Admin(cluster.bootstrap, clock=leader.clock, patience_ms=PATIENCE_MS) as admin:
            with pytest.raises(RequestTimedOut, match="the leader is busy"):
                await admin.describe_remote_segments("orders")
    assert 6 < len(leader.requests) < 12


async def test_answers_that_make_no_progress_are_an_error_and_no_endless_loop(leader: Leader) -> None:
    leader.answers_nothing_from = 3
    async with memory_cluster(1) as cluster:
        cluster.create("orders", 1)
        await fill(cluster.bootstrap, 1)
        async with Admin(cluster.bootstrap, clock=leader.clock, patience_ms=PATIENCE_MS) as admin:
            with pytest.raises(UnknownServerError, match="orders-0 describes no remote segments from offset 3 on"):
                await admin.describe_remote_segments("orders")


async def test_a_topic_that_is_created_again_between_the_questions_is_not_described_with_the_ranges_of_the_former(
    leader: Leader,
) -> None:
    async with memory_cluster(1) as cluster:
        cluster.create("orders", 1)
        await fill(cluster.bootstrap, 1)

        def recreate() -> None:
            cluster.delete("orders")
            leader.topic_id = cluster.create("orders", 1).topic_id.bytes

        leader.before_first = recreate
        async with Admin(cluster.bootstrap, clock=leader.clock, patience_ms=PATIENCE_MS) as admin:
            with pytest.raises(UnknownTopicId):
                await admin.describe_remote_segments("orders")
