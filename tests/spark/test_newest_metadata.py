"""A query asks all nodes for the newest metadata, also if its options name one of them, which lags.

Spark itself is not needed: its client runs against a cluster in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.client.memory_cluster import memory_cluster
from tidelog.protocol.v1.admin_pb2 import GetMetadataRequest
from tidelog.spark.options.topic_selection import TopicSelection
from tidelog.spark.ranges.read_admin import ReadAdmin


@asynccontextmanager
async def lagging_bootstrap(*, other_runs: bool = True) -> AsyncIterator[ReadAdmin]:
    """The client of a query, which knows only the address of a node that has not heard of the topic `new` yet."""
    async with memory_cluster(2) as cluster:
        cluster.create("old")
        requests = [GetMetadataRequest(topics=["old", "new"]), GetMetadataRequest(all_topics=True)]
        known = {request.all_topics: cluster.metadata(request) for request in requests}
        cluster.nodes[0].on_get_metadata = lambda request: known[request.all_topics]
        cluster.create("new")
        if not other_runs:
            await cluster.nodes[1].stop()
        async with ReadAdmin(str(cluster.nodes[0].endpoint)) as admin:
            yield admin


@pytest.mark.parametrize("selection", [TopicSelection(topics=("old", "new")), TopicSelection(pattern=".*")], ids=str)
async def test_nodes_that_only_an_answer_names_are_asked(selection: TopicSelection) -> None:
    """The first question of a session: nothing but the bootstrap address is known."""
    async with lagging_bootstrap() as admin:
        assert sorted((await admin.newest_snapshot(selection)).topics) == ["new", "old"]


async def test_a_named_node_that_does_not_answer_is_passed_over() -> None:
    async with lagging_bootstrap(other_runs=False) as admin:
        assert sorted((await admin.newest_snapshot(TopicSelection(pattern=".*"))).topics) == ["old"]
