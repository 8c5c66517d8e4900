"""A group coordinator in memory, for tests of the client: KIP-848's epochs and steps, without storage or timers.

Partitions are dealt out in turn to the members, by member id. A member that is to give partitions up stays in its epoch
until it has; a partition that another member still has is not handed out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from node.requests.context import RequestContext
from tidelog.errors import (
    ConnectionFailed,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    NotCoordinator,
    StaleMemberEpoch,
    TidelogError,
    UnknownMemberId,
    UnreadableCoordinatorRecord,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import groups_pb2 as pb

if TYPE_CHECKING:
    from tests.client.memory_cluster import MemoryCluster, MemoryNode

Key = tuple[bytes, int]


@dataclass
class Member:
    """What the coordinator knows of a member. has: what it reported and was given, together."""

    member_id: str
    instance_id: str | None = None
    rack: str = ""
    names: tuple[str, ...] = ()
    pattern: str = ""
    epoch: int = 0
    has: set[Key] = field(default_factory=set)
    given: set[Key] = field(default_factory=set)
    stream: Any = None
    is_away: bool = False
    client_id: str = ""
    superseded: set[int] = field(default_factory=set)
    """Epochs that pushes ended since the last heartbeat in the member's own epoch."""


@dataclass
class Group:
    """A group: its members, its epoch, its offsets by topic and partition."""

    epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    offsets: dict[tuple[str, int], pb.OffsetToCommit] = field(default_factory=dict)


