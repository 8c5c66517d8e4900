"""A node with a user of the console."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from node.security.sasl_settings import SaslConfig
from tests.node.real_nodes import OPERATOR, RealNodes, real_nodes
from tests.node.sasl_nodes import knows_alice
from tidelog import Admin, Producer
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import Millis, SaslMechanism, ScramMechanism


@asynccontextmanager
async def with_alice(
    home: Path, *allowed: AclBinding, count: int = 1, mechanisms: tuple[SaslMechanism, ...] = tuple(ScramMechanism)
) -> AsyncIterator[RealNodes]:
    """Nodes with the user alice, who may do this, and the topic orders with three records."""
    sasl = SaslConfig(mechanisms, failure_delay_ms=Millis(50))
    async with real_nodes(home, count, principals={"others": "User:others"}, sasl=sasl) as nodes:
        operator = str(nodes.further[OPERATOR][0])
        async with Admin(operator) as admin, Producer(operator) as producer:
            await admin.set_password("alice", "tulip", iterations=4_096)
            await admin.create_topic("orders", partitions=1, replication_factor=1)
            for value in (b"first", b"second", b"third"):
                await producer.send("orders", value, partition=0)
            if allowed:
                await admin.create_acls(allowed)
        images = [each.node for each in nodes.nodes.values()]
        await nodes.wait_until(lambda: all(each.image is not None and each.image.acls == {*allowed} for each in images))
        await nodes.wait_until(lambda: all(knows_alice(nodes, number) for number in nodes.nodes))
        yield nodes


def allow(operation: AclOperation, kind: ResourceType = ResourceType.TOPIC, name: str = "*") -> AclBinding:
    return AclBinding(kind, name, PatternType.LITERAL, "User:alice", "*", operation, AclPermission.ALLOW)


CLUSTER = (ResourceType.CLUSTER, "kafka-cluster")
ALL = (
    allow(AclOperation.ALL),
    allow(AclOperation.ALL, *CLUSTER),
    allow(AclOperation.ALL, ResourceType.GROUP),
)
