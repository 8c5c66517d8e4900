"""All groups and offsets of one partition of `__consumer_offsets`: the state that its records give.

Every kind of record is accepted in any order: after compaction, tombstones may lack what they delete, and a member's
assignment may come before its metadata.
"""

from __future__ import annotations

from typing import TypeVar

from replication.coordination import group_records as records
from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.groups.classic_group import ClassicGroup
from replication.coordination.groups.consumer_group import ConsumerGroup, TopicIndex
from replication.coordination.groups.offset_store import OffsetStore
from replication.coordination.groups.topic_catalog import TopicCatalog
from tidelog.errors import GroupIdNotFound

V = TypeVar("V", bound=records.GroupValue)


class GroupsState:
    """The groups by id. A group with nothing but offsets has no object: `OffsetStore.has` knows it."""

    def __init__(self) -> None:
        self.consumer: dict[str, ConsumerGroup] = {}
        self.classic: dict[str, ClassicGroup] = {}
        self.offsets = OffsetStore()
        self.index: TopicIndex = {}
        """The consumer groups that subscribe to a topic, by topic name."""
        self.catalog = TopicCatalog()

    def exists(self, group_id: str) -> bool:
        """Whether there is a group, or an offset of one."""
        return group_id in self.consumer or group_id in self.classic or self.offsets.has(group_id)

    def group_ids(self) -> list[str]:
        """All groups, sorted."""
        return sorted({*self.consumer, *self.classic, *self.offsets.groups()})

    def apply(self, record: records.GroupRecord, producer: TransactionalProducer | None) -> ConsumerGroup | None:
        """Take in one record. Returns the consumer group that it changed, if it exists."""
        key, value = record.key, record.value
        if isinstance(key, records.OffsetCommitKey):
            self.offsets.apply(
                key, _kind(value, records.OffsetCommitValue), None if producer is None else producer.producer_id
            )
            return None
        if isinstance(key, records.GroupMetadataKey):
            self._set_classic(key.group, _kind(value, records.GroupMetadataValue))
            return None
        group = self.consumer.get(key.group_id)
        if group is None:
            if value is None:
                return None
            group = self.consumer[key.group_id] = ConsumerGroup(key.group_id, self.index)
        if isinstance(key, records.ConsumerGroupMetadataKey) and value is None:
            group.forget()
            del self.consumer[key.group_id]
            return None
        change(group, record)
        return group

    def _set_classic(self, group_id: str, value: records.GroupMetadataValue | None) -> None:
        if value is None:
            self.classic.pop(group_id, None)
        else:
            self.classic.setdefault(group_id, ClassicGroup(group_id)).take(value)


def change(group: ConsumerGroup, record: records.GroupRecord) -> None:
    """Take in a record of a consumer group that does not delete it."""
    key, value = record.key, record.value
    match key:
        case records.ConsumerGroupMetadataKey():
            if (epoch := _kind(value, records.ConsumerGroupMetadataValue)) is not None:
                group.epoch, group.metadata_hash = epoch.epoch, epoch.metadata_hash
        case records.ConsumerGroupMemberMetadataKey(_, member_id):
            group.set_metadata(member_id, _kind(value, records.ConsumerGroupMemberMetadataValue))
        case records.ConsumerGroupCurrentMemberAssignmentKey(_, member_id):
            group.set_current(member_id, _kind(value, records.ConsumerGroupCurrentMemberAssignmentValue))
        case records.ConsumerGroupTargetAssignmentMemberKey(_, member_id):
            target = _kind(value, records.ConsumerGroupTargetAssignmentMemberValue)
            group.set_target(member_id, None if target is None else target.topic_partitions)
        case records.ConsumerGroupTargetAssignmentMetadataKey():
            assigned = _kind(value, records.ConsumerGroupTargetAssignmentMetadataValue)
            group.assignment_epoch = 0 if assigned is None else assigned.assignment_epoch
        case records.ConsumerGroupRegularExpressionKey(_, pattern):
            group.set_pattern(pattern, _kind(value, records.ConsumerGroupRegularExpressionValue))
        case records.ConsumerGroupPartitionMetadataKey():
            group.has_old_metadata = value is not None


def group_not_found(group_id: str) -> GroupIdNotFound:
    """The error of a group that does not exist."""
    return GroupIdNotFound(
        f"there is no group {group_id!r}: it never was, was deleted, or its last offset has expired; "
        "`tidelog group list` shows those that exist"
    )


def _kind(value: records.GroupValue | None, kind: type[V]) -> V | None:
    assert value is None or isinstance(value, kind), f"a {type(value).__name__} is no {kind.__name__}"
    return value