class MemoryGroups:
    """All groups of a cluster in memory. `node` is the coordinator of all; `refuse` may return an error to answer."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.node = 0
        self.groups: dict[str, Group] = {}
        self.is_damaged = False
        """There is a second coordinator, which cannot read its partition."""
        self.refuse: Callable[[Any], TidelogError | None] = lambda request: None
        self.heartbeats: list[pb.ConsumerGroupHeartbeatRequest] = []
        self.commits: list[pb.OffsetCommitRequest] = []
        self.finds = 0
        self.interval_ms = 50

    # --- members ------------------------------------------------------------------------------------------------

    def target(self, group: Group) -> dict[str, set[Key]]:
        """Deal out all partitions of the subscribed topics, in turn."""
        wanted: dict[str, set[Key]] = {member: set() for member in sorted(group.members)}
        for name, topic in sorted(self.cluster.topics.items()):
            readers = [
                member
                for member in wanted
                if name in group.members[member].names
                or (group.members[member].pattern and re.fullmatch(group.members[member].pattern, name))
            ]
            for index in range(len(topic.partitions) if readers else 0):
                wanted[readers[index % len(readers)]].add((topic.topic_id.bytes, index))
        return wanted

    async def changed(self, group_id: str) -> None:
        """Members, subscriptions or topics changed: push assignments to all members that are to know."""
        group = self.groups[group_id]
        group.epoch += 1
        await self._push(group)

    async def fence(self, group_id: str, member_id: str) -> None:
        """Remove a member, as its session timeout does."""
        group = self.groups[group_id]
        del group.members[member_id]
        await self.changed(group_id)

    async def _push(self, group: Group, besides: str = "") -> None:
        for member in list(group.members.values()):
            if member.member_id != besides and member.stream is not None:
                epoch = member.epoch
                answer = self._step(group, member)
                if answer is not None:
                    if epoch != member.epoch:
                        member.superseded.add(epoch)
                    with suppress(ConnectionFailed):
                        await member.stream.send(answer)

    def _step(self, group: Group, member: Member) -> pb.ConsumerGroupHeartbeatResponse | None:
        """Move a member towards its target; return the news for it."""
        target = self.target(group)[member.member_id]
        taken = {key for other in group.members.values() if other is not member for key in other.has | other.given}
        keeps = (member.has | member.given) & target
        new_given = keeps if member.has - target else keeps | (target - taken)
        epoch = member.epoch if member.has - target else group.epoch
        if (new_given, epoch) == (member.given, member.epoch):
            return None
        member.given, member.epoch = new_given, epoch
        return self._answer(member, whole=True)

    def _answer(self, member: Member, *, whole: bool) -> pb.ConsumerGroupHeartbeatResponse:
        answer = pb.ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=member.epoch, heartbeat_interval_ms=self.interval_ms
        )
        if whole:
            topics: dict[bytes, list[int]] = {}
            for topic_id, index in sorted(member.given):
                topics.setdefault(topic_id, []).append(index)
            listed = [pb.TopicPartitionList(topic_id=key, partitions=parts) for key, parts in topics.items()]
            answer.assignment.CopyFrom(pb.AssignedPartitions(topics=listed))
        return answer

    async def heartbeat(self, request: pb.ConsumerGroupHeartbeatRequest, stream: Any, context: RequestContext) -> None:
        """Answer one heartbeat on its stream, and tell the others."""
        self.heartbeats.append(request)
        group = self.groups.setdefault(request.group_id, Group())
        error = self.refuse(request)
        member = group.members.get(request.member_id)
        if error is None and request.member_epoch == 0:
            member, error = self._join(group, request)
        elif error is None and member is None:
            error = UnknownMemberId(f"no member {request.member_id}")
        elif error is None and member is not None and request.member_epoch == member.epoch:
            member.superseded.clear()
        # A heartbeat may cross a push. If its epoch were refused, a member would be fenced now and then.
        elif error is None and member is not None and 0 < request.member_epoch not in member.superseded:
            error = FencedMemberEpoch(f"epoch {request.member_epoch}, not {member.epoch}")
        if error is not None or member is None:
            await stream.send(
                pb.ConsumerGroupHeartbeatResponse(error=to_proto(error or UnknownMemberId("?")), member_epoch=-1)
            )
            return
        if request.member_epoch < 0:
            await self._leave(request, stream)
            return
        member.stream, member.client_id = stream, context.client_id
        if request.HasField("topic_partitions"):
            member.has = {
                (topic.topic_id, index) for topic in request.topic_partitions.topics for index in topic.partitions
            }
        is_full = request.HasField("subscribed_topic_names")
        subscription = tuple(request.subscribed_topic_names.names), request.subscribed_topic_regex
        if is_full and subscription != (member.names, member.pattern):
            member.names, member.pattern = subscription
            group.epoch += 1
        await stream.send(self._step(group, member) or self._answer(member, whole=is_full))
        await self._push(group, besides=member.member_id)

    def _join(
        self, group: Group, request: pb.ConsumerGroupHeartbeatRequest
    ) -> tuple[Member | None, TidelogError | None]:
        instance = request.instance_id or None
        earlier = next((each for each in group.members.values() if instance and each.instance_id == instance), None)
        if earlier is not None and earlier.member_id != request.member_id and not earlier.is_away:
            return None, UnreleasedInstanceId(f"instance {instance} is in use")
        if earlier is not None:
            del group.members[earlier.member_id]
        member = Member(
            request.member_id,
            instance,
            request.rack_id,
            tuple(request.subscribed_topic_names.names),
            request.subscribed_topic_regex,
        )
        group.members[member.member_id] = member
        if earlier is None:
            group.epoch += 1
        else:
            member.given = earlier.given
        return member, None

    async def _leave(self, request: pb.ConsumerGroupHeartbeatRequest, stream: Any) -> None:
        """Answer last: the member closes its stream then, which ends the handler."""
        group = self.groups[request.group_id]
        member = group.members[request.member_id]
        if request.member_epoch == -2:
            member.is_away, member.stream, member.has = True, None, set()
        else:
            del group.members[member.member_id]
            await self.changed(request.group_id)
        await stream.send(
            pb.ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        )

    # --- offsets ------------------------------------------------------------------------------------------------

    def committer_error(self, request: Any) -> TidelogError | None:
        """Return why the sender of a request may not commit; None if it may."""
        error = self.refuse(request)
        group = self.groups.setdefault(request.group_id, Group())
        if error is not None or (not request.member_id and not group.members):
            return error
        member = group.members.get(request.member_id)
        if member is None:
            return UnknownMemberId(f"no member {request.member_id!r}")
        return None if member.epoch == request.member_epoch else StaleMemberEpoch(f"not {member.epoch}")

    def commit(self, request: pb.OffsetCommitRequest) -> pb.OffsetCommitResponse:
        self.commits.append(request)
        error = self.committer_error(request)
        answer = pb.OffsetCommitResponse()
        for each in request.partitions:
            result = answer.partitions.add(topic=each.topic, partition=each.partition)
            if error is not None:
                result.error.CopyFrom(to_proto(error))
            else:
                self.groups[request.group_id].offsets[each.topic, each.partition] = each
        return answer

    def fetch(self, request: pb.OffsetFetchRequest) -> pb.OffsetFetchResponse:
        offsets = self.groups.setdefault(request.group_id, Group()).offsets
        error = self.committer_error(request) if request.member_id else self.refuse(request)
        wanted = [(each.topic, each.partition) for each in request.partitions.partitions]
        answer = pb.OffsetFetchResponse()
        for topic, index in wanted if request.HasField("partitions") else sorted(offsets):
            found = offsets.get((topic, index))
            result = answer.partitions.add(topic=topic, partition=index, offset=-1, leader_epoch=-1)
            if error is not None:
                result.error.CopyFrom(to_proto(error))
            elif found is not None:
                result.offset, result.leader_epoch, result.metadata = found.offset, found.leader_epoch, found.metadata
                if found.HasField("topic_id"):
                    result.topic_id = found.topic_id
        return answer


class MemoryGroupsService:
    """The services of one node."""

    def __init__(self, node: MemoryNode) -> None:
        self._node = node

    @property
    def _groups(self) -> MemoryGroups:
        return self._node.cluster.groups

    def _ensure_coordinator(self) -> None:
        if self._groups.node != self._node.node_id:
            raise NotCoordinator(f"node {self._node.node_id} is not the coordinator")

    async def find_coordinator(self, request: pb.FindCoordinatorRequest, context: RequestContext) -> Any:
        self._groups.finds += 1
        answer = pb.FindCoordinatorResponse()
        for key in request.keys:
            found = answer.coordinators.add(key=key)
            error = self._groups.refuse(request)
            at = self._node.cluster.nodes[self._groups.node].endpoint
            if error is not None:
                found.error.CopyFrom(to_proto(error))
            else:
                found.node.node_id, found.node.host, found.node.port = self._groups.node, at.host, at.port
        return answer

    async def consumer_group_heartbeat_stream(self, stream: Any, context: RequestContext) -> None:
        self._ensure_coordinator()
        while (request := await stream.receive()) is not None:
            self._ensure_coordinator()
            await self._groups.heartbeat(request, stream, context)

    async def consumer_group_heartbeat(self, request: Any, context: RequestContext) -> Any:
        raise UnsupportedVersion("members in memory have streams")

    async def txn_offset_commit(self, request: Any, context: RequestContext) -> Any:
        self._ensure_coordinator()
        return self._node.cluster.transactions.commit_offsets(request)

    async def offset_commit(self, request: pb.OffsetCommitRequest, context: RequestContext) -> Any:
        self._ensure_coordinator()
        return self._groups.commit(request)

    async def offset_fetch(self, request: pb.OffsetFetchRequest, context: RequestContext) -> Any:
        self._ensure_coordinator()
        return self._groups.fetch(request)

    async def offset_delete(self, request: pb.OffsetDeleteRequest, context: RequestContext) -> Any:
        self._ensure_coordinator()
        group, answer = self._groups.groups.get(request.group_id), pb.OffsetDeleteResponse()
        if group is None:
            raise GroupIdNotFound(f"there is no group {request.group_id!r}")
        for each in request.partitions:
            outcome = answer.partitions.add(topic=each.topic, partition=each.partition)
            if any(each.topic in member.names for member in group.members.values()):
                refusal = GroupSubscribedToTopic(f"members subscribe to {each.topic!r}: stop them first")
                outcome.error.CopyFrom(to_proto(refusal))
            else:
                group.offsets.pop((each.topic, each.partition), None)
        return answer

    async def list_groups(self, request: pb.ListGroupsRequest, context: RequestContext) -> Any:
        is_here = self._groups.node == self._node.node_id
        groups = self._groups.groups if is_here else {}
        coordinators = [pb.ListedCoordinator()] if is_here else []
        if self._groups.is_damaged and is_here:
            unreadable = to_proto(UnreadableCoordinatorRecord("the record at offset 3 is malformed"))
            coordinators.append(pb.ListedCoordinator(partition=1, error=unreadable))
        return pb.ListGroupsResponse(
            groups=[
                pb.ListedGroup(
                    group_id=name,
                    type="consumer",
                    state=_state(group),
                    members=len(group.members),
                    protocol_type="consumer",
                )
                for name, group in sorted(groups.items())
                if not request.states or _state(group) in request.states
            ],
            coordinators=coordinators,
            partition_count=1 + self._groups.is_damaged,
        )

    async def describe_groups(self, request: pb.DescribeGroupsRequest, context: RequestContext) -> Any:
        answer = pb.DescribeGroupsResponse()
        for name in request.group_ids:
            described = answer.groups.add(group_id=name)
            group = self._groups.groups.get(name)
            if self._groups.node != self._node.node_id:
                described.error.CopyFrom(to_proto(NotCoordinator("elsewhere")))
            elif group is None:
                described.error.CopyFrom(to_proto(GroupIdNotFound(f"there is no group {name!r}")))
            else:
                described.type, described.state, described.assignor = "consumer", _state(group), "uniform"
                described.group_epoch = described.assignment_epoch = group.epoch
                for member in group.members.values():
                    topics: dict[bytes, list[int]] = {}
                    for topic_id, index in sorted(member.given):
                        topics.setdefault(topic_id, []).append(index)
                    listed = [pb.TopicPartitionList(topic_id=key, partitions=parts) for key, parts in topics.items()]
                    described.members.add(
                        member_id=member.member_id,
                        client_id=member.client_id,
                        client_host="127.0.0.1",
                        instance_id=member.instance_id,
                        member_epoch=member.epoch,
                        subscribed_topic_names=member.names,
                        assignment=listed,
                        target=listed,
                    )
        return answer

    async def delete_groups(self, request: pb.DeleteGroupsRequest, context: RequestContext) -> Any:
        self._ensure_coordinator()
        answer = pb.DeleteGroupsResponse()
        for name in request.group_ids:
            deleted = answer.groups.add(group_id=name)
            group = self._groups.groups.get(name)
            if group is None:
                deleted.error.CopyFrom(to_proto(GroupIdNotFound(f"there is no group {name!r}")))
            elif group.members:
                deleted.error.CopyFrom(to_proto(NonEmptyGroup(f"group {name!r} has members: stop them first")))
            else:
                del self._groups.groups[name]
        return answer


def _state(group: Group) -> str:
    return "Stable" if group.members else "Empty"


def is_settled(groups: MemoryGroups, group_id: str, members: int) -> bool:
    """Whether the group has this number of members, and each has its partitions."""
    group = groups.groups.get(group_id)
    if group is None or len(group.members) != members:
        return False
    target = groups.target(group)
    return all(member.has == target[name] for name, member in group.members.items())
