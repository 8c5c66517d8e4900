"""A second protocol through the same boundary as gRPC: nothing but framing and codecs is its own (line_listener.py)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from node.boundary.boundary import Boundary
from node.quotas.throttle import Throttle
from tests.node.line_listener import LineListener, line
from tests.node.real_nodes import OPERATOR, RealNodes, real_nodes
from tidelog import Admin
from tidelog.records import RecordBatchBuilder
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from tidelog.types import QuotaEntity, QuotaType

TOPIC = "orders"


@dataclass
class Client:
    """A connection to the listener."""

    nodes: RealNodes
    boundary: Boundary
    listener: LineListener
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    topic_id: str = ""

    def send(self, api: str, **fields: object) -> None:
        self.writer.write(line(api=api, **fields))

    async def receive(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self.reader.readline())
        return answer

    async def ask(self, api: str, **fields: object) -> dict[str, Any]:
        self.send(api, **fields)
        return await self.receive()

    def produce(self, value: bytes, *, acks: int = -1) -> None:
        builder = RecordBatchBuilder()
        builder.append(key=None, value=value, timestamp=1_700_000_000_000)
        records = builder.build().hex()
        self.send("Data.Produce", acks=acks, topic_id=self.topic_id, partition=0, records=records)

    def fetch(self, offset: int, max_wait_ms: int = 10_000) -> None:
        fields = {"topic_id": self.topic_id, "partition": 0, "offset": offset, "max_wait_ms": max_wait_ms}
        self.send("Data.Fetch", client_id="reader", **fields)


@asynccontextmanager
async def client(home: Path, *allowed: AclOperation) -> AsyncIterator[Client]:
    """A client of a node, who may do this with the topic `orders`."""
    async with real_nodes(home, principals={"alice": "User:alice"}) as nodes:
        found = nodes.nodes[0]
        rules = [
            AclBinding(ResourceType.TOPIC, TOPIC, PatternType.LITERAL, "User:alice", "*", each, AclPermission.ALLOW)
            for each in allowed
        ]
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1)
            await admin.create_acls(rules)
        await nodes.wait_until(lambda: found.node.image is not None and found.node.image.acls == {*rules})
        boundary = replace(found.boundary, gates=found.node.services())
        listener = LineListener(boundary, "User:alice")
        server = await listener.start()
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        here = Client(nodes, boundary, listener, reader, writer)
        try:
            async with asyncio.timeout(60):
                described = await here.ask("Admin.GetMetadata", topics=[TOPIC])
                while described[TOPIC].get("leaders") == [-1]:  # the leader is elected after the topic exists
                    described = await here.ask("Admin.GetMetadata", topics=[TOPIC])
                here.topic_id = described[TOPIC].get("id", "")
                yield here
        finally:
            writer.close()
            server.close()


async def test_records_are_produced_and_fetched_and_answers_come_in_the_order_of_their_requests(tmp_path: Path) -> None:
    async with client(tmp_path, AclOperation.WRITE, AclOperation.READ) as here:
        here.fetch(0)  # waits for a record
        here.produce(b"first")
        here.produce(b"second")
        here.send("Admin.GetMetadata", topics=[TOPIC])
        fetched, first, second, described = [await here.receive() for _ in range(4)]
        assert b"first" in bytes.fromhex(fetched["records"])
        assert (first["base_offset"], second["base_offset"]) == (0, 1)
        assert described[TOPIC]["leaders"] == [0]
        assert here.boundary.meters.of("Data.Produce").answered == 2


async def test_a_produce_request_with_acks_0_has_no_answer(tmp_path: Path) -> None:
    async with client(tmp_path, AclOperation.WRITE, AclOperation.READ) as here:
        here.produce(b"unanswered", acks=0)
        here.fetch(0)
        assert b"unanswered" in bytes.fromhex((await here.receive())["records"])


async def test_what_the_caller_may_not_do_is_refused_and_recorded_as_over_grpc(tmp_path: Path) -> None:
    async with client(tmp_path, AclOperation.READ) as here:
        here.produce(b"denied")
        assert (await here.receive())["error"] == "TOPIC_AUTHORIZATION_FAILED"
        assert (await here.ask("Quorum.Vote"))["error"] == "CLUSTER_AUTHORIZATION_FAILED"
        assert (await here.ask("Admin.CreateTopic"))["error"] == "INVALID_REQUEST"
        denied = [event for event in map(json.loads, here.nodes.audit) if event["event"] == "denied"]
        assert [(each["request"], each["operation"], each["listener"]) for each in denied] == [
            ("Data.Produce", "WRITE", "lines"),
            ("Quorum.Vote", "CLUSTER_ACTION", "lines"),
        ]
        assert here.boundary.meters.of("Quorum.Vote").failed == {"CLUSTER_AUTHORIZATION_FAILED": 1}


async def test_a_throttled_connection_is_answered_at_once_and_muted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_throttle: Throttle, _size: int, _deadline_ms: int | None) -> None:
        pytest.fail("a request waits for its turn")

    monkeypatch.setattr(Throttle, "admit", never)
    async with client(tmp_path, AclOperation.WRITE, AclOperation.READ) as here:
        here.produce(b"x" * 1_000)
        assert (await here.receive())["throttle_time_ms"] == 0
        quotas = here.boundary.quotas
        quotas.limits.configure({QuotaEntity("alice", None): {QuotaType.CONSUMER_BYTE_RATE: 10.0}})
        quotas.enabled = True
        here.fetch(0)
        fetched = await here.receive()
        assert fetched["throttle_time_ms"] > 0
        assert len(fetched["records"]) > 2_000
        assert here.listener.is_muted
