"""Requests to the coordinators of real nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from node.coordinator_settings import CoordinatorSettings
from node.coordinators.runtime import CoordinatorRuntime
from node.replication_settings import ReplicationConfig
from testbed.topic_requests import changed_by, creating
from tests.node.real_nodes import RealNodes, real_nodes, repeated
from tidelog.clock import Clock, MachineClock
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2, groups_pb2, transactions_pb2

GROUP, TRANSACTION = groups_pb2.COORDINATOR_TYPE_GROUP, groups_pb2.COORDINATOR_TYPE_TRANSACTION


def story(
    home: Path,
    count: int,
    steps: Callable[[RealNodes], Awaitable[None]],
    coordinators: CoordinatorSettings | None = None,
    *,
    replication: ReplicationConfig | None = None,
    clock: Clock | None = None,
    within_s: float = 60,
) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(within_s),
            real_nodes(home, count, coordinators=coordinators, replication=replication, clock=clock) as nodes,
        ):
            await steps(nodes)
            assert [found.defects for found in nodes.past] == [[] for _ in nodes.past]

    asyncio.run(run())


async def create(nodes: RealNodes, topic: str, partitions: int = 4, replicas: int = 1) -> bytes:
    request = creating(name=topic, partitions=partitions, replication_factor=replicas)
    await repeated(lambda: changed_by(nodes.call(0, methods.ADMIN_CREATE_TOPICS, request)))
    answer = await nodes.call(0, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(topics=[topic]))
    return bytes(answer.topics[0].topic_id)


async def find(nodes: RealNodes, key: str, kind: Any = GROUP, ask: int = 0) -> int:
    """The number of the node that coordinates it."""
    while True:
        answer = await nodes.call(
            ask, methods.COORDINATORS_FIND_COORDINATOR, groups_pb2.FindCoordinatorRequest(type=kind, keys=[key])
        )
        if not answer.coordinators[0].HasField("error"):
            return int(answer.coordinators[0].node.node_id)
        await MachineClock().sleep_ms(20)


async def ask(nodes: RealNodes, method: Any, request: Any, group: str = "g", kind: Any = GROUP) -> Any:
    """The answer of the coordinator, which is looked up again while it is loaded or moves."""
    while True:
        try:
            return await nodes.call(await find(nodes, group, kind), method, request)
        except (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator):
            await MachineClock().sleep_ms(20)


def offsets(**committed: int) -> list[groups_pb2.OffsetToCommit]:
    return [
        groups_pb2.OffsetToCommit(topic=topic, partition=0, offset=offset, leader_epoch=-1, metadata="m")
        for topic, offset in committed.items()
    ]


def commit(group: str = "g", **committed: int) -> groups_pb2.OffsetCommitRequest:
    return groups_pb2.OffsetCommitRequest(group_id=group, member_epoch=-1, partitions=offsets(**committed))


def fetch(group: str = "g") -> groups_pb2.OffsetFetchRequest:
    return groups_pb2.OffsetFetchRequest(group_id=group, member_epoch=-1)


def join(group: str, member: str, *topics: str) -> groups_pb2.ConsumerGroupHeartbeatRequest:
    return groups_pb2.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=groups_pb2.TopicNames(names=topics),
        topic_partitions=groups_pb2.AssignedPartitions(),
    )


def beat(
    answer: groups_pb2.ConsumerGroupHeartbeatResponse, group: str, *, owned: bool = True
) -> groups_pb2.ConsumerGroupHeartbeatRequest:
    """The next heartbeat of a member that has what it was assigned."""
    return groups_pb2.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        rebalance_timeout_ms=-1,
        topic_partitions=answer.assignment if owned else None,
    )


def init(transactional_id: str, timeout_ms: int = 60_000) -> transactions_pb2.InitTransactionalProducerRequest:
    return transactions_pb2.InitTransactionalProducerRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        transaction_version=2,
    )


def runtime_of(nodes: RealNodes, kind: Any) -> CoordinatorRuntime:
    coordinators = nodes.nodes[0].node._coordinators
    assert coordinators is not None
    return coordinators.groups if kind == GROUP else coordinators.transactions.runtime
