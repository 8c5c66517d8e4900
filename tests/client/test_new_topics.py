"""Calls for an unknown topic: nodes learn of a new topic late, and a missing answer is no evidence."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from testbed.sim.clock import SimClock
from testbed.sim.loop import SimLoop
from tests.client.memory_cluster import start
from tidelog.client.cluster import NEW_TOPIC_MS, Cluster
from tidelog.client.offset_lookup import list_positions
from tidelog.errors import ConnectionFailed, NodeShuttingDown, UnknownTopicOrPartition
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.types import LATEST, Endpoint, PartitionIndex, TopicPartition

T = TypeVar("T")

NODE = Endpoint("127.0.0.1", 9092)
SILENT = -1
"""In place of a number of partitions: the node cannot be reached."""
LONG_MS = 2 * NEW_TOPIC_MS
SHORT_MS = 300
END = 7
"""Where each partition ends."""


class OneNode:
    """A transport to the only node, whose state is the number of partitions of 'orders' that it knows."""

    def __init__(self, clock: SimClock, *states: tuple[int, int]) -> None:
        """states: the number of partitions that it knows (0: no such topic), or SILENT, and for how many ms; the last
        one forever."""
        self._clock, self._states = clock, states

    async def call(self, to: Endpoint, method: Any, request: Any, *, timeout_ms: int) -> Any:
        known = self._state()
        if known == SILENT:
            raise ConnectionFailed(f"{to} refuses connections")
        if isinstance(request, data_pb2.ListOffsetsRequest):
            return data_pb2.ListOffsetsResponse(partitions=[data_pb2.ListedOffset(offset=END)])
        answer = admin_pb2.GetMetadataResponse(cluster_id="c", controller_id=0, metadata_offset=known)
        answer.nodes.add(node_id=0, host=NODE.host, port=NODE.port)
        topic = answer.topics.add(name="orders")
        if known == 0:
            topic.error.CopyFrom(to_proto(UnknownTopicOrPartition("there is no topic 'orders': create it first")))
            return answer
        topic.topic_id = bytes(16)
        for index in range(known):
            topic.partitions.add(partition=index, leader=0, leader_epoch=0, replicas=[0], isr=[0])
        return answer

    async def open_stream(self, to: Endpoint, method: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...

    def _state(self) -> int:
        left: int = self._clock.monotonic_ms()
        for known, lasts_ms in self._states:
            if left < lasts_ms:
                return known
            left -= lasts_ms
        return self._states[-1][0]


async def partitions_of(cluster: Cluster) -> int:
    return len((await cluster.wait_topic("orders", timeout_ms=30_000)).partitions)


async def end_of(cluster: Cluster, partition: int = 0) -> int:
    key = TopicPartition("orders", PartitionIndex(partition))
    return (await list_positions(cluster, {key: LATEST}, timeout_ms=30_000))[key].end_offset


def ask(question: Callable[[Cluster], Awaitable[T]], *states: tuple[int, int]) -> tuple[T | Exception, int]:
    """Return the result of the call in virtual time, and after how many ms."""
    loop = SimLoop(random.Random(1))
    clock = SimClock(loop)

    async def story() -> tuple[T | Exception, int]:
        cluster = Cluster([NODE], OneNode(clock, *states), clock, random.Random(1))
        asking = start(cluster.run())
        try:
            return await question(cluster), clock.monotonic_ms()
        except UnknownTopicOrPartition as error:
            return error, clock.monotonic_ms()
        finally:
            asking.cancel()

    return loop.run_until_complete(story())


QUESTIONS = pytest.mark.parametrize(("question", "expected"), [(partitions_of, 1), (end_of, END)])


@QUESTIONS
def test_a_missing_answer_does_not_count_as_a_missing_topic_in_a_call(question: Any, expected: int) -> None:
    """A topic was just created and all nodes restart: the first node that answers may not know it yet."""
    assert ask(question, (SILENT, LONG_MS), (0, SHORT_MS), (1, 0))[0] == expected


@QUESTIONS
def test_a_missing_answer_resets_the_time_of_an_unknown_topic(question: Any, expected: int) -> None:
    assert ask(question, (0, SHORT_MS), (SILENT, LONG_MS), (0, SHORT_MS), (1, 0))[0] == expected


@QUESTIONS
def test_a_missing_topic_is_reported_soon_after_a_node_answers(question: Any, expected: int) -> None:
    said, after_ms = ask(question, (SILENT, LONG_MS), (0, 0))
    assert isinstance(said, UnknownTopicOrPartition)
    assert LONG_MS + NEW_TOPIC_MS - 200 <= after_ms <= LONG_MS + NEW_TOPIC_MS + 200


def test_a_missing_answer_does_not_count_as_a_missing_partition() -> None:
    """A partition was just added to a known topic, and no node answers for a while."""

    async def end_of_the_new_one(cluster: Cluster) -> int:
        assert await partitions_of(cluster) == 1
        return await end_of(cluster, 1)

    assert ask(end_of_the_new_one, (1, SHORT_MS), (SILENT, LONG_MS), (1, SHORT_MS), (2, 0))[0] == END


def test_a_wait_for_the_topic_does_not_count_as_a_missing_partition() -> None:
    """The node knows the topic, but not yet the added partition."""

    async def end_of_the_new_one(cluster: Cluster) -> int:
        return await end_of(cluster, 1)

    assert ask(end_of_the_new_one, (SILENT, LONG_MS), (1, SHORT_MS), (2, 0))[0] == END


def test_a_missing_partition_is_reported_as_soon_as_a_missing_topic() -> None:
    async def end_of_the_fourth(cluster: Cluster) -> int:
        return await end_of(cluster, 3)

    said, after_ms = ask(end_of_the_fourth, (1, 0))
    assert isinstance(said, UnknownTopicOrPartition)
    assert "partitions 0 to 0" in said.message
    assert NEW_TOPIC_MS - 200 <= after_ms <= NEW_TOPIC_MS + 200


def test_the_error_of_all_nodes_has_each_cause_once() -> None:
    clock = SimClock(SimLoop(random.Random(1)))
    cluster = Cluster((NODE,), OneNode(clock, (1, 0)), clock, random.Random(0))
    refused = [ConnectionFailed(f"Admin.GetMetadata at {host}: no connection (refused)") for host in ("a:1", "[::1]:2")]
    stopping = [NodeShuttingDown("node 3 is shutting down; use another node")] * 2
    assert cluster.no_answer([*refused, *stopping]).message == (
        "no node of the cluster answered (4 queried): Admin.GetMetadata at a:1, [::1]:2: no connection (refused); "
        "node 3 is shutting down; use another node"
    )
