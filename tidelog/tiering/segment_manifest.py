"""The manifest beside a segment's object, and the names of both.

    TOPIC-TOPIC_ID/PARTITION/START_OFFSET-SEGMENT_ID.segment     the object (segment_object.py)
    TOPIC-TOPIC_ID/PARTITION/START_OFFSET-SEGMENT_ID.manifest    JSON: what the coordinator knows of it

The start offset has 20 digits, so that a listing is in the order of the log. The manifest is for people, for tools
without a cluster, and for the restoration of lost metadata; the coordinator's records decide what is in the log.

Invariants: bytes from a store give a manifest or one of two errors. Fields that this version does not know are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from tidelog.errors import UnsupportedVersion
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.remote_segment import (
    ObjectSection,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    SectionKind,
)
from tidelog.tiering.segment_object import damaged, sections_problem
from tidelog.types import (
    INT32_MAX,
    INT64_MAX,
    Buffer,
    EpochStart,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
)

T = TypeVar("T")
SEGMENT_SUFFIX: Final = ".segment"
MANIFEST_SUFFIX: Final = ".manifest"
MANIFEST_BYTES_MAX: Final = 4 << 20
"""A segment with 60,000 leader epochs: more is damage, and is not read."""
_VERSION: Final = 1
_UUID: Final = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_KEY: Final = re.compile(
    rf"(?P<topic>[A-Za-z0-9._-]+)-(?P<topic_id>{_UUID})/(?P<partition>\d{{1,10}})/"
    rf"(?P<start>\d{{20}})-(?P<segment_id>{_UUID})(?P<suffix>\.segment|\.manifest)"
)


class ObjectName(NamedTuple):
    """What the key of an object says."""

    topic: str
    topic_id: TopicId
    partition: PartitionIndex
    start_offset: Offset
    segment_id: RemoteSegmentId
    suffix: str


class SegmentManifest(NamedTuple):
    topic: str
    segment: RemoteSegment


def partition_prefix(topic: str, topic_id: TopicId, partition: PartitionIndex) -> str:
    """The folder with the objects of a partition."""
    return f"{topic}-{topic_id}/{partition}"


def segment_key(topic: str, segment: RemoteSegment) -> str:
    """The key of a segment's object."""
    folder = partition_prefix(topic, segment.topic_id, segment.partition)
    return f"{folder}/{segment.start_offset:020d}-{segment.segment_id}{SEGMENT_SUFFIX}"


def manifest_key(topic: str, segment: RemoteSegment) -> str:
    """The key of a segment's manifest."""
    return segment_key(topic, segment).removesuffix(SEGMENT_SUFFIX) + MANIFEST_SUFFIX


def parse_key(key: str) -> ObjectName | None:
    """What a key says; None if it is none of ours."""
    found = _KEY.fullmatch(key)
    if found is None or int(found["start"]) > INT64_MAX or int(found["partition"]) > INT32_MAX:
        return None
    return ObjectName(
        found["topic"],
        TopicId(UUID(found["topic_id"])),
        PartitionIndex(int(found["partition"])),
        Offset(int(found["start"])),
        RemoteSegmentId(UUID(found["segment_id"])),
        found["suffix"],
    )


def encode_manifest(topic: str, segment: RemoteSegment) -> bytes:
    """The manifest of a segment whose object is written."""
    fields = {
        "version": _VERSION,
        "topic": topic,
        "topic_id": str(segment.topic_id),
        "partition": segment.partition,
        "segment_id": str(segment.segment_id),
        "start_offset": segment.start_offset,
        "end_offset": segment.end_offset,
        "leader_epochs": [{"epoch": each.epoch, "start_offset": each.start_offset} for each in segment.leader_epochs],
        "max_timestamp": segment.max_timestamp,
        "log_size": segment.log_size,
        "copied_in": segment.copied_in,
        "node_id": segment.node_id,
        "changed_ms": segment.changed_ms,
        "state": segment.state.name,
        "sections": [
            {"kind": each.kind.name, "start": each.start, "size": each.size, "crc32c": f"{each.crc:08x}"}
            for each in segment.sections
        ],
    }
    return json.dumps(fields, indent=2).encode() + b"\n"


def parse_manifest(data: Buffer, name: str) -> SegmentManifest:
    """The contents of a manifest. name: for messages. Raises RemoteObjectDamaged, UnsupportedVersion."""
    try:
        fields = json.loads(bytes(data))
        version = _number(fields, "version", 1)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(name, f"it is no manifest: {_shown(error)}") from error
    if version != _VERSION:
        raise UnsupportedVersion(
            f"{name} is a manifest in version {version}, supported is {_VERSION}: read it with a newer Tidelog"
        )
    try:
        return _manifest(fields)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(name, f"it is no manifest: {_shown(error)}") from error


def _manifest(fields: dict[str, Any]) -> SegmentManifest:
    segment = RemoteSegment(
        RemoteSegmentId(UUID(_text(fields, "segment_id"))),
        TopicId(UUID(_text(fields, "topic_id"))),
        PartitionIndex(_number(fields, "partition", 0, INT32_MAX)),
        Offset(_number(fields, "start_offset", 0)),
        Offset(_number(fields, "end_offset", 0)),
        tuple(_each(fields, "leader_epochs", _epoch)),
        Millis(_number(fields, "max_timestamp", -1)),
        _number(fields, "log_size", 0),
        LeaderEpoch(_number(fields, "copied_in", -1, INT32_MAX)),
        NodeId(_number(fields, "node_id", 0, INT32_MAX)),
        Millis(_number(fields, "changed_ms", 0)),
        RemoteSegmentState[_text(fields, "state")],
        tuple(_each(fields, "sections", _section)),
    )
    if segment.end_offset <= segment.start_offset:
        raise ValueError(f"end_offset {segment.end_offset} is not above start_offset {segment.start_offset}")
    problem = sections_problem(segment.sections, segment.log_size)
    if problem is not None:
        raise ValueError(problem)
    return SegmentManifest(_text(fields, "topic"), segment)


def _epoch(fields: dict[str, Any]) -> EpochStart:
    return EpochStart(LeaderEpoch(_number(fields, "epoch", 0, INT32_MAX)), Offset(_number(fields, "start_offset", 0)))


def _section(fields: dict[str, Any]) -> ObjectSection:
    return ObjectSection(
        SectionKind[_text(fields, "kind")],
        _number(fields, "start", 0),
        _number(fields, "size", 0),
        int(_text(fields, "crc32c"), 16),
    )


def _number(fields: dict[str, Any], name: str, least: int, most: int = INT64_MAX) -> int:
    value = fields[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is no number from {least} to {most}")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value


def _each(fields: dict[str, Any], name: str, parse: Callable[[dict[str, Any]], T]) -> list[T]:
    value = fields[name]
    if not isinstance(value, list):
        raise TypeError(f"{name} is no list")
    return [parse(each) for each in value]


def _shown(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)[:200]


def read_manifest(store: ObjectStore, key: str) -> SegmentManifest:
    """The manifest at `key`. Raises as `parse_manifest` and as the store does."""
    name, size = f"the manifest {key} in {store.url}", store.size(key)
    if not 0 < size <= MANIFEST_BYTES_MAX:
        raise damaged(name, f"it has {size} bytes")
    return parse_manifest(store.get_range(key, 0, size), name)
