"""Replay of a log for producer state. It reads only batch headers and the records of markers.

Invariants: an invalid batch ends the walk with BrokenChain; no batch is skipped silently.
Not here: the effect of a batch (producer_state.py). Source: Kafka's UnifiedLog.loadProducersFromRecords.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from storage.producers.producer_entry import ProducerBatch, read_marker
from storage.producers.producer_state import ProducerStateManager
from storage.segment.batch_walk import BrokenChain
from storage.segment.segment import LogSegment
from storage.segment.segment_bytes import SegmentBytes
from tidelog.errors import TidelogError
from tidelog.records.v2.batch import CONTROL_BIT, RecordBatch
from tidelog.types import NO_PRODUCER_ID, Offset

Batches: TypeAlias = LogSegment | SegmentBytes
"""The batches of one segment."""


def walk_producers(segment: Batches, start: Offset, end: Offset) -> Iterator[ProducerBatch]:
    """The batches with a producer id whose last offset is at or above `start` and whose base offset is below `end`.

    Raises BrokenChain, OSError.
    """
    for header in segment.walk(segment.start_for(start)):
        if header.base_offset >= end:
            return
        if header.producer_id <= NO_PRODUCER_ID or header.last_offset < start:
            continue
        marker = None
        if header.attributes & CONTROL_BIT:
            data = segment.file.pread(header.size, header.position)
            try:
                batch = RecordBatch(data)
                batch.ensure_valid()
                marker = read_marker(batch)
            except TidelogError as error:
                raise BrokenChain(header.position, header.base_offset, error.message) from error
        yield ProducerBatch(header, marker)


def replay(state: ProducerStateManager, segments: Sequence[Batches], start: Offset, end: Offset) -> None:
    """Apply all batches in [start, end) to the state. segments: the log's, oldest first. Raises BrokenChain,
    OSError."""
    for i, segment in enumerate(segments):
        behind = segments[i + 1].base_offset if i + 1 < len(segments) else end
        if segment.base_offset < end and behind > start:
            for batch in walk_producers(segment, start, end):
                state.replay(batch)
