"""A group of the classic protocol, as its record describes it. Its members cannot join or synchronize here: those that
a log of Kafka contains stay until their sessions time out.
"""

from __future__ import annotations

from dataclasses import dataclass

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import GroupMetadataKey, GroupMetadataValue, GroupRecord, MemberMetadata
from tidelog.types import Millis


@dataclass(slots=True)
class ClassicGroup:
    """A classic group."""

    group_id: str
    value: GroupMetadataValue

    def state(self) -> str:
        """Its state by Kafka's name."""
        return "Stable" if self.value.members else "Empty"

    def member(self, member_id: str) -> MemberMetadata | None:
        """The member with this id."""
        return next((member for member in self.value.members if member.member_id == member_id), None)

    def without(self, member_ids: frozenset[str], wall_ms: Millis) -> GroupRecord:
        """The record of the group without these members, in the next generation."""
        members = tuple(member for member in self.value.members if member.member_id not in member_ids)
        leaders = {member.member_id for member in members}
        value = self.value.replace(
            generation=self.value.generation + 1,
            protocol=self.value.protocol if members else None,
            leader=self.value.leader if self.value.leader in leaders else None,
            members=members,
            current_state_timestamp=wall_ms,
        )
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)
