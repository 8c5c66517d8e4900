"""Probes of addresses over real sockets, and what a node makes of them."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from node.api.quorum_requests import IntroduceRequest
from node.api.table import DATA_FETCH_STREAM, QUORUM_INTRODUCE
from node.config import GRPC_LISTENER
from node.controller.process_watch import ProcessWatch
from node.listeners.grpc.grpc_peers import GrpcPeers
from tests.node.metadata_world import MetadataWorld, endpoint_of
from tests.node.wires import Wires
from tidelog.clock import MachineClock
from tidelog.errors import ConnectionFailed
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.v1 import admin_pb2
from tidelog.security.tls_files import Tls
from tidelog.types import Endpoint, NodeId


def is_refused(host: str, port: int) -> bool:
    async def probe() -> bool:
        transport = GrpcTransport()
        try:
            return await transport.is_refused(Endpoint(host, port), timeout_ms=5_000)
        finally:
            await transport.close()

    return asyncio.run(probe())


def test_an_address_without_a_listener_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert is_refused("127.0.0.1", port)
    assert is_refused("localhost", port)


@pytest.mark.parametrize("host", ["no\0host", "h" * 70 + ".x"])
def test_an_impossible_address_refuses_nothing(host: str) -> None:
    """Another node registered it: the probe must not end this one."""
    assert not is_refused(host, 9092)


def test_a_process_that_accepts_nothing_still_listens() -> None:
    """As a paused process: its system completes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_refused("127.0.0.1", server.getsockname()[1])


async def test_calls_and_streams_that_fail_report_their_address() -> None:
    wires = Wires()
    failed: list[Endpoint] = []
    peers = GrpcPeers(wires)
    peers.when_failed.append(failed.append)
    attempts: tuple[Callable[[], object], ...] = (
        lambda: peers.call(endpoint_of(1), QUORUM_INTRODUCE, IntroduceRequest(NodeId(0)), timeout_ms=100),
        lambda: peers.open_stream(endpoint_of(2), DATA_FETCH_STREAM),
    )
    for attempt in attempts:
        try:
            await attempt()  # type: ignore[misc]
        except ConnectionFailed:
            continue
        raise AssertionError("it was answered")
    assert failed == [endpoint_of(1), endpoint_of(2)]


def test_a_node_probes_a_broken_connection_until_its_node_is_fenced() -> None:
    """Three nodes, node 2 is killed: the others report it, the controller counts the fencing by its cause, and nothing
    is probed any more."""
    with MetadataWorld(3, voters=3) as world:
        world.start(0, 1, 2)
        world.run_until(lambda: world.unfenced(0) == {0, 1, 2}, what="all nodes serve")
        world.kill(2)
        began = world.loop.time()
        world.run_until(lambda: world.unfenced(0) == {0, 1}, what="the dead node is fenced")
        assert world.loop.time() - began < 1.5
        counted = [
            node_run.node.controller.fencings for node_run in world.node_runs.values() if node_run.node is not None
        ]
        assert sum(sum(each.values()) for each in counted) == 1
        world.loop.run_for(1)
        watches = [node_run.node.watch for node_run in world.node_runs.values() if node_run.node is not None]
        assert not any(watch._watched or watch.refused for watch in watches[:2])


async def test_a_connection_that_breaks_while_the_watch_ends_is_ignored() -> None:
    """As other connections do while a node stops: the error of the connection must remain the one that is raised."""
    nodes = {
        NodeId(each): SimpleNamespace(
            node_id=NodeId(each), node_epoch=7, fenced=False, listeners={GRPC_LISTENER: endpoint_of(each)}
        )
        for each in (1, 2)
    }
    view: Any = SimpleNamespace(node_id=NodeId(0), leader_id=NodeId(0), leader_epoch=1)
    metadata: Any = SimpleNamespace(image=SimpleNamespace(nodes=nodes))
    probed: list[Endpoint] = []

    async def is_refused(to: Endpoint, *, timeout_ms: int) -> bool:
        probed.append(to)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            return await answer
        finally:
            for call in peers.when_failed:
                call(endpoint_of(2))

    peers: Any = SimpleNamespace(is_refused=is_refused, when_failed=[])
    clock = MachineClock()
    watch = ProcessWatch(
        view,
        metadata,
        listeners=(GRPC_LISTENER,),
        clock=clock,
        peers=peers,
        on_refused=lambda: None,
        on_leader_refused=lambda _epoch, _node: None,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watch.run())
        await clock.sleep_ms(0)
        watch.probe(NodeId(1))
        await clock.sleep_ms(0)
        running.cancel()
    assert probed == [endpoint_of(1)]


async def test_a_connection_that_was_given_up_is_not_tried_again_while_its_error_exists() -> None:
    """A call of gRPC that is referenced keeps its closed channel connecting, and logging each attempt, for ever."""

    def calls() -> list[object]:
        return [each for each in gc.get_objects() if isinstance(each, grpc.aio.Call)]

    gc.collect()
    before = len(calls())
    gc.disable()
    try:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        to = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        transport = GrpcTransport(tls=Tls())
        with pytest.raises(ConnectionFailed) as unary:
            await transport.call(to, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(), timeout_ms=1_000)
        await transport.close()
        server.close()
        assert unary.value.message, "it exists"
        assert len(calls()) == before
    finally:
        gc.enable()
