"""Records of the coordinators as Kafka's own converters print them: JSON with the names of Kafka's schemas."""

from __future__ import annotations

import base64
import json
import re
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    NO_TOPIC_ID,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from replication.coordination.groups.consumer_protocol import CONSUMER_PROTOCOL, assignment_in, subscription_in
from replication.coordination.transaction_records import NO_PRODUCER_EPOCH, TransactionLogValue
from tidelog.protocol.kafka.message_codec import Structure
from tidelog.protocol.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from tidelog.types import NO_PRODUCER_ID, TopicPartitions

SINCE = {
    (OffsetCommitValue, "leader_epoch"): 3,
    (GroupMetadataValue, "current_state_timestamp"): 2,
    (MemberMetadata, "group_instance_id"): 3,
    (MemberMetadata, "rebalance_timeout"): 1,
    (ConsumerProtocolSubscription, "owned_partitions"): 1,
    (ConsumerProtocolSubscription, "generation_id"): 2,
    (ConsumerProtocolSubscription, "rack_id"): 3,
}
"""The version in which a field was added."""

TAGGED = {
    (OffsetCommitValue, "topic_id"): NO_TOPIC_ID,
    (ConsumerGroupMetadataValue, "metadata_hash"): 0,
    (ConsumerGroupMemberMetadataValue, "classic_member_metadata"): None,
    (TransactionLogValue, "previous_producer_id"): NO_PRODUCER_ID,
    (TransactionLogValue, "next_producer_id"): NO_PRODUCER_ID,
    (TransactionLogValue, "client_transaction_version"): 0,
    (TransactionLogValue, "next_producer_epoch"): NO_PRODUCER_EPOCH,
}
"""Fields that are written only if they differ from this value."""


class Printed(NamedTuple):
    """A record: {"type": "1", "data": {...}}, and {"version": "4", "data": {...}} or None for a deletion."""

    key: dict[str, Any]
    value: dict[str, Any] | None


def as_kafka_prints(record: CoordinatorRecord[Any, Any], key: bytes, value: bytes | None) -> Printed:
    """key, value: the bytes of the record, for its type and version."""
    version = -1 if value is None else int.from_bytes(value[:2])
    data = _plain(record.value, version)
    if isinstance(record.value, GroupMetadataValue) and record.value.protocol_type == CONSUMER_PROTOCOL:
        for printed, member in zip(data["members"], record.value.members, strict=True):
            printed["subscription"] = _bytes_of_consumers(subscription_in(member.subscription), member.subscription)
            printed["assignment"] = _bytes_of_consumers(assignment_in(member.assignment), member.assignment)
    return Printed(
        {"type": str(int.from_bytes(key[:2])), "data": _plain(record.key, 0)},
        None if value is None else {"version": str(version), "data": data},
    )


def _bytes_of_consumers(message: Structure | None, data: bytes) -> Any:
    """What consumers say and have, which Kafka reads where it can."""
    return _plain(data, 0) if message is None else _plain(message, int.from_bytes(data[:2]))


def dumped(line: str) -> Printed | None:
    """The record in a line of DumpLogSegments; None if the line has none."""
    found = re.search(r" key: (\{.*\}) payload: (\{.*\}|<DELETE>)$", line)
    if found is None:
        return None
    value = None if found[2] == "<DELETE>" else json.loads(found[2])
    return Printed(json.loads(found[1]), value)


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, Structure | TopicPartitions):
        return {
            _camel(name): _plain(getattr(value, name), version)
            for name in value.__slots__
            if _is_written(type(value), name, getattr(value, name), version)
        }
    match value:
        case IntEnum():
            return int(value)
        case UUID():
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
        case bytes():
            return base64.b64encode(value).decode()
        case tuple():
            return [_plain(each, version) for each in value]
        case _:
            return value


def _is_written(kind: type, name: str, value: object, version: int) -> bool:
    if (kind, name) == (OffsetCommitValue, "expire_timestamp"):
        return version == 1
    if (kind, name) in TAGGED:
        return value != TAGGED[kind, name]
    return version >= SINCE.get((kind, name), 0)


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)
