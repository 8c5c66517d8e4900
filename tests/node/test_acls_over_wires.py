"""ACLs in a cluster of three real nodes, as producers, consumers and operators meet them: over gRPC, on the disk.

Each principal has a listener of its own: who connects there has proved to be that one (tests/node/real_nodes.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from node.requests import produce_session
from tests.node.real_nodes import CALL_MS, OPERATOR, RealNodes, real_nodes, repeated
from tidelog import Admin, Consumer, Producer
from tidelog.errors import ClusterAuthorizationFailed, TidelogError, TopicAuthorizationFailed
from tidelog.protocol import methods
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.types import Codec, Millis, NodeId, Offset

PRINCIPALS = {"alice": "User:alice", "bob": "User:bob", "admin": "User:admin"}


def rule(
    principal: str,
    operation: AclOperation,
    name: str,
    *,
    permission: AclPermission = AclPermission.ALLOW,
    prefixed: bool = False,
    kind: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return AclBinding(kind, name, pattern, principal, "*", operation, permission)


OF_ADMIN = (
    rule("User:admin", AclOperation.ALL, CLUSTER_NAME, kind=ResourceType.CLUSTER),
    rule("User:admin", AclOperation.ALL, "*"),
)


def bootstrap(nodes: RealNodes, who: str) -> str:
    return ",".join(map(str, nodes.further[who]))


@asynccontextmanager
async def cluster(home: Path, count: int = 3) -> AsyncIterator[tuple[RealNodes, Admin]]:
    """A cluster in which the operator `admin` may do everything, and nobody else anything."""
    async with real_nodes(home, count, PRINCIPALS) as nodes:
        async with Admin(bootstrap(nodes, OPERATOR)) as first:
            await first.create_acls(OF_ADMIN)
        async with Admin(bootstrap(nodes, "admin")) as admin:
            await everywhere(nodes, OF_ADMIN)
            yield nodes, admin


async def everywhere(nodes: RealNodes, rules: tuple[AclBinding, ...]) -> None:
    """Until every node decides by exactly these rules."""
    images = [found.node for found in nodes.nodes.values()]
    await nodes.wait_until(lambda: all(each.image is not None and each.image.acls == {*rules} for each in images))


async def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += [record.value for record in await consumer.poll(timeout=1)]
    return found


async def test_producers_and_consumers_may_do_what_the_rules_say_until_they_change(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (nodes, admin):
        for topic in ("orders", "secret"):
            await repeated(partial(admin.create_topic, topic, partitions=3, replication_factor=3))
        given = (
            rule("User:alice", AclOperation.WRITE, "ord", prefixed=True),
            rule("User:bob", AclOperation.READ, "orders"),
        )
        assert await admin.create_acls(given) == 2
        await everywhere(nodes, (*OF_ADMIN, *given))

        async with Producer(bootstrap(nodes, "alice")) as producer, Consumer(bootstrap(nodes, "bob")) as consumer:
            for number in range(30):
                await producer.send("orders", b"%d" % number)
            consumer.assign([("orders", index) for index in range(3)])
            assert {*await read(consumer, 30)} == {b"%d" % number for number in range(30)}
            with pytest.raises(TopicAuthorizationFailed, match="User:alice has no permission to"):
                await producer.send("secret", b"x")
            async with Consumer(bootstrap(nodes, "alice")) as reader:
                reader.assign([("orders", 0)])
                with pytest.raises(TopicAuthorizationFailed, match="User:alice has no permission to READ topic orders"):
                    await read(reader, 1)

            denial = rule("User:alice", AclOperation.WRITE, "orders", permission=AclPermission.DENY)
            await admin.create_acls([denial])
            await admin.delete_acls([AclFilter(principal="User:bob")])
            await everywhere(nodes, (*OF_ADMIN, given[0], denial))
            with pytest.raises(TopicAuthorizationFailed, match="no permission to WRITE topic orders"):
                await producer.send("orders", b"too late")
            async with Producer(bootstrap(nodes, "admin")) as other:
                await asyncio.gather(*(other.send("orders", b"not for bob", partition=index) for index in range(3)))
            with pytest.raises(TopicAuthorizationFailed):
                await read(consumer, 1)
        assert [found.defects for found in nodes.past] == [[], [], []]


@pytest.mark.parametrize("then", ["append", "delete"])
async def test_a_fetch_that_waits_gets_nothing_once_its_permission_is_gone(tmp_path: Path, then: str) -> None:
    """It was allowed when it arrived. Neither a record that is appended after the change, nor the end of the topic, nor
    its epoch or log start is shown."""
    async with cluster(tmp_path, 1) as (nodes, admin):
        await admin.create_topic("orders", partitions=1, replication_factor=1)
        given = rule("User:bob", AclOperation.READ, "orders")
        await admin.create_acls([given])
        topic_id = (await admin.describe_topic("orders")).topic_id.bytes
        replicas = nodes.nodes[0].node.replicas
        assert replicas is not None
        registry = replicas.registry
        await nodes.wait_until(lambda: registry.find(topic_id, 0) is not None)
        stream = await nodes.transport.open_stream(nodes.further["bob"][0], methods.DATA_FETCH_STREAM)
        wanted = data_pb2.FetchPartition(
            fetch_id=1, topic_id=topic_id, current_leader_epoch=-1, last_fetched_epoch=-1, max_bytes=1 << 20
        )
        await stream.send(data_pb2.FetchRequest(max_wait_ms=CALL_MS, min_bytes=1, partitions=[wanted]))
        waiting = registry.find(topic_id, 0)
        assert waiting is not None
        await nodes.wait_until(lambda: bool(waiting._readers))
        await admin.delete_acls([AclFilter(principal="User:bob")])
        if then == "append":
            async with Producer(bootstrap(nodes, "admin")) as producer:
                await producer.send("orders", b"not for bob")
        else:
            await admin.delete_topic("orders")
        answer = await stream.receive()
        assert answer is not None
        (fetched,) = answer.partitions
        assert isinstance(fetched.error, TopicAuthorizationFailed)
        assert bytes(fetched.records) == b""
        assert (fetched.leader_epoch, fetched.log_start_offset) == (-1, -1)
        stream.close()


async def test_a_batch_whose_permission_is_gone_while_it_is_checked_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compressed batch is expanded on another thread, and decided on again when it is appended."""
    records = build_batch([Record(Offset(0), Millis(0), None, bytes(100_000))], Codec.GZIP)
    async with cluster(tmp_path, 1) as (nodes, admin):
        await admin.create_topic("orders", partitions=1, replication_factor=1)
        await admin.create_acls([rule("User:bob", AclOperation.WRITE, "orders")])
        topic_id = (await admin.describe_topic("orders")).topic_id.bytes
        await nodes.wait_led(topic_id)
        entry = ProduceBatch(correlation_id=1, topic_id=topic_id, partition=0, records=records)

        async def inspected(*_: object) -> None:
            await admin.delete_acls([AclFilter(principal="User:bob")])

        monkeypatch.setattr(produce_session, "takes_time", lambda *_: True)
        monkeypatch.setattr(produce_session.ProduceSession, "_inspected", inspected)
        request, at = ProduceRequest(-1, 0, [entry]), nodes.further["bob"][0]
        answer = await nodes.transport.call(at, methods.DATA_PRODUCE, request, timeout_ms=CALL_MS)
        (produced,) = answer.partitions
        assert isinstance(from_proto(produced.error), TopicAuthorizationFailed)
        assert (produced.leader_epoch, produced.log_start_offset, produced.base_offset) == (-1, -1, -1)


