"""From the log of a leader into a store and back: the way that a copy takes, without a node."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from storage.log.log import Log
from storage.log.segment_copy import SegmentCopy, copy_limit, copyable_segments
from testbed.fake_object_store import FakeObjectStore
from tests.storage.producer_batches import end, eventful
from tests.storage.workbench import SMALL, TOPIC_ID, Bench, contents
from tests.tiering.remote_bench import TOPIC, described, read_all, reader
from tidelog.errors import CorruptLog, OffsetMovedToTieredStorage
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState, SectionKind
from tidelog.tiering.remote_segment_reader import aborted_in
from tidelog.tiering.segment_manifest import segment_key
from tidelog.tiering.segment_object import SegmentObjectBuilder, verify_object
from tidelog.types import LeaderEpoch, Millis, NodeId, Offset, PartitionIndex

TIERED = replace(SMALL, remote_storage=True, retention_bytes=10**9, local_retention_bytes=0)


def upload(log: Log, copied_end: Offset, store: FakeObjectStore) -> RemoteSegment | None:
    """Copy the next segment as a leader does; None if there is none."""
    found = copyable_segments(
        log.segments, copied_end=copied_end, log_start=log.log_start_offset, limit=copy_limit(log)
    )
    if not found:
        return None
    copy = SegmentCopy(log, found[0])
    segment = RemoteSegment(
        RemoteSegmentId(UUID(int=copy.start_offset)),
        TOPIC_ID,
        PartitionIndex(0),
        copy.start_offset,
        copy.end_offset,
        copy.leader_epochs,
        copy.max_timestamp,
        copy.size,
        LeaderEpoch(0),
        NodeId(1),
        Millis(0),
        RemoteSegmentState.COPY_SEGMENT_STARTED,
    )
    builder = SegmentObjectBuilder(segment, copy.contents())
    store.put(segment_key(TOPIC, segment), builder.parts())
    written = builder.finished()
    verify_object(store, segment_key(TOPIC, segment), written)
    assert copy.is_current(log)
    return replace(written, state=RemoteSegmentState.COPY_SEGMENT_FINISHED)


def test_what_leaves_the_node_is_read_from_the_store() -> None:
    """A log with transactions: every batch and every aborted transaction, from one tier and the other, is what the log
    had before."""
    bench, store = Bench(TIERED), FakeObjectStore()
    eventful(bench)
    for producer in list(bench.log.producers.state.open_transactions.values()):
        end(bench, producer, commit=False)
    bench.commit()
    log = bench.log
    log.advance_high_watermark(log.log_end_offset)
    before, aborted = b"".join(contents(log)), log.aborted_transactions(Offset(0), log.log_end_offset)
    assert aborted
    remote: list[RemoteSegment] = []
    while (segment := upload(log, log.copied_end, store)) is not None:
        remote.append(segment)
        log.copied_end = segment.end_offset
    assert log.copied_end == log.active.base_offset

    bench.directory.drop_expired(log)

    assert log.local_log_start_offset == log.copied_end
    with pytest.raises(OffsetMovedToTieredStorage):
        log.read(Offset(0), 100, up_to=log.log_end_offset)
    cache = RemoteCache(1 << 20)
    readers = [reader(store, each, cache) for each in remote]
    local = log.read(log.copied_end, 10**6, up_to=log.log_end_offset).records
    assert read_all(readers) + bytes(local) == before
    found, _ = aborted_in(readers, Offset(0), log.copied_end)
    assert {*found, *log.aborted_transactions(log.copied_end, log.log_end_offset)} == {*aborted}
    assert readers[-1].section(SectionKind.PRODUCER_SNAPSHOT)


def test_a_damaged_segment_leaves_no_object() -> None:
    bench, store = Bench(TIERED), FakeObjectStore()
    eventful(bench)
    bench.commit()
    log = bench.log
    segment, size = described(log, 0), log.segments[0].size
    copy = SegmentCopy(
        log, copyable_segments(log.segments, copied_end=Offset(0), log_start=Offset(0), limit=log.log_end_offset)[0]
    )
    file = bench.files.open(log.segments[0].path)
    file.pwritev([b"\xff"], size - 3)
    file.close()
    with pytest.raises(CorruptLog, match="is not copied"):
        store.put(segment_key(TOPIC, segment), SegmentObjectBuilder(segment, copy.contents()).parts())
    assert store.objects == {}
