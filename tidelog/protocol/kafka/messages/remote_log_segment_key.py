"""RemoteLogSegmentKey, versions 0 to 0. Generated from RemoteLogSegmentKey.json of Tidelog by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    uuid_of,
)
from tidelog.types import PartitionIndex

_r_uiu = Struct(">16si16s").unpack_from
_w_uiu = Struct(">16si16s").pack


class RemoteLogSegmentKey(Structure):
    """The message."""

    __slots__ = ("topic_id", "partition", "segment_id")
    __match_args__ = ("topic_id", "partition", "segment_id")

    def __init__(
        self,
        topic_id: UUID,
        partition: PartitionIndex,
        segment_id: UUID,
    ) -> None:
        # The topic of the segment.
        self.topic_id: Final = topic_id
        # Its partition.
        self.partition: Final = partition
        # The copy of the segment.
        self.segment_id: Final = segment_id


def _read_remote_log_segment_key_0(data: Data, at: int) -> tuple[RemoteLogSegmentKey, int]:
    topic_id, partition, segment_id = _r_uiu(data, at)
    at += 36
    topic_id = uuid_of(topic_id)
    segment_id = uuid_of(segment_id)
    return RemoteLogSegmentKey(topic_id=topic_id, partition=partition, segment_id=segment_id), at


def _write_remote_log_segment_key_0(out: Output, value: RemoteLogSegmentKey) -> None:
    out += _w_uiu(value.topic_id.bytes, value.partition, value.segment_id.bytes)


REMOTE_LOG_SEGMENT_KEY: Final = MessageCodec(
    RemoteLogSegmentKey,
    0,
    readers={0: _read_remote_log_segment_key_0},
    writers={0: _write_remote_log_segment_key_0},
)
