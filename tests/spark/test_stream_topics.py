"""What a stream believes of its topics: a topic that may not be seen is not gone, a node that lags is not the cluster.

The tests make the calls that Spark makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tests.spark.stream_runs import ReaderRun, produce
from tidelog.client.admin import Admin
from tidelog.errors import TopicAuthorizationFailed, UnknownTopicOrPartition
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2
from tidelog.security.acls import AclBinding, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.spark.options.query_options import parse_stream_options
from tidelog.spark.streaming.stream_offsets import StreamOffset
from tidelog.spark.streaming.stream_session import StreamSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]

SETTINGS = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": ["User:admin"],
    "allow.everyone.if.no.acl.found": True,
}
"""Without TLS and SASL, everyone is User:ANONYMOUS, who may use what no rule names."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("topics"), 1, settings=SETTINGS) as cluster:
        cluster.wait_healthy()
        yield cluster


def refuse(cluster: LocalCluster, topic: str, *, refused: bool) -> None:
    """Take everything away from everyone, or give it back."""

    async def change() -> None:
        rule = AclBinding(
            ResourceType.TOPIC, topic, PatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermission.DENY
        )
        async with tidelog.Admin(cluster.bootstrap) as admin:
            if refused:
                await admin.create_acls([rule])
            else:
                await admin.delete_acls([AclFilter(ResourceType.TOPIC, topic)])

    asyncio.run(change())


def delete(cluster: LocalCluster, topic: str) -> None:
    async def change() -> None:
        async with tidelog.Admin(cluster.bootstrap) as admin:
            await admin.delete_topic(topic)

    asyncio.run(change())


@pytest.mark.parametrize("option", ["subscribe", "subscribePattern"])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_whose_permission_is_lost_is_not_gone(cluster: LocalCluster, option: str, fails: str) -> None:
    """It is neither called deleted nor dropped, and read on from its position when the permission is back."""
    topic = f"secret-{option}-{fails}"
    cluster.create_topic(topic, 1, 1)
    produce(cluster, topic, ["a", "b"])
    run = ReaderRun(cluster, **{option: topic}, failOnDataLoss=fails)
    run.run()
    refuse(cluster, topic, refused=True)
    with pytest.raises(TopicAuthorizationFailed, match=topic):
        run.run()
    refuse(cluster, topic, refused=False)
    produce(cluster, topic, ["c"])
    run.run()
    assert [value for _, value in run.rows] == [b"a", b"b", b"c"]
    delete(cluster, topic)
    if fails == "true":
        with pytest.raises(UnknownTopicOrPartition, match="topic or partition deleted"):
            run.run()
    else:
        run.run()
        assert run.position.topics == {}


Answer = admin_pb2.GetMetadataResponse


def lagging(monkeypatch: pytest.MonkeyPatch, change: Callable[[Answer], Answer]) -> None:
    """The node that answers first knows older metadata; each node that is asked for itself knows the newest."""
    query = Admin._query

    async def answered(self: Admin, method: Any, request: Any, **rest: Any) -> Any:
        answer: Any = await query(self, method, request, **rest)
        if method is not methods.ADMIN_GET_METADATA:
            return answer
        old = change(answer)
        old.metadata_offset = 0
        return old

    monkeypatch.setattr(Admin, "_query", answered)


def without(topic: str) -> Callable[[Answer], Answer]:
    def change(answer: Answer) -> Answer:
        old = Answer()
        old.CopyFrom(answer)
        del old.topics[:]
        old.topics.extend(each for each in answer.topics if each.name != topic)
        return old

    return change


def test_a_node_that_lags_hides_no_new_topic_from_available_now(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("fresh-1", "fresh-2"):
        cluster.create_topic(topic, 1, 1)
        produce(cluster, topic, [topic])
    lagging(monkeypatch, without("fresh-2"))
    run = ReaderRun(cluster, subscribePattern="fresh-.*")
    run.run()
    assert sorted(value or b"" for _, value in run.rows) == [b"fresh-1", b"fresh-2"]


def test_a_node_that_lags_hides_no_topic_from_a_start_at_latest(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be new to the query later, and be read from its start."""
    for topic in ("edge-1", "edge-2"):
        cluster.create_topic(topic, 1, 1)
        produce(cluster, topic, [topic])
    run = ReaderRun(cluster, subscribePattern="edge-.*", startingOffsets="latest")
    with monkeypatch.context() as patched:
        lagging(patched, without("edge-2"))
        run.run(fails=True)
    run.run()
    assert (run.rows, sorted(run.position.topics)) == ([], ["edge-1", "edge-2"])


def test_a_topic_that_was_dropped_is_not_new_where_a_node_still_shows_it(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("left-1", "left-2"):
        cluster.create_topic(topic, 1, 1)
        produce(cluster, topic, [topic])
    before = cluster.metadata(0)
    run = ReaderRun(cluster, subscribePattern="left-.*", failOnDataLoss="false")
    run.run()
    delete(cluster, "left-2")
    run.run()
    assert sorted(run.position.topics) == ["left-1"]
    lagging(monkeypatch, lambda _: before)

    async def next_end() -> StreamOffset:
        session = StreamSession(parse_stream_options(run.options))
        try:
            await session.start()
            return await session.advance(run.position, None, may_wait=True)
        finally:
            await session.close()

    assert asyncio.run(next_end()) == run.position
