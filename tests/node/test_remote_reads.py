"""Reads from the store, where the tier ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from node.replicas.remote_reads import RemoteReads, RemoteTicket
from replication.coordination.tiering.remote_log import RemoteLog
from storage.files.disk_executor import InlineExecutor
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log.log_read import LogRead
from testbed.fake_object_store import FakeObjectStore
from tests.replication.remote_segments import encoded
from tests.storage.producer_batches import end, eventful
from tests.storage.workbench import SMALL, TOPIC_ID, Bench
from tests.tiering.remote_bench import TOPIC, copy_all
from tidelog.records import iter_batches
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_segment import RemoteSegment, SectionKind
from tidelog.tiering.segment_manifest import segment_key
from tidelog.tiering.segment_object import SegmentObjectBuilder
from tidelog.types import Millis, Offset, PartitionIndex, PartitionKey

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
        self.reads = RemoteReads(self.store, RemoteCache(1 << 20), InlineExecutor(), Millis(500))

    @property
    def log(self) -> Log:
        return self.bench.log

    def known(self, segments: Sequence[RemoteSegment], *, is_whole: bool) -> RemoteLog:
        """What a replica knows that was told of these segments."""
        remote, log = RemoteLog(KEY, self.log.local_log_start_offset), self.log
        remote.load(map(encoded, segments), log.epochs.entries, log.log_start_offset, log.log_end_offset)
        remote.is_whole = is_whole
        return remote

    def read(
        self, remote: RemoteLog, offset: Offset, isolation: FetchIsolation = COMMITTED
    ) -> tuple[LogRead, list[RemoteTicket]]:
        """The answer to a fetch, and the tickets of the reads that it waited for."""
        tickets: list[RemoteTicket] = []
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
