"""RemoteLogSegmentValue, versions 0 to 0. Generated from RemoteLogSegmentValue.json of Tidelog by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_array,
    read_compact_length,
    skip_tags,
    write_array,
    write_compact_length,
)
from tidelog.types import LeaderEpoch

_r_bqqI = Struct(">bqqI").unpack_from
_w_bqqI = Struct(">bqqI").pack
_r_iq = Struct(">iq").unpack_from
_w_iq = Struct(">iq").pack
_r_qq = Struct(">qq").unpack_from
_w_qq = Struct(">qq").pack
_r_qqiiqb = Struct(">qqiiqb").unpack_from
_w_qqiiqb = Struct(">qqiiqb").pack


class SegmentEpoch(Structure):
    """A structure of RemoteLogSegmentValue."""

    __slots__ = ("leader_epoch", "epoch_start")
    __match_args__ = ("leader_epoch", "epoch_start")

    def __init__(
        self,
        leader_epoch: LeaderEpoch,
        epoch_start: int,
    ) -> None:
        # The epoch.
        self.leader_epoch: Final = leader_epoch
        # The offset of its first record.
        self.epoch_start: Final = epoch_start


class SegmentSection(Structure):
    """A structure of RemoteLogSegmentValue."""

    __slots__ = ("kind", "start", "size", "crc")
    __match_args__ = ("kind", "start", "size", "crc")

    def __init__(
        self,
        kind: int,
        start: int,
        size: int,
        crc: int,
    ) -> None:
        # What the part contains.
        self.kind: Final = kind
        # Byte of the object at which it begins.
        self.start: Final = start
        # Its bytes.
        self.size: Final = size
        # CRC-32C of its bytes.
        self.crc: Final = crc


class RemoteLogSegmentValue(Structure):
    """The message."""

    __slots__ = (
        "start_offset",
        "end_offset",
        "leader_epochs",
        "max_timestamp_ms",
        "log_size",
        "copied_in_epoch",
        "node_id",
        "changed_ms",
        "segment_state",
        "sections",
    )
    __match_args__ = (
        "start_offset",
        "end_offset",
        "leader_epochs",
        "max_timestamp_ms",
        "log_size",
        "copied_in_epoch",
        "node_id",
        "changed_ms",
        "segment_state",
        "sections",
    )

    def __init__(
        self,
        start_offset: int,
        end_offset: int,
        leader_epochs: tuple[SegmentEpoch, ...],
        max_timestamp_ms: int,
        log_size: int,
        copied_in_epoch: int,
        node_id: int,
        changed_ms: int,
        segment_state: int,
        sections: tuple[SegmentSection, ...],
    ) -> None:
        # The base offset of the segment.
        self.start_offset: Final = start_offset
        # One past its last record.
        self.end_offset: Final = end_offset
        # The epochs of its records; the first begins at the start offset, or where the log began.
        self.leader_epochs: Final = leader_epochs
        # The largest timestamp, -1 without one.
        self.max_timestamp_ms: Final = max_timestamp_ms
        # Bytes of the record batches.
        self.log_size: Final = log_size
        # The leader epoch of the leader that copied it.
        self.copied_in_epoch: Final = copied_in_epoch
        # The node that made the last change of the state.
        self.node_id: Final = node_id
        # When it did, by its wall clock.
        self.changed_ms: Final = changed_ms
        # A state of KIP-405, by Kafka's number.
        self.segment_state: Final = segment_state
        # The parts of its object; none before the copy has finished.
        self.sections: Final = sections


def _read_segment_epoch_0(data: Data, at: int) -> tuple[SegmentEpoch, int]:
    leader_epoch, epoch_start = _r_iq(data, at)
    at += 12
    at = skip_tags(data, at)
    return SegmentEpoch(leader_epoch=leader_epoch, epoch_start=epoch_start), at


def _read_segment_section_0(data: Data, at: int) -> tuple[SegmentSection, int]:
    kind, start, size, crc = _r_bqqI(data, at)
    at += 21
    at = skip_tags(data, at)
    return SegmentSection(kind=kind, start=start, size=size, crc=crc), at


def _read_remote_log_segment_value_0(data: Data, at: int) -> tuple[RemoteLogSegmentValue, int]:
    start_offset, end_offset = _r_qq(data, at)
    at += 16
    leader_epochs, at = read_array(data, at, read_compact_length, _read_segment_epoch_0)
    max_timestamp_ms, log_size, copied_in_epoch, node_id, changed_ms, segment_state = _r_qqiiqb(data, at)
    at += 33
    sections, at = read_array(data, at, read_compact_length, _read_segment_section_0)
    at = skip_tags(data, at)
    return RemoteLogSegmentValue(
        start_offset=start_offset,
        end_offset=end_offset,
        leader_epochs=leader_epochs,
        max_timestamp_ms=max_timestamp_ms,
        log_size=log_size,
        copied_in_epoch=copied_in_epoch,
        node_id=node_id,
        changed_ms=changed_ms,
        segment_state=segment_state,
        sections=sections,
    ), at


def _write_segment_epoch_0(out: Output, value: SegmentEpoch) -> None:
    out += _w_iq(value.leader_epoch, value.epoch_start)
    out.append(0)


def _write_segment_section_0(out: Output, value: SegmentSection) -> None:
    out += _w_bqqI(value.kind, value.start, value.size, value.crc)
    out.append(0)


def _write_remote_log_segment_value_0(out: Output, value: RemoteLogSegmentValue) -> None:
    out += _w_qq(value.start_offset, value.end_offset)
    write_array(out, value.leader_epochs, write_compact_length, _write_segment_epoch_0)
    out += _w_qqiiqb(
        value.max_timestamp_ms,
        value.log_size,
        value.copied_in_epoch,
        value.node_id,
        value.changed_ms,
        value.segment_state,
    )
    write_array(out, value.sections, write_compact_length, _write_segment_section_0)
    out.append(0)


REMOTE_LOG_SEGMENT_VALUE: Final = MessageCodec(
    RemoteLogSegmentValue,
    0,
    readers={0: _read_remote_log_segment_value_0},
    writers={0: _write_remote_log_segment_value_0},
)
