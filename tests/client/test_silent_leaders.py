"""Leaders that do not answer, while the metadata still name them: what others lead is known nevertheless."""

from __future__ import annotations

import logging
from asyncio import Barrier, timeout
from typing import Any

import pytest

from tests.client.jumping_clock import WaitsNotAtAll
from tests.client.memory_cluster import memory_cluster
from tidelog.cli.top_command import look_at
from tidelog.cli.top_figures import topic_flows
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.clock import MachineClock
from tidelog.errors import ConnectionFailed, RequestTimedOut, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.types import Endpoint, TopicPartition

LOST = ("orders", 1)


async def test_offsets_of_other_leaders_are_returned_and_the_reason_is_not_that_the_time_was_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last attempt has a millisecond left: its timeout is no answer to why the leader cannot be reached."""
    call, causes = GrpcTransport.call, [ConnectionFailed("no connection")]

    async def unreachable(self: GrpcTransport, to: Endpoint, method: Any, request: Any, *, timeout_ms: int) -> Any:
        if method is methods.DATA_LIST_OFFSETS and to == lost:
            raise causes.pop() if causes else RequestTimedOut("1 ms passed")
        return await call(self, to, method, request, timeout_ms=timeout_ms)

    monkeypatch.setattr(GrpcTransport, "call", unreachable)
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 2)
        async with Producer(cluster.bootstrap) as producer:
            await producer.send("orders", b"one", partition=0)
        lost = cluster.nodes[1].endpoint
        async with Admin(cluster.bootstrap, clock=WaitsNotAtAll()) as admin:
            missing: dict[TopicPartition, TidelogError] = {}
            found = await admin.list_offsets([("orders", 0), LOST], on_missing=missing.__setitem__)
            assert found == {("orders", 0): 1}
            assert list(missing) == [LOST]
            assert type(missing[TopicPartition(*LOST)]) is ConnectionFailed
            causes.append(ConnectionFailed("no connection"))
            with pytest.raises(ConnectionFailed, match="no connection"):
                await admin.list_offsets([("orders", 0), LOST])
        warned = [each for each in caplog.records if "no answer from the leader of orders-1" in each.getMessage()]
        assert len(warned) == 2, "one for each call, not for each attempt"
        assert {(each.name, each.levelno) for each in warned} == {("tidelog.client", logging.WARNING)}


async def test_leaders_are_asked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes long does not hold up the questions to others. Method: each answers only when all are asked."""
    call, asked = GrpcTransport.call, Barrier(3)

    async def together(self: GrpcTransport, to: Endpoint, method: Any, request: Any, *, timeout_ms: int) -> Any:
        if method is methods.DATA_LIST_OFFSETS:
            async with timeout(20):
                await asked.wait()
        return await call(self, to, method, request, timeout_ms=timeout_ms)

    monkeypatch.setattr(GrpcTransport, "call", together)
    async with memory_cluster(3) as cluster:
        cluster.create("orders", 3)
        for number in range(3):
            cluster.lead("orders", number, number)
        async with Admin(cluster.bootstrap) as admin:
            places = [("orders", number) for number in range(3)]
            assert await admin.list_offsets(places, "latest") == dict.fromkeys(places, 0)


async def test_top_shows_what_is_known_and_nothing_for_what_is_not() -> None:
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 1)
        cluster.create("returns", 2)
        cluster.lead("orders", 0, 1)
        async with Producer(cluster.bootstrap) as producer:
            await producer.send("returns", b"one", partition=0)
        await cluster.nodes[1].stop()
        async with Admin(cluster.bootstrap, patience_ms=300) as admin:
            look = await look_at(admin, MachineClock())
    assert {each.topic: each.records for each in topic_flows(None, look)} == {"orders": None, "returns": 1}