async def test_metadata_shows_a_principal_only_what_it_may_describe(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as (nodes, admin):
        for topic in ("orders", "secret"):
            await admin.create_topic(topic, partitions=1, replication_factor=1, configs={"retention.ms": "5000"})
        await admin.create_acls([rule("User:bob", AclOperation.DESCRIBE, "orders")])
        secret = (await admin.describe_topic("secret")).topic_id
        address = nodes.further["bob"][0]
        async with Admin(str(address)) as bob:
            (shown,) = await bob.list_topics()
            assert (shown.name, shown.configs) == ("orders", {}), "settings need DESCRIBE_CONFIGS"
            refusals = []
            for name in ("secret", "no-such-topic"):
                with pytest.raises(TopicAuthorizationFailed) as refused:
                    await bob.describe_topic(name)
                refusals.append(str(refused.value).replace(name, "NAME"))
            assert refusals[0] == refusals[1], "whether there is such a topic is not told"
            assert await bob.explain_partitions() == []
            with pytest.raises(ClusterAuthorizationFailed):
                await bob.describe_cluster()
            for request in (bob.describe_acls(), bob.create_acls(OF_ADMIN), bob.delete_acls([AclFilter()])):
                with pytest.raises(ClusterAuthorizationFailed, match="has no permission to"):
                    await request
        asked = admin_pb2.GetMetadataRequest(topic_ids=[secret.bytes])
        answer = await nodes.transport.call(address, methods.ADMIN_GET_METADATA, asked, timeout_ms=CALL_MS)
        assert "a topic that the request does not name" in answer.topics[0].error.message
        assert "secret" not in str(answer.topics)
        await admin.create_acls([rule("User:bob", AclOperation.DESCRIBE_CONFIGS, "orders")])
        async with Admin(str(address)) as bob:
            assert (await bob.describe_topic("orders")).configs["retention.ms"] == "5000"


async def test_rules_outlive_the_restart_of_every_node_and_changes_are_recorded(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (nodes, admin):
        await repeated(lambda: admin.create_topic("orders", partitions=1, replication_factor=3))
        kept = rule("User:bob", AclOperation.WRITE, "orders")
        await admin.create_acls([kept, rule("User:alice", AclOperation.WRITE, "orders")])
        await admin.delete_acls([AclFilter(principal="User:alice")])
        for number in range(3):
            await nodes.stop(number)
            await nodes.start(number)
            await nodes.wait_present(NodeId(number))
        await everywhere(nodes, (*OF_ADMIN, kept))
        for number in range(3):
            async with Admin(str(nodes.further["admin"][number])) as asked:
                assert {*await asked.describe_acls()} == {*OF_ADMIN, kept}
                decision = await asked.test_acl("User:bob", AclOperation.WRITE, ResourceType.TOPIC, "orders")
                assert (decision.allowed, decision.rule, decision.enforced) == (True, kept, True)
        async with Producer(bootstrap(nodes, "bob")) as producer:
            await producer.send("orders", b"still allowed")
        async with Producer(bootstrap(nodes, "alice")) as producer:
            with pytest.raises(TidelogError):
                await producer.send("orders", b"not any more")

        events: list[dict[str, Any]] = [json.loads(line) for line in nodes.audit]
        changes = [event for event in events if event["event"] == "change" and event["principal"] == "User:admin"]
        assert [(event["request"], event["outcome"]) for event in changes] == [
            ("Admin.CreateTopics", {"ok": 1}),
            ("Admin.CreateAcls", "ok"),
            ("Admin.DeleteAcls", "ok"),
        ]
        assert changes[1]["asked"]["bindings"][0]["principal"] == "User:bob"
        assert all(event["address"].startswith("ipv4:127.0.0.1:") for event in changes)
        assert {event["principal"] for event in events if event["event"] == "denied"} == {"User:alice"}
