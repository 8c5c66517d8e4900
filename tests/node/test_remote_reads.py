"""Reads from the store by a replica that does not know all of the tier, as a new leader, and where the tier ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from node.replicas.leader_replica import LeaderReplica
from node.replicas.remote_reads import RemoteReads, RemoteTicket
from node.replicas.replica import Replica
from node.replicas.replica_services import ReplicaServices
from replication.coordination.tiering.remote_log import RemoteLog
from storage.files.disk_executor import InlineExecutor
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log.log_read import LogRead
from testbed.fake_object_store import FakeObjectStore
from tests.replication.remote_segments import encoded
from tests.storage.producer_batches import end, eventful
from tests.storage.workbench import SMALL, TOPIC_ID, TP, Bench
from tests.tiering.remote_bench import TOPIC, copy, copy_all
from tidelog.clock import MachineClock
from tidelog.errors import OffsetNotAvailable
from tidelog.records import iter_batches
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_errors import RemoteObjectMissing
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, SectionKind
from tidelog.tiering.segment_manifest import segment_key
from tidelog.tiering.segment_object import SegmentObjectBuilder
from tidelog.types import LATEST_TIERED, NO_LEADER_EPOCH, Millis, Offset, PartitionIndex, PartitionKey

TIERED = replace(SMALL, remote_storage=True, retention_bytes=10**9, local_retention_bytes=0)
KEY = PartitionKey(TOPIC_ID, PartitionIndex(0))
COMMITTED, DECIDED = FetchIsolation.HIGH_WATERMARK, FetchIsolation.LAST_STABLE_OFFSET


class Tier:
    """A log with transactions whose closed segments are in the store only."""

    def __init__(self) -> None:
        self.bench, self.store = Bench(TIERED), FakeObjectStore()
        eventful(self.bench)
        for producer in list(self.log.producers.state.open_transactions.values()):
            end(self.bench, producer, commit=False)
        self.bench.commit()
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.aborted = self.log.aborted_transactions(Offset(0), self.log.log_end_offset)
        self.segments: Sequence[RemoteSegment] = copy_all(self.log, self.store)
        self.log.copied_end = self.log.active.base_offset
        self.bench.directory.drop_expired(self.log)
        assert self.log.local_log_start_offset == self.segments[-1].end_offset
        self.reads = RemoteReads(self.store, RemoteCache(1 << 20), InlineExecutor(), Millis(500), MachineClock())

    @property
    def log(self) -> Log:
        return self.bench.log

    def close_local_segment(self) -> None:
        """Append records to the local log, until a segment of it is closed, and the next one has some too."""
        while len(self.log.segments) < 2 or not self.log.active.size:
            self.bench.lead(b"later")
        self.bench.commit()
        self.log.advance_high_watermark(self.log.log_end_offset)

    def known(self, segments: Sequence[RemoteSegment], *, is_whole: bool) -> RemoteLog:
        """What a replica knows that was told of these segments."""
        remote, log = RemoteLog(KEY, self.log.local_log_start_offset), self.log
        remote.load(map(encoded, segments), log.epochs.entries, log.log_start_offset, log.log_end_offset)
        remote.is_whole = is_whole
        return remote

    def read(
        self,
        remote: RemoteLog,
        offset: Offset,
        isolation: FetchIsolation = COMMITTED,
        begun: Sequence[RemoteTicket] = (),
    ) -> tuple[LogRead, list[RemoteTicket]]:
        """The answer to a fetch, and the tickets of the reads that it waited for."""
        tickets = [*begun]
        while len(tickets) < 20:
            ready = tickets[-1] if tickets else None
            found = self.reads.try_read(self.log, remote, offset, 10_000, isolation, ready)
            if isinstance(found, LogRead):
                return found, tickets
            found.run()
            tickets.append(found)
        raise AssertionError("the read does not end")

    def without_last_batch(self, number: int) -> RemoteSegment:
        """Copy a segment whose last batch is gone, as a compaction of the topic can have left it."""
        segment = self.segments[number]
        key = segment_key(TOPIC, segment)
        data = self.store.objects[key][: segment.log_size]
        (*_, last) = iter_batches(data)
        begun = replace(segment, log_size=segment.log_size - len(last.buffer), sections=())
        builder = SegmentObjectBuilder(begun, [(SectionKind.LOG, [data[: begun.log_size]])])
        self.store.put(key, builder.parts())
        self.gone = Offset(last.base_offset)
        return replace(builder.finished(), state=segment.state)


def test_an_object_that_is_gone_is_lost_only_if_all_segments_are_known() -> None:
    """What a new leader knew as a follower may have been deleted meanwhile: to tell readers that these records are lost
    would end them, and the log may just start behind."""
    tier = Tier()
    second = tier.segments[1]
    tier.store.lose(segment_key(TOPIC, second))
    with pytest.raises(OffsetNotAvailable, match="gone meanwhile"):
        tier.read(tier.known(tier.segments, is_whole=False), second.start_offset)
    with pytest.raises(RemoteObjectMissing):
        tier.read(tier.known(tier.segments, is_whole=True), second.start_offset)


def test_a_read_of_an_object_that_is_gone_goes_on_with_the_segment_that_took_its_place() -> None:
    """All segments are listed while the read is at the store."""
    tier = Tier()
    first = tier.segments[0]
    before = replace(first, segment_id=RemoteSegmentId(UUID(int=99)))
    ticket = tier.reads.try_read(tier.log, tier.known([before], is_whole=False), Offset(0), 10_000, COMMITTED, None)
    assert isinstance(ticket, RemoteTicket)
    ticket.run()
    assert isinstance(ticket.error, RemoteObjectMissing)
    again = tier.reads.try_read(
        tier.log, tier.known(tier.segments, is_whole=True), Offset(0), 10_000, COMMITTED, ticket
    )
    assert isinstance(again, RemoteTicket)
    assert again.segment == first


def test_what_a_former_leader_has_deleted_is_not_lost() -> None:
    """The log start of a new leader follows in a moment."""
    tier = Tier()
    remote = tier.known(tier.segments[2:], is_whole=True)
    with pytest.raises(RemoteObjectMissing):
        tier.read(remote, Offset(0))
    remote.expired_below = tier.segments[2].start_offset
    with pytest.raises(OffsetNotAvailable):
        tier.read(remote, Offset(0))


def test_no_transaction_counts_as_committed_because_a_segment_is_not_known() -> None:
    """A leader lists the segments page by page, and answers reads of those that it has. The marker of an aborted
    transaction may be in one that it has not."""
    tier, refused, answered = Tier(), 0, 0
    for count in range(1, len(tier.segments) + 1):
        remote = tier.known(tier.segments[:count], is_whole=False)
        offset = tier.segments[count - 1].start_offset
        try:
            found, _ = tier.read(remote, offset, DECIDED)
        except OffsetNotAvailable:
            refused += 1
            continue
        answered += 1
        ids = {each.producer_id for each in found.aborted}
        there = {each for each in tier.aborted if each.first_offset < found.next_offset and each.last_offset >= offset}
        assert {each.producer_id for each in there} == ids
    assert refused
    assert answered


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("isolation", [COMMITTED, DECIDED])
def test_a_read_passes_the_end_of_a_segment_without_batches(number: int, isolation: FetchIsolation) -> None:
    """It goes on in the next segment, or in the local log: there it does not wait for the disk on the loop."""
    tier = Tier()
    segments = [*tier.segments]
    segments[number] = tier.without_last_batch(number)
    next_offset = segments[number].end_offset
    expected = (
        tier.log.fetch(next_offset, 10_000, isolation)
        if number
        else tier.read(tier.known(tier.segments, is_whole=True), next_offset, isolation)[0]
    )
    tier.bench.disk.is_cold = lambda _: True
    found, tickets = tier.read(tier.known(segments, is_whole=True), tier.gone, isolation)
    assert bytes(found.records) == bytes(expected.records)
    assert (found.next_offset, found.aborted) == (expected.next_offset, expected.aborted)
    assert len(tickets) > 1
    for each in tickets:
        each.release()


def test_questions_about_the_whole_tier_wait_until_all_segments_are_known() -> None:
    """A new leader would tell a job that plans its reads that later segments are not copied."""
    tier = Tier()
    replica = Replica.__new__(Replica)
    replica.log, replica.name, replica.offline = tier.log, TP, None
    replica.role = LeaderReplica.__new__(LeaderReplica)
    replica._services = cast("ReplicaServices", SimpleNamespace(remote_reads=tier.reads))
    end_of_tier = tier.segments[-1].end_offset
    replica.read_from(tier.known(tier.segments[:2], is_whole=False))
    with pytest.raises(OffsetNotAvailable):
        replica._end_of_tier(LATEST_TIERED)
    with pytest.raises(OffsetNotAvailable):
        replica.remote_range(Offset(0), end_of_tier, 100, NO_LEADER_EPOCH)
    replica.read_from(tier.known(tier.segments, is_whole=True))
    assert replica._end_of_tier(LATEST_TIERED)[0] == end_of_tier - 1
    assert replica.remote_range(Offset(0), end_of_tier, 100, NO_LEADER_EPOCH).segments == (*tier.segments,)


@pytest.mark.parametrize("isolation", [COMMITTED, DECIDED])
def test_a_local_read_that_fails_behind_the_tier_skips_no_offset(isolation: FetchIsolation) -> None:
    """It is repeated on the loop. What the failed read did not find is not missing: the next segment has other
    offsets."""
    tier = Tier()
    tier.close_local_segment()
    segments = [*tier.segments[:-1], tier.without_last_batch(-1)]
    expected = tier.log.fetch(segments[-1].end_offset, 10_000, isolation)
    tier.bench.disk.is_cold = lambda _: True
    tier.bench.disk.fail("read", ".log")
    found, tickets = tier.read(tier.known(segments, is_whole=True), tier.gone, isolation)
    assert any(each.waits_on_loop for each in tickets), "the planned failure did not happen"
    assert (bytes(found.records), found.next_offset) == (bytes(expected.records), expected.next_offset)


def test_a_read_goes_on_in_the_tier_if_the_local_log_start_moves_meanwhile() -> None:
    """The segment behind the tier leaves while a read of it is at the disk: a copy of it is in the store."""
    tier = Tier()
    tier.close_local_segment()
    segments = [*tier.segments[:-1], tier.without_last_batch(-1)]
    start = tier.log.local_log_start_offset
    expected = tier.log.fetch(start, 10_000, COMMITTED)
    remote = tier.known(segments, is_whole=True)
    tier.bench.disk.is_cold = lambda _: True
    ticket = tier.reads.try_read(tier.log, remote, tier.gone, 10_000, COMMITTED, None)
    assert isinstance(ticket, RemoteTicket)
    ticket.run()
    assert tier.reads.try_read(tier.log, remote, tier.gone, 10_000, COMMITTED, ticket) is ticket
    ticket.run()

    remote.add(copy(tier.log, 0, tier.store, segment_id=99))
    tier.log.copied_end = remote.copied_end
    tier.bench.directory.drop_expired(tier.log)
    assert tier.log.local_log_start_offset > start
    found, _ = tier.read(remote, tier.gone, COMMITTED, [ticket])
    assert (bytes(found.records), found.next_offset) == (bytes(expected.records), expected.next_offset)


def test_a_new_leader_does_not_read_what_it_knew_before_a_truncation() -> None:
    """Its segments may be of the epoch that was truncated."""
    tier = Tier()
    replica = Replica.__new__(Replica)
    replica.log, replica.remote, replica._remote_of = tier.log, None, None
    assert replica._remote_still_believed() is None
    remote = tier.known(tier.segments, is_whole=True)
    replica.read_from(remote)
    assert replica._remote_still_believed() is remote
    assert not remote.is_whole, "others may have been copied and deleted"
    tier.log.truncate_to(Offset(tier.log.log_end_offset - 1))
    assert replica._remote_still_believed() is None
