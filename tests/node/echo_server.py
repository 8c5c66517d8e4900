"""A gRPC server whose data service answers fetches with what was produced, and misbehaves on request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from node.boundary.boundary import Boundary, ProtocolCodec
from node.listeners.grpc.server import GrpcServer
from node.requests.context import RequestContext
from tests.node.message_services import gates_of, messages_of
from tests.record_values import fetched, sent
from tidelog.errors import (
    NotLeaderOrFollower,
    UnsupportedVersion,
)
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchAnswer, ProduceRequest
from tidelog.types import Endpoint, NodeAddress, NodeId

LOOPBACK = Endpoint("127.0.0.1", 0)
PATIENCE_MS = 60_000
"""Longer than the busiest machine takes: what is waited for comes, or the test fails."""
ELSEWHERE = NodeAddress(NodeId(1), Endpoint("other", 9092))


class EchoData:
    """Answers fetches with what the produce stream brought; misbehaves on request."""

    def __init__(self) -> None:
        self.batches: dict[int, Any] = {}
        self.gone = asyncio.Event()

    async def produce_stream(self, stream: Any, context: RequestContext) -> None:
        try:
            while (request := await stream.receive()) is not None:
                if request.acks == 99:
                    stream.close()  # takes effect at the next wait: the answer below is still sent whole
                for batch in request.partitions:
                    self.batches[batch.partition] = batch.records
                    answer = data_pb2.PartitionProduced(batch_id=batch.correlation_id, base_offset=len(batch.records))
                    await stream.send(data_pb2.ProduceResponse(partitions=[answer]))
        finally:
            self.gone.set()

    async def init_producer_id(self, request: data_pb2.InitProducerIdRequest, context: RequestContext) -> Any:
        raise NotImplementedError

    async def produce(self, request: ProduceRequest, context: RequestContext) -> data_pb2.ProduceResponse:
        if request.acks == 1:
            raise NotLeaderOrFollower("orders-3 is led by node 1", leader=ELSEWHERE)
        if request.acks == 2:
            raise ZeroDivisionError("a defect")
        await asyncio.Event().wait()
        raise AssertionError

    async def fetch_stream(self, stream: Any, context: RequestContext) -> None:
        raise NotLeaderOrFollower("orders-3 is led by node 1", leader=ELSEWHERE)

    async def fetch(self, request: data_pb2.FetchRequest, context: RequestContext) -> FetchAnswer:
        wanted = [partition.partition for partition in request.partitions]
        entries = [fetched(partition=index, records=self.batches[index]) for index in wanted]
        return FetchAnswer(partitions=entries)

    async def list_offsets(self, request: Any, context: RequestContext) -> data_pb2.ListOffsetsResponse:
        raise UnsupportedVersion(f"asked by {context.listener}")

    async def offset_for_leader_epoch(
        self, request: Any, context: RequestContext
    ) -> data_pb2.OffsetForLeaderEpochResponse:
        return data_pb2.OffsetForLeaderEpochResponse()

    async def get_replica_log_info(self, request: Any, context: RequestContext) -> data_pb2.GetReplicaLogInfoResponse:
        return data_pb2.GetReplicaLogInfoResponse()

    async def write_txn_markers(self, request: Any, context: RequestContext) -> data_pb2.WriteTxnMarkersResponse:
        return data_pb2.WriteTxnMarkersResponse()

    async def describe_producers(self, request: Any, context: RequestContext) -> data_pb2.DescribeProducersResponse:
        return data_pb2.DescribeProducersResponse()

    async def abort_transaction(self, request: Any, context: RequestContext) -> data_pb2.AbortTransactionResponse:
        return data_pb2.AbortTransactionResponse()

    async def delete_records(self, request: Any, context: RequestContext) -> data_pb2.DeleteRecordsResponse:
        return data_pb2.DeleteRecordsResponse()


class Fixture:
    def __init__(self, service: EchoData, at: Endpoint) -> None:
        self.boundary, self.service = Boundary(), service
        self.meters = self.boundary.meters
        self.server = GrpcServer("client", boundary=self.boundary, message_bytes_max=1 << 20)
        self.transport = GrpcTransport()
        self.address = self.server.bind(at)


@asynccontextmanager
async def serving(
    service: EchoData | None = None,
    codec_of: Callable[[str], ProtocolCodec] = messages_of,
    at: Endpoint = LOOPBACK,
) -> AsyncIterator[Fixture]:
    fixture = Fixture(service or EchoData(), at)
    fixture.server.serve(gates_of({methods.DATA: fixture.service}), codec_of=codec_of)
    await fixture.server.start()
    try:
        async with asyncio.timeout(PATIENCE_MS / 1000):
            yield fixture
    finally:
        await fixture.transport.close()
        await fixture.server.stop(grace_ms=0)


def produce(records: Any, *, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(acks, 0, [sent(records, correlation_id=7, partition=3)])
