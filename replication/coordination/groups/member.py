"""A member of a consumer group, as its records describe it."""

from __future__ import annotations

from typing import Final

from replication.coordination.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)
from replication.coordination.groups.assignments import canonical
from replication.coordination.groups.states import MemberState
from tidelog.types import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from tidelog.values import dataclass

MemberMetadata = ConsumerGroupMemberMetadataValue
CurrentAssignment = ConsumerGroupCurrentMemberAssignmentValue

JOINING: Final = CurrentAssignment(JOIN_EPOCH, JOIN_EPOCH, MemberState.STABLE, (), ())
"""The assignment of a member that joins."""


@dataclass(slots=True)
class Member:
    """A member."""

    member_id: str
    metadata: MemberMetadata | None = None
    """Its subscription; None: only its assignment was read so far, which happens while a log is replayed."""
    current: CurrentAssignment | None = None

    @property
    def assignment(self) -> CurrentAssignment:
        """Its current assignment."""
        return JOINING if self.current is None else self.current

    @property
    def classic(self) -> ClassicMemberMetadata | None:
        """What it has said in its last JoinGroup; None: it speaks the consumer protocol."""
        return None if self.metadata is None else self.metadata.classic_member_metadata

    @property
    def epoch(self) -> int:
        """The epoch that it has reached; -2 while a static member is away."""
        return JOIN_EPOCH if self.current is None else self.current.member_epoch

    @property
    def is_away(self) -> bool:
        """Whether it is a static member that left and will come back."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def has_reached(self, epoch: int) -> bool:
        """True if it owns all of the target assignment of this epoch."""
        current = self.assignment
        return current.member_epoch == epoch and current.state == MemberState.STABLE


def normalized(current: CurrentAssignment) -> CurrentAssignment:
    """The assignment with sorted partitions and a known state."""
    state = current.state if current.state in _STATES else MemberState.UNKNOWN
    assigned, revoking = canonical(current.assigned_partitions), canonical(current.partitions_pending_revocation)
    if (
        state == current.state
        and assigned is current.assigned_partitions
        and revoking is current.partitions_pending_revocation
    ):
        return current
    return CurrentAssignment(current.member_epoch, current.previous_member_epoch, state, assigned, revoking)


_STATES: Final = frozenset(int(state) for state in MemberState)
