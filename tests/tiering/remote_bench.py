"""Segments of a real log, copied into an object store as a leader would: for tests of what reads them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from storage.checkpoints.checkpoint_file import encode_epochs
from storage.files.file_system import read_file
from storage.log.log import Log
from storage.log_config import LogConfig
from storage.segment.segment import ALL_SUFFIXES, segment_path
from tests.storage.workbench import NOW, TOPIC_ID, Bench
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState, SectionKind
from tidelog.tiering.remote_segment_reader import RemoteSegmentReader
from tidelog.tiering.segment_manifest import encode_manifest, manifest_key, segment_key
from tidelog.tiering.segment_object import SegmentObjectBuilder
from tidelog.types import Buffer, EpochStart, LeaderEpoch, Millis, NodeId, Offset, PartitionIndex, TopicId

TOPIC = "orders"
_PIECE_BYTES = 700
"""Small and odd, so that pieces end anywhere."""


def build(log: bytes, pieces: list[int], **others: bytes) -> tuple[RemoteSegment, bytes]:
    """An object whose log comes in pieces of these sizes, again and again."""

    def parts() -> Iterator[Buffer]:
        at = 0
        while at < len(log):
            for size in pieces:
                yield log[at : at + size]
                at += size

    segment = RemoteSegment(
        RemoteSegmentId(UUID(int=7)),
        TopicId(UUID(int=8)),
        PartitionIndex(3),
        Offset(100),
        Offset(200),
        (EpochStart(LeaderEpoch(2), Offset(100)),),
        Millis(-1),
        len(log),
        LeaderEpoch(2),
        NodeId(1),
        Millis(5),
        RemoteSegmentState.COPY_SEGMENT_STARTED,
    )
    sections = [(SectionKind[name.upper()], [data]) for name, data in others.items()]
    builder = SegmentObjectBuilder(segment, [(SectionKind.LOG, parts()), *sections])
    data = b"".join(bytes(part) for part in builder.parts())
    return builder.finished(), data


def large() -> Bench:
    """A closed segment of nine ranges, in batches of 50 KB, and an active one."""
    bench, rng = Bench(LogConfig(segment_bytes=9 << 20)), random.Random(1)
    while len(bench.log.segments) < 2:
        bench.lead(rng.randbytes(50_000), rng.randbytes(10), timestamp=NOW + bench.log.log_end_offset)
    bench.commit()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    return bench


def described(log: Log, number: int, segment_id: int = 1) -> RemoteSegment:
    """A closed segment of the log, as its copy begins."""
    segment, end = log.segments[number], log.segments[number + 1].base_offset
    return RemoteSegment(
        RemoteSegmentId(UUID(int=segment_id)),
        TOPIC_ID,
        PartitionIndex(0),
        segment.base_offset,
        end,
        log.epochs.over(segment.base_offset, end),
        segment.confirm_largest().timestamp,
        segment.size,
        LeaderEpoch(3),
        NodeId(1),
        Millis(1_700_000_000_000),
        RemoteSegmentState.COPY_SEGMENT_STARTED,
    )


def contents(log: Log, segment: RemoteSegment) -> Iterator[tuple[SectionKind, Sequence[Buffer]]]:
    """The sections of a closed segment, read from its files."""
    files = {
        SectionKind(number): read_file(log.files, segment_path(log.path, segment.start_offset, suffix)) or b""
        for number, suffix in zip((0, 1, 2, 4), ALL_SUFFIXES, strict=True)
    }
    files[SectionKind.PRODUCER_SNAPSHOT] = (
        read_file(log.files, segment_path(log.path, segment.end_offset, ".snapshot")) or b""
    )
    files[SectionKind.LEADER_EPOCHS] = encode_epochs(log.epochs.below(segment.end_offset))
    for kind in sorted(files):
        data = files[kind]
        yield kind, [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)]


def copy(log: Log, number: int, store: ObjectStore, segment_id: int | None = None) -> RemoteSegment:
    """Copy a closed segment, with its manifest. Returns it with its sections."""
    segment = described(log, number, number + 1 if segment_id is None else segment_id)
    builder = SegmentObjectBuilder(segment, contents(log, segment))
    store.put(segment_key(TOPIC, segment), builder.parts())
    written = replace(builder.finished(), state=RemoteSegmentState.COPY_SEGMENT_FINISHED)
    store.put(manifest_key(TOPIC, written), [encode_manifest(TOPIC, written)])
    return written


def copy_all(log: Log, store: ObjectStore) -> list[RemoteSegment]:
    """Copy every closed segment."""
    return [copy(log, number, store) for number in range(len(log.segments) - 1)]


def reader(store: ObjectStore, segment: RemoteSegment, cache: RemoteCache | None = None) -> RemoteSegmentReader:
    return RemoteSegmentReader(store, cache or RemoteCache(64 << 20), segment_key(TOPIC, segment), segment)


def read_all(readers: Sequence[RemoteSegmentReader], max_bytes: int = 300) -> bytes:
    """Every batch of these segments, in reads of `max_bytes`."""
    found = []
    offset = readers[0].segment.start_offset
    for each in readers:
        while offset < each.segment.end_offset:
            read = each.read(offset, max_bytes, up_to=Offset(1 << 60))
            found.append(bytes(read.records))
            assert read.next_offset > offset, "a read makes no progress"
            offset = read.next_offset
    return b"".join(found)
