"""The records of consumer groups, and those that a change of members needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
)
from replication.coordination.groups.assignments import AssignedTopics
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.member import CurrentAssignment, MemberMetadata
from replication.coordination.groups.topic_catalog import TopicCatalog


def metadata_record(group_id: str, member_id: str, metadata: MemberMetadata) -> GroupRecord:
    """The subscription of a member."""
    return CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), metadata)


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> GroupRecord:
    """The current assignment of a member."""
    return CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), current)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """The group epoch."""
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def target_record(group_id: str, member_id: str, target: AssignedTopics) -> GroupRecord:
    """The target assignment of a member."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id, member_id)
    return CoordinatorRecord(key, ConsumerGroupTargetAssignmentMemberValue(target))


def assignment_epoch_record(group_id: str, epoch: int) -> GroupRecord:
    """The group epoch of the target assignment."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id)
    return CoordinatorRecord(key, ConsumerGroupTargetAssignmentMetadataValue(epoch))


def pattern_record(group_id: str, pattern: str, resolved: ConsumerGroupRegularExpressionValue | None) -> GroupRecord:
    """The topics that a pattern matches; None: no member has it."""
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id, pattern), resolved)


def removal_records(group_id: str, member_id: str) -> list[GroupRecord]:
    """A member is gone."""
    return [
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def unused_pattern_records(group: ConsumerGroup, changes: Mapping[str, MemberMetadata | None]) -> list[GroupRecord]:
    """Tombstones of the patterns that no member has once these members have changed; None: it is removed."""
    left = dict(group.pattern_members)
    for member_id, new in changes.items():
        member = group.members.get(member_id)
        old = None if member is None or member.metadata is None else member.metadata.subscribed_topic_regex
        if old:
            left[old] -= 1
        if new is not None and new.subscribed_topic_regex:
            left[new.subscribed_topic_regex] = left.get(new.subscribed_topic_regex, 0) + 1
    return [
        pattern_record(group.group_id, pattern, None) for pattern in sorted(group.patterns) if left.get(pattern, 0) <= 0
    ]


def remove_members(group: ConsumerGroup, member_ids: Iterable[str], catalog: TopicCatalog) -> list[GroupRecord]:
    """Members leave or are removed: the group gets a new epoch."""
    records: list[GroupRecord] = []
    changes: dict[str, MemberMetadata | None] = {}
    for member_id in member_ids:
        records += removal_records(group.group_id, member_id)
        changes[member_id] = None
    records += unused_pattern_records(group, changes)
    records.append(epoch_record(group.group_id, group.epoch + 1, catalog.hash_of(group.topics_after(changes))))
    return records


def waiting_members(group: ConsumerGroup, member_ids: Iterable[str]) -> set[str]:
    """The other members that wait for partitions of these ones."""
    leaving = set(member_ids)
    waiting: set[str] = set()
    for member_id in leaving:
        current = group.members[member_id].assignment
        waiting |= group.waiting_for(current.assigned_partitions)
        waiting |= group.waiting_for(current.partitions_pending_revocation)
    return waiting - leaving


def group_tombstones(group: ConsumerGroup) -> list[GroupRecord]:
    """The group is deleted, with all that was recorded of it but its offsets."""
    records: list[GroupRecord] = []
    for member_id in sorted(group.members.keys() | group.targets.keys()):
        records += removal_records(group.group_id, member_id)
    records += [pattern_record(group.group_id, pattern, None) for pattern in sorted(group.patterns)]
    records.append(CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group.group_id), None))
    if group.has_old_metadata:
        records.append(CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group.group_id), None))
    records.append(CoordinatorRecord(ConsumerGroupMetadataKey(group.group_id), None))
    return records
