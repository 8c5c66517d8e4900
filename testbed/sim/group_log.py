"""The committed log of one partition of `__consumer_offsets`, replayed batch by batch, with the rules of groups.

After every batch:

  - no partition belongs to two members of a group, owned or to be given up (KIP-848's exclusive ownership);
  - the epochs of a group and of a member never go back while they exist;
  - an offset is committed by a client that sent it, only while it is a member, and only where no other member owns the
    partition: nothing that a fenced owner has read is committed;
  - the generation of a classic group never goes back, and a further record of the same one only renames static members;
    no partition is assigned to two of its members; only its members commit, only in it, and not what another one has;
  - a group that changes its protocol keeps its members, in the epochs that were their generations and with what they
    had; members of the classic protocol commit in their epoch only;
  - a committed offset does not pass what its committer was given, and does not go back unless an operator resets it, or
    an earlier commit of the same member arrives late by Kafka's protocol;
  - a committed offset is deleted only if an operator or the deletion of its topic asks for that.

Invariants: this replay shares no code with the coordinator's. Not here: bytes (internal_logs.py), what members believe
(owners.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from replication.coordination import group_records as records
from replication.coordination.group_records import GroupRecord, OffsetCommitValue, TopicPartitions
from testbed.consumer_bytes import places_in
from testbed.sim.commit_attempts import CommitAttempt, CommitAttempts, Place
from testbed.sim.ledger import Violation
from tidelog.types import LEAVE_STATIC_EPOCH

Owned = tuple[UUID, int]
"""Topic id and partition index."""


def flat(partitions: Iterable[TopicPartitions]) -> frozenset[Owned]:
    """The single partitions of a list by topic."""
    return frozenset((each.topic_id, int(partition)) for each in partitions for partition in each.partitions)


@dataclass(slots=True)
class LoggedMember:
    """A member as the log has it. epoch: LEAVE_STATIC_EPOCH while a static member is away. reached: the highest epoch.
    revoking: partitions that it has been asked to give up and still has."""

    is_registered: bool = False
    is_classic: bool = False
    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    epoch: int = -1
    reached: int = -1
    assigned: frozenset[Owned] = frozenset()
    revoking: frozenset[Owned] = frozenset()
    target: frozenset[Owned] = frozenset()

    @property
    def owned(self) -> frozenset[Owned]:
        """The partitions that no other member may have."""
        return self.assigned | self.revoking


@dataclass(frozen=True, slots=True)
class LoggedClassicMember:
    """A member of a classic group as the log has it."""

    instance_id: str | None
    places: frozenset[Place]


@dataclass(slots=True)
class LoggedGroup:
    """A group as the log has it. assignments: how many target assignments it has had. appended: by partition, where
    its last committed offset is in the log. pending: by producer id, the offsets of its open transaction with their
    places in the log. generation: of a classic group, with its members in `classic`. classic_assigned: generation,
    member and bytes of all assignments that it ever had. given: epoch, member and partitions of all assignments that
    members of the classic protocol ever had in a consumer group."""

    generation: int = -1
    classic: dict[str, LoggedClassicMember] = field(default_factory=dict)
    classic_assigned: set[tuple[int, str, bytes]] = field(default_factory=set)
    given: set[tuple[int, str, frozenset[Place]]] = field(default_factory=set)
    epoch: int = -1
    assignment_epoch: int = -1
    assignments: int = 0
    members: dict[str, LoggedMember] = field(default_factory=dict)
    offsets: dict[Place, OffsetCommitValue] = field(default_factory=dict)
    appended: dict[Place, int] = field(default_factory=dict)
    pending: dict[int, dict[Place, tuple[int, OffsetCommitValue | None]]] = field(default_factory=dict)

    def member(self, member_id: str) -> LoggedMember:
        return self.members.setdefault(member_id, LoggedMember())

    def registered(self) -> list[str]:
        """The ids of the members, sorted."""
        return sorted(member_id for member_id, member in self.members.items() if member.is_registered)


class GroupLog:
    """The groups of one partition of `__consumer_offsets`.

    topic_name: the name of a topic id; None if there is no such topic. exists: whether a topic has this partition.
    now_us: the virtual time.
    """

    def __init__(
        self,
        name: str,
        attempts: CommitAttempts,
        *,
        topic_name: Callable[[UUID], str | None],
        exists: Callable[[Place], bool],
        now_us: Callable[[], int],
    ) -> None:
        self.name = name
        self.groups: dict[str, LoggedGroup] = {}
        self.commits: set[str] = set()
        """The identities of all committed offsets, also of open and aborted transactions."""
        self.history: dict[tuple[str, Place], list[tuple[int, int]]] = {}
        """By group and partition: when an offset became the committed one, -1 for none."""
        self._attempts = attempts
        self._topic_name, self._exists, self._now_us = topic_name, exists, now_us
        self._touched: set[str] = set()
        self._dissolved: dict[str, tuple[int, dict[str, LoggedClassicMember]]] = {}
        """The classic groups that this batch deletes: generation and members."""
        self._removed: dict[str, dict[str, tuple[int, frozenset[Place]]]] = {}
        """The members of consumer groups that this batch removes: epoch, and what they had."""

    def group(self, group_id: str) -> LoggedGroup:
        """The state of a group; an empty one if the log does not have it."""
        return self.groups.setdefault(group_id, LoggedGroup())

    def replayed(self, base_offset: int, batch: Iterable[GroupRecord], producer_id: int | None = None) -> None:
        """Apply the records of one committed batch. producer_id: of the transaction that they belong to."""
        self._touched.clear()
        self._dissolved.clear()
        self._removed.clear()
        for offset, record in enumerate(batch, base_offset):
            self._apply(offset, record, producer_id)
        for group_id in sorted(self._touched):
            self._owned_once(group_id)
        for group_id, (generation, members) in self._dissolved.items():
            self._is_upgraded(group_id, generation, members)
        for group_id, removed in self._removed.items():
            self._is_downgraded(group_id, removed)

    def ended(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker of a producer's transaction."""
        for group_id, group in self.groups.items():
            for place, (offset, value) in group.pending.pop(producer_id, {}).items():
                if committed and offset > group.appended.get(place, -1):
                    self._commit(group_id, group, place, offset, value)

    # --- records ---

    def _apply(self, offset: int, record: GroupRecord, producer_id: int | None) -> None:
        key, value = record.key, record.value
        match key:
            case records.OffsetCommitKey():
                assert value is None or isinstance(value, OffsetCommitValue)
                self._offset(key, offset, value, producer_id)
            case records.GroupMetadataKey():
                assert value is None or isinstance(value, records.GroupMetadataValue)
                self._generation(key.group, value)
            case records.ConsumerGroupMetadataKey():
                self._touched.add(key.group_id)
                self._group_epoch(key.group_id, value)
            case records.ConsumerGroupTargetAssignmentMetadataKey():
                group = self.group(key.group_id)
                group.assignment_epoch = -1
                if isinstance(value, records.ConsumerGroupTargetAssignmentMetadataValue):
                    group.assignment_epoch = value.assignment_epoch
                    group.assignments += 1
            case records.ConsumerGroupMemberMetadataKey():
                self._member(key, value)
            case records.ConsumerGroupTargetAssignmentMemberKey():
                member = self.group(key.group_id).member(key.member_id)
                member.target = frozenset()
                if isinstance(value, records.ConsumerGroupTargetAssignmentMemberValue):
                    member.target = flat(value.topic_partitions)
            case records.ConsumerGroupCurrentMemberAssignmentKey():
                self._touched.add(key.group_id)
                self._current(key, value)

    def _generation(self, group_id: str, value: records.GroupMetadataValue | None) -> None:
        group, name = self.group(group_id), f"{self.name}: classic group {group_id}"
        before, group.classic = group.classic, {}
        if value is None:
            if before:
                self._dissolved[group_id] = group.generation, before
            group.generation = -1
            return
        if value.generation < group.generation:
            raise Violation(f"{name} goes back from generation {group.generation} to {value.generation}")
        owners: dict[Place, str] = {}
        for member in value.members:
            places = frozenset(places_in(member.assignment))
            group.classic[member.member_id] = LoggedClassicMember(member.group_instance_id, places)
            group.classic_assigned.add((value.generation, member.member_id, member.assignment))
            for place in sorted(places):
                other = owners.setdefault(place, member.member_id)
                if other != member.member_id:
                    raise Violation(f"{name}: {place[0]}-{place[1]} is assigned to {other} and {member.member_id}")
        if value.generation == group.generation and _by_instance(before) != _by_instance(group.classic):
            raise Violation(f"{name} changes generation {value.generation}, which its members have already")
        group.generation = value.generation

    def _is_upgraded(self, group_id: str, generation: int, before: dict[str, LoggedClassicMember]) -> None:
        """A classic group with members was deleted: those that are in a consumer group since must be as they were."""
        group, name = self.group(group_id), f"{self.name}: classic group {group_id}"
        removed = self._removed.get(group_id, {})  # since then, by the same batch
        for member_id, had in before.items():
            member = group.member(member_id)
            if not member.is_registered and member_id not in removed:
                continue  # it has left: only the next generation would be recorded without it
            if member.is_registered and not member.is_classic:
                continue  # it has joined with the other protocol, and given everything up
            epoch, places = removed.get(member_id, (member.epoch, self._places(member.owned)))
            if epoch < generation or group.epoch < generation:
                raise Violation(f"{name}: {member_id} goes from generation {generation} to epoch {epoch}")
            lost = {place for place in had.places if self._exists(place)} - places
            if epoch == generation and lost:
                raise Violation(f"{name}: {member_id} loses {sorted(lost)} in generation {generation}")

    def _is_downgraded(self, group_id: str, removed: dict[str, tuple[int, frozenset[Place]]]) -> None:
        """Members of a consumer group were removed: those that are in a classic group since must be as they were."""
        group, name = self.group(group_id), f"{self.name}: consumer group {group_id}"
        for member_id, member in group.classic.items():
            epoch, had = removed.get(member_id, (-1, member.places))
            if group.generation < epoch:
                raise Violation(f"{name}: {member_id} goes from epoch {epoch} to generation {group.generation}")
            lost = {place for place in had if self._exists(place)} - member.places
            if lost:
                raise Violation(f"{name}: {member_id} loses {sorted(lost)} in generation {group.generation}")

    def _places(self, owned: Iterable[Owned]) -> frozenset[Place]:
        """Partitions by the names of their topics, of those that exist."""
        named = ((self._topic_name(topic_id), partition) for topic_id, partition in owned)
        return frozenset((topic, partition) for topic, partition in named if topic is not None)

    def _group_epoch(self, group_id: str, value: object) -> None:
        group = self.group(group_id)
        if not isinstance(value, records.ConsumerGroupMetadataValue):
            if alive := group.registered():
                raise Violation(f"{self.name}: group {group_id} is deleted with its members {alive}")
            group.epoch = -1
            return
        if value.epoch < group.epoch:
            raise Violation(f"{self.name}: the epoch of group {group_id} goes back from {group.epoch} to {value.epoch}")
        group.epoch = value.epoch

    def _member(self, key: records.ConsumerGroupMemberMetadataKey, value: object) -> None:
        member = self.group(key.group_id).member(key.member_id)
        member.is_registered = isinstance(value, records.ConsumerGroupMemberMetadataValue)
        if isinstance(value, records.ConsumerGroupMemberMetadataValue):
            member.instance_id, member.topics = value.instance_id, value.subscribed_topic_names
            member.is_classic = value.classic_member_metadata is not None

    def _current(self, key: records.ConsumerGroupCurrentMemberAssignmentKey, value: object) -> None:
        member = self.group(key.group_id).member(key.member_id)
        if not isinstance(value, records.ConsumerGroupCurrentMemberAssignmentValue):
            if member.is_registered:
                self._removed.setdefault(key.group_id, {})[key.member_id] = member.epoch, self._places(member.owned)
            member.epoch = member.reached = -1
            member.assigned = member.revoking = frozenset()
            return
        if value.member_epoch != LEAVE_STATIC_EPOCH:
            if value.member_epoch < member.reached:
                raise Violation(
                    f"{self.name}: the epoch of member {key.member_id} of group {key.group_id} goes back from "
                    f"{member.reached} to {value.member_epoch}"
                )
            member.reached = value.member_epoch
        member.epoch = value.member_epoch
        member.assigned = flat(value.assigned_partitions)
        member.revoking = flat(value.partitions_pending_revocation)
        self.group(key.group_id).given.add((value.member_epoch, key.member_id, self._places(member.assigned)))

    def _owned_once(self, group_id: str) -> None:
        owners: dict[Owned, str] = {}
        for member_id, member in sorted(self.group(group_id).members.items()):
            for owned in sorted(member.owned, key=str):
                other = owners.setdefault(owned, member_id)
                if other != member_id:
                    raise Violation(
                        f"{self.name}: {self._topic_name(owned[0])}-{owned[1]} belongs to two members of group "
                        f"{group_id}, {other} and {member_id}"
                    )

    # --- offsets ---

    def _offset(
        self, key: records.OffsetCommitKey, offset: int, value: OffsetCommitValue | None, producer_id: int | None
    ) -> None:
        group, place = self.group(key.group), (key.topic, int(key.partition))
        if value is not None:
            self._is_legitimate(key.group, group, place, value)
        if producer_id is None:
            self._commit(key.group, group, place, offset, value)
        else:
            group.pending.setdefault(producer_id, {})[place] = offset, value

    def _is_legitimate(self, group_id: str, group: LoggedGroup, place: Place, value: OffsetCommitValue) -> None:
        """Check who committed this offset, and whether that client was given everything below it."""
        attempt = self._attempts.of(value.metadata)
        name = f"{self.name}: offset {int(value.offset)} of {place[0]}-{place[1]} in group {group_id}"
        if attempt is None:
            raise Violation(f"{name} is committed, and no client sent it ({value.metadata!r})")
        if (attempt.group, attempt.place, attempt.offset) != (group_id, place, int(value.offset)):
            raise Violation(f"{name} is committed for {attempt}")
        self.commits.add(attempt.identity)
        self._is_owner(name, group, place, attempt)
        if attempt.given_to is not None and attempt.offset > attempt.given_to:
            raise Violation(
                f"{name} is committed, but its reader {attempt.identity} was given all below {attempt.given_to}"
            )

    def _is_owner(self, name: str, group: LoggedGroup, place: Place, attempt: CommitAttempt) -> None:
        if not attempt.member_id:
            if members := [*group.registered(), *sorted(group.classic)]:
                raise Violation(f"{name} is committed by {attempt.identity}, no member, beside the members {members}")
            return
        if group.classic:
            self._is_classic_owner(name, group, place, attempt)
            return
        member = group.members.get(attempt.member_id)
        if member is None or not member.is_registered:
            raise Violation(f"{name} is committed by {attempt.identity}, which is fenced")
        if member.is_classic and attempt.member_epoch != member.epoch:
            raise Violation(
                f"{name} is committed by {attempt.identity}, which is fenced: generation {attempt.member_epoch} of "
                f"{member.epoch}"
            )
        for other_id, other in sorted(group.members.items()):
            names = {(self._topic_name(topic_id), partition) for topic_id, partition in other.owned}
            if other_id != attempt.member_id and place in names:
                raise Violation(f"{name} is committed by {attempt.identity}, but {other_id} owns the partition")

    def _is_classic_owner(self, name: str, group: LoggedGroup, place: Place, attempt: CommitAttempt) -> None:
        if attempt.member_id not in group.classic or attempt.member_epoch != group.generation:
            raise Violation(
                f"{name} is committed by {attempt.identity}, which is fenced: generation {attempt.member_epoch} of "
                f"{group.generation}"
            )
        for other_id, other in sorted(group.classic.items()):
            if other_id != attempt.member_id and place in other.places:
                raise Violation(f"{name} is committed by {attempt.identity}, but {other_id} has the partition")

    def _commit(
        self, group_id: str, group: LoggedGroup, place: Place, offset: int, value: OffsetCommitValue | None
    ) -> None:
        group.appended[place] = offset
        before = group.offsets.get(place)
        name = f"{self.name}: the committed offset of {place[0]}-{place[1]} in group {group_id}"
        if value is None:
            if before is not None and self._exists(place) and not self._attempts.is_deletable(group_id, place):
                raise Violation(f"{name}, {before.offset}, is deleted, and nobody asked for that")
            group.offsets.pop(place, None)
        else:
            if before is not None and value.offset < before.offset and not self._may_follow(value, before):
                raise Violation(f"{name} goes back from {before.offset} to {value.offset} ({value.metadata})")
            group.offsets[place] = value
        committed = -1 if value is None else int(value.offset)
        self.history.setdefault((group_id, place), []).append((self._now_us(), committed))

    def _may_follow(self, value: OffsetCommitValue, before: OffsetCommitValue) -> bool:
        attempt = self._attempts.of(value.metadata)
        return attempt is not None and attempt.may_follow(self._attempts.of(before.metadata))

    # --- answers ---

    def committed(self, group_id: str, place: Place) -> int:
        """The committed offset; -1 if there is none."""
        group = self.groups.get(group_id)
        value = None if group is None else group.offsets.get(place)
        return -1 if value is None else int(value.offset)

    def was_committed(self, group_id: str, place: Place, offset: int, since_us: int) -> bool:
        """Whether this was the committed offset at any time since then; -1 stands for none."""
        present = -1
        for at_us, committed in self.history.get((group_id, place), ()):
            if at_us >= since_us and present == offset:
                return True
            present = committed
        return present == offset


def _by_instance(members: dict[str, LoggedClassicMember]) -> set[tuple[str, frozenset[Place]]]:
    """Who has what: a static member by its instance id, as its process may be another one."""
    return {(member.instance_id or member_id, member.places) for member_id, member in members.items()}
