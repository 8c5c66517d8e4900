"""Decisions on commits, fetches and deletions of offsets.

Differences to Kafka 4.1: the coordinator itself checks that the topic and the partition exist; an offset that was
committed for an earlier incarnation of a topic is not returned.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from replication.coordination.coordinator_machine import Decision, Instant, TransactionalProducer
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import NO_TOPIC_ID, GroupRecord, OffsetCommitKey, OffsetCommitValue
from replication.coordination.group_requests import (
    CommittedPartition,
    CommittedPartitions,
    FetchedOffset,
    GenerationOffsetCommit,
    NamedPartition,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    TxnOffsetCommit,
)
from replication.coordination.groups.classic_group import ClassicGroup
from replication.coordination.groups.classic_members import ClassicMembers
from replication.coordination.groups.classic_states import ClassicState
from replication.coordination.groups.classic_subscriptions import subscribed_topics
from replication.coordination.groups.consumer_protocol import CONSUMER_PROTOCOL
from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.groups.groups_state import GroupsState, group_not_found
from replication.coordination.groups.heartbeats import check_instance
from replication.coordination.groups.topic_catalog import Topic
from tidelog.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentTopicId,
    InvalidRequest,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    StaleMemberEpoch,
    TidelogError,
    UnknownMemberId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
    UnsupportedVersion,
)
from tidelog.types import TOPIC_NAME_LENGTH_MAX, Millis, PartitionIndex, TopicId


class OffsetRequests:
    """Decides on requests about offsets."""

    def __init__(self, state: GroupsState, config: GroupConfig, classic: ClassicMembers) -> None:
        """classic: is told of the commits of its members, which count as heartbeats."""
        self._state, self._config, self._classic = state, config, classic

    def commit(self, request: OffsetCommit, now: Instant) -> Decision[CommittedPartitions]:
        """Raises GroupIdNotFound, UnknownMemberId, FencedInstanceId, StaleMemberEpoch, IllegalGeneration,
        RebalanceInProgress or UnsupportedVersion."""
        self._check_committer(request)
        self._check_order(request)
        self._classic.committed(request.group_id, request.member_id)
        outcomes, records = self._commit(request.group_id, request.partitions, now.wall_ms)
        return Decision(CommittedPartitions(tuple(outcomes)), tuple(records))

    def commit_in_transaction(self, request: TxnOffsetCommit, now: Instant) -> Decision[CommittedPartitions]:
        """The offsets count once the transaction commits. Raises UnknownMemberId, FencedInstanceId or, for a member
        epoch that is not the current one, IllegalGeneration, on which producers abort."""
        try:
            self._check_committer(request)
        except (GroupIdNotFound, StaleMemberEpoch) as cause:
            raise IllegalGeneration(cause.message) from cause
        outcomes, records = self._commit(request.group_id, request.partitions, now.wall_ms)
        producer = TransactionalProducer(request.producer_id, request.producer_epoch)
        return Decision(CommittedPartitions(tuple(outcomes)), tuple(records), producer if records else None)

    def _commit(
        self, group_id: str, partitions: Sequence[OffsetToCommit], wall_ms: Millis
    ) -> tuple[list[CommittedPartition], list[GroupRecord]]:
        outcomes: list[CommittedPartition] = []
        records: list[GroupRecord] = []
        metadata_max = self._config.offset_metadata_max_bytes
        name, topic = "", None
        for each in partitions:
            if each.topic != name:
                name, topic = each.topic, self._state.catalog.get(each.topic)
            error = _commit_error(each, topic, metadata_max)
            outcomes.append(CommittedPartition(name, each.partition, error))
            if error is None and topic is not None:
                records.append(
                    CoordinatorRecord(
                        OffsetCommitKey(group_id, name, each.partition),
                        OffsetCommitValue(
                            each.offset,
                            each.metadata,
                            wall_ms,
                            each.leader_epoch,
                            topic_id=topic.topic_id,
                        ),
                    )
                )
        return outcomes, records

    def _check_order(self, request: OffsetCommit) -> None:
        """Refuse a request that arrives after later ones of its member, which has given it up: it would set offsets
        back. Raises IllegalGeneration."""
        for each in request.partitions:
            if each.known_offset is None or not request.member_id:
                continue
            stored = self._state.offsets.get(request.group_id, each.topic, each.partition)
            if stored is None or (each.topic_id is not None and stored.topic_id != each.topic_id):
                continue
            if stored.offset > max(each.offset, each.known_offset):
                raise IllegalGeneration(
                    f"offset {each.offset} of {each.topic}-{each.partition} was not committed for group "
                    f"{request.group_id!r}: {stored.offset} was committed since member {request.member_id!r} sent the "
                    "request; fetch the committed offset first"
                )

    def _check_committer(self, request: OffsetCommit | TxnOffsetCommit) -> None:
        """A group without members accepts commits of anyone who claims no membership; else members commit."""
        group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
        group = self._state.consumer.get(group_id)
        if group is not None:
            if (not group.members and epoch < 0) or _names_nobody(request):
                return
            if request.instance_id is not None:
                check_instance(group, request.instance_id, member_id)
            self._check_member(group_id, member_id, epoch, has_epochs=not isinstance(request, GenerationOffsetCommit))
            return
        classic = self._state.classic.get(group_id)
        if classic is not None and classic.members:
            _check_classic(classic, request)
        elif epoch >= 0:
            if self._state.exists(group_id):
                raise UnknownMemberId(_not_a_member(group_id, member_id))
            raise GroupIdNotFound(
                f"there is no group {group_id!r} of which {member_id!r} could be a member: join the group first"
            )

    def _check_member(self, group_id: str, member_id: str, epoch: int, *, has_epochs: bool = True) -> None:
        """Raises UnknownMemberId, StaleMemberEpoch or UnsupportedVersion; for members of the classic protocol
        IllegalGeneration."""
        member = self._state.consumer[group_id].members.get(member_id)
        if member is None or member.metadata is None:
            raise UnknownMemberId(_not_a_member(group_id, member_id))
        is_classic = member.metadata.classic_member_metadata is not None
        if not is_classic and not has_epochs:
            raise UnsupportedVersion(
                f"member {member_id!r} of group {group_id!r} is one by KIP-848: such members commit with version 9 of "
                "OffsetCommit or a later one"
            )
        if epoch != member.epoch:
            kind = IllegalGeneration if is_classic else StaleMemberEpoch
            raise kind(
                f"member {member_id!r} of group {group_id!r} is in epoch {member.epoch}, not {epoch}: use the epoch of "
                "the answer to its last heartbeat"
            )

    # --- fetch ---

    def fetch(self, request: OffsetFetch) -> Decision[OffsetFetchAnswer]:
        """Raises UnknownMemberId or StaleMemberEpoch. A group that does not exist has no offsets."""
        if (request.member_id or request.member_epoch >= 0) and request.group_id in self._state.consumer:
            self._check_member(request.group_id, request.member_id, request.member_epoch)
        partitions: Sequence[NamedPartition]
        if request.partitions is None:
            known = sorted(self._state.offsets.of_group(request.group_id))
            partitions = [NamedPartition(topic, PartitionIndex(partition)) for topic, partition in known]
        else:
            partitions = request.partitions
        fetched = tuple(self._fetched(request, each) for each in partitions)
        return Decision(OffsetFetchAnswer(fetched))

    def _fetched(self, request: OffsetFetch, partition: NamedPartition) -> FetchedOffset:
        offsets = self._state.offsets
        name, index = partition.topic, partition.partition
        if request.require_stable and offsets.is_pending(OffsetCommitKey(request.group_id, name, index)):
            reason = f"an open transaction may change the offset of group {request.group_id!r} for {name}-{index}"
            return FetchedOffset(name, index, UnstableOffsetCommit(f"{reason}; ask again once it has ended"))
        value = offsets.get(request.group_id, name, index)
        if value is None:
            return FetchedOffset(name, index)
        topic_id = None if value.topic_id == NO_TOPIC_ID else TopicId(value.topic_id)
        if topic_id is not None and self._state.catalog.ids.get(name) != topic_id:
            return FetchedOffset(name, index)
        return FetchedOffset(name, index, None, value.offset, value.leader_epoch, value.metadata, topic_id)

    # --- delete ---

    def delete(self, request: OffsetDelete) -> Decision[CommittedPartitions]:
        """Raises GroupIdNotFound or, for a classic group with members that are no consumers, NonEmptyGroup."""
        if not self._state.exists(request.group_id):
            raise group_not_found(request.group_id)
        subscribed = self._subscribed_topics(request.group_id)
        outcomes: list[CommittedPartition] = []
        records: list[GroupRecord] = []
        for each in request.partitions:
            error: TidelogError | None = None
            key = OffsetCommitKey(request.group_id, each.topic, each.partition)
            if subscribed is None or each.topic in subscribed:
                error = GroupSubscribedToTopic(
                    f"members of group {request.group_id!r} subscribe to {each.topic!r}: stop them first"
                )
            elif self._state.offsets.is_known(key):
                records.append(CoordinatorRecord(key, None))
            else:
                error = _missing(each, self._state.catalog.get(each.topic))
            outcomes.append(CommittedPartition(each.topic, each.partition, error))
        return Decision(CommittedPartitions(tuple(outcomes)), tuple(records))

    def _subscribed_topics(self, group_id: str) -> Container[str] | None:
        """The topics that members of the group subscribe to. None: only the members know them, so that each topic may
        be one. Raises NonEmptyGroup."""
        group = self._state.consumer.get(group_id)
        if group is not None:
            return group.topics
        classic = self._state.classic.get(group_id)
        if classic is None or not classic.members:
            return ()
        if classic.protocol_type != CONSUMER_PROTOCOL:
            raise NonEmptyGroup(f"classic group {group_id!r} has {len(classic.members)} members: stop them first")
        return subscribed_topics(classic)


def _commit_error(commit: OffsetToCommit, topic: Topic | None, metadata_max: int) -> TidelogError | None:
    """Why an offset is refused; None if it is not."""
    metadata = commit.metadata
    if len(metadata) * 4 > metadata_max and len(metadata.encode()) > metadata_max:
        return OffsetMetadataTooLarge(
            f"the metadata of the offset for {commit.topic}-{commit.partition} has {len(metadata.encode())} bytes; "
            f"offset.metadata.max.bytes is {metadata_max}: shorten it"
        )
    missing = _missing(commit, topic)
    if missing is not None or topic is None:
        return missing
    if commit.topic_id is not None and commit.topic_id != topic.topic_id:
        return InconsistentTopicId(
            f"topic {commit.topic} was deleted and created again: the offset is for its former id {commit.topic_id}"
        )
    if commit.offset < 0:
        return InvalidRequest(f"offset {commit.offset} of partition {commit.topic}-{commit.partition} is negative")
    return None


def _missing(partition: OffsetToCommit | NamedPartition, topic: Topic | None) -> TidelogError | None:
    """The error of a partition that does not exist; None if it does. topic: that of its name."""
    if topic is not None and 0 <= partition.partition < topic.partitions:
        return None
    return UnknownTopicOrPartition(
        f"partition {partition.topic[:TOPIC_NAME_LENGTH_MAX]!r}-{partition.partition} does not exist, as far as this "
        "node knows: create it, or correct its name"
    )


def _check_classic(group: ClassicGroup, request: OffsetCommit | TxnOffsetCommit) -> None:
    """Raises UnknownMemberId, FencedInstanceId, IllegalGeneration or RebalanceInProgress."""
    is_transactional = isinstance(request, TxnOffsetCommit)
    if _names_nobody(request):
        return
    if request.member_epoch < 0 and not request.member_id and request.instance_id is None:
        raise UnknownMemberId(_not_a_member(group.group_id, ""))
    if request.member_id not in group.members and request.instance_id is None:
        raise UnknownMemberId(_not_a_member(group.group_id, request.member_id))
    group.checked(request.member_id, request.instance_id)
    if request.member_epoch != group.generation:
        raise IllegalGeneration(
            f"group {group.group_id!r} is in generation {group.generation}, not {request.member_epoch}: join the group "
            "again"
        )
    if group.state is ClassicState.COMPLETING_REBALANCE and not is_transactional:
        raise RebalanceInProgress(
            f"member {request.member_id!r} of group {group.group_id!r} has no assignment of generation "
            f"{group.generation} yet: ask for it first"
        )


def _names_nobody(request: OffsetCommit | TxnOffsetCommit) -> bool:
    """Whether a commit in a transaction names no member: clients before KIP-447, and programs that give the id of the
    group alone, do not. Their producer is fenced by its epoch, whichever protocol the members speak (KAFKA-18060)."""
    named = request.member_epoch >= 0 or request.member_id or request.instance_id is not None
    return isinstance(request, TxnOffsetCommit) and not named


def _not_a_member(group_id: str, member_id: str) -> str:
    if not member_id:
        return (
            f"group {group_id!r} has members, and only they commit: subscribe to its topics to become one, use another "
            "group, or stop its members first"
        )
    return f"{member_id!r} is no member of group {group_id!r}; join the group again, or stop its members first"
