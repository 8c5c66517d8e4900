"""A remote segment as bytes: as coordinators and leaders keep it, and as pages carry it. A partition may have 100,000,
a year of small ones: a new leader looks at a few fields of each, and decodes those that are read.

    16 bytes  the id of the segment
    the rest  the value of its record in `__remote_log_metadata`: int16 version, then RemoteLogSegmentValue

Not here: many of them (tiering/segment_table.py), the records (remote_log_records.py).
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple, NewType
from uuid import UUID

from tidelog.errors import UnreadableCoordinatorRecord
from tidelog.protocol.kafka.message_codec import MalformedMessage
from tidelog.protocol.kafka.messages.remote_log_segment_value import (
    REMOTE_LOG_SEGMENT_VALUE,
    RemoteLogSegmentValue,
    SegmentEpoch,
    SegmentSection,
)
from tidelog.tiering.remote_segment import (
    ObjectSection,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    SectionKind,
)
from tidelog.types import (
    REMOTE_LOG_METADATA_TOPIC,
    EpochStart,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionKey,
)

EncodedSegment = NewType("EncodedSegment", bytes)

ID_BYTES: Final = 16
START_OFFSET: Final = slice(18, 26)
"""The bytes of the start offset, which sort as it does."""

_VERSION: Final = 0
"""The version in which values are written."""
_BEGIN: Final = Struct(">16xhqqB")  # version, start offset, end offset, leader epochs and 1
_EPOCH: Final = Struct(">iqB")  # with the number of tagged fields behind it
_MIDDLE: Final = Struct(">qqiiqBB")  # largest timestamp, log size, copied in, node, changed, state, sections and 1
_SECTION: Final = Struct(">BqqIx")  # and the number of tagged fields
_ONE_BYTE: Final = 0x80  # counts below it are encoded in one byte
_STATES: Final = {int(state): state for state in RemoteSegmentState}
_KINDS: Final = {int(kind): kind for kind in SectionKind}
_KNOWN_KINDS: Final = bytes(_KINDS)
_UPGRADE: Final = "upgrade this node to the version that wrote it"
_RESTORE: Final = f"no version writes that: restore {REMOTE_LOG_METADATA_TOPIC} from a copy"


class SegmentHead(NamedTuple):
    """What is needed of a segment to list it and to believe it; RemoteSegment documents the fields."""

    start_offset: Offset
    end_offset: Offset
    leader_epochs: tuple[EpochStart, ...]
    max_timestamp: Millis
    log_size: int
    state: RemoteSegmentState


def segment_id_of(encoded: EncodedSegment) -> RemoteSegmentId:
    """The id of an encoded segment."""
    return RemoteSegmentId(UUID(bytes=encoded[:ID_BYTES]))


def start_offset_of(encoded: EncodedSegment) -> Offset:
    """The start offset of an encoded segment."""
    return Offset(int.from_bytes(encoded[START_OFFSET], "big"))


def segment_head(encoded: EncodedSegment) -> SegmentHead:
    """The head of an encoded segment, which is checked as if all of it was decoded. Raises UnreadableCoordinatorRecord
    if it is malformed, has no offsets, or has a state or section that is not known."""
    return _fast_head(encoded) or _slow_head(encoded)


def _middle_of(encoded: EncodedSegment) -> int:
    """Where the fields behind the leader epochs begin, in the layout of `_fast_head`."""
    return _BEGIN.size + _EPOCH.size * (encoded[_BEGIN.size - 1] - 1)


def _fast_head(encoded: EncodedSegment) -> SegmentHead | None:
    """In the layout that this version writes: a tenth of the time of decoding. None for others, and for errors."""
    try:
        version, start, end, epochs = _BEGIN.unpack_from(encoded)
        at = _middle_of(encoded)
        timestamp, size, _, _, _, state, sections = _MIDDLE.unpack_from(encoded, at)
    except struct.error:
        return None
    first = at + _MIDDLE.size
    behind = first + _SECTION.size * (sections - 1)
    if (
        version != _VERSION
        or not 2 <= epochs < _ONE_BYTE
        or not 1 <= sections < _ONE_BYTE
        or not 0 <= start < end
        or state not in _STATES
        or len(encoded) != behind + 1
        or encoded[behind]
        or any(encoded[first + _SECTION.size - 1 : behind : _SECTION.size])
        or encoded[first : behind : _SECTION.size].strip(_KNOWN_KINDS)
    ):
        return None
    leader_epochs = []
    for epoch, epoch_start, tags in _EPOCH.iter_unpack(encoded[_BEGIN.size : at]):
        if tags:
            return None
        leader_epochs.append(EpochStart(epoch, epoch_start))
    return SegmentHead(start, end, tuple(leader_epochs), timestamp, size, _STATES[state])


def _slow_head(encoded: EncodedSegment) -> SegmentHead:
    value = _decoded_value(encoded)
    return SegmentHead(
        Offset(value.start_offset),
        Offset(value.end_offset),
        _leader_epochs(value),
        Millis(value.max_timestamp_ms),
        value.log_size,
        RemoteSegmentState(value.segment_state),
    )


def _leader_epochs(value: RemoteLogSegmentValue) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(each.leader_epoch, Offset(each.epoch_start)) for each in value.leader_epochs)


def encoded_segment(segment_id: UUID, value: RemoteLogSegmentValue) -> EncodedSegment:
    """The bytes of a segment with this value."""
    return EncodedSegment(
        segment_id.bytes + _VERSION.to_bytes(2, "big") + REMOTE_LOG_SEGMENT_VALUE.encode(value, _VERSION)
    )


def decode_segment(partition: PartitionKey, encoded: EncodedSegment) -> RemoteSegment:
    """The segment of a partition in these bytes. Raises UnreadableCoordinatorRecord."""
    head = _fast_head(encoded)
    if head is None:
        return remote_segment(partition, segment_id_of(encoded), _decoded_value(encoded))
    at = _middle_of(encoded)
    _, _, copied_in, node_id, changed, _, _ = _MIDDLE.unpack_from(encoded, at)
    sections = _SECTION.iter_unpack(encoded[at + _MIDDLE.size : -1])
    return RemoteSegment(
        segment_id_of(encoded),
        partition.topic_id,
        partition.partition,
        head.start_offset,
        head.end_offset,
        head.leader_epochs,
        head.max_timestamp,
        head.log_size,
        copied_in,
        node_id,
        changed,
        head.state,
        tuple(ObjectSection(_KINDS[kind], start, size, crc) for kind, start, size, crc in sections),
    )


def _decoded_value(encoded: EncodedSegment) -> RemoteLogSegmentValue:
    if len(encoded) < ID_BYTES:
        raise _unreadable(f"of {len(encoded)} bytes", "it has no id")
    version = int.from_bytes(encoded[ID_BYTES : START_OFFSET.start], "big")
    try:
        value, end = REMOTE_LOG_SEGMENT_VALUE.decode(encoded, version, START_OFFSET.start)
    except MalformedMessage as error:
        raise _unreadable(segment_id_of(encoded), error) from error
    if end != len(encoded):
        raise _unreadable(segment_id_of(encoded), f"{len(encoded) - end} bytes follow the last field")
    try:
        RemoteSegmentState(value.segment_state)
        for each in value.sections:
            SectionKind(each.kind)
    except ValueError as error:
        raise _unreadable(segment_id_of(encoded), error) from error
    # No version writes such a record. What is computed of segments divides by their number of offsets, and compares
    # their first leader epoch.
    if not 0 <= value.start_offset < value.end_offset:
        reason = f"it has the offsets from {value.start_offset} to below {value.end_offset}"
        raise _unreadable(segment_id_of(encoded), reason, _RESTORE)
    if not value.leader_epochs:
        raise _unreadable(segment_id_of(encoded), "it has no leader epochs", _RESTORE)
    return value


def segment_value(segment: RemoteSegment) -> RemoteLogSegmentValue:
    """The value of a segment's record."""
    return RemoteLogSegmentValue(
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        leader_epochs=tuple(SegmentEpoch(each.epoch, each.start_offset) for each in segment.leader_epochs),
        max_timestamp_ms=segment.max_timestamp,
        log_size=segment.log_size,
        copied_in_epoch=segment.copied_in,
        node_id=segment.node_id,
        changed_ms=segment.changed_ms,
        segment_state=segment.state,
        sections=tuple(SegmentSection(each.kind, each.start, each.size, each.crc) for each in segment.sections),
    )


def remote_segment(partition: PartitionKey, segment_id: UUID, value: RemoteLogSegmentValue) -> RemoteSegment:
    """The segment of a record, as a coordinator writes it."""
    return RemoteSegment(
        RemoteSegmentId(segment_id),
        partition.topic_id,
        partition.partition,
        Offset(value.start_offset),
        Offset(value.end_offset),
        _leader_epochs(value),
        Millis(value.max_timestamp_ms),
        value.log_size,
        LeaderEpoch(value.copied_in_epoch),
        NodeId(value.node_id),
        Millis(value.changed_ms),
        RemoteSegmentState(value.segment_state),
        tuple(ObjectSection(SectionKind(each.kind), each.start, each.size, each.crc) for each in value.sections),
    )


def _unreadable(segment_id: UUID | str, cause: object, next_step: str = _UPGRADE) -> UnreadableCoordinatorRecord:
    return UnreadableCoordinatorRecord(
        f"a record of {REMOTE_LOG_METADATA_TOPIC}, segment {segment_id}: {cause}; {next_step}"
    )
