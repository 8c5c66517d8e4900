"""When the internal topics are created, and with how many replicas: they stay as they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from node.coordinators import internal_topics
from node.coordinators.internal_topics import InternalTopic, InternalTopics
from replication.controller import features
from replication.controller.events import CreateTopic
from replication.controller.image import ClusterImage
from tests.replication import group_stories
from tidelog.clock import MachineClock
from tidelog.types import NodeId

WANTED = InternalTopic("__consumer_offsets", 2)


class Cluster:
    """The metadata of three registered nodes, of which some are fenced, as one node sees them."""

    def __init__(self, *fenced: int, draining: bool = False) -> None:
        self.created: list[CreateTopic] = []
        self.image = self._image_of({})
        for node in fenced:
            self.change(node, fenced=True, draining=draining)

    def _image_of(self, topics: dict[str, int]) -> ClusterImage:
        image = group_stories.image_of(topics, racks=dict.fromkeys((1, 2, 3), ""))
        return replace(image, feature_level=features.COORDINATORS)

    def change(self, node: int, *, fenced: bool, draining: bool = False, cordoned: bool = False) -> None:
        changed = replace(self.image.nodes[NodeId(node)], fenced=fenced, draining=draining, cordoned=cordoned)
        self.image = replace(self.image, nodes={**self.image.nodes, changed.node_id: changed})

    async def wait_until(self, condition: Callable[[], bool], /) -> None:
        while not condition():
            await MachineClock().sleep_ms(1)

    async def create(self, request: CreateTopic) -> None:
        self.created.append(request)
        self.image = replace(self._image_of({request.name: request.partitions}), nodes=self.image.nodes)


async def test_the_first_use_of_a_cluster_that_starts_waits_for_its_nodes() -> None:
    """Each first replica of the 50 partitions was on the node that ran first, alone in sync."""
    cluster = Cluster(2, 3)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(InternalTopics(cluster, cluster.create).ensure(WANTED))
        for node in (2, 3):
            await MachineClock().sleep_ms(10)
            assert not cluster.created
            cluster.change(node, fenced=False)
    assert [each.replication_factor for each in cluster.created] == [3]


async def test_it_ends_when_another_node_has_created_the_topic() -> None:
    cluster = Cluster(2, 3)
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(InternalTopics(cluster, cluster.create).ensure(WANTED))
        await MachineClock().sleep_ms(10)
        await cluster.create(WANTED.request(3))
    assert asking.result().name == WANTED.name
    assert len(cluster.created) == 1


async def test_groups_work_although_a_node_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topics, "NODES_MS", 30)
    cluster = Cluster(3)
    await InternalTopics(cluster, cluster.create).ensure(WANTED)
    assert [each.replication_factor for each in cluster.created] == [3]


@pytest.mark.parametrize(
    ("fenced", "stopped", "factor"),
    [((), False, -1), ((3,), True, -1), ((2, 3), False, 1)],
    ids=["all run", "one was stopped", "one replica is wanted"],
)
async def test_no_node_is_awaited_without_need(fenced: tuple[int, ...], stopped: bool, factor: int) -> None:
    cluster = Cluster(*fenced, draining=stopped)
    async with asyncio.timeout(internal_topics.NODES_MS / 2_000):
        await InternalTopics(cluster, cluster.create).ensure(replace(WANTED, replication_factor=factor))
    assert len(cluster.created) == 1


async def test_a_cordoned_node_that_is_down_is_not_awaited() -> None:
    """It would get no replica: whether the others suffice is for the controller to decide."""
    cluster = Cluster()
    cluster.change(3, fenced=True, cordoned=True)
    async with asyncio.timeout(internal_topics.NODES_MS / 2_000):
        await InternalTopics(cluster, cluster.create).ensure(WANTED)
    assert [each.replication_factor for each in cluster.created] == [3]
