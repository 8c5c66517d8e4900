"""Admin calls about consumer groups: list, describe, delete; committed offsets and lag.

Requests about a group go to its coordinator, for at most `patience_ms`. A change whose answer is lost is sent again:
the same change twice leaves the same state, although a second deletion finds no group.
Not here: members (group_member.py), the commands (cli/group_commands.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidelog.client.admin_calls import AdminCalls
from tidelog.client.cluster import QUERY_TIMEOUT_MS
from tidelog.client.coordinator_listing import OnMissing
from tidelog.client.coordinators import CoordinatorKind
from tidelog.client.group_metadata import CommittedOffset, GroupMetadata
from tidelog.client.group_offsets import GroupOffsets, OffsetCommitted
from tidelog.client.offset_lookup import list_positions
from tidelog.client.options import offsets_to_commit, text, topic_partitions
from tidelog.cluster_descriptions import GroupListing
from tidelog.errors import CommitFailed, NonEmptyGroup, TidelogError, UnknownTopicOrPartition
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message, write_message
from tidelog.protocol.rpc import Method
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import groups_pb2
from tidelog.types import (
    EARLIEST,
    LATEST,
    OFFSETS_TOPIC,
    ByPartition,
    Endpoint,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

_GROUP = CoordinatorKind.GROUP


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    rack: str
    client_id: str
    client_host: str
    member_epoch: int
    """The group epoch that the member has reached."""
    topics: tuple[str, ...]
    topic_pattern: str
    assignment: tuple[TopicPartition, ...]
    """The partitions that the member has."""
    target: tuple[TopicPartition, ...]
    """The partitions that it has in the target assignment."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group."""

    group_id: str
    type: str
    state: str
    group_epoch: int
    """Raised by each change of members, subscriptions or topics."""
    assignment_epoch: int
    """The group epoch of the target assignment."""
    assignor: str
    """"uniform" or "range"."""
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of a group in a partition. The fields after `deleted` describe the member that has the partition; they
    are empty if there is none."""

    partition: TopicPartition
    committed: CommittedOffset | None
    """None if no offset is committed, or only one for a deleted topic of the same name."""
    start: Offset | None
    end: Offset | None
    """The first offset of the log, and one past the last committed record; None if the partition has no leader."""
    lag: int | None
    """Number of offsets that the group has still to read. None if that is unknown: no offset is committed (the options
    of a member decide where it begins), there is no leader, or the committed offset is beyond the end."""
    deleted: int | None
    """Number of offsets that were deleted, by retention for example, before the group read them. None as for `lag`."""
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""


class GroupAdmin(AdminCalls):
    """The part of Admin about groups."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), on_missing: OnMissing | None = None
    ) -> list[GroupListing]:
        """Return the groups of all coordinators, sorted by id. All groups that existed before the call are included.

        states, types: only those; empty: all. on_missing: called with an error for each partition of
        `__consumer_offsets` whose groups are missing; the others are returned. None: the call fails.
        Raises UnreadableCoordinatorRecord if the groups of a coordinator cannot be read; after `patience_ms` the error
        of a node that did not answer, or CoordinatorNotAvailable.
        """
        request = groups_pb2.ListGroupsRequest(
            states=[text("a state", state) for state in states], types=[text("a type", kind) for kind in types]
        )
        answers = await self._list_all(
            OFFSETS_TOPIC, methods.GROUPS_LIST_GROUPS, request, on_missing, self._patience_ms
        )
        listed = {
            group.group_id: read_message(GroupListing, group) for answer in answers.values() for group in answer.groups
        }
        return [listed[group_id] for group_id in sorted(listed)]

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | TidelogError]:
        """Return the description of each group, or why there is none: GroupIdNotFound, GroupAuthorizationFailed."""
        timeout_ms = min(self._timeout_ms, QUERY_TIMEOUT_MS)
        found: dict[str, groups_pb2.DescribedGroup | TidelogError] = await self._ask_each(
            group_ids, methods.GROUPS_DESCRIBE_GROUPS, groups_pb2.DescribeGroupsRequest, timeout_ms
        )
        names = await self._topic_names(
            topic.topic_id
            for group in found.values()
            if isinstance(group, groups_pb2.DescribedGroup)
            for member in group.members
            for topic in (*member.assignment, *member.target)
        )
        return {
            key: group if isinstance(group, TidelogError) else _described_group(group, names)
            for key, group in found.items()
        }

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, TidelogError | None]:
        """Delete groups without members, with their offsets. Returns None for each group that was deleted, or why it
        was not: NonEmptyGroup, GroupIdNotFound, GroupAuthorizationFailed."""
        found = await self._ask_each(
            group_ids, methods.GROUPS_DELETE_GROUPS, groups_pb2.DeleteGroupsRequest, self._timeout_ms
        )
        return {key: outcome if isinstance(outcome, TidelogError) else None for key, outcome in found.items()}

    async def _ask_each(
        self, group_ids: Iterable[str], method: Method[Any, Any], request: Callable[..., Any], timeout_ms: int
    ) -> dict[str, Any]:
        """Query the coordinators of groups; return the part of the answer for each group, or its error."""

        async def ask(node: Endpoint, theirs: list[str]) -> dict[str, Any]:
            answer = await self._cluster.transport.call(node, method, request(group_ids=theirs), timeout_ms=timeout_ms)
            return {key: error_of(each) or each for key, each in zip(theirs, answer.groups, strict=True)}

        return await self._coordinators.call_each(_GROUP, _ids(group_ids), ask, timeout_ms=self._patience_ms)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None
    ) -> ByPartition[CommittedOffset | None]:
        """Return the committed offsets of a group; None where there is none. partitions: None for all that have one.
        Offsets in an open transaction are not included. Raises GroupAuthorizationFailed."""
        keys = None if partitions is None else topic_partitions(partitions)
        identity = GroupMetadata(text("group_id", group_id))
        committed = await self._group_offsets.fetch(group_id, keys, lambda: identity, require_stable=False)
        return ByPartition({key: None if each is None else each.committed for key, each in sorted(committed.items())})

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition | tuple[str, int], int | CommittedOffset]
    ) -> None:
        """Set committed offsets of a group without members. Creates the group if there is none.

        Raises NonEmptyGroup while the group has members, OffsetMetadataTooLarge, UnknownTopicOrPartition,
        GroupAuthorizationFailed, TopicAuthorizationFailed; then other partitions may have been changed.
        """
        identity = GroupMetadata(text("group_id", group_id))
        to_commit = {key: OffsetCommitted(offset) for key, offset in offsets_to_commit(offsets).items()}
        try:
            await self._group_offsets.commit(group_id, to_commit, lambda: identity)
        except CommitFailed as error:
            raise NonEmptyGroup(
                f"group {group_id!r} has members, which commit their own offsets: stop them, then change its offsets"
            ) from error

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, TidelogError | None]:
        """Delete committed offsets of partitions to which no member subscribes. Returns None for each that was deleted,
        or why it was not: GroupSubscribedToTopic. Raises GroupIdNotFound, GroupAuthorizationFailed."""
        keys = topic_partitions(partitions)
        request = groups_pb2.OffsetDeleteRequest(
            group_id=text("group_id", group_id),
            partitions=[write_message(groups_pb2.NamedPartition, key) for key in keys],
        )
        answer = await self._coordinators.call(
            _GROUP,
            group_id,
            methods.GROUPS_OFFSET_DELETE,
            request,
            timeout_ms=self._patience_ms,
        )
        return {key: error_of(each) for key, each in zip(keys, answer.partitions, strict=True)}

    async def group_lag(self, group_id: str) -> list[PartitionLag]:
        """Return the lag of a group in each partition that a member has or that has a committed offset, sorted.

        A group that only commits offsets has no members. Raises GroupIdNotFound, GroupAuthorizationFailed.
        """
        group = (await self.describe_groups([group_id]))[group_id]
        if isinstance(group, TidelogError):
            raise group
        owners = {key: member for member in group.members for key in member.assignment}
        identity = GroupMetadata(group.group_id)
        committed = await self._group_offsets.fetch(group_id, None, lambda: identity, require_stable=False)
        keys = sorted({*owners, *(key for key, each in committed.items() if each is not None)})
        logs = await self._logs(keys)
        return [_lag(key, committed.get(key), logs.get(key), owners.get(key)) for key in keys]

    async def _logs(self, keys: list[TopicPartition]) -> dict[TopicPartition, _LogEnds]:
        """The ends of the logs of those partitions that have a leader: a query of another one would fail for all."""
        view = await self._metadata(topics=sorted({key.topic for key in keys}))
        topic_ids = {
            TopicPartition(topic.name, PartitionIndex(partition.partition)): TopicId(UUID(bytes=topic.topic_id))
            for topic in view.topics
            for partition in topic.partitions
            if partition.leader >= 0
        }
        led = [key for key in keys if key in topic_ids]
        try:
            starts, ends = [
                await list_positions(self._cluster, dict.fromkeys(led, place), timeout_ms=self._patience_ms)
                for place in (EARLIEST, LATEST)
            ]
        except UnknownTopicOrPartition:  # deleted meanwhile
            return {}
        return {key: _LogEnds(topic_ids[key], starts[key].end_offset, ends[key].end_offset) for key in led}

    async def _topic_names(self, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
        wanted = sorted(set(topic_ids))
        if not wanted:
            return {}
        answer = await self._metadata(topic_ids=wanted)
        return {topic.topic_id: topic.name for topic in answer.topics if not topic.HasField("error")}

    @property
    def _group_offsets(self) -> GroupOffsets:
        return GroupOffsets(self._coordinators, self._patience_ms)


@dataclass(frozen=True, slots=True)
class _LogEnds:
    topic_id: TopicId
    start: Offset
    end: Offset


def _lag(
    key: TopicPartition, committed: OffsetCommitted | None, log: _LogEnds | None, owner: MemberDescription | None
) -> PartitionLag:
    if committed is not None and log is not None and committed.topic_id not in (None, log.topic_id):
        committed = None  # it is for a deleted topic of the same name: no member begins there
    lag = deleted = None
    if committed is not None and log is not None and committed.committed.offset <= log.end:
        offset = committed.committed.offset
        lag, deleted = log.end - max(offset, log.start), max(0, log.start - offset)
    return PartitionLag(
        key,
        None if committed is None else committed.committed,
        None if log is None else log.start,
        None if log is None else log.end,
        lag,
        deleted,
        *(() if owner is None else (owner.member_id, owner.instance_id, owner.client_id, owner.client_host)),
    )


def _ids(group_ids: Iterable[str]) -> list[str]:
    if isinstance(group_ids, str):
        raise TypeError(f"group_ids must be a list of ids, not a str: {group_ids!r}")
    return [text("a group id", group_id) for group_id in group_ids]


def _described_group(group: groups_pb2.DescribedGroup, names: Mapping[bytes, str]) -> GroupDescription:
    members = tuple(
        read_message(
            MemberDescription,
            member,
            rack=member.rack_id,
            topics=tuple(member.subscribed_topic_names),
            topic_pattern=member.subscribed_topic_regex,
            assignment=_named(member.assignment, names),
            target=_named(member.target, names),
        )
        for member in group.members
    )
    return read_message(GroupDescription, group, members=members)


def _named(topics: Iterable[groups_pb2.TopicPartitionList], names: Mapping[bytes, str]) -> tuple[TopicPartition, ...]:
    """Partitions by name; those of a deleted topic by its id."""
    return tuple(
        sorted(
            TopicPartition(
                names.get(topic.topic_id, str(TopicId(UUID(bytes=topic.topic_id)))), PartitionIndex(partition)
            )
            for topic in topics
            for partition in topic.partitions
        )
    )
