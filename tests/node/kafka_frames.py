"""A listener of Kafka's protocol on loopback, with a service that a test sets, and a client that sends any bytes."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from node.api.fetch import FetchRequest
from node.api.marker_requests import AbortTransactionAnswer, AbortTransactionRequest
from node.api.metadata import GetMetadataAnswer, GetMetadataRequest, TopicMetadata
from node.api.produce import ProduceAnswer, ProducedBatch
from node.api.producers import InitProducerIdAnswer
from node.boundary.boundary import Boundary, EncodedAnswer
from node.listeners.kafka.kafka_server import KafkaServer
from node.listeners.kafka.kafka_tls import KafkaTls
from node.requests.context import RequestContext
from node.requests.gate import Gate
from node.security.sasl_authenticator import SaslAuthenticator
from replication.controller import features
from tests.protocol.kafka_messages import ROOT, Message, generated
from tidelog.record_exchange import AnswerMemory, FetchAnswer, FetchedPartition, ProduceRequest
from tidelog.types import NO_TIMESTAMP, Endpoint, LeaderEpoch, NodeAddress, NodeId, Offset, ProducerId

LOOPBACK = Endpoint("127.0.0.1", 0)
FRAME_BYTES_MAX = 1 << 20
MEMORY_BYTES_MAX = 5 * FRAME_BYTES_MAX // 2
"""Room for two of the largest frames, and a share for small ones."""

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18


@cache
def both_ways(name: str) -> Message:
    """A message of a request or an answer, that can be read and written."""
    path: Path = ROOT / "tidelog/protocol/kafka/schemas" / f"{name}.json"
    return generated(path.read_text(encoding="utf-8"))


def request_frame(name: str, version: int, message: Any, correlation_id: int = 1, client_id: str = "c") -> bytes:
    """The frame of a request. message: of `both_ways(f"{name}Request")`."""
    codec = both_ways(f"{name}Request").codec
    tags = b"\0" if version >= codec.flexible_from else b""
    head = struct.pack(">hhi", codec.api_key, version, correlation_id)
    return framed(head + struct.pack(">h", len(client_id)) + client_id.encode() + tags + codec.encode(message, version))


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def decoded(name: str, version: int, answer: bytes, *, plain: bool = False) -> tuple[int, Any]:
    """The correlation id and the message of an answer. plain: it has the header of ApiVersions."""
    codec = both_ways(f"{name}Response").codec
    start = 5 if version >= codec.flexible_from and not plain else 4
    message, end = codec.decode(answer, version, start)
    assert end == len(answer)
    return int.from_bytes(answer[:4], "big"), message


def metadata(*topics: str, correlation_id: int = 1, version: int = 9) -> bytes:
    module = both_ways("MetadataRequest").module
    named = tuple(module.MetadataRequestTopic(name=each) for each in topics)
    return request_frame("Metadata", version, module.MetadataRequest(named), correlation_id)


def produce(value: bytes, acks: int = -1, correlation_id: int = 1, version: int = 9) -> bytes:
    """A request with these bytes in place of a batch."""
    module = both_ways("ProduceRequest").module
    data = module.TopicProduceData(name="orders", partition_data=(module.PartitionProduceData(0, value),))
    return request_frame("Produce", version, module.ProduceRequest(None, acks, 1_000, (data,)), correlation_id)


def fetch(offset: int = 0, correlation_id: int = 1, version: int = 12, **fields: Any) -> bytes:
    module = both_ways("FetchRequest").module
    topic = module.FetchTopic(topic="orders", partitions=(module.FetchPartition(0, offset, 1 << 20),))
    message = module.FetchRequest(
        **{"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "topics": (topic,), **fields}
    )
    return request_frame("Fetch", version, message, correlation_id)


@dataclass
class Service:
    """The handlers behind the listener."""

    begun: list[Any] = field(default_factory=list)
    """The requests that were begun, in order."""
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever a request is begun."""
    holds: dict[object, asyncio.Event] = field(default_factory=dict)
    """Events that requests wait for: those of a topic name, or of records."""
    error: Exception | None = None
    """Raised by each request."""
    records: bytes = b"records"
    """The answer of a fetch, for each partition."""
    charge: AnswerMemory | None = None
    """The memory of that answer."""
    topics: tuple[TopicMetadata, ...] = ()
    """The answer to a request for metadata."""
    contexts: list[RequestContext] = field(default_factory=list)
    address: Endpoint = LOOPBACK
    """Of the listener, for clients that follow the metadata."""

    async def _begin(self, request: object, key: object, context: RequestContext) -> None:
        self.begun.append(request)
        self.contexts.append(context)
        self.waiting.set()
        if key in self.holds:
            await self.holds[key].wait()
        if self.error is not None:
            raise self.error

    async def until_begun(self, count: int) -> None:
        while len(self.begun) < count:
            self.waiting.clear()
            await self.waiting.wait()

    async def get_metadata(self, request: GetMetadataRequest, context: RequestContext) -> GetMetadataAnswer:
        await self._begin(request, next(iter(request.topics), None), context)
        node = NodeAddress(NodeId(0), self.address)
        return GetMetadataAnswer("cluster", NodeId(0), (node,), self.topics, Offset(0))

    async def produce(self, request: ProduceRequest, context: RequestContext) -> ProduceAnswer:
        assert context.appends is not None
        async with context.appends:
            key = bytes(request.partitions[0].records)
        await self._begin(request, key, context)
        offset = Offset(len(self.begun))
        batch = ProducedBatch(None, offset, NO_TIMESTAMP, Offset(0), LeaderEpoch(0))
        return ProduceAnswer([batch] * len(request.partitions))

    async def init_producer_id(self, request: object, context: RequestContext) -> InitProducerIdAnswer:
        """Of both services that have it."""
        await self._begin(request, "init", context)
        return InitProducerIdAnswer(ProducerId(12), 3)

    async def abort_transaction(
        self, request: AbortTransactionRequest, context: RequestContext
    ) -> AbortTransactionAnswer:
        await self._begin(request, "abort", context)
        return AbortTransactionAnswer()

    async def fetch(self, request: FetchRequest, context: RequestContext) -> FetchAnswer:
        await self._begin(request, "fetch", context)
        return FetchAnswer(
            [
                FetchedPartition(
                    each.topic_id, each.partition, LeaderEpoch(0), Offset(9), Offset(8), Offset(0), records=self.records
                )
                for each in request.partitions
            ],
            self.charge,
        )


