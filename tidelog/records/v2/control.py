"""Control batches: written by brokers between the records of users; consumers do not return them.

A control batch has the control attribute and usually one record. The key of the record is a version int16 and a type
int16. Transaction markers end a producer's transaction in a partition. A leader change starts each epoch of the
metadata log. A snapshot of that log starts with a header and ends with a footer.
Source: KIP-98 (EndTxnMarker), KIP-595 (LeaderChangeMessage), KIP-630 (header and footer of a snapshot), KIP-853
(directory ids of voters); Kafka's ControlRecordType.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias
from uuid import UUID

from tidelog.errors import CorruptRecord, UnsupportedVersion
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.records.v2.record import Record
from tidelog.records.v2.varint import encode_unsigned_varint, read_unsigned_varint
from tidelog.types import DirectoryId, Millis, NodeId

_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")
_LEADER: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_SNAPSHOT_HEADER: Final = struct.Struct(">hqB")
_SNAPSHOT_FOOTER: Final = struct.Struct(">hB")


class ControlType(IntEnum):
    """The type in the key of a control record. Readers skip other numbers."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """The end of a transaction. coordinator_epoch: of the transaction coordinator that wrote it."""

    committed: bool
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class ControlVoter:
    """A member of the metadata quorum. directory_id: None in messages from before KIP-853."""

    node_id: NodeId
    directory_id: DirectoryId | None = None


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """A new leader of the metadata quorum, its voters, and the voters that granted their vote."""

    leader_id: NodeId
    voters: tuple[ControlVoter, ...]
    granting_voters: tuple[ControlVoter, ...]


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """The start of a snapshot. last_timestamp: append time of the last record in the snapshot."""

    last_timestamp: Millis


@dataclass(frozen=True, slots=True)
class SnapshotFooter:
    """The end of a snapshot; a snapshot without it is incomplete."""


Control: TypeAlias = EndTxnMarker | LeaderChange | SnapshotHeader | SnapshotFooter
"""The content of a control batch that Tidelog writes."""
ControlRecord: TypeAlias = Control | ControlType


def encode_control(control: Control) -> tuple[bytes, bytes]:
    """Return key and value of the control record."""
    match control:
        case EndTxnMarker(committed, coordinator_epoch):
            kind = ControlType.COMMIT if committed else ControlType.ABORT
            return _KEY.pack(0, kind), _MARKER.pack(0, coordinator_epoch)
        case LeaderChange(leader_id, voters, granting_voters):
            return _KEY.pack(0, ControlType.LEADER_CHANGE), _encode_leader_change(leader_id, voters, granting_voters)
        case SnapshotHeader(last_timestamp):
            return _KEY.pack(0, ControlType.SNAPSHOT_HEADER), _SNAPSHOT_HEADER.pack(0, last_timestamp, 0)
        case SnapshotFooter():
            return _KEY.pack(0, ControlType.SNAPSHOT_FOOTER), _SNAPSHOT_FOOTER.pack(0, 0)


def decode_control(record: Record) -> ControlRecord | None:
    """Return the content of a record in a control batch; only the type if Tidelog does not use the content, None for an
    unknown type.

    Raises CorruptRecord if key or value do not match their version.
    """
    key, value = record.key, record.value or b""
    if key is None or len(key) < _KEY.size:
        raise CorruptRecord(f"the control record at offset {record.offset} has no type in its key: it is corrupt")
    _version, number = _KEY.unpack_from(key)
    try:
        kind = ControlType(number)
    except ValueError:
        return None
    try:
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            _version, coordinator_epoch = _MARKER.unpack_from(value)
            return EndTxnMarker(kind is ControlType.COMMIT, coordinator_epoch)
        if kind is ControlType.LEADER_CHANGE:
            return _decode_leader_change(value)
        if kind is ControlType.SNAPSHOT_HEADER:
            _version, last_timestamp, _tags = _SNAPSHOT_HEADER.unpack_from(value)
            return SnapshotHeader(Millis(last_timestamp))
        if kind is ControlType.SNAPSHOT_FOOTER:
            _SNAPSHOT_FOOTER.unpack_from(value)
            return SnapshotFooter()
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptRecord(
            f"the {kind.name} record at offset {record.offset} has invalid content: it is corrupt"
        ) from error
    return kind


def control_batch(
    control: Control,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Return the batch with one control record. A transaction marker needs the producer whose transaction it ends. The
    cleaner sets a delete horizon once no earlier record depends on the marker."""
    key, value = encode_control(control)
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=isinstance(control, EndTxnMarker),
        is_control=True,
        delete_horizon_ms=delete_horizon_ms,
    )
    builder.append(key=key, value=value, timestamp=timestamp)
    return builder.build()


def _encode_leader_change(
    leader: NodeId, voters: tuple[ControlVoter, ...], granting: tuple[ControlVoter, ...]
) -> bytes:
    """Encode as version 1 if every voter has a directory id, else as version 0."""
    version = 1 if all(voter.directory_id is not None for voter in voters + granting) else 0
    parts = [_LEADER.pack(version, leader)]
    for group in (voters, granting):
        parts.append(encode_unsigned_varint(len(group) + 1))
        for voter in group:
            parts.append(_INT32.pack(voter.node_id))
            if version and voter.directory_id is not None:
                parts.append(voter.directory_id.bytes)
            parts.append(b"\x00")  # no tagged fields
    parts.append(b"\x00")
    return b"".join(parts)


def _decode_leader_change(value: bytes) -> LeaderChange:
    version, leader = _LEADER.unpack_from(value)
    if version not in (0, 1):
        raise UnsupportedVersion(
            f"a leader change of version {version} was written by a newer release: upgrade this node"
        )
    voters, position = _decode_voters(value, _LEADER.size, version)
    granting, _position = _decode_voters(value, position, version)
    return LeaderChange(NodeId(leader), voters, granting)


def _decode_voters(value: bytes, position: int, version: int) -> tuple[tuple[ControlVoter, ...], int]:
    length, position = read_unsigned_varint(value, position)
    voters = []
    for _ in range(length - 1):
        (node,) = _INT32.unpack_from(value, position)
        position += _INT32.size
        directory = None
        if version:
            directory = DirectoryId(UUID(bytes=value[position : position + 16]))
            position += 16
        position = _skip_tagged_fields(value, position)
        voters.append(ControlVoter(NodeId(node), directory))
    return tuple(voters), position


def _skip_tagged_fields(value: bytes, position: int) -> int:
    count, position = read_unsigned_varint(value, position)
    for _ in range(count):
        _tag, position = read_unsigned_varint(value, position)
        size, position = read_unsigned_varint(value, position)
        position += size
        if position > len(value):
            raise IndexError(position)
    return position
