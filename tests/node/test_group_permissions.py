"""What a caller with some permissions sees and does with groups and transactions, on a real node over gRPC.

Who is let in at all is in test_permissions.py; here are the parts of answers, and streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from tests.node.real_coordinators import make_internal_topics, until_done
from tests.node.real_nodes import CALL_MS, OPERATOR, RealNodes, real_nodes
from tidelog.client.admin import Admin
from tidelog.errors import (
    GroupAuthorizationFailed,
    TidelogError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from tidelog.protocol import methods
from tidelog.protocol.rpc import Method
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import groups_pb2, transactions_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import Record, build_batch
from tidelog.security.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import Millis, Offset

ALICE = "alice"
GROUP, OTHERS = "readers", "others"
TRANSACTIONAL_ID = "billing"
OPEN_TOPIC, SECRET = "orders", "plans"
FEW = CoordinatorSettings(GroupSettings(partitions=2), TransactionSettings(partitions=2))


@dataclass
class World:
    """A node with two topics, and a caller whose permissions change."""

    nodes: RealNodes
    admin: Admin
    topic_id: bytes

    async def allow(self, *rules: tuple[ResourceType, str, AclOperation]) -> None:
        """Give alice these permissions and no other ones."""
        await self.admin.delete_acls([AclFilter()])
        await self.admin.create_acls(
            [
                AclBinding(kind, name, PatternType.LITERAL, "User:alice", "*", operation, AclPermission.ALLOW)
                for kind, name, operation in rules
            ]
        )

    async def ask(self, method: Method[Any, Any], request: Any) -> Any:
        """As alice."""
        return await self.nodes.transport.call(self.nodes.further[ALICE][0], method, request, timeout_ms=CALL_MS)

    async def operate(self, method: Method[Any, Any], request: Any) -> Any:
        """As the operator, until no part of the answer is an error."""
        return await until_done(self.nodes, self.nodes.further[OPERATOR][0], method, request)

    @property
    def denied(self) -> list[tuple[str, str, str]]:
        """The denied operations and resources in the audit log, with the request."""
        events = [json.loads(line) for line in self.nodes.audit]
        return [(each["request"], each["operation"], each["resource"]) for each in events if each["event"] == "denied"]


@asynccontextmanager
async def world(home: Path) -> AsyncIterator[World]:
    async with (
        real_nodes(home, principals={ALICE: "User:alice"}, coordinators=FEW) as nodes,
        Admin(str(nodes.further[OPERATOR][0])) as admin,
    ):
        for topic in (OPEN_TOPIC, SECRET):
            await admin.create_topic(topic, partitions=1, replication_factor=1)
        await make_internal_topics(nodes)
        yield World(nodes, admin, (await admin.describe_topic(OPEN_TOPIC)).topic_id.bytes)


def to_commit(*topics: str) -> list[groups_pb2.OffsetToCommit]:
    return [groups_pb2.OffsetToCommit(topic=topic, partition=0, offset=7, leader_epoch=-1) for topic in topics]


def commit(group: str, *topics: str) -> groups_pb2.OffsetCommitRequest:
    return groups_pb2.OffsetCommitRequest(group_id=group, member_epoch=-1, partitions=to_commit(*topics))


def fetch_all(group: str) -> groups_pb2.OffsetFetchRequest:
    return groups_pb2.OffsetFetchRequest(group_id=group, member_epoch=-1)


def join(*topics: str) -> groups_pb2.ConsumerGroupHeartbeatRequest:
    return groups_pb2.ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=groups_pb2.TopicNames(names=topics),
        topic_partitions=groups_pb2.AssignedPartitions(),
    )


def errors_of(parts: Any) -> list[type[TidelogError] | None]:
    return [type(from_proto(part.error)) if part.HasField("error") else None for part in parts]


async def test_topics_of_a_commit_are_refused_one_by_one(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.allow(
            (ResourceType.GROUP, GROUP, AclOperation.READ), (ResourceType.TOPIC, OPEN_TOPIC, AclOperation.READ)
        )
        answer = await here.ask(methods.GROUPS_OFFSET_COMMIT, commit(GROUP, SECRET, OPEN_TOPIC, "not-there"))
        assert errors_of(answer.partitions) == [TopicAuthorizationFailed, None, TopicAuthorizationFailed]
        offsets = await here.admin.list_group_offsets(GROUP)
        assert [(key.topic, each and each.offset) for key, each in offsets.items()] == [(OPEN_TOPIC, 7)]
        assert here.denied == [
            ("Groups.OffsetCommit", "READ", SECRET),
            ("Groups.OffsetCommit", "READ", "not-there"),
        ]


async def test_offsets_and_groups_of_others_are_not_shown(tmp_path: Path) -> None:
    """Of all offsets of a group those of secret topics are left out, of all groups those of others; who describes a
    group must be allowed to describe the topics of its members."""
    async with world(tmp_path) as here:
        for group in (GROUP, OTHERS):
            await here.operate(methods.GROUPS_OFFSET_COMMIT, commit(group, OPEN_TOPIC, SECRET))
        await here.allow(
            (ResourceType.GROUP, GROUP, AclOperation.DESCRIBE),
            (ResourceType.TOPIC, OPEN_TOPIC, AclOperation.DESCRIBE),
        )
        fetched = await here.ask(methods.GROUPS_OFFSET_FETCH, fetch_all(GROUP))
        assert [each.topic for each in fetched.partitions] == [OPEN_TOPIC]
        listed = await here.ask(methods.GROUPS_LIST_GROUPS, groups_pb2.ListGroupsRequest())
        assert [group.group_id for group in listed.groups] == [GROUP]
        assert here.denied == [], "what a list leaves out is not an event"
        with pytest.raises(GroupAuthorizationFailed):
            await here.ask(methods.GROUPS_OFFSET_FETCH, fetch_all(OTHERS))

        describe = groups_pb2.DescribeGroupsRequest(group_ids=[GROUP, OTHERS])
        described = await here.ask(methods.GROUPS_DESCRIBE_GROUPS, describe)
        assert errors_of(described.groups) == [None, GroupAuthorizationFailed]
        await here.operate(methods.GROUPS_CONSUMER_GROUP_HEARTBEAT, join(OPEN_TOPIC, SECRET))
        described = await here.ask(methods.GROUPS_DESCRIBE_GROUPS, describe)
        assert errors_of(described.groups) == [TopicAuthorizationFailed, GroupAuthorizationFailed]
        assert SECRET.encode() not in described.SerializeToString()


async def test_a_member_that_loses_its_permission_loses_its_stream(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        rights = [
            (ResourceType.GROUP, GROUP, AclOperation.READ),
            (ResourceType.TOPIC, OPEN_TOPIC, AclOperation.DESCRIBE),
        ]
        await here.allow(*rights)
        at = here.nodes.further[ALICE][0]
        stream = await here.nodes.transport.open_stream(at, methods.GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM)
        await stream.send(join(OPEN_TOPIC))
        answer = await stream.receive()
        assert answer is not None
        assert not answer.HasField("error")
        await here.allow(rights[1])
        await stream.send(
            groups_pb2.ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id="member", member_epoch=answer.member_epoch, rebalance_timeout_ms=-1
            )
        )
        with pytest.raises(GroupAuthorizationFailed, match=f"READ group {GROUP}"):
            while await stream.receive() is not None:
                pass
        stream.close()

        await here.allow(rights[0])
        with pytest.raises(TopicAuthorizationFailed, match=f"DESCRIBE topic {SECRET}"):
            await here.ask(methods.GROUPS_CONSUMER_GROUP_HEARTBEAT, join(SECRET))
        assert [each[1:] for each in here.denied] == [("READ", GROUP), ("DESCRIBE", SECRET)]


async def test_a_subscription_tells_nothing_about_topics_that_the_member_may_not_describe(tmp_path: Path) -> None:
    """By name it is refused in the same words whether the topic exists or not; a pattern leaves such topics out."""
    async with world(tmp_path) as here:
        await here.allow(
            (ResourceType.GROUP, GROUP, AclOperation.READ), (ResourceType.TOPIC, OPEN_TOPIC, AclOperation.DESCRIBE)
        )
        refusals = []
        for name in (SECRET, "not-there"):
            with pytest.raises(TopicAuthorizationFailed) as caught:
                await here.ask(methods.GROUPS_CONSUMER_GROUP_HEARTBEAT, join(OPEN_TOPIC, name))
            refusals.append(caught.value.message.replace(name, "NAME"))
        assert refusals[0] == refusals[1]

        await here.admin.create_topic("other-plans", partitions=1, replication_factor=1)
        by_pattern = join()
        by_pattern.subscribed_topic_regex = ".*"
        answer = await here.ask(methods.GROUPS_CONSUMER_GROUP_HEARTBEAT, by_pattern)
        assert [topic.topic_id for topic in answer.assignment.topics] == [here.topic_id]


async def test_a_transactional_batch_needs_the_id_of_its_producer(tmp_path: Path) -> None:
    """On a stream the batch is refused and the stream goes on. An id that is left out is not permission."""
    async with world(tmp_path) as here:
        init = transactions_pb2.InitTransactionalProducerRequest(
            transactional_id=TRANSACTIONAL_ID,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
            transaction_version=2,
        )
        made = await here.operate(methods.TRANSACTIONS_INIT_PRODUCER_ID, init)
        writes = (ResourceType.TOPIC, OPEN_TOPIC, AclOperation.WRITE)
        await here.allow(writes)

        def produce(transactional_id: str, *, transactional: bool = True) -> ProduceRequest:
            producer: dict[str, Any] = {
                "producer_id": made.producer_id,
                "producer_epoch": made.producer_epoch,
                "base_sequence": 0,
                "is_transactional": True,
            }
            records = build_batch([Record(Offset(0), Millis(0), b"k", b"v")], **(producer if transactional else {}))
            entry = ProduceBatch(correlation_id=1, topic_id=here.topic_id, partition=0, records=records)
            return ProduceRequest(
                acks=-1,
                timeout_ms=CALL_MS,
                partitions=[entry],
                transactional_id=transactional_id,
                transaction_version=2,
            )

        at = here.nodes.further[ALICE][0]
        stream = await here.nodes.transport.open_stream(at, methods.DATA_PRODUCE_STREAM)
        asked = [produce(TRANSACTIONAL_ID), produce(""), produce(TRANSACTIONAL_ID, transactional=False)]
        found = []
        for request in asked:
            await stream.send(request)
            answer = await stream.receive()
            assert answer is not None
            found += errors_of(answer.partitions)
        assert found == [TransactionalIdAuthorizationFailed, TransactionalIdAuthorizationFailed, None]

        await here.allow(writes, (ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID, AclOperation.WRITE))
        await stream.send(produce(TRANSACTIONAL_ID))
        answer = await stream.receive()
        assert answer is not None
        assert errors_of(answer.partitions) == [None]
        stream.close()
        assert here.denied[0] == ("Data.Produce", "WRITE", TRANSACTIONAL_ID)


async def test_transactions_of_others_and_partitions_of_secret_topics_are_not_shown(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for name in (TRANSACTIONAL_ID, OTHERS):
            init = transactions_pb2.InitTransactionalProducerRequest(
                transactional_id=name,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
                transaction_version=1,
            )
            made = await here.operate(methods.TRANSACTIONS_INIT_PRODUCER_ID, init)
            add = transactions_pb2.AddPartitionsToTxnRequest(
                transactional_id=name,
                producer_id=made.producer_id,
                producer_epoch=made.producer_epoch,
                partitions=[groups_pb2.NamedPartition(topic=topic, partition=0) for topic in (OPEN_TOPIC, SECRET)],
            )
            await here.operate(methods.TRANSACTIONS_ADD_PARTITIONS_TO_TXN, add)
        await here.allow(
            (ResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID, AclOperation.DESCRIBE),
            (ResourceType.TOPIC, OPEN_TOPIC, AclOperation.DESCRIBE),
        )
        listed = await here.ask(methods.TRANSACTIONS_LIST_TRANSACTIONS, transactions_pb2.ListTransactionsRequest())
        assert [each.transactional_id for each in listed.transactions] == [TRANSACTIONAL_ID]
        describe = transactions_pb2.DescribeTransactionsRequest(transactional_ids=[TRANSACTIONAL_ID, OTHERS])
        described = await here.ask(methods.TRANSACTIONS_DESCRIBE_TRANSACTIONS, describe)
        assert errors_of(described.transactions) == [None, TransactionalIdAuthorizationFailed]
        assert [each.topic for each in described.transactions[0].partitions] == [OPEN_TOPIC]