class Throttling(Boundary):
    """A boundary whose callers exceed a quota with each request."""

    __slots__ = ()
    throttle_ms = 60

    async def serve(self, api: Any, request: Any, caller: Any) -> EncodedAnswer:
        answer = await super().serve(api, request, caller)
        data = request.codec.encode(answer.value, self.throttle_ms)
        return EncodedAnswer(data, answer.value, self.throttle_ms)


@dataclass
class Connection:
    """A client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def receive(self) -> bytes:
        """The next answer, without its size."""
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4), "big"))

    async def correlation_id(self) -> int:
        """That of the next answer."""
        return int.from_bytes((await self.receive())[:4], "big")

    async def is_closed(self) -> bool:
        """Wait for the end of the connection. Returns False if an answer comes instead."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def ends_early(self) -> bool:
        """Read to the end of the connection. Returns whether it came before the end of an answer."""
        try:
            await self.receive()
        except (ConnectionError, asyncio.IncompleteReadError):
            return True
        return False


@dataclass
class Listener:
    """The listener, its service, and its clients."""

    server: KafkaServer
    service: Service
    address: Endpoint
    clients: list[Connection] = field(default_factory=list)

    @property
    def state(self) -> Any:
        """What its connections share."""
        return self.server._state

    def is_stopping(self) -> bool:
        server = self.server._server
        return server is not None and not server.is_serving()

    async def connect(self, tls: ssl.SSLContext | None = None) -> Connection:
        client = Connection(*await asyncio.open_connection(self.address.host, self.address.port, ssl=tls))
        self.clients.append(client)
        return client

    async def until(self, reached: Any) -> None:
        """Let the loop turn until the condition holds; a test that is wrong ends by its timeout."""
        while not reached():
            await _turn()


async def _turn() -> None:
    """One turn of the loop, with a look at the sockets."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.001, done.set)
    await done.wait()


@asynccontextmanager
async def kafka_listener(
    boundary: Boundary | None = None,
    connections_max: int = 100,
    tls: KafkaTls | None = None,
    sasl: SaslAuthenticator | None = None,
    feature_level: Callable[[], int] = lambda: features.LATEST,
) -> AsyncIterator[Listener]:
    """A listener that serves until the block ends. feature_level: of the metadata of its node."""
    service = Service()
    server = KafkaServer(
        "kafka",
        boundary=boundary or Boundary(),
        frame_bytes_max=FRAME_BYTES_MAX,
        memory_bytes_max=MEMORY_BYTES_MAX,
        connections_max=connections_max,
        tls=tls,
    )
    service.address = server.bind(LOOPBACK)
    listener = Listener(server, service, service.address)
    gates = {name: Gate(name, service) for name in ("Data", "Admin", "Transactions")}
    server.serve({**gates, "Sasl": Gate("Sasl", sasl)}, sasl, feature_level)
    await server.start()
    try:
        yield listener
    finally:
        for client in listener.clients:
            client.writer.close()
        for hold in service.holds.values():
            hold.set()
        await server.stop(1_000)
