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

    def send(self, api: str, **fields: object) -> None:
        self.writer.write(line(api=api, **fields))

    async def receive(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(await self.reader.readline())
        return answer

    async def ask(self, api: str, **fields: object) -> dict[str, Any]:
        self.send(api, **fields)
        return await self.receive()

    def produce(self, *values: bytes, acks: int = -1, topic: str = TOPIC) -> None:
        """One batch with each value, in the partitions from 0 on."""
        batches = [(topic, partition, batch(value).hex()) for partition, value in enumerate(values)]
        self.send("Data.Produce", acks=acks, batches=batches)

    def fetch(self, *offsets: int, max_wait_ms: int = 10_000, min_bytes: int = 1, max_bytes: int = 0) -> None:
        """From the partitions from 0 on."""
        positions = [(TOPIC, partition, offset) for partition, offset in enumerate(offsets)]
        limits = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes}
        self.send("Data.Fetch", client_id="reader", positions=positions, **limits)

    async def fetched(self) -> list[dict[str, Any]]:
        """The partitions of the next answer."""
        found: list[dict[str, Any]] = (await self.receive())["partitions"]
        return found


def batch(value: bytes) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(key=None, value=value, timestamp=1_700_000_000_000)
    return builder.build()


@asynccontextmanager
async def client(home: Path, *allowed: AclOperation, topic: str = TOPIC) -> AsyncIterator[Client]:
    """A client of a node, who may do this with the topic. There is the topic `orders`."""
    async with real_nodes(home, principals={"alice": "User:alice"}) as nodes:
        found = nodes.nodes[0]
        rules = [
            AclBinding(ResourceType.TOPIC, topic, PatternType.LITERAL, "User:alice", "*", each, AclPermission.ALLOW)
            for each in allowed
        ]
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            await admin.create_topic(TOPIC, partitions=3, replication_factor=1)
            await admin.create_acls(rules)
        await nodes.wait_until(lambda: found.node.image is not None and found.node.image.acls == {*rules})
        await nodes.wait_led(TOPIC, 3)
        boundary = replace(found.boundary, gates=found.node.services)
        listener = LineListener(boundary, "User:alice")
        server = await listener.start()
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        here = Client(nodes, boundary, listener, reader, writer)
        try:
            async with asyncio.timeout(60):
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
        [fetched] = await here.fetched()
        first, second, described = [await here.receive() for _ in range(3)]
        assert b"first" in bytes.fromhex(fetched["records"])
        assert (first["batches"], second["batches"]) == ([{"base_offset": 0}], [{"base_offset": 1}])
        assert described[TOPIC]["leaders"] == [0, 0, 0]
        assert here.boundary.meters.of("Data.Produce").answered == 2


async def test_a_produce_request_with_acks_0_has_no_answer(tmp_path: Path) -> None:
    async with client(tmp_path, AclOperation.WRITE, AclOperation.READ) as here:
        here.produce(b"unanswered", acks=0)
        here.fetch(0)
        [fetched] = await here.fetched()
        assert b"unanswered" in bytes.fromhex(fetched["records"])


async def test_the_batches_of_a_request_are_answered_in_its_order_errors_included(tmp_path: Path) -> None:
    async with client(tmp_path, AclOperation.WRITE) as here:
        here.produce(b"a", b"b", b"c", b"there is no partition 3")
        *appended, refused = (await here.receive())["batches"]
        assert appended == [{"base_offset": 0}] * 3
        assert refused["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_a_topic_is_named_and_a_name_that_may_not_be_used_says_nothing_about_topics(tmp_path: Path) -> None:
    async with client(tmp_path, AclOperation.WRITE, topic="mine") as here:
        for topic in ("mine", TOPIC, "missing"):
            here.produce(b"no such topic, or denied", topic=topic)
        unknown, *denied = [(await here.receive())["batches"][0] for _ in range(3)]
        assert unknown["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert "topic 'mine' does not exist" in unknown["message"]
        assert [each["error"] for each in denied] == ["TOPIC_AUTHORIZATION_FAILED"] * 2
        assert "to WRITE topic missing" in denied[1]["message"]


async def test_a_fetch_is_limited_over_its_partitions_but_returns_the_first_batch_whole(tmp_path: Path) -> None:
    size = len(batch(b"x" * 100))
    async with client(tmp_path, AclOperation.WRITE, AclOperation.READ) as here:
        for _ in range(2):
            here.produce(*[b"x" * 100] * 3)
            await here.receive()
        for max_bytes, sizes in (
            (1, [size, 0, 0]),
            (2 * size, [2 * size, 0, 0]),
            (3 * size - 1, [2 * size, 0, 0]),
            (3 * size, [2 * size, size, 0]),
            (0, [2 * size] * 3),
        ):
            here.fetch(0, 0, 0, max_bytes=max_bytes)
            fetched = await here.fetched()
            assert [each["partition"] for each in fetched] == [0, 1, 2]
            assert [len(each["records"]) // 2 for each in fetched] == sizes
            assert {each["high_watermark"] for each in fetched} == {2}
        here.fetch(2, 0, 2, max_bytes=1)
        assert [len(each["records"]) // 2 for each in await here.fetched()] == [0, size, 0]


async def test_a_fetch_waits_until_all_its_partitions_together_have_enough(tmp_path: Path) -> None:
    size = len(batch(b"x" * 100))
    async with client(tmp_path, AclOperation.WRITE, AclOperation.READ) as here:
        here.fetch(0, 0, 0, min_bytes=6 * size, max_wait_ms=60_000)
        for _ in range(2):
            here.produce(*[b"x" * 100] * 3)
        assert [len(each["records"]) // 2 for each in await here.fetched()] == [2 * size] * 3


async def test_one_partition_with_records_or_an_error_ends_the_wait_of_all(tmp_path: Path) -> None:
    async with client(tmp_path, AclOperation.WRITE, AclOperation.READ) as here:
        here.produce(b"a", b"b")
        await here.receive()
        here.fetch(1, 0, 0, max_wait_ms=60_000)
        first, second, third = await here.fetched()
        assert (first["records"], third["records"]) == ("", "")
        assert second["records"]
        here.fetch(1, 1, 5, max_wait_ms=60_000)
        *others, third = await here.fetched()
        assert not any(each["records"] for each in others)
        assert third["error"] == "OFFSET_OUT_OF_RANGE"
        assert (third["high_watermark"], third["log_start_offset"]) == (0, 0)


async def test_what_the_caller_may_not_do_is_refused_and_recorded_as_over_grpc(tmp_path: Path) -> None:
    async with client(tmp_path, AclOperation.READ) as here:
        here.produce(b"denied")
        [refused] = (await here.receive())["batches"]
        assert refused["error"] == "TOPIC_AUTHORIZATION_FAILED"
        assert (await here.ask("Quorum.Vote"))["error"] == "CLUSTER_AUTHORIZATION_FAILED"
        assert (await here.ask("Admin.CreateTopics"))["error"] == "INVALID_REQUEST"
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
        assert len(fetched["partitions"][0]["records"]) > 2_000
        assert here.listener.is_muted
