"""Topics created, changed, described and deleted many at a time: an outcome for each."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from tests.client.jumping_clock import WaitsNotAtAll
from tests.client.memory_cluster import memory_cluster
from tidelog.client.admin import Admin, NewTopic, TopicDescription
from tidelog.client.admin_calls import NODES_AGAIN_MS, NODES_START_MS
from tidelog.errors import (
    ConnectionFailed,
    InvalidRequest,
    InvalidTopic,
    TooFewNodes,
    TopicExists,
    UnknownTopicOrPartition,
)
from tidelog.protocol.v1 import admin_pb2


async def test_each_topic_has_an_outcome_of_its_own() -> None:
    async with memory_cluster(2) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.create("orders")
        created = await admin.create_topics(
            [NewTopic("payments", 3, configs={"retention.ms": "5"}), NewTopic("orders"), NewTopic("audit")]
        )
        assert list(created) == ["payments", "orders", "audit"]
        assert isinstance(created["payments"], UUID)
        assert isinstance(created["orders"], TopicExists)
        described = await admin.describe_topics(["payments", "missing", "payments"])
        payments = described["payments"]
        assert isinstance(payments, TopicDescription)
        assert (len(payments.partitions), payments.configs) == (3, {"retention.ms": "5"})
        assert isinstance(described["missing"], UnknownTopicOrPartition)
        outcomes = await admin.delete_topics(["audit", "missing", "payments"])
        assert [type(each) for each in outcomes.values()] == [type(None), UnknownTopicOrPartition, type(None)]
        assert [topic.name for topic in await admin.list_topics()] == ["orders"]


async def test_the_topics_that_wait_for_nodes_are_sent_again_without_the_others() -> None:
    async with memory_cluster() as cluster:
        async with Admin(cluster.bootstrap, clock=WaitsNotAtAll()) as admin:
            created = await admin.create_topics([NewTopic("one"), NewTopic("three", replication_factor=3)])
        assert isinstance(created["one"], UUID)
        assert isinstance(created["three"], TooFewNodes)
        assert cluster.refused_for_nodes == 1 + NODES_START_MS // NODES_AGAIN_MS
        assert [each.name for each in cluster.created] == ["one"]


async def test_what_was_done_is_known_when_the_nodes_go_before_the_rest_is_sent_again() -> None:
    async with memory_cluster() as cluster:

        class StopsTheNode(WaitsNotAtAll):
            async def sleep_ms(self, ms: int) -> None:
                await cluster.nodes[0].stop()
                await super().sleep_ms(ms)

        async with Admin(cluster.bootstrap, clock=StopsTheNode()) as admin:
            created = await admin.create_topics(
                [NewTopic("three", replication_factor=3), NewTopic("a b"), NewTopic("one")]
            )
        assert list(created) == ["three", "a b", "one"]
        assert isinstance(created["one"], UUID)
        assert isinstance(created["three"], ConnectionFailed)
        assert isinstance(created["a b"], InvalidTopic)
        async with Admin(cluster.bootstrap, patience_ms=0) as admin:
            with pytest.raises(ConnectionFailed):
                await admin.create_topics([NewTopic("two")])


async def test_a_topic_that_cannot_be_sent_does_not_refuse_the_others() -> None:
    """As Kafka answers: a name that is not allowed, a number that no topic can have and one that is listed twice are
    outcomes beside those of the others."""
    async with memory_cluster() as cluster, Admin(cluster.bootstrap) as admin:
        cluster.create("orders")
        created = await admin.create_topics(
            [NewTopic("a b"), NewTopic("twice", 1), NewTopic("fine"), NewTopic("many", 2**40), NewTopic("twice", 2)]
        )
        assert list(created) == ["a b", "twice", "fine", "many"]
        assert isinstance(created["fine"], UUID)
        for name, error, says in (
            ("a b", InvalidTopic, "'a b' is not allowed"),
            ("twice", InvalidRequest, "topic 'twice' is listed twice"),
            ("many", InvalidRequest, f"partitions={2**40}"),
        ):
            outcome = created[name]
            assert isinstance(outcome, error)
            assert says in outcome.message
        assert [each.name for each in cluster.created] == ["fine"]
        described = await admin.describe_topics(["a b", "orders"])
        assert isinstance(described["a b"], InvalidTopic)
        assert isinstance(described["orders"], TopicDescription)
        altered = admin_pb2.ChangedTopics(topics=[admin_pb2.ChangedTopic(name="fine")])
        settings = admin_pb2.DescribeConfigsResponse(resources=[admin_pb2.ResourceConfigs()])
        cluster.nodes[0].scripted |= {"incremental_alter_configs": altered, "describe_configs": settings}
        changed = await admin.alter_topics({"a b": {"retention.ms": "5"}, "fine": {"retention.ms": "5"}})
        assert [type(each) for each in changed.values()] == [InvalidTopic, type(None)]
        of_topics = await admin.describe_topic_settings(["a b", "fine"])
        assert [type(each.error) for each in of_topics.values()] == [InvalidTopic, type(None)]
        deleted = await admin.delete_topics(["fine", "a b", "orders"])
        assert [type(each) for each in deleted.values()] == [type(None), InvalidTopic, type(None)]
        assert await admin.list_topics() == []


async def test_no_topic_needs_no_request() -> None:
    async with Admin("127.0.0.1:1", patience_ms=0) as admin:
        assert await admin.create_topics([]) == {}
        assert await admin.delete_topics([]) == {}
        assert await admin.describe_topics([]) == {}
        assert await admin.describe_topic_settings([]) == {}
        assert await admin.alter_topics({}) == {}


HALF: Any = 1.5

WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda it: it.create_topics(["a"]), TypeError, "a topic to create must be a NewTopic, not str: 'a'"),
    (lambda it: it.create_topics([NewTopic(HALF)]), TypeError, "topic must be a str"),
    (lambda it: it.create_topics([NewTopic("a", HALF)]), TypeError, "partitions must be a whole number"),
    (lambda it: it.delete_topics("orders"), TypeError, "names must be a list of names of topics, not str: 'orders'"),
    (lambda it: it.describe_topics([None]), TypeError, "topic must be a str"),
    (lambda it: it.alter_topics(["a"]), TypeError, "changes must be a mapping"),
    (lambda it: it.alter_topics({"a": {"k": 1}}), TypeError, "the value of setting 'k' must be a str"),
]


@pytest.mark.parametrize(("use", "error", "says"), WRONG)
async def test_wrong_arguments_are_refused_before_anything_is_sent(use: Any, error: type[Exception], says: str) -> None:
    async with Admin("127.0.0.1:1", patience_ms=0) as admin:
        with pytest.raises(error, match=re.escape(says)):
            await use(admin)
