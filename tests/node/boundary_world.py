"""A listener with a boundary and a data service of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from node.boundary.boundary import Boundary, ProtocolCodec
from node.listeners.grpc.codecs import codec_of
from node.listeners.grpc.server import GrpcServer
from node.requests.context import RequestContext
from node.requests.gate import Gate
from testbed.topic_requests import changed, creating
from tests.node.nanoseconds import Nanoseconds
from tests.node.real_nodes import CALL_MS, RealNodes
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchAnswer, ProduceBatch, ProduceRequest
from tidelog.records import Record, build_batch
from tidelog.types import Endpoint, Millis, Offset

LOOPBACK = Endpoint("127.0.0.1", 0)


def batch(*values: bytes) -> bytes:
    return build_batch([Record(Offset(i), Millis(1_700_000_000_000), None, value) for i, value in enumerate(values)])


def entry(topic_id: bytes, records: bytes, *, partition: int = 0, batch_id: int = 1) -> ProduceBatch:
    return ProduceBatch(correlation_id=batch_id, topic_id=topic_id, partition=partition, records=records)


def produce(*entries: ProduceBatch, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(acks=acks, timeout_ms=CALL_MS, partitions=list(entries))


def fetch(topic_id: bytes, offset: int, *, max_wait_ms: int = 0) -> data_pb2.FetchRequest:
    wanted = data_pb2.FetchPartition(
        fetch_id=1,
        topic_id=topic_id,
        fetch_offset=offset,
        max_bytes=1 << 20,
        current_leader_epoch=-1,
        last_fetched_epoch=-1,
    )
    return data_pb2.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, partitions=[wanted])


async def create_topic(nodes: RealNodes, **configs: str) -> bytes:
    request = creating(name="orders", partitions=1, replication_factor=1, configs=configs)
    topic_id = changed(await nodes.call(0, methods.ADMIN_CREATE_TOPICS, request)).topic_id
    await nodes.wait_led(topic_id)
    return topic_id


@asynccontextmanager
async def listener(
    gate: Gate, boundary: Boundary, codec_of: Callable[[str], ProtocolCodec] = codec_of
) -> AsyncIterator[tuple[GrpcTransport, Endpoint]]:
    """A listener of its own for the Data service."""
    server, transport = GrpcServer("client", boundary=boundary), GrpcTransport()
    address = server.bind(LOOPBACK)
    server.serve({"Data": gate}, codec_of=codec_of)
    await server.start()
    try:
        yield transport, address
    finally:
        await transport.close()
        await server.stop(0)


@dataclass
class Data:
    """A Data service whose behaviour the test sets."""

    clock: Nanoseconds
    context: RequestContext | None = None

    def __getattr__(self, _rpc: str) -> Any:
        return self._unwanted

    async def _unwanted(self, _request: Any, _context: RequestContext) -> Any:
        raise AssertionError

    async def produce(self, _request: Any, context: RequestContext) -> Any:
        """Works for 30 ms."""
        self.context = context
        self.clock.pass_ms(30)
        return data_pb2.ProduceResponse()

    async def produce_stream(self, stream: Any, context: RequestContext) -> None:
        """Answers each message."""
        self.context = context
        while await stream.receive() is not None:
            await stream.send(data_pb2.ProduceResponse())

    async def fetch(self, request: Any, context: RequestContext) -> Any:
        """Waits for as long as requested, plus 1 ms."""
        over = asyncio.Event()

        def pass_time() -> None:
            self.clock.pass_ms(request.max_wait_ms + 1)
            over.set()

        asyncio.get_running_loop().call_soon(pass_time)
        await over.wait()
        return FetchAnswer([])
