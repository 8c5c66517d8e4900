"""Coordinators with many groups, topics and transactions: no turn of the loop is long, and the outcome is right.

Turns are measured in processor time of the loop's thread (turn_times.py). The whole of a node's work runs on that loop:
a turn of 50 ms delays every producer, consumer and member of the node by as much."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.coordinators.coordinator_state import CoordinatorState
from node.replication_settings import ReplicationConfig
from replication.coordination.group_requests import (
    ConsumerGroupHeartbeat,
    MemberHeartbeat,
    NamedPartition,
    OffsetCommit,
    OffsetToCommit,
)
from replication.coordination.partitioning import partition_of
from replication.coordination.transaction_requests import InitTransactionalProducer, TransactionToVerify
from testbed.topic_requests import changed, deleting, growing
from tests.node.coordinator_requests import GROUP, TRANSACTION, ask, commit, create, fetch, init, runtime_of, story
from tests.node.real_nodes import RealNodes
from tests.node.turn_times import measured_turns
from tidelog.clock import MachineClock
from tidelog.protocol import methods
from tidelog.protocol.v1 import groups_pb2, transactions_pb2
from tidelog.types import Millis, Offset, PartitionIndex, ProducerId

LONG_MS = 150
"""Three times what a turn should take: other programs share the caches of the processor. The work of a turn that grows
with the number of groups takes longer by far with GROUPS of them."""
GROUPS = 5_000
"""In one partition: 250,000 in the default of 50 partitions."""
TRANSACTIONS = 2_500
TIMEOUT_MS = 240_000
"""Of the transactions: longer than it takes to open them all on the busiest machine. The clock then jumps there."""
PATIENT = ReplicationConfig(session_ms=Millis(600_000))
"""A loop that shares the processor may leave a heartbeat unanswered for longer than the default session of two seconds.
Without a lease the coordinators refuse requests, and these tests have no client that repeats them."""


class JumpingClock(MachineClock):
    """The clocks of this machine, and a jump ahead that ends what sleeps until then."""

    ahead_ms = 0

    def wall_ms(self) -> Millis:
        return Millis(super().wall_ms() + self.ahead_ms)

    def monotonic_ms(self) -> Millis:
        return Millis(super().monotonic_ms() + self.ahead_ms)

    async def sleep_ms(self, ms: int) -> None:
        until = self.monotonic_ms() + ms
        await super().sleep_ms(min(ms, 50))
        while (left := until - self.monotonic_ms()) > 0:
            await super().sleep_ms(min(left, 50))


def settings(partitions: int = 1) -> CoordinatorSettings:
    return CoordinatorSettings(
        GroupSettings(partitions=partitions, replication_factor=1),
        TransactionSettings(
            partitions=partitions, replication_factor=1, min_isr=1, abort_timed_out_interval_ms=Millis(1_000)
        ),
    )


async def submitted(nodes: RealNodes, kind: Any, requests: Iterable[tuple[str, Any]], at_once: int = 250) -> list[Any]:
    """The answers of the coordinators on the only node, without the wires. requests: with their keys."""
    runtime, answers = runtime_of(nodes, kind), []
    waiting = list(requests)
    for start in range(0, len(waiting), at_once):
        some = waiting[start : start + at_once]
        count = len(runtime.partitions)
        calls = (runtime.submit(PartitionIndex(partition_of(key, count)), request) for key, request in some)
        answers += await asyncio.gather(*calls)
    return answers


def heartbeat(group: str, *topics: str) -> MemberHeartbeat:
    joining = ConsumerGroupHeartbeat(
        group_id=group,
        member_id="m",
        member_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=(),
    )
    return MemberHeartbeat(joining, "c", "h")


async def until_active(nodes: RealNodes, kind: Any) -> None:
    runtime = runtime_of(nodes, kind)
    await nodes.wait_until(
        lambda: {runtime.coordinator(each).state for each in runtime.partitions} == {CoordinatorState.ACTIVE}
    )


def test_no_turn_is_long_with_thousands_of_groups(tmp_path: Path) -> None:
    """Each group has a member and offsets of one topic, which then gets partitions, and is deleted."""

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(orders=1))
        names = [f"group-{number}" for number in range(GROUPS)]
        with measured_turns() as turns:
            await submitted(nodes, GROUP, [(name, heartbeat(name, "orders")) for name in names])
            every = tuple(OffsetToCommit("orders", PartitionIndex(at), Offset(5)) for at in range(4))
            commits = [(name, OffsetCommit(name, "m", 1, None, every)) for name in names]
            await submitted(nodes, GROUP, commits)
            listed = await nodes.call(0, methods.GROUPS_LIST_GROUPS, groups_pb2.ListGroupsRequest())
            assert len(listed.groups) == GROUPS + 1
            request = groups_pb2.DescribeGroupsRequest(group_ids=names[:1_000])
            described = await nodes.call(0, methods.GROUPS_DESCRIBE_GROUPS, request)
            assert [group.group_epoch for group in described.groups] == [1] * 1_000
            collected = await nodes.nodes[0].node.groups()
            assert len(collected.groups) == 1_000
            assert collected.unknown > 0

            more = growing(topic="orders", count=6)
            changed(await nodes.call(0, methods.ADMIN_CREATE_PARTITIONS, more))
            last = groups_pb2.DescribeGroupsRequest(group_ids=[names[-1], names[0]])
            while {group.assignment_epoch for group in described.groups} != {2}:
                described = await nodes.call(0, methods.GROUPS_DESCRIBE_GROUPS, last)

        assert turns.above(LONG_MS) == {}
        await nodes.stop(0)
        await nodes.start(0)
        await nodes.wait_whole()
        with measured_turns() as turns:
            await ask(nodes, methods.GROUPS_OFFSET_FETCH, fetch())
            await until_active(nodes, GROUP)
            changed(await nodes.call(0, methods.ADMIN_DELETE_TOPICS, deleting(name="orders")))
            runtime = runtime_of(nodes, GROUP)
            offsets = runtime.coordinator(PartitionIndex(0))._loaded_machine._state.offsets  # type: ignore[attr-defined]
            await nodes.wait_until(lambda: not offsets.groups())
        assert turns.above(LONG_MS) == {}

    story(tmp_path, 1, steps, settings(), replication=PATIENT, within_s=240)


@pytest.mark.deep
def test_no_turn_is_long_with_a_group_of_a_thousand_topics(tmp_path: Path) -> None:
    """A thousand topics are created first."""

    async def steps(nodes: RealNodes) -> None:
        names = [f"topic-{number}" for number in range(1_000)]
        for start in range(0, len(names), 50):
            await asyncio.gather(*(create(nodes, name, partitions=1) for name in names[start : start + 50]))
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(missing=1))
        with measured_turns() as turns:
            [answer] = await submitted(nodes, GROUP, [("wide", heartbeat("wide", *names))])
            assert sum(len(topic.partitions) for topic in answer.assignment) == 1_000
            every = tuple(OffsetToCommit(name, PartitionIndex(0), Offset(5)) for name in names)
            await submitted(nodes, GROUP, [("wide", OffsetCommit("wide", "m", 1, None, every))])
            found = await nodes.call(0, methods.GROUPS_OFFSET_FETCH, fetch("wide"))
            assert len(found.partitions) == 1_000
            collected = await nodes.nodes[0].node.groups()
            assert [len(group.offsets) for group in collected.groups] == [1_000]
            request = groups_pb2.DescribeGroupsRequest(group_ids=["wide"])
            described = await nodes.call(0, methods.GROUPS_DESCRIBE_GROUPS, request)
            assert len(described.groups[0].members[0].assignment) == 1_000
        assert turns.above(LONG_MS) == {}

    story(tmp_path, 1, steps, settings(), replication=PATIENT, within_s=240)


def test_no_turn_is_long_when_thousands_of_transactions_time_out_together(tmp_path: Path) -> None:
    """All of one principal, in one partition of `__transaction_state`. Each gets its marker, none stays prepared."""
    clock = JumpingClock()

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        await ask(nodes, methods.TRANSACTIONS_INIT_PRODUCER_ID, init("first"), "first", TRANSACTION)
        names = [f"id-{number}" for number in range(TRANSACTIONS)]
        coordinators = nodes.nodes[0].node._coordinators
        assert coordinators is not None
        transactions = coordinators.transactions
        with measured_turns() as turns:
            made: list[Any] = []
            for start in range(0, TRANSACTIONS, 250):
                some = [
                    InitTransactionalProducer(name, Millis(TIMEOUT_MS), ProducerId(-1), -1, 2)
                    for name in names[start : start + 250]
                ]
                made += await asyncio.gather(*(transactions.next_producer(each) for each in some))
            where = (NamedPartition("orders", PartitionIndex(0)),)
            added = await submitted(
                nodes,
                TRANSACTION,
                [
                    (
                        name,
                        TransactionToVerify(
                            name, each.producer_id, each.producer_epoch, verify_only=False, partitions=where
                        ),
                    )
                    for name, each in zip(names, made, strict=True)
                ],
            )
            assert {part.error for each in added for part in each.partitions} == {None}
            listed = await nodes.call(
                0, methods.TRANSACTIONS_LIST_TRANSACTIONS, transactions_pb2.ListTransactionsRequest(duration_ms_min=-1)
            )
            assert len(listed.transactions) == TRANSACTIONS + 1
            assert transactions.figures().open_transactions == TRANSACTIONS
            clock.ahead_ms = TIMEOUT_MS
            await nodes.wait_until(lambda: transactions.figures().open_transactions == 0)
        assert turns.above(LONG_MS) == {}
        request = transactions_pb2.DescribeTransactionsRequest(transactional_ids=names[:1_000])
        described = await nodes.call(0, methods.TRANSACTIONS_DESCRIBE_TRANSACTIONS, request)
        assert {each.state for each in described.transactions} == {"CompleteAbort"}

    story(tmp_path, 1, steps, settings(), replication=PATIENT, clock=clock, within_s=240)
