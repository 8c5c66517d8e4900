"""A partition with 100,000 remote segments, a year of small ones: what its coordinator and a new leader take for them
at their start, and what a look-up costs.

One thread and no wires, the code that the nodes run, processor time: the coordinator reads its records as from its log;
its pages are made into messages and back, as between two nodes. Memory is what the tables allocate (tracemalloc) for a
tenth of the segments, since that slows everything down.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar
from uuid import UUID

from bench.figure import Better, Figure, Run
from replication.controller.image import EMPTY
from replication.coordination.coordinator_machine import Instant
from replication.coordination.remote_log_records import REMOTE_LOG_RECORDS, decode_to_replay, segment_record
from replication.coordination.remote_log_requests import ListRemoteSegments, RemoteSegmentsPage, SegmentPlace
from replication.coordination.tiering.remote_log import RemoteLog
from replication.coordination.tiering.remote_log_machine import RemoteLogMachine
from tidelog.protocol.message_mapping import read_message, write_message
from tidelog.protocol.v1 import remote_logs_pb2
from tidelog.tiering.remote_segment import (
    ObjectSection,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    SectionKind,
)
from tidelog.types import EpochStart, LeaderEpoch, Millis, NodeId, Offset, PartitionIndex, PartitionKey, TopicId

T = TypeVar("T")
COUNT: Final = 100_000
RECORDS: Final = 1_000
"""In a segment."""
EPOCH_SEGMENTS: Final = 1_000
"""The leader changes after so many segments."""
LOOKUPS: Final = 2_000
TENTH: Final = 10
KEY: Final = PartitionKey(TopicId(UUID(int=1)), PartitionIndex(0))
NOW: Final = Instant(Millis(0), Millis(0))


def figures(run: Run) -> Iterator[Figure]:
    count = COUNT // (100 if run.quick else 1)
    run.say(f"{count:,} remote segments of a partition")
    records = [REMOTE_LOG_RECORDS.encode(segment_record(_segment(number))) for number in range(count)]
    machine, seconds = _timed(lambda: _replayed(records))
    yield Figure(f"{count} segments: the coordinator reads its records", seconds, "s", better=Better.LESS)
    pages, seconds = _timed(lambda: list(_pages(machine)))
    yield Figure(f"{count} segments: the coordinator lists them", seconds, "s", better=Better.LESS)
    yield Figure(
        f"{count} segments: a page on the coordinator's loop", seconds / len(pages) * 1e3, "ms", better=Better.LESS
    )
    yield Figure(f"{count} segments: bytes of the pages", sum(map(len, pages)) / 1e6, "MB", better=Better.LESS)
    remote, seconds = _timed(lambda: _loaded(pages, count))
    yield Figure(f"{count} segments: a new leader takes them over", seconds, "s", better=Better.LESS)
    yield Figure(f"{count} segments: a page on the leader's loop", seconds / len(pages) * 1e3, "ms", better=Better.LESS)
    yield from _lookups(remote, count)
    few = records[: count // TENTH]
    for name, make in (
        ("the coordinator", lambda: _replayed(few)),
        ("a leader", lambda: _loaded(_pages(_replayed(few)), len(few))),
    ):
        yield Figure(f"{count} segments: memory of {name}", TENTH * _memory(make) / 1e6, "MB", better=Better.LESS)


def _segment(number: int) -> RemoteSegment:
    start, epoch = RECORDS * number, number // EPOCH_SEGMENTS
    size = 1_000_000
    sections = []
    at = 0
    for kind, length in (
        (SectionKind.LOG, size),
        (SectionKind.OFFSET_INDEX, 1_960),
        (SectionKind.TIME_INDEX, 2_940),
        (SectionKind.PRODUCER_SNAPSHOT, 300),
        (SectionKind.LEADER_EPOCHS, 12 * (epoch + 1)),
        (SectionKind.LOG_CHECKSUMS, 4),
    ):
        sections.append(ObjectSection(kind, at, length, 0x9ABC_DEF0 ^ number))
        at += length
    return RemoteSegment(
        RemoteSegmentId(UUID(int=random.Random(number).getrandbits(128), version=4)),
        KEY.topic_id,
        KEY.partition,
        Offset(start),
        Offset(start + RECORDS),
        (EpochStart(LeaderEpoch(epoch), Offset(start)),),
        Millis(1_700_000_000_000 + 300_000 * (number + 1)),
        size,
        LeaderEpoch(epoch),
        NodeId(epoch % 3),
        Millis(1_700_000_000_000 + 300_000 * (number + 2)),
        RemoteSegmentState.COPY_SEGMENT_FINISHED,
        tuple(sections),
    )


def _replayed(records: list[tuple[bytes, bytes | None]]) -> RemoteLogMachine:
    machine = RemoteLogMachine()
    for offset, (key, value) in enumerate(records):
        machine.apply(decode_to_replay(key, value), Offset(offset), None)
    machine.loaded(EMPTY, 0, NOW)
    return machine


def _pages(machine: RemoteLogMachine) -> Iterator[bytes]:
    """The messages of all pages."""
    after: SegmentPlace | None = None
    while True:
        page: Any = machine.handle(ListRemoteSegments(KEY, after), NOW).answer
        message = write_message(remote_logs_pb2.RemoteSegmentsPage, page).SerializeToString()
        yield message
        if not page.has_more:
            return
        after = page.end


def _loaded(pages: Any, count: int) -> RemoteLog:
    """As a new leader does (node/tiering/tiered_partition.py)."""
    history = tuple(
        EpochStart(LeaderEpoch(epoch), Offset(epoch * EPOCH_SEGMENTS * RECORDS))
        for epoch in range(-(-count // EPOCH_SEGMENTS))
    )
    end = Offset(RECORDS * count + 1)
    remote = RemoteLog(KEY, Offset(0))
    for message in pages:
        page = read_message(RemoteSegmentsPage, remote_logs_pb2.RemoteSegmentsPage.FromString(message))
        remote.load(page.segments, history, Offset(0), end)
    assert remote.copied_end == RECORDS * count, "every segment is believed"
    return remote


def _lookups(remote: RemoteLog, count: int) -> Iterator[Figure]:
    chosen = random.Random(1)
    offsets = [Offset(chosen.randrange(RECORDS * count)) for _ in range(LOOKUPS)]
    _, seconds = _timed(lambda: [remote.segment_with(offset) for offset in offsets])
    yield Figure(f"{count} segments: the segment with an offset", seconds / LOOKUPS * 1e6, "us", better=Better.LESS)
    last = Millis(1_700_000_000_000 + 300_000 * count)
    found, seconds = _timed(lambda: remote.first_since(last, None))
    assert found is not None and found.end_offset == RECORDS * count, "the last one"
    yield Figure(f"{count} segments: the segment with a time", seconds * 1e3, "ms", better=Better.LESS)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    gc.collect()
    began = time.thread_time()
    found = work()
    return found, time.thread_time() - began


def _memory(make: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        assert made is not None
    finally:
        tracemalloc.stop()
    return size
