"""Where a follower goes on behind the remote tier: which segment counts, and what is used of its object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest

from node.replicas.remote_reads import RemoteReads
from node.replicas.remote_starts import RemoteStart, RemoteStarts
from replication.coordination.remote_log_requests import RemoteSegmentsPage, SegmentPlace
from replication.partition.follower_events import RestartBehindRemote
from storage.files.disk_executor import InlineExecutor
from storage.log.log import Log
from testbed.fake_object_store import FakeObjectStore
from tests.replication.remote_segments import encoded
from tests.storage.producer_batches import eventful
from tests.storage.workbench import SMALL, Bench
from tests.tiering.remote_bench import copy_all
from tidelog.clock import MachineClock
from tidelog.errors import OffsetNotAvailable, TidelogError
from tidelog.records.producer_snapshot import encode_snapshot
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_errors import RemoteObjectDamaged, RemoteObjectMissing
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState
from tidelog.types import EpochStart, LeaderEpoch, Millis, Offset, PartitionKey


class Tier:
    """A log whose closed segments are all copied, and the searches of a follower of it."""

    def __init__(self) -> None:
        self.bench, self.store = Bench(SMALL), FakeObjectStore()
        eventful(self.bench)
        self.bench.commit()
        self.segments: Sequence[RemoteSegment] = copy_all(self.log, self.store)
        assert len(self.segments) >= 3

    @property
    def log(self) -> Log:
        return self.bench.log

    async def pages(self, key: PartitionKey, after: SegmentPlace | None) -> AsyncIterator[RemoteSegmentsPage]:
        assert key.topic_id == self.log.topic_id
        assert after is None
        for segment in self.segments:
            yield RemoteSegmentsPage((encoded(segment),), has_more=True, leader_epoch=LeaderEpoch(0))

    async def start_at(self, local_start: int, log_start: int = 0) -> RemoteStart:
        """Raises the error of the search."""
        starts = RemoteStarts(
            RemoteReads(self.store, RemoteCache(1 << 20), InlineExecutor(), Millis(500), MachineClock())
        )
        found: asyncio.Future[RemoteStart | TidelogError] = asyncio.get_running_loop().create_future()
        wanted = RestartBehindRemote(Offset(local_start), Offset(log_start), self.log.epochs.entries)
        starts.find(self.log, wanted, found.set_result)
        running = asyncio.get_running_loop().create_task(starts.run(self.pages))
        result = await found
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        if isinstance(result, TidelogError):
            assert (starts.found, starts.failed) == (0, 1)
            raise result
        assert (starts.found, starts.failed) == (1, 0)
        return result

    def producers_at(self, offset: Offset) -> bytes:
        state = self.log.producers.state
        state.load(offset)
        return encode_snapshot(each.to_snapshot() for each in state.active_producers())


async def test_it_is_the_end_of_the_segment_that_contains_the_local_start_or_ends_there() -> None:
    tier = Tier()
    first, second, *_ = tier.segments
    for local_start, segment in (
        (first.end_offset, first),
        (first.end_offset + 1, second),
        (second.end_offset, second),
        (first.start_offset, first),
    ):
        start = await tier.start_at(local_start)
        assert start.offset == segment.end_offset
        assert start.part.producers == tier.producers_at(segment.end_offset)
        assert start.part.epochs == tier.log.epochs.below(segment.end_offset)


async def test_the_epochs_begin_where_the_log_starts() -> None:
    tier = Tier()
    start = await tier.start_at(tier.segments[1].end_offset, log_start=2)
    assert start.part.log_start == 2
    assert start.part.epochs[0].start_offset == 2


async def test_segments_of_a_lost_epoch_unfinished_and_deleted_ones_do_not_count() -> None:
    tier = Tier()
    first, second, *others = tier.segments
    at = second.end_offset
    lost = replace(
        second,
        segment_id=RemoteSegmentId(UUID(int=77)),
        leader_epochs=(EpochStart(LeaderEpoch(9), second.start_offset),),
    )
    tier.segments = (first, lost, second, *others)
    assert (await tier.start_at(at)).part.producers == tier.producers_at(at)
    for other in (
        [lost],
        [replace(second, state=RemoteSegmentState.COPY_SEGMENT_STARTED)],
        [replace(second, state=RemoteSegmentState.DELETE_SEGMENT_STARTED)],
        [],
    ):
        tier.segments = (first, *other)
        with pytest.raises(OffsetNotAvailable, match="the leader is asked again"):
            await tier.start_at(at)


async def test_nothing_of_a_damaged_or_missing_object_is_used() -> None:
    tier = Tier()
    segment = tier.segments[0]
    [key] = [each for each in tier.store.objects if each.endswith(f"{segment.segment_id}.segment")]
    whole = tier.store.objects[key]
    for section in segment.sections:
        if section.kind.name not in ("PRODUCER_SNAPSHOT", "LEADER_EPOCHS"):
            continue
        damaged = bytearray(whole)
        damaged[section.start] ^= 1
        tier.store.objects[key] = bytes(damaged)
        with pytest.raises(RemoteObjectDamaged, match=section.kind.name):
            await tier.start_at(segment.end_offset)
    tier.store.lose(key)
    with pytest.raises(RemoteObjectMissing):
        await tier.start_at(segment.end_offset)
