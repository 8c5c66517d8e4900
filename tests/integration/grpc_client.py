"""A client that sends single batches to a real node."""

from __future__ import annotations

from node.process.local_cluster import LocalCluster
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.types import LeaderEpoch


class Client:
    """Sends single batches and tells what the node said."""

    def __init__(self, cluster: LocalCluster, topic_id: bytes) -> None:
        self._address, self.topic_id = cluster.nodes[0].address, topic_id
        self._transport = GrpcTransport()

    async def produce(
        self,
        records: bytes,
        *,
        topic_id: bytes | None = None,
        partition: int = 0,
        epoch: int = 0,
        acks: int = -1,
    ) -> int:
        """Returns the offset; raises the error of the call or of the entry."""
        entry = ProduceBatch(
            correlation_id=1,
            topic_id=topic_id or self.topic_id,
            partition=partition,
            leader_epoch=LeaderEpoch(epoch),
            records=records,
        )
        request = ProduceRequest(acks=acks, timeout_ms=5_000, partitions=[entry])
        answer = await self._transport.call(self._address, methods.DATA_PRODUCE, request, timeout_ms=8_000)
        (produced,) = answer.partitions
        if produced.HasField("error"):
            raise from_proto(produced.error)
        return produced.base_offset

    async def end(self) -> int:
        question = data_pb2.ListOffsetsPartition(topic_id=self.topic_id, current_leader_epoch=-1, timestamp_ms=-1)
        request = data_pb2.ListOffsetsRequest(partitions=[question])
        answer = await self._transport.call(self._address, methods.DATA_LIST_OFFSETS, request, timeout_ms=8_000)
        return answer.partitions[0].offset

    async def close(self) -> None:
        await self._transport.close()
