"""A leader of an older epoch is not believed by a reader, whatever it answers (KIP-320)."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from tests.client.fetch_core_world import RequestSession, batch, hinted, key, opened
from tests.client.memory_cluster import memory_cluster
from tests.client.numbered_records import P0, fill, numbered, read
from tidelog.client import fetch_core
from tidelog.client.cluster import PartitionView
from tidelog.client.consumer import Consumer
from tidelog.client.core_events import FindLeader
from tidelog.client.cursor import CursorState, FixedRange
from tidelog.client.fetch_core import OUTDATED_MS, REPORT_MS, UNCONFIRMED_MS
from tidelog.client.fetch_events import (
    BatchesFetched,
    Effect,
    FetchPolicy,
    FindPlace,
    LeaderVerified,
    PlaceFound,
    ReportDoubt,
    Sought,
    VerifyLeader,
)
from tidelog.client.offset_lookup import ensure_current
from tidelog.errors import (
    ConnectionFailed,
    CorruptRecord,
    NodeNotAvailable,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, Millis, NodeId, Offset, TopicId

FROM_EARLIEST = FetchPolicy(10_000, 1_000, 500, 5_000, on_out_of_range="earliest")


def sought(session: RequestSession, offset: int, epoch: int) -> list[Effect]:
    """The reader continues at a committed offset with the epoch of the record before it."""
    return session.handle(Sought(key(), Offset(offset), LeaderEpoch(epoch), Millis(session.now)))


def test_a_committed_epoch_newer_than_the_metadata_makes_the_metadata_stale() -> None:
    """Node 0 was paused and leads no more, but the metadata still name it: it is asked nothing, and the next leader
    gets the fetch with the committed epoch."""
    session = RequestSession()
    session.tick()
    session.lead(node=0, epoch=0)
    assert sought(session, 88, epoch=1) == [FindLeader(key())]
    session.lead(node=0, epoch=0)
    assert session.tick(500) == [FindLeader(key(), is_outdated=True)], "the deposed leader is asked"
    (fetch,) = opened(session.lead(node=1, epoch=1))
    assert (fetch.node, fetch.leader_epoch, fetch.offset, fetch.last_epoch) == (1, 1, 88, 1)


def test_an_epoch_that_no_node_knows_is_an_error_after_a_time_and_ends_with_the_epoch() -> None:
    session = RequestSession()
    session.tick()
    session.lead(epoch=0)
    sought(session, 88, epoch=1)
    session.lead(epoch=0)
    session.tick(OUTDATED_MS - 1)
    session.lead(epoch=0)
    assert session.cursor().error is None
    session.tick(1)
    session.lead(epoch=0, cause=ConnectionFailed("no node answered"))
    assert session.cursor().error is None, "a round without an answer proves nothing"
    session.lead(epoch=0)
    error = session.cursor().error
    assert isinstance(error, UnknownLeaderEpoch)
    assert "offset 88" in error.message
    assert "seek to the offset without it" in error.message
    (fetch,) = opened(session.lead(node=2, epoch=1))
    assert (fetch.node, fetch.offset, fetch.last_epoch) == (2, 88, 1)
    assert session.cursor().error is None


def test_a_planned_epoch_newer_than_the_metadata_makes_the_metadata_stale() -> None:
    """A range that was planned in epoch 1 is not checked with the leader of epoch 0."""
    session = RequestSession()
    planned = FixedRange(TopicId(UUID(int=1)), Offset(0), Offset(10), LeaderEpoch(1))
    session.core.add_range(key(), planned)
    session.tick()
    assert session.lead(node=0, epoch=0) == []
    assert session.tick(500) == [FindLeader(key(), is_outdated=True)]


@pytest.mark.parametrize("diverging", [None, EpochEnd(LeaderEpoch(0), Offset(33))])
def test_an_answer_of_an_older_epoch_counts_as_none(diverging: EpochEnd | None) -> None:
    """It says that the logs diverge, or has an old high watermark: both are dropped, and the leader is looked up."""
    session = RequestSession()
    session.ready(epoch=2)
    session.fetched(batch(0, 10, epoch=2), epoch=2)
    session.consume(10, epoch=2)
    number, at, low = session.cursor().number, Millis(session.now), Offset(7)
    stale = BatchesFetched(key(), number, (), LeaderEpoch(1), low, low, Offset(0), at, diverging=diverging)
    assert session.handle(stale) == [FindLeader(key())]
    cursor = session.cursor()
    assert (cursor.error, cursor.position, cursor.high_watermark) == (None, 10, 100)


@pytest.mark.parametrize("policy", [FROM_EARLIEST, FetchPolicy(10_000, 1_000, 500, 5_000)])
def test_out_of_range_of_a_deposed_leader_is_not_believed(policy: FetchPolicy) -> None:
    """The leader that answers was deposed. Another node, asked who leads, names the next one, which is read."""
    session = RequestSession(policy)
    session.ready(88)
    (asked,) = session.failed(OffsetOutOfRange("partition orders-0 has offsets from 0 to 33"))
    assert isinstance(asked, VerifyLeader)
    assert (asked.node, asked.leader_epoch) == (1, 0)
    (fetch,) = opened(session.lead(node=2, epoch=1))
    assert (fetch.node, fetch.offset) == (2, 88)
    late = LeaderVerified(key(), asked.number, Millis(session.now))
    assert session.handle(late) == []
    assert (session.cursor().state, session.cursor().position) == (CursorState.FETCHING, 88)


def test_out_of_range_is_not_believed_while_no_other_node_confirms_the_leader() -> None:
    """The other nodes do not answer, or one of them names another leader: the fetch is repeated after a pause."""
    session = RequestSession(FROM_EARLIEST)
    session.ready(88)
    for doubt in (ConnectionFailed("no node answered"), NotLeaderOrFollower("node 1 does not lead")):
        (asked,) = session.failed(OffsetOutOfRange("partition orders-0 has offsets from 0 to 33"))
        assert isinstance(asked, VerifyLeader)
        assert session.failed(doubt) == [FindLeader(key())]
        session.lead()
        assert [fetch.offset for fetch in opened(session.tick(1_000))] == [88]
    (place,) = session.denied(OffsetOutOfRange("partition orders-0 has offsets from 0 to 33"))
    assert isinstance(place, FindPlace)


def test_a_leader_that_no_other_node_confirms_is_reported_at_a_bounded_rate() -> None:
    """Nothing is read from it meanwhile, and no call raises. An answer of another kind restarts the time."""
    denial, cause = OffsetOutOfRange("orders-0 has offsets from 0 to 33"), ConnectionFailed("no node answered")
    session = RequestSession()
    session.ready(88)

    def doubted(ms: int) -> list[ReportDoubt]:
        session.tick(ms)
        session.failed(denial)
        effects = session.failed(cause)
        assert FindLeader(key()) in effects
        session.lead()
        return [effect for effect in effects if isinstance(effect, ReportDoubt)]

    report = ReportDoubt(key(), Offset(88), NodeId(1), LeaderEpoch(0), denial, cause)
    assert [doubted(0), doubted(UNCONFIRMED_MS - 1), doubted(1_000)] == [[], [], [report]]
    assert [doubted(REPORT_MS - 1), doubted(1_000), doubted(1_000)] == [[], [report], []]
    session.tick(1_000)
    session.fetched()
    assert [doubted(0), doubted(UNCONFIRMED_MS - 1), doubted(1_000)] == [[], [], [report]]


async def test_a_reader_of_a_leader_that_no_other_node_confirms_is_warned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other node answers nothing. The reader polled without a word for ever."""
    monkeypatch.setattr(fetch_core, "UNCONFIRMED_MS", 0)

    def unavailable(request: admin_pb2.GetMetadataRequest) -> admin_pb2.GetMetadataResponse:
        raise NodeNotAvailable("starting")

    caplog.set_level(logging.WARNING, "tidelog.client")
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        fill(cluster, numbered(33))
        cluster.lead("orders", 0, 0)
        async with Consumer(str(cluster.nodes[0].endpoint)) as consumer:
            consumer.assign(await consumer.partitions("orders"))
            cluster.nodes[1].on_get_metadata = unavailable
            await consumer.seek(P0, 88)
            while not caplog.messages:
                assert await consumer.poll(timeout=0.1) == []
            await consumer.seek(P0, 32)
            assert [record.offset for record in await read(consumer, 1)] == [32], "as it is told to"
    (warning,) = caplog.messages
    for part in ("orders-0", "offset 88", "Node 0", "epoch 1", "0..33", "no other node confirms", "reachable"):
        assert part in warning


