"""A write into a topic that does not exist fails on the driver, before any task runs."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from tests.client.memory_cluster import cluster_in_a_thread
from tidelog.errors import UnknownTopicOrPartition
from tidelog.protocol.v1.admin_pb2 import GetMetadataRequest
from tidelog.spark.source import TidelogDataSource

VALUES = StructType().add("value", "binary")


def test_an_unknown_topic_is_refused_before_a_task_waits_for_it() -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        given = {"tidelog.bootstrap.servers": cluster.bootstrap}
        TidelogDataSource({**given, "topic": "orders"}).writer(VALUES, overwrite=False)
        for exactly_once in ("true", "false"):
            source = TidelogDataSource({**given, "topic": "ordres", "exactlyOnce": exactly_once})
            for make in (source.writer, source.streamWriter):
                with pytest.raises(UnknownTopicOrPartition, match=r"option 'topic' is 'ordres'.*tidelog topic create"):
                    make(VALUES, overwrite=False)


def test_a_topic_that_one_node_has_not_heard_of_yet_exists() -> None:
    with cluster_in_a_thread() as cluster:
        before = cluster.metadata(GetMetadataRequest(topics=["new"]))
        cluster.nodes[0].on_get_metadata = lambda request: before
        cluster.create("new")
        given = {"tidelog.bootstrap.servers": str(cluster.nodes[0].endpoint), "topic": "new"}
        TidelogDataSource(given).streamWriter(VALUES, overwrite=False)
