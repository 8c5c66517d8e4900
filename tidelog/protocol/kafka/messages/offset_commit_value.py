"""OffsetCommitValue, versions 0 to 4. Generated from OffsetCommitValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    NO_UUID,
    Output,
    Structure,
    check_tag,
    read_compact_string,
    read_string,
    read_tag,
    read_tag_count,
    uuid_of,
    write_compact_string,
    write_string,
    write_tags,
)
from tidelog.types import LeaderEpoch, Millis, Offset

_r_u = Struct(">16s").unpack_from
_w_u = Struct(">16s").pack
_r_q = Struct(">q").unpack_from
_w_q = Struct(">q").pack
_r_qi = Struct(">qi").unpack_from
_w_qi = Struct(">qi").pack
_r_qq = Struct(">qq").unpack_from
_w_qq = Struct(">qq").pack


class OffsetCommitValue(Structure):
    """The message."""

    __slots__ = ("offset", "metadata", "commit_timestamp", "leader_epoch", "expire_timestamp", "topic_id")
    __match_args__ = ("offset", "metadata", "commit_timestamp", "leader_epoch", "expire_timestamp", "topic_id")

    def __init__(
        self,
        offset: Offset,
        metadata: str,
        commit_timestamp: Millis,
        leader_epoch: LeaderEpoch = LeaderEpoch(-1),
        expire_timestamp: Millis = Millis(-1),
        topic_id: UUID = NO_UUID,
    ) -> None:
        # The offset that the consumer wants to store (for this partition).
        self.offset: Final = offset
        # Any metadata the client wants to keep.
        self.metadata: Final = metadata
        # The time at which the commit was added to the log.
        self.commit_timestamp: Final = commit_timestamp
        # The leader epoch of the last consumed record.
        self.leader_epoch: Final = leader_epoch
        # The time at which the offset will expire.
        self.expire_timestamp: Final = expire_timestamp
        # The topic id of the committed offset.
        self.topic_id: Final = topic_id


def _read_offset_commit_value_0(data: Data, at: int) -> tuple[OffsetCommitValue, int]:
    (offset,) = _r_q(data, at)
    at += 8
    metadata, at = read_string(data, at)
    (commit_timestamp,) = _r_q(data, at)
    at += 8
    return OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=commit_timestamp), at


def _read_offset_commit_value_1(data: Data, at: int) -> tuple[OffsetCommitValue, int]:
    (offset,) = _r_q(data, at)
    at += 8
    metadata, at = read_string(data, at)
    commit_timestamp, expire_timestamp = _r_qq(data, at)
    at += 16
    return OffsetCommitValue(
        offset=offset, metadata=metadata, commit_timestamp=commit_timestamp, expire_timestamp=expire_timestamp
    ), at


def _read_offset_commit_value_3(data: Data, at: int) -> tuple[OffsetCommitValue, int]:
    offset, leader_epoch = _r_qi(data, at)
    at += 12
    metadata, at = read_string(data, at)
    (commit_timestamp,) = _r_q(data, at)
    at += 8
    return OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=commit_timestamp
    ), at


def _read_offset_commit_value_4(data: Data, at: int) -> tuple[OffsetCommitValue, int]:
    offset, leader_epoch = _r_qi(data, at)
    at += 12
    metadata, at = read_compact_string(data, at)
    (commit_timestamp,) = _r_q(data, at)
    at += 8
    topic_id: UUID = NO_UUID
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            (topic_id,) = _r_u(data, at)
            at += 16
            topic_id = uuid_of(topic_id)
        else:
            at = end
        check_tag(tag, at, end)
    return OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        topic_id=topic_id,
    ), at


def _write_offset_commit_value_0(out: Output, value: OffsetCommitValue) -> None:
    out += _w_q(value.offset)
    write_string(out, value.metadata)
    out += _w_q(value.commit_timestamp)


def _write_offset_commit_value_1(out: Output, value: OffsetCommitValue) -> None:
    out += _w_q(value.offset)
    write_string(out, value.metadata)
    out += _w_qq(value.commit_timestamp, value.expire_timestamp)


def _write_offset_commit_value_3(out: Output, value: OffsetCommitValue) -> None:
    out += _w_qi(value.offset, value.leader_epoch)
    write_string(out, value.metadata)
    out += _w_q(value.commit_timestamp)


def _write_offset_commit_value_4(out: Output, value: OffsetCommitValue) -> None:
    out += _w_qi(value.offset, value.leader_epoch)
    write_compact_string(out, value.metadata)
    out += _w_q(value.commit_timestamp)
    tags: list[tuple[int, Output]] = []
    if value.topic_id != NO_UUID:
        tagged = Output()
        tagged += _w_u(value.topic_id.bytes)
        tags.append((0, tagged))
    write_tags(out, tags)


OFFSET_COMMIT_VALUE: Final = MessageCodec(
    OffsetCommitValue,
    1,
    readers={
        0: _read_offset_commit_value_0,
        1: _read_offset_commit_value_1,
        2: _read_offset_commit_value_0,
        3: _read_offset_commit_value_3,
        4: _read_offset_commit_value_4,
    },
    writers={
        0: _write_offset_commit_value_0,
        1: _write_offset_commit_value_1,
        2: _write_offset_commit_value_0,
        3: _write_offset_commit_value_3,
        4: _write_offset_commit_value_4,
    },
)
