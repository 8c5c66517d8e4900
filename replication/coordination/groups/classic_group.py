"""The state of one classic group.

Its records say which generation has which members and assignments; between two generations there is more: who has
joined, and which requests wait. That is not recorded. A coordinator that takes over knows the last generation that had
an assignment, and members of a later one join again.

Invariants:
  1. `instances` has the member id of each static member.
  2. There is a protocol that all members support.
  3. Requests to join wait only in PREPARING_REBALANCE, those for an assignment only in COMPLETING_REBALANCE; only those
     of members wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from replication.coordination.classic_requests import JoinedMember, JoinGroupAnswer, SyncGroupAnswer
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import (
    ClassicProtocol,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
)
from replication.coordination.groups.classic_protocols import metadata_of, names_of
from replication.coordination.groups.classic_states import CLASSIC_TRANSITIONS, ClassicCause, ClassicState
from tidelog.errors import FencedInstanceId, UnknownMemberId
from tidelog.types import NO_TIMESTAMP, Millis
from tidelog.values import dataclass

NO_ASSIGNMENT: Final = b""


@dataclass(slots=True)
class ClassicMember:
    """A member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]
    """In its order of preference. After a load, only the one of the recorded generation."""
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    """It has never been part of a generation."""

    @classmethod
    def recorded(cls, member: MemberMetadata, protocol: str) -> ClassicMember:
        """A member as a record describes it. protocol: of its generation."""
        return cls(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout,
            # Kafka's records before version 1 have no rebalance timeout: the session was its limit, too.
            member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout,
            (ClassicProtocol(protocol, member.subscription),),
            member.assignment,
        )


