"""Epochs at and beyond the limits, and a request that shows that a cluster still works."""

from __future__ import annotations

from replication.raft.epoch_limits import EPOCH_LAST, EPOCH_MAX
from testbed.topic_requests import changed, creating
from tests.node.real_nodes import RealNodes
from tidelog.protocol import methods

EPOCHS = (EPOCH_MAX, EPOCH_MAX - 1, EPOCH_LAST + 1, EPOCH_LAST, 2_000, 2)


async def create_topic(nodes: RealNodes, name: str) -> None:
    request = creating(name=name, partitions=1, replication_factor=1)
    changed(await nodes.call(0, methods.ADMIN_CREATE_TOPICS, request))
