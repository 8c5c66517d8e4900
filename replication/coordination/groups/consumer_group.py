"""The state of one consumer group, changed only by records.

Records are accepted in any order, because compaction removes arbitrary older ones: a member may be known by its current
assignment before its subscription is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from replication.coordination.group_records import ConsumerGroupRegularExpressionValue, TopicPartitions
from replication.coordination.groups.assignments import AssignedTopics, canonical
from replication.coordination.groups.member import CurrentAssignment, Member, MemberMetadata, normalized
from replication.coordination.groups.states import GroupState
from tidelog.types import Millis

Owners = dict[UUID, dict[int, str]]
"""Member ids by topic id and partition."""
TopicIndex = dict[str, dict[str, None]]
"""For each topic name the ids of the groups that subscribe to it, in the order of their subscription."""


class ConsumerGroup:
    """A consumer group. index: shared by all groups of the partition; the group keeps its own entries up to date."""

    def __init__(self, group_id: str, index: TopicIndex) -> None:
        self.group_id = group_id
        self.epoch = 0
        """The group epoch: raised by each change of members, subscriptions or subscribed topics."""
        self.metadata_hash = 0
        """Hash of the subscribed topics at that epoch."""
        self.assignment_epoch = 0
        """The group epoch for which `targets` was computed."""
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        """Member ids by instance id, of static members."""
        self.classic_members = 0
        """How many of them speak the classic protocol."""
        self.targets: dict[str, AssignedTopics] = {}
        """The target assignment by member id."""
        self.target_owners: Owners = {}
        """The inverse of `targets`."""
        self.owners: Owners = {}
        """The owners of all partitions in `assigned_partitions` or `partitions_pending_revocation` of a member: nobody
        else may be given these."""
        self.patterns: dict[str, ConsumerGroupRegularExpressionValue] = {}
        """The topics that each subscribed pattern matches, once that is recorded."""
        self.pattern_members: dict[str, int] = {}
        """The number of members that subscribe to each pattern."""
        self.topics: dict[str, int] = {}
        """For each topic the number of members that subscribe to its name plus that of patterns that match it."""
        self.has_old_metadata = False
        """Whether a ConsumerGroupPartitionMetadata record of Kafka before 4.1 exists."""
        self.empty_since: Millis | None = None
        """Wall time at which the last member left, if this coordinator noticed it; it is not recorded."""
        self._index = index

    # --- questions ---

    def state(self) -> GroupState:
        """Cost: proportional to the number of members."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.has_reached(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def subscriptions(self) -> dict[str, MemberMetadata]:
        """The subscriptions by member id. Members of which only the assignment was read are left out."""
        return {member_id: member.metadata for member_id, member in self.members.items() if member.metadata is not None}

    def target_of(self, member_id: str) -> AssignedTopics:
        """The target assignment of the member."""
        return self.targets.get(member_id, ())

    def owner(self, topic_id: UUID, partition: int) -> str | None:
        """The member that has the partition, or has been asked to give it up."""
        partitions = self.owners.get(topic_id)
        return None if partitions is None else partitions.get(partition)

    def waiting_for(self, topics: Iterable[TopicPartitions]) -> set[str]:
        """The members whose target assignment has one of these partitions."""
        members: set[str] = set()
        for topic in topics:
            owners = self.target_owners.get(topic.topic_id)
            if owners:
                members.update(owners[partition] for partition in topic.partitions if partition in owners)
        return members

    def topics_after(self, changes: Mapping[str, MemberMetadata | None]) -> set[str]:
        """The subscribed topics after these members have changed (None: the member is removed). A pattern counts once
        the topics that it matches are recorded."""
        counts = dict(self.topics)
        patterns = dict(self.pattern_members)
        for member_id, new in changes.items():
            member = self.members.get(member_id)
            old = None if member is None else member.metadata
            for metadata, step in ((old, -1), (new, 1)):
                if metadata is None:
                    continue
                for name in set(metadata.subscribed_topic_names):
                    counts[name] = counts.get(name, 0) + step
                if metadata.subscribed_topic_regex:
                    patterns[metadata.subscribed_topic_regex] = patterns.get(metadata.subscribed_topic_regex, 0) + step
        for pattern, resolved in self.patterns.items():
            if patterns.get(pattern, 0) <= 0:
                for name in resolved.topics:
                    counts[name] = counts.get(name, 0) - 1
        return {name for name, count in counts.items() if count > 0}

    # --- changes by records ---

    def set_metadata(self, member_id: str, value: MemberMetadata | None) -> None:
        """Apply the subscription of a member; None: it is removed."""
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = self.members[member_id] = Member(member_id)
        self.classic_members -= member.classic is not None
        old, member.metadata = member.metadata, value
        self.classic_members += member.classic is not None
        if old is not None:
            self._count(set(old.subscribed_topic_names), -1)
            self._count_pattern(old.subscribed_topic_regex, -1)
            if old.instance_id is not None and self.instances.get(old.instance_id) == member_id:
                del self.instances[old.instance_id]
        if value is not None:
            self._count(set(value.subscribed_topic_names), 1)
            self._count_pattern(value.subscribed_topic_regex, 1)
            if value.instance_id is not None:
                self.instances[value.instance_id] = member_id
        self._drop_if_gone(member)

    def set_current(self, member_id: str, value: CurrentAssignment | None) -> None:
        """Apply the current assignment of a member; None: it has none."""
        member = self.members.get(member_id)
        if member is None:
            if value is None:
                return
            member = self.members[member_id] = Member(member_id)
        if member.current is not None:
            for topics in (member.current.assigned_partitions, member.current.partitions_pending_revocation):
                _remove_owner(self.owners, topics, member_id)
        member.current = value = None if value is None else normalized(value)
        if value is not None:
            for topics in (value.assigned_partitions, value.partitions_pending_revocation):
                _add_owner(self.owners, topics, member_id)
        self._drop_if_gone(member)

    def set_target(self, member_id: str, value: AssignedTopics | None) -> None:
        """Apply the target assignment of a member; None: it has none."""
        _remove_owner(self.target_owners, self.targets.pop(member_id, ()), member_id)
        if value is not None:
            value = canonical(value)
            self.targets[member_id] = value
            _add_owner(self.target_owners, value, member_id)

    def set_pattern(self, pattern: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        """Apply the topics that a pattern matches; None: no member has it."""
        old = self.patterns.pop(pattern, None)
        if value is not None:
            self.patterns[pattern] = value
            self._count(set(value.topics), 1)  # before the removal: a topic in both keeps its place in the index
        if old is not None:
            self._count(set(old.topics), -1)

    def forget(self) -> None:
        """Remove the group's entries from the index: the group is deleted."""
        for topic in self.topics:
            self._unlist(topic)

    def _drop_if_gone(self, member: Member) -> None:
        if member.metadata is None and member.current is None:
            del self.members[member.member_id]

    def _count_pattern(self, pattern: str | None, step: int) -> None:
        if pattern:
            count = self.pattern_members.get(pattern, 0) + step
            if count:
                self.pattern_members[pattern] = count
            else:
                del self.pattern_members[pattern]

    def _count(self, topics: set[str], step: int) -> None:
        for topic in topics:
            count = self.topics.get(topic, 0) + step
            if count:
                self.topics[topic] = count
                if count == step:
                    self._index.setdefault(topic, {})[self.group_id] = None
            else:
                del self.topics[topic]
                self._unlist(topic)

    def _unlist(self, topic: str) -> None:
        groups = self._index.get(topic)
        if groups is not None:
            groups.pop(self.group_id, None)
            if not groups:
                del self._index[topic]


def _add_owner(owners: Owners, topics: AssignedTopics, member_id: str) -> None:
    for topic in topics:
        owners.setdefault(topic.topic_id, {}).update(dict.fromkeys(topic.partitions, member_id))


def _remove_owner(owners: Owners, topics: AssignedTopics, member_id: str) -> None:
    for topic in topics:
        partitions = owners.get(topic.topic_id)
        if partitions is None:
            continue
        for partition in topic.partitions:
            # Records come in any order: another member may have been recorded as the owner already.
            if partitions.get(partition) == member_id:
                del partitions[partition]
        if not partitions:
            del owners[topic.topic_id]
