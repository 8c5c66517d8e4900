"""Encodes metadata records: each is one `MetadataRecord` message, the value of one record of a batch v2.

A record class and its message have the same name and the same fields, from which message_mapping.py derives the
conversion. A record that is encoded decodes to an equal value. A batch of records is one atomic change; a control batch
has no metadata records. Damaged bytes raise CorruptLog, and so does a topic name that is not allowed: directories have
the names of topics, and a faulty controller must not choose a path. A kind of record or a feature
level that this version does not know raises UnsupportedVersion.
Not here: the meaning of the records (replication/controller/image.py) and their place in the log (metadata_log.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, get_args

from google.protobuf.message import DecodeError

from replication.controller import features
from replication.controller.metadata_records import LocatedRecord, MetadataRecord, TopicRecord
from tidelog.errors import CorruptLog, UnsupportedVersion
from tidelog.protocol.message_mapping import MessageMapping
from tidelog.protocol.v1 import metadata_records_pb2 as pb
from tidelog.records import Record, RecordBatch, build_batch, iter_batches
from tidelog.types import METADATA_TOPIC, LeaderEpoch, Millis, Offset, is_topic_name
from tidelog.values import dataclass

_KINDS: Final = {
    field.message_type.name: field
    for field in pb.MetadataRecord.DESCRIPTOR.oneofs_by_name["kind"].fields
    if field.message_type is not None
}
_BY_TYPE: Final[dict[type, tuple[str, MessageMapping[Any]]]] = {
    record_type: (kind.name, MessageMapping(record_type, kind.message_type))
    for record_type in get_args(MetadataRecord)
    for kind in [_KINDS[record_type.__name__]]
}
_BY_KIND: Final = dict(_BY_TYPE.values())


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """One atomic change of the log, or a control batch, which has no records. `end` is one past its last offset."""

    base_offset: Offset
    end: Offset
    leader_epoch: LeaderEpoch
    records: tuple[LocatedRecord, ...]


def encode_batch(
    records: Sequence[MetadataRecord], *, leader_epoch: LeaderEpoch, timestamp: Millis, base_offset: Offset = Offset(0)
) -> bytes:
    """One batch of these records. An append to a log assigns other offsets. timestamp: milliseconds since 1970."""
    return build_batch(
        [
            Record(offset=Offset(base_offset + index), timestamp=timestamp, key=None, value=encode_record(record))
            for index, record in enumerate(records)
        ],
        leader_epoch=leader_epoch,
    )


def decode_batches(data: bytes | bytearray | memoryview) -> Iterator[MetadataBatch]:
    """Yields the batches in these bytes. Raises CorruptLog, CorruptRecord, UnsupportedVersion."""
    for batch in iter_batches(data):
        batch.ensure_valid()
        yield MetadataBatch(
            Offset(batch.base_offset),
            Offset(batch.next_offset),
            LeaderEpoch(batch.partition_leader_epoch),
            () if batch.is_control else _decode(batch),
        )


def _decode(batch: RecordBatch) -> tuple[LocatedRecord, ...]:
    found = tuple((Offset(record.offset), decode_record(record.value or b"")) for record in batch.records())
    for _, record in found:
        if isinstance(record, TopicRecord):
            _ensure_name_allowed(record)
    return found


def encode_record(record: MetadataRecord) -> bytes:
    """The value of the record in the log."""
    kind, mapping = _BY_TYPE[type(record)]
    message: dict[str, Any] = {kind: mapping.to_fields(record)}
    return pb.MetadataRecord(**message).SerializeToString(deterministic=True)


def decode_record(value: bytes) -> MetadataRecord:
    """The record in a value. Raises CorruptLog, UnsupportedVersion."""
    try:
        message = pb.MetadataRecord.FromString(value)
        kind = message.WhichOneof("kind")
        if kind is None:
            raise UnsupportedVersion(
                "the metadata log contains a kind of record that this version does not know: a newer version wrote it; "
                "update this node"
            )
        if kind == "cluster":
            _ensure_known_level(message.cluster.feature_level)
        record: MetadataRecord = _BY_KIND[kind].from_message(getattr(message, kind))
    except (DecodeError, ValueError) as error:
        raise CorruptLog(f"a metadata record of {len(value)} bytes cannot be read: {error}") from error
    return record


def _ensure_name_allowed(topic: TopicRecord) -> None:
    if not is_topic_name(topic.name) or topic.name == METADATA_TOPIC:
        raise CorruptLog(
            f"the metadata log contains a topic with the name {topic.name[:100]!r}, which is not allowed: the "
            "controller that wrote it is faulty"
        )


def _ensure_known_level(level: int) -> None:
    """Above the latest known level, records may have fields that this version would ignore."""
    if level > features.LATEST:
        raise UnsupportedVersion(
            f"the metadata log is at feature level {level}, this version knows levels up to {features.LATEST}: a newer "
            "version wrote it; update this node"
        )
