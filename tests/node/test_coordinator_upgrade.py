"""A cluster on the metadata of the version before, whose nodes may be restarted one after the other: a node that cannot
be a coordinator must never lead a partition of an internal topic, and no client of Kafka may use what not every node
serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.coordinators.internal_topics import InternalTopic, InternalTopics
from node.quorum import driver
from replication.controller import features
from replication.controller.events import CreateTopic
from replication.controller.image import EMPTY, ClusterImage
from tests.node.kafka_frames import both_ways, decoded, kafka_listener, request_frame
from tests.node.real_coordinators import make_internal_topics
from tests.node.real_nodes import RealNodes, real_nodes
from tests.replication import group_stories
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.clock import MachineClock
from tidelog.errors import UnsupportedVersion
from tidelog.protocol import methods
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import groups_pb2

FEW = CoordinatorSettings(GroupSettings(partitions=2), TransactionSettings(partitions=2))

WANTED = InternalTopic("__consumer_offsets", 2)


def image_of(topics: dict[str, int], *, feature_level: int) -> ClusterImage:
    return replace(group_stories.image_of(topics), feature_level=feature_level)


async def test_no_coordinator_is_found_before_every_node_can_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the operator raises the feature level no internal topic is made, groups and transactions are refused with
    the next step, and all else goes on."""
    monkeypatch.setattr(driver, "FEATURE_LEVEL", features.COORDINATORS - 1)

    async def refused(nodes: RealNodes) -> None:
        for kind in (groups_pb2.COORDINATOR_TYPE_GROUP, groups_pb2.COORDINATOR_TYPE_TRANSACTION):
            request = groups_pb2.FindCoordinatorRequest(type=kind, keys=["g"])
            answer = await nodes.call(0, methods.COORDINATORS_FIND_COORDINATOR, request)
            refusal = from_proto(answer.coordinators[0].error)
            assert isinstance(refusal, UnsupportedVersion)
            assert "needs feature level 5, the cluster has level 4" in refusal.message

    async with real_nodes(tmp_path, coordinators=FEW) as nodes, Admin(str(nodes.addresses[0])) as admin:
        bootstrap = str(nodes.addresses[0])
        await admin.create_topic("orders", partitions=1, replication_factor=1)
        await refused(nodes)
        with pytest.raises(UnsupportedVersion, match="`tidelog cluster upgrade`"):
            async with Producer(bootstrap, transactional_id="t") as producer, producer.transaction():
                pass
        async with Producer(bootstrap) as producer:
            await producer.send("orders", b"a")
        async with Consumer(bootstrap, group="g", topics=["orders"]) as consumer:
            with pytest.raises(UnsupportedVersion, match="`tidelog cluster upgrade`"):
                await consumer.poll(timeout=20)
        assert [topic.name for topic in await admin.list_topics()] == ["orders"]

        assert await admin.update_features() == features.LATEST
        await make_internal_topics(nodes)
        async with Producer(bootstrap, transactional_id="t") as producer, producer.transaction():
            await producer.send("orders", b"b")
        async with Consumer(bootstrap, group="g", topics=["orders"]) as consumer:
            assert [record.value for record in await consumer.poll(timeout=20)][:1] == [b"a"]


async def test_clients_of_kafka_use_transactions_of_version_2_when_every_node_serves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the operator raises the feature level, they are told of version 1. A connection that exists learns of it
    when it asks again."""
    monkeypatch.setattr(driver, "FEATURE_LEVEL", features.TRANSACTIONS_2 - 1)
    versions = both_ways("ApiVersionsRequest").module.ApiVersionsRequest("test", "1")
    async with (
        real_nodes(tmp_path) as nodes,
        Admin(str(nodes.addresses[0])) as admin,
        kafka_listener(feature_level=nodes.nodes[0].node.feature_level) as listener,
    ):
        client = await listener.connect()

        async def announced() -> list[tuple[str, int]]:
            client.send(request_frame("ApiVersions", 4, versions))
            _, answer = decoded("ApiVersions", 4, await client.receive(), plain=True)
            return [(each.name, each.max_version_level) for each in answer.finalized_features]

        assert await announced() == [("transaction.version", 1)]
        await admin.update_features()
        assert await announced() == [("transaction.version", 2)]


async def test_a_node_that_has_not_read_the_metadata_does_not_take_them_for_old_ones() -> None:
    metadata = Reading()
    asking = asyncio.get_running_loop().create_task(InternalTopics(metadata, metadata.create).ensure(WANTED))
    await MachineClock().sleep_ms(20)
    assert not asking.done()
    metadata.image = image_of({}, feature_level=features.COORDINATORS)
    assert (await asking).name == WANTED.name


class Reading:
    """The metadata log of a node that starts."""

    def __init__(self) -> None:
        self.image = EMPTY

    async def wait_until(self, condition: Callable[[], bool], /) -> None:
        while not condition():
            await MachineClock().sleep_ms(1)

    async def create(self, request: CreateTopic) -> None:
        self.image = image_of({request.name: request.partitions}, feature_level=features.COORDINATORS)
