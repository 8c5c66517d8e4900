"""Values of remote segments, for tests of their coordinator and of leaders."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from replication.coordination.encoded_segment import EncodedSegment, encoded_segment, segment_value
from tidelog.tiering.remote_segment import ObjectSection, RemoteSegment, RemoteSegmentState, SectionKind
from tidelog.types import PartitionIndex, PartitionKey, TopicId

STARTED, FINISHED = RemoteSegmentState.COPY_SEGMENT_STARTED, RemoteSegmentState.COPY_SEGMENT_FINISHED
ORDERS: Final = PartitionKey(TopicId(UUID(int=1)), PartitionIndex(0))
SECTIONS: Final = (
    ObjectSection(SectionKind.LOG, 0, 1_000, 7),
    ObjectSection(SectionKind.OFFSET_INDEX, 1_000, 8, 9),
)


def encoded(segment: RemoteSegment) -> EncodedSegment:
    """As a page has it."""
    return encoded_segment(segment.segment_id, segment_value(segment))
