"""Handlers of the Groups service: requests to the group coordinators of this node.

A request about several groups is divided by the partitions of their coordinators. Entries that are refused before a
coordinator decides (a topic that does not exist, or that the caller may not use) get their errors in the answer.

Not here: the coordinators (node/coordinators/, replication/coordination/groups/), their lookup
(coordinator_handlers.py), checks of fields (group_checks.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from node.api.api import Api
from node.api.peers import ValueStream
from node.api.table import (
    GROUPS_DELETE_GROUPS,
    GROUPS_DESCRIBE_CLASSIC_GROUPS,
    GROUPS_DESCRIBE_CONSUMER_GROUPS,
    GROUPS_DESCRIBE_GROUPS,
    GROUPS_FETCH_OFFSETS_OF_GROUPS,
    GROUPS_OFFSET_COMMIT,
    GROUPS_OFFSET_DELETE,
    GROUPS_OFFSET_FETCH,
    GROUPS_TXN_OFFSET_COMMIT,
)
from node.coordinators.internal_topics import InternalTopics
from node.coordinators.member_streams import MemberStream, MemberStreams
from node.coordinators.node_listing import COORDINATOR_ERRORS, all_of, list_coordinators
from node.coordinators.runtime import CoordinatorRuntime
from node.coordinators.transactions.transaction_verifier import TransactionOf, TransactionVerifier
from node.coordinators.waiting_members import WaitingMembers
from node.requests.context import RequestContext
from node.requests.group_checks import (
    ensure_committer,
    ensure_distinct,
    ensure_group_id,
    ensure_heartbeat,
    ensure_join,
    ensure_leaving,
    ensure_member,
    ensure_producer,
    ensure_short,
    ensure_transaction_version,
    member_id_of,
)
from node.requests.permitted import described, refused_topics
from node.runtime.duplex import run_duplex
from node.runtime.limits import DESCRIBED_MAX, ensure_few
from replication.controller.image import ClusterImage
from replication.coordination import classic_requests as classic
from replication.coordination.group_records import TopicPartitions
from replication.coordination.group_requests import (
    CONSUMER,
    CommittedPartition,
    CommittedPartitions,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DeletedGroup,
    DeleteGroups,
    DeleteGroupsAnswer,
    DescribeConsumerGroups,
    DescribeConsumerGroupsAnswer,
    DescribedGroup,
    DescribedMember,
    DescribeGroups,
    DescribeGroupsAnswer,
    FetchedOffset,
    FetchOffsetsOfGroups,
    FetchOffsetsOfGroupsAnswer,
    ListGroups,
    ListGroupsAnswer,
    MemberHeartbeat,
    MemberNudged,
    NamedPartition,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetsOfGroup,
    OffsetToCommit,
    TxnOffsetCommit,
)
from storage.producers.verification import UNVERIFIED, VERSION_2, TransactionCheck
from tidelog.clock import Clock
from tidelog.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InvalidRequest,
    NotCoordinator,
    TidelogError,
    TopicAuthorizationFailed,
)
from tidelog.security.acls import CLUSTER_NAME, AclOperation, ResourceType, shown
from tidelog.types import JOIN_EPOCH, OFFSETS_TOPIC, Millis, PartitionIndex, TopicId

Result = TypeVar("Result")

CLIENT_NAME_MAX: Final = 255
"""Characters of the client's name that are kept for a member."""

DESCRIBED_AT_ONCE: Final = 100
"""Groups that a coordinator describes in one turn of the loop."""

DELETED_AT_ONCE: Final = 1
"""Groups that a coordinator deletes with one decision: their tombstones must fit into one batch."""

VERIFY_MS: Final = 5_000
"""How long a transactional commit waits until its partition is part of the transaction."""

DISCONNECTED_MS: Final = 30_000
"""A node without a lease for so long is taken for disconnected, and replaced, which takes a session (2 s) and an
election. Half of the time that Java gives a call (`default.api.timeout.ms`): the rest is left for the other node."""