def test_out_of_range_of_a_preferred_replica_is_decided_by_the_leader() -> None:
    session = RequestSession(FROM_EARLIEST)
    session.ready(88)
    hinted(session)
    (fetch,) = opened(session.failed(OffsetOutOfRange("outside")))
    assert (fetch.node, fetch.offset) == (1, 88)


def test_the_ends_of_a_log_are_not_asked_of_an_older_leader() -> None:
    old = PartitionView(NodeId(0), LeaderEpoch(0))
    ensure_current(key(), old, LeaderEpoch(0))
    with pytest.raises(UnknownLeaderEpoch, match=r"orders-0 has records of leader epoch 1.*node 0.*older epoch 0"):
        ensure_current(key(), old, LeaderEpoch(1))


async def test_what_was_read_of_a_deleted_topic_says_nothing_of_the_next_one() -> None:
    """Records of epoch 1 were read; the topic is created again, and its leader is in epoch 0."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        cluster.lead("orders", 0, 0)
        fill(cluster, numbered(4))
        async with Consumer(cluster.bootstrap, request_timeout_ms=2_000) as consumer:
            consumer.assign([P0])
            assert len(await read(consumer, 4)) == 4
            cluster.delete("orders")
            cluster.create("orders")
            assert await consumer.end_offsets([P0]) == {P0: 0}


async def test_after_an_epoch_that_no_node_knows_a_place_can_be_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster was restored from an older state: its epochs are below those that the reader knows."""
    monkeypatch.setattr(fetch_core, "OUTDATED_MS", 0)
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, numbered(4))
        async with Consumer(cluster.bootstrap, request_timeout_ms=2_000) as consumer:
            consumer.assign([P0])
            await consumer.seek(P0, 2, leader_epoch=9)
            with pytest.raises(UnknownLeaderEpoch, match="offset 2 is of leader epoch 9"):
                await read(consumer, 1)
            assert await consumer.seek(P0, "earliest") == 0
            assert len(await read(consumer, 4)) == 4