class ClassicGroup:
    """A classic group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.generation = 0
        self.lost_generations = 0
        """How many further ones the coordinator before this one may have begun, which it did not record."""
        self.protocol_type = ""
        """Empty until the first member has joined."""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.instances: dict[str, str] = {}
        self.joining: dict[str, int] = {}
        """The tickets of the JoinGroups that wait, by member id."""
        self.syncing: dict[str, int] = {}
        """As `joining`, of the SyncGroups."""
        self.invited: dict[str, None] = {}
        """Ids that were given to new members, which have not joined with them yet."""
        self.unsynced: dict[str, None] = {}
        """Members that have not asked for their assignment of this generation."""
        self.initial_left_ms: int | None = None
        """In the first rebalance of a group without members: how much longer it may wait for further ones. None: every
        other rebalance."""
        self.has_newcomer = False
        """A member has joined since that wait began, or was prolonged."""
        self.recorded_at: Millis = NO_TIMESTAMP
        """Wall time of the last record."""
        self._supporters: Counter[str] = Counter()
        """How many members support a protocol, by its name."""

    # --- questions ---

    @property
    def is_initial(self) -> bool:
        """Whether the first rebalance waits for further members."""
        return self.initial_left_ms is not None

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest one of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether every member has joined the next generation, those that were invited included."""
        return not self.invited and len(self.joining) == len(self.members)

    @property
    def common_protocols(self) -> frozenset[str]:
        """The names of the protocols that all members support."""
        return frozenset(name for name, count in self._supporters.items() if count == len(self.members))

    def checked(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member. Raises UnknownMemberId, or FencedInstanceId if another one has its instance id."""
        if instance_id is not None:
            owner = self.instances.get(instance_id)
            if owner is None:
                raise UnknownMemberId(f"group {self.group_id!r} has no member with instance id {instance_id!r}")
            if owner != member_id:
                raise FencedInstanceId(
                    f"instance id {instance_id!r} of group {self.group_id!r} belongs to member {owner!r} now, not to "
                    f"{member_id!r}"
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.group_id!r} has no member {member_id!r}: join the group again")
        return member

    def joined(self, member: ClassicMember) -> JoinGroupAnswer:
        """What a member learns of the present generation."""
        members: tuple[JoinedMember, ...] = ()
        if member.member_id == self.leader:
            members = tuple(
                JoinedMember(each.member_id, each.instance_id, metadata_of(each.protocols, self.protocol))
                for each in self.members.values()
            )
        leader = self.leader or ""  # a record of Kafka may lack it
        return JoinGroupAnswer(member.member_id, self.generation, self.protocol_type, self.protocol, leader, members)

    def synced(self, assignment: bytes) -> SyncGroupAnswer:
        """What a member learns of its assignment."""
        return SyncGroupAnswer(self.protocol_type, self.protocol, assignment)

    def record(self, assignments: Mapping[str, bytes], wall_ms: Millis) -> GroupRecord:
        """The present generation. assignments: by member id; members without one have nothing."""
        members = tuple(
            MemberMetadata(
                member.member_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                metadata_of(member.protocols, self.protocol),
                assignments.get(member.member_id, NO_ASSIGNMENT),
                member.instance_id,
                member.rebalance_timeout_ms,
            )
            for member in self.members.values()
        )
        value = GroupMetadataValue(self.protocol_type, self.generation, self.protocol, self.leader, members, wall_ms)
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)

    # --- changes ---

    def take(self, value: GroupMetadataValue) -> None:
        """Apply a record: in replay, or of a decision. What a member supports besides the recorded protocol stays
        known."""
        self.protocol_type, self.generation = value.protocol_type, value.generation
        self.protocol, self.recorded_at = value.protocol, value.current_state_timestamp
        known, self.members, self.instances = self.members, {}, {}
        self._supporters.clear()
        self.syncing.clear()
        for each in value.members:
            member = known.get(each.member_id)
            if member is None or metadata_of(member.protocols, value.protocol) != each.subscription:
                member = ClassicMember.recorded(each, value.protocol or "")
            member.assignment = each.assignment
            self.add(member)
        self.leader = value.leader if value.leader in self.members else None
        if self.leader is not None:
            self.unsynced.pop(self.leader, None)  # it has its own assignment with the answer
        self.state = ClassicState.STABLE if self.members else ClassicState.EMPTY

    def move(self, cause: ClassicCause) -> None:
        """Change the state."""
        self.state = CLASSIC_TRANSITIONS[self.state, cause]

    def begin_generation(self) -> None:
        """Count to a number that no member has seen: what it still sends for a generation that was lost with its
        coordinator must not be taken for the next one."""
        self.generation += 1 + self.lost_generations
        self.lost_generations = 0

    def add(self, member: ClassicMember) -> None:
        """A member joins."""
        self.members[member.member_id] = member
        self._supporters.update(names_of(member.protocols))
        self.invited.pop(member.member_id, None)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """A member, or one that was invited, is gone; its requests must have their answers."""
        self.joining.pop(member_id, None)
        self.syncing.pop(member_id, None)
        self.invited.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._supporters.subtract(names_of(member.protocols))
            self._supporters += Counter()  # without those that no member supports
            if member.instance_id is not None and self.instances[member.instance_id] == member_id:
                del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = None

    def renew(self, member: ClassicMember, protocols: tuple[ClassicProtocol, ...], timeouts: tuple[int, int]) -> None:
        """A member has joined again. timeouts: of its session and of rebalances."""
        self._supporters.subtract(names_of(member.protocols))
        self._supporters.update(names_of(protocols))
        member.protocols = protocols
        member.session_timeout_ms, member.rebalance_timeout_ms = timeouts

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """A static member has a new id; it keeps the place of the old one, also as the leader."""
        members = {
            new.member_id if each is old else key: new if each is old else each for key, each in self.members.items()
        }
        is_leader, is_unsynced = self.leader == old.member_id, old.member_id in self.unsynced
        self.remove(old.member_id)
        self.add(new)
        self.members = members  # in the former order, which decides between protocols with as many votes
        if is_leader:
            self.leader = new.member_id
        if is_unsynced:
            self.unsynced[new.member_id] = None