class GroupHandlers:
    """One method for each API of the Groups service."""

    def __init__(
        self,
        runtime: CoordinatorRuntime,
        topics: InternalTopics,
        streams: MemberStreams,
        waiting: WaitingMembers,
        verifier: TransactionVerifier | None,
        no_lease_ms: Callable[[], int],
        *,
        image: Callable[[], ClusterImage],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """verifier: None if transactional commits are not verified. no_lease_ms: returns for how long this node has had
        no lease. image: returns its newest image. rng: for the ids of members."""
        self._runtime, self._topics, self._streams, self._verifier = runtime, topics, streams, verifier
        self._waiting, self._image, self._clock, self._rng = waiting, image, clock, rng
        self._no_lease_ms = no_lease_ms

    def _partition_of(self, group_id: str) -> PartitionIndex:
        return self._topics.partition_of(OFFSETS_TOPIC, group_id)

    async def _ask(
        self, group_id: str, request: Any, context: RequestContext, check: TransactionCheck = UNVERIFIED
    ) -> Any:
        """The answer of the group's coordinator. NotCoordinator names the node of the coordinator, if it is known."""
        partition = self._partition_of(group_id)
        try:
            return await self._runtime.submit(partition, request, check)
        except NotCoordinator as error:
            raise self._runtime.with_leader(error, partition, context.listener) from None

    # --- members ---

    async def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat, context: RequestContext
    ) -> ConsumerGroupHeartbeatAnswer:
        """Decide on the heartbeat of a member. A new one without an id gets one (KIP-848 before KIP-1082)."""
        if not request.member_id and request.member_epoch == JOIN_EPOCH:
            request = replace(request, member_id=str(self._new_uuid()))
        ensure_heartbeat(request)
        view = context.authorizer.topic_view(context)
        heartbeat = MemberHeartbeat(request, context.client_id[:CLIENT_NAME_MAX], context.host, view)
        answer: ConsumerGroupHeartbeatAnswer = await self._ask(request.group_id, heartbeat, context)
        return answer

    async def consumer_group_heartbeat_stream(
        self, stream: ValueStream[ConsumerGroupHeartbeatAnswer, ConsumerGroupHeartbeat], context: RequestContext
    ) -> None:
        """Answer the heartbeats of one member, and send it a new assignment at once."""
        first = await stream.receive()
        if first is None:
            return
        ensure_heartbeat(first)
        partition = self._partition_of(first.group_id)
        member = self._streams.open(partition, first.group_id, first.member_id)
        try:
            await run_duplex(
                self._answer_heartbeats(stream, first, member, context), self._answer_nudges(stream, member, context)
            )
        except NotCoordinator as error:
            raise self._runtime.with_leader(error, partition, context.listener) from None
        finally:
            self._streams.close(member)

    async def _answer_heartbeats(
        self,
        stream: ValueStream[ConsumerGroupHeartbeatAnswer, ConsumerGroupHeartbeat],
        first: ConsumerGroupHeartbeat,
        member: MemberStream,
        context: RequestContext,
    ) -> None:
        request: ConsumerGroupHeartbeat | None = first
        while request is not None:
            if (request.group_id, request.member_id) != (member.group_id, member.member_id):
                raise InvalidRequest(
                    f"this stream serves member {member.member_id!r} of group {member.group_id!r}: open another one "
                    f"for member {request.member_id!r} of group {request.group_id!r}"
                )
            with context.begin():
                view = context.authorizer.topic_view(context)
                heartbeat = MemberHeartbeat(request, context.client_id[:CLIENT_NAME_MAX], context.host, view)
                await self._answer(stream, heartbeat, member, request.member_epoch, context)
            request = await stream.receive()
            if request is not None:
                ensure_heartbeat(request)

    async def _answer_nudges(
        self,
        stream: ValueStream[ConsumerGroupHeartbeatAnswer, ConsumerGroupHeartbeat],
        member: MemberStream,
        context: RequestContext,
    ) -> None:
        while True:
            await member.wait_nudged()
            await self._answer(stream, MemberNudged(member.group_id, member.member_id), member, -1, context)

    async def _answer(
        self,
        stream: ValueStream[ConsumerGroupHeartbeatAnswer, ConsumerGroupHeartbeat],
        request: MemberHeartbeat | MemberNudged,
        member: MemberStream,
        member_epoch: int,
        context: RequestContext,
    ) -> None:
        """Ask the coordinator, and send the answer, if there is one."""
        async with member.turn:
            try:
                answer = await self._runtime.submit(member.partition, request)
            except COORDINATOR_ERRORS:
                raise  # they end the stream: the member looks the coordinator up again
            except TidelogError as error:
                context.meter.count_error(error)
                answer = ConsumerGroupHeartbeatAnswer(error, member.member_id, member_epoch, 0)
            if answer is not None:
                await stream.send(answer)

    # --- members of classic groups ---

    async def join_group(self, request: classic.JoinGroup, context: RequestContext) -> classic.JoinGroupAnswer:
        """Let a member join; answer once its generation begins."""
        ensure_join(request)
        client_id = context.client_id[:CLIENT_NAME_MAX]
        new_id = member_id_of(request.instance_id or client_id, self._new_uuid())
        answer: classic.JoinGroupAnswer = await self._ask_and_wait(
            request.group_id,
            lambda ticket: classic.MemberJoin(request, ticket, client_id, context.host, new_id),
            context,
        )
        return answer

    def _new_uuid(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128), version=4)

    async def sync_group(self, request: classic.SyncGroup, context: RequestContext) -> classic.SyncGroupAnswer:
        """The assignment of a member; answer once the leader of the group has sent it."""
        ensure_member(request.group_id, request.member_id, request.instance_id)
        ensure_few(request.assignments, "assignments")
        answer: classic.SyncGroupAnswer = await self._ask_and_wait(
            request.group_id, lambda ticket: classic.MemberSync(request, ticket), context
        )
        return answer

    async def _ask_and_wait(self, group_id: str, request: Callable[[int], Any], context: RequestContext) -> Any:
        """As `_ask`, for a request that may be answered later. request: made for the ticket that it gets."""
        partition = self._partition_of(group_id)
        with self._waiting.opened(partition) as waiting:
            try:
                answer = await self._runtime.submit(partition, request(waiting.ticket))
                return await waiting.answer if isinstance(answer, classic.AnsweredLater) else answer
            except NotCoordinator as error:
                raise self._runtime.with_leader(error, partition, context.listener) from None

    async def heartbeat(
        self, request: classic.ClassicHeartbeat, context: RequestContext
    ) -> classic.ClassicHeartbeatAnswer:
        """Extend the session of a member."""
        ensure_member(request.group_id, request.member_id, request.instance_id)
        answer: classic.ClassicHeartbeatAnswer = await self._ask(request.group_id, request, context)
        return answer

    async def leave_group(self, request: classic.LeaveGroup, context: RequestContext) -> classic.LeaveGroupAnswer:
        """Let members leave."""
        ensure_leaving(request)
        answer: classic.LeaveGroupAnswer = await self._ask(request.group_id, request, context)
        return answer

    # --- offsets ---

    async def offset_commit(self, request: OffsetCommit, context: RequestContext) -> CommittedPartitions:
        """Commit offsets of partitions that exist, and that the caller may read."""
        ensure_committer(request.group_id, request.member_id, request.member_epoch, request.instance_id)
        ensure_few(request.partitions, "partitions")
        ensure_distinct(request.partitions)
        refused = refused_topics(context, GROUPS_OFFSET_COMMIT, request.partitions)
        return CommittedPartitions(await self._ask_about_rest(request, refused, _not_done, context))

    async def txn_offset_commit(self, request: TxnOffsetCommit, context: RequestContext) -> CommittedPartitions:
        """Commit offsets in a transaction, of which the group's partition must be part (KIP-447, KIP-890)."""
        ensure_producer(request.transactional_id, request.producer_id, request.producer_epoch)
        ensure_transaction_version(request.transaction_version)
        ensure_committer(request.group_id, request.member_id, request.member_epoch, request.instance_id)
        ensure_few(request.partitions, "partitions")
        ensure_distinct(request.partitions)
        refused = refused_topics(context, GROUPS_TXN_OFFSET_COMMIT, request.partitions)
        check = await self._verified(request)
        return CommittedPartitions(await self._ask_about_rest(request, refused, _not_done, context, check))

    async def _verified(self, request: TxnOffsetCommit) -> TransactionCheck:
        """The check with which the offsets may be appended: the transaction coordinator has confirmed, or with version
        2 added, the partition of the group. Raises its refusal, and as `CoordinatorRuntime.coordinator`."""
        partition = self._partition_of(request.group_id)
        producers = self._runtime.coordinator(partition).log.producers.state
        if self._verifier is None:
            return TransactionCheck(request.transaction_version)
        guard = await self._verifier.verify(
            TransactionOf(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.transaction_version < VERSION_2,
            ),
            NamedPartition(OFFSETS_TOPIC, partition),
            lambda: producers.begin_verification(request.producer_id, request.producer_epoch),
            Millis(self._clock.monotonic_ms() + VERIFY_MS),
        )
        return TransactionCheck(request.transaction_version, guard)

    async def offset_fetch(self, request: OffsetFetch, context: RequestContext) -> OffsetFetchAnswer:
        """Committed offsets of partitions that the caller may describe."""
        ensure_committer(request.group_id, request.member_id, request.member_epoch, None)
        try:
            if request.partitions is None:
                answer: OffsetFetchAnswer = await self._ask(request.group_id, request, context)
                return OffsetFetchAnswer(described(context, answer.partitions))
            ensure_few(request.partitions, "partitions")
            refused = refused_topics(context, GROUPS_OFFSET_FETCH, request.partitions)
            return OffsetFetchAnswer(await self._ask_about_rest(request, refused, _not_fetched, context))
        except CoordinatorNotAvailable as error:
            if self._no_lease_ms() < DISCONNECTED_MS:
                raise
            # Clients of Kafka's protocol ask this node again after CoordinatorNotAvailable (kafka_group_offsets.py):
            # one that sends no heartbeats would not find the coordinator that has replaced this one.
            raise NotCoordinator(error.message) from None

    async def fetch_offsets_of_groups(
        self, request: FetchOffsetsOfGroups, context: RequestContext
    ) -> FetchOffsetsOfGroupsAnswer:
        """Committed offsets of several groups. What refuses one of them is its error."""
        ensure_few(request.groups, "groups", DESCRIBED_MAX)

        async def ask_one(asked: OffsetFetch) -> OffsetsOfGroup:
            group_id = asked.group_id
            try:
                ensure_group_id(group_id)
                refusal = context.authorizer.resource_refusal(
                    context, GROUPS_FETCH_OFFSETS_OF_GROUPS, AclOperation.DESCRIBE, ResourceType.GROUP, group_id
                )
                if refusal is not None:
                    raise refusal
                return OffsetsOfGroup(group_id, None, (await self.offset_fetch(asked, context)).partitions)
            except TidelogError as error:
                return OffsetsOfGroup(group_id, error)

        return FetchOffsetsOfGroupsAnswer(tuple(await all_of(map(ask_one, request.groups))))

    async def offset_delete(self, request: OffsetDelete, context: RequestContext) -> CommittedPartitions:
        """Delete committed offsets of partitions that the caller may read."""
        ensure_group_id(request.group_id)
        ensure_few(request.partitions, "partitions")
        ensure_distinct(request.partitions)
        refused = refused_topics(context, GROUPS_OFFSET_DELETE, request.partitions)
        return CommittedPartitions(await self._ask_about_rest(request, refused, _not_done, context))

    async def _ask_about_rest(
        self,
        request: Any,
        refused: Mapping[str, TidelogError],
        refuse: Callable[[Any, TidelogError], Result],
        context: RequestContext,
        check: TransactionCheck = UNVERIFIED,
    ) -> tuple[Result, ...]:
        """The result of each partition of the request, in order: the coordinator's, or its refusal."""
        # The coordinator decides even if all partitions are refused: it may refuse the request as a whole.
        rest = tuple(entry for entry in request.partitions if entry.topic not in refused)
        answer = await self._ask(request.group_id, replace(request, partitions=rest), context, check)
        results = iter(answer.partitions)
        return tuple(
            refuse(entry, refused[entry.topic]) if entry.topic in refused else next(results)
            for entry in request.partitions
        )

    # --- groups ---

    async def list_groups(self, request: ListGroups, context: RequestContext) -> ListGroupsAnswer:
        """The groups that this node coordinates, all or those that the caller may describe, with the coordinators that
        are listed and those that are not."""
        ensure_few(request.states, "states")
        ensure_few(request.types, "types")
        for name in (*request.states, *request.types):
            ensure_short(name, "state or type")
        listing = await list_coordinators(self._runtime, request)
        groups = [group for answer in listing.answers for group in answer.groups]
        allows = context.authorizer.allows
        if not allows(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            described = AclOperation.DESCRIBE, ResourceType.GROUP
            groups = [each for each in groups if allows(context, *described, each.group_id)]
        groups.sort(key=lambda group: group.group_id)
        return ListGroupsAnswer(tuple(groups), listing.coordinators, listing.partition_count)

    async def describe_groups(self, request: DescribeGroups, context: RequestContext) -> DescribeGroupsAnswer:
        """The state of groups; an error in the place of those that have none here, or whose members subscribe to a
        topic that the caller may not describe (as Kafka)."""
        return DescribeGroupsAnswer(await self._described(request, GROUPS_DESCRIBE_GROUPS, context))

    async def describe_consumer_groups(
        self, request: DescribeConsumerGroups, context: RequestContext
    ) -> DescribeConsumerGroupsAnswer:
        """As `describe_groups`, without classic groups."""
        found = await self._described(DescribeGroups(request.group_ids), GROUPS_DESCRIBE_CONSUMER_GROUPS, context)
        groups = tuple(
            each if each.error is not None or each.type == CONSUMER else _no_consumer_group(each) for each in found
        )
        ids = {topic.topic_id for each in groups for member in each.members for topic in _topics_of(member)}
        topics = self._image().topics
        names = {topic_id: topics[TopicId(topic_id)].name for topic_id in ids if TopicId(topic_id) in topics}
        return DescribeConsumerGroupsAnswer(groups, names)

    async def _described(
        self, request: DescribeGroups, api: Api[Any, Any], context: RequestContext
    ) -> tuple[DescribedGroup, ...]:
        found = await self._of_each_group(
            request, api, AclOperation.DESCRIBE, DESCRIBED_AT_ONCE, DescribedGroup, context
        )
        image = self._image()
        return tuple(_visible(group, image, context) for group in found)

    async def describe_classic_groups(
        self, request: classic.DescribeClassicGroups, context: RequestContext
    ) -> classic.DescribeClassicGroupsAnswer:
        """The state of classic groups, with the bytes of their members."""
        found = await self._of_each_group(
            request,
            GROUPS_DESCRIBE_CLASSIC_GROUPS,
            AclOperation.DESCRIBE,
            DESCRIBED_AT_ONCE,
            classic.DescribedClassicGroup,
            context,
        )
        return classic.DescribeClassicGroupsAnswer(tuple(found))

    async def delete_groups(self, request: DeleteGroups, context: RequestContext) -> DeleteGroupsAnswer:
        """Delete empty groups with their offsets."""
        found = await self._of_each_group(
            request, GROUPS_DELETE_GROUPS, AclOperation.DELETE, DELETED_AT_ONCE, DeletedGroup, context
        )
        return DeleteGroupsAnswer(tuple(found))

    async def _of_each_group(
        self,
        request: DescribeGroups | classic.DescribeClassicGroups | DeleteGroups,
        api: Api[Any, Any],
        operation: AclOperation,
        at_once: int,
        refused: Callable[[str, TidelogError], Result],
        context: RequestContext,
    ) -> list[Result]:
        """One result for each group, in order. at_once: how many groups are in one request to a coordinator."""
        group_ids = request.group_ids
        ensure_few(group_ids, "groups", DESCRIBED_MAX)
        results: dict[str, Result] = {}
        by_partition: dict[PartitionIndex, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            try:
                ensure_group_id(group_id)
                refusal = context.authorizer.resource_refusal(context, api, operation, ResourceType.GROUP, group_id)
                if refusal is not None:
                    raise refusal
                by_partition.setdefault(self._partition_of(group_id), []).append(group_id)
            except TidelogError as error:
                results[group_id] = refused(group_id, error)

        async def ask_one(wanted: tuple[str, ...]) -> None:
            try:
                answer = await self._ask(wanted[0], type(request)(wanted), context)
                results.update(zip(wanted, answer.groups, strict=True))
            except TidelogError as error:
                results.update({group_id: refused(group_id, error) for group_id in wanted})

        await all_of(
            ask_one(tuple(wanted[start : start + at_once]))
            for _, wanted in sorted(by_partition.items())
            for start in range(0, len(wanted), at_once)
        )
        return [results[group_id] for group_id in group_ids]


def _topics_of(member: DescribedMember) -> tuple[TopicPartitions, ...]:
    """What it has, and what it is to have."""
    return (*member.assignment, *member.target)


def _no_consumer_group(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group.group_id,
        GroupIdNotFound(f"group {group.group_id!r} is a {group.type} group, not a consumer group: describe it as such"),
    )


def _visible(group: DescribedGroup, image: ClusterImage, context: RequestContext) -> DescribedGroup:
    names = {name for member in group.members for name in member.subscribed_topic_names}
    ids = {topic.topic_id for member in group.members for topic in _topics_of(member)}
    names |= {topic.name for topic_id in ids if (topic := image.topics.get(TopicId(topic_id))) is not None}
    if all(context.authorizer.allows_topic(context, AclOperation.DESCRIBE, name) for name in names):
        return group
    return DescribedGroup(
        group.group_id,
        TopicAuthorizationFailed(
            f"members of group {group.group_id!r} read topics that {shown(context.principal)} may not DESCRIBE: an "
            "operator can give the permission for the topics of the group (`tidelog acl add`)"
        ),
    )


def _not_done(entry: OffsetToCommit | NamedPartition, error: TidelogError) -> CommittedPartition:
    return CommittedPartition(entry.topic, entry.partition, error)


def _not_fetched(entry: NamedPartition, error: TidelogError) -> FetchedOffset:
    return FetchedOffset(entry.topic, entry.partition, error)