@pytest.mark.parametrize("committed_epoch", [NO_LEADER_EPOCH, 1])
async def test_a_reader_at_a_leader_that_wakes_up_deposed_loses_and_repeats_nothing(committed_epoch: int) -> None:
    """Over real connections: node 0 led in epoch 0, was paused and wakes up with its old metadata; node 1 has led in
    epoch 1 and has offsets up to 90. A reader whose metadata are of epoch 0 continues at 88, as its group committed, or
    as it was told without an epoch."""
    async with memory_cluster(2) as cluster:
        cluster.create("orders")
        fill(cluster, numbered(33))
        old = cluster.metadata(admin_pb2.GetMetadataRequest(topics=["orders"]))
        awake = cluster.nodes[0]
        awake.on_get_metadata = lambda request: old
        awake.on_fetch = lambda _: OffsetOutOfRange("partition orders-0 has offsets from 0 to 33")
        cluster.lead("orders", 0, 1)
        fill(cluster, numbered(57))
        async with Consumer(str(awake.endpoint), on_out_of_range="earliest") as consumer:
            consumer.assign(await consumer.partitions("orders"))
            await consumer.seek(P0, 88, leader_epoch=committed_epoch)
            records = await read(consumer, 2)
            assert [record.offset for record in records] == [88, 89]
            assert bool(awake.fetches) is (committed_epoch == NO_LEADER_EPOCH), "a stale leader was asked"


def test_out_of_range_is_an_error_unless_a_reset_is_configured() -> None:
    session = RequestSession()
    session.ready(5)
    session.denied(OffsetOutOfRange("offset 5 is below the log start 10"))
    error = session.cursor().error
    assert isinstance(error, OffsetOutOfRange)
    assert "on_out_of_range" in error.message

    jumping = RequestSession(FetchPolicy(10_000, 1_000, 500, 5_000, on_out_of_range="latest"))
    jumping.ready(5)
    (place,) = jumping.denied(OffsetOutOfRange("offset 5 is below the log start 10"))
    assert isinstance(place, FindPlace)
    assert place.where == "latest"


@pytest.mark.parametrize("policy", [FROM_EARLIEST, FetchPolicy(10_000, 1_000, 500, 5_000)])
def test_out_of_range_behind_buffered_bytes_is_not_believed_before_they_are_verified(policy: FetchPolicy) -> None:
    """A flipped bit in the header of a buffered batch has moved the offset of the next fetch out of the log. The batch
    fails its checksum when it is read: it is fetched again, from the position on."""
    session = RequestSession(policy)
    session.ready()
    (fetch,) = opened(session.fetched(batch(64, 3)))
    assert fetch.offset == 67
    assert session.failed(OffsetOutOfRange("partition orders-0 has offsets from 0 to 3")) == []
    assert session.cursor().error is None
    session.core.refuse(session.cursor(), CorruptRecord("the checksum does not match"), Millis(session.now))
    (fetch,) = opened(session.tick(1_000))
    assert (fetch.offset, fetch.refused) == (0, True)
    assert session.cursor().error is None


def test_a_position_below_the_log_start_never_moves_back() -> None:
    """A deposed leader has deleted more than the next one knows of: records are not read again. If the position is
    above the log, which an unclean election has truncated, reading restarts at the configured place."""
    for log_start, position in ((Offset(10), 5), (Offset(0), 2), (None, 2)):
        session = RequestSession(FetchPolicy(10_000, 1_000, 500, 5_000, on_out_of_range="earliest"))
        session.ready(5)
        error = OffsetOutOfRange("offset 5 is not in the log")
        error.log_start = log_start
        (place,) = session.denied(error)
        assert isinstance(place, FindPlace)
        (fetch,) = opened(session.handle(PlaceFound(key(), place.number, Offset(2), Millis(session.now))))
        assert fetch.offset == position
