"""Codecs of produce and fetch. The messages with records are values (tidelog/protocol/wire.py); the others are
converted field by field, for speed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from node.api import fetch
from node.api.fetch import DurablePosition, FetchingReplica, FetchRequest, PartitionFetch
from node.api.produce import ProduceAnswer
from node.api.table import DATA_FETCH, DATA_FETCH_STREAM, DATA_PRODUCE, DATA_PRODUCE_STREAM
from node.listeners.grpc.codec import ApiCodec
from tidelog.errors import InvalidRequest
from tidelog.protocol import methods, status
from tidelog.protocol.v1 import data_pb2
from tidelog.types import BatchReceipt, Durability, Incarnation, Isolation, NodeId

REPLICAS_CACHED: Final = 1_024
"""Every request of a follower contains its incarnation. A lookup takes 0.1 us, a new UUID 0.8 us."""

_LEVELS: Final = {
    Isolation.READ_UNCOMMITTED: data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
    Isolation.READ_COMMITTED: data_pb2.ISOLATION_LEVEL_READ_COMMITTED,
}

# --- produce ---


def _write_produced(answer: ProduceAnswer) -> data_pb2.ProduceResponse:
    message = data_pb2.ProduceResponse()
    add = message.partitions.add
    for error, base_offset, append_time_ms, log_start, leader_epoch, duplicate, receipt, batch_id in answer.partitions:
        entry = add(
            batch_id=batch_id,
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=log_start,
            leader_epoch=leader_epoch,
            duplicate=duplicate,
        )
        if error is not None:
            entry.error.CopyFrom(status.to_proto(error))
            for each in error.record_errors:
                entry.record_errors.add(index=each.index, message=each.message)
        if receipt is not None:
            entry.receipt.CopyFrom(_receipt_message(receipt))
    return message


def _receipt_message(receipt: BatchReceipt) -> data_pb2.BatchReceipt:
    return data_pb2.BatchReceipt(
        topic_id=receipt.topic_id.bytes,
        last_offset=receipt.last_offset,
        checksum=receipt.checksum,
        replicas=receipt.replicas,
        durable_replicas=receipt.durable_replicas,
        fsync=receipt.durability is Durability.FSYNC,
    )


# --- fetch ---


@lru_cache(REPLICAS_CACHED)
def _replica(node_id: int, incarnation: bytes) -> FetchingReplica:
    if len(incarnation) != 16:
        raise InvalidRequest(f"node {node_id} fetches without an incarnation of 16 bytes: the sender is faulty")
    return FetchingReplica(NodeId(node_id), Incarnation(UUID(bytes=incarnation)))


@lru_cache(REPLICAS_CACHED)
def _replica_message(replica: FetchingReplica) -> data_pb2.Replica:
    return data_pb2.Replica(node_id=replica.node_id, incarnation=replica.incarnation.bytes)


def _read_fetch(message: data_pb2.FetchRequest) -> FetchRequest:
    replica = None
    if message.HasField("replica"):
        sent = message.replica
        replica = _replica(sent.node_id, sent.incarnation)
    entries: Any = message.partitions
    positions: Any = message.durable_positions
    return FetchRequest(
        replica,
        message.max_wait_ms,
        message.min_bytes,
        fetch.isolation_of(message.isolation_level) if replica is None else Isolation.READ_UNCOMMITTED,
        [
            PartitionFetch(
                entry.topic_id,
                entry.partition,
                entry.fetch_offset,
                entry.current_leader_epoch,
                entry.last_fetched_epoch,
                entry.durable_offset,
                entry.log_start_offset,
                entry.max_bytes,
                entry.refused,
                entry.fetch_id,
            )
            for entry in entries
        ],
        [
            DurablePosition(
                position.topic_id,
                position.partition,
                position.leader_epoch,
                position.durable_offset,
                position.log_start_offset,
            )
            for position in positions
        ]
        if positions
        else (),
        message.rack,
    )


def _write_fetch(request: FetchRequest) -> data_pb2.FetchRequest:
    replica = request.replica
    entries: Any = request.partitions  # nodes name topics by their ids
    return data_pb2.FetchRequest(
        replica=None if replica is None else _replica_message(replica),
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        isolation_level=_LEVELS[request.isolation_level],
        partitions=[
            data_pb2.FetchPartition(
                fetch_id=each.correlation_id,
                topic_id=each.topic_id,
                partition=each.partition,
                current_leader_epoch=each.current_leader_epoch,
                fetch_offset=each.fetch_offset,
                last_fetched_epoch=each.last_fetched_epoch,
                durable_offset=each.durable_offset,
                log_start_offset=each.log_start_offset,
                max_bytes=each.max_bytes,
                refused=each.refused,
            )
            for each in entries
        ],
        durable_positions=[
            data_pb2.DurablePosition(
                topic_id=each.topic_id,
                partition=each.partition,
                leader_epoch=each.leader_epoch,
                durable_offset=each.durable_offset,
                log_start_offset=each.log_start_offset,
            )
            for each in request.durable_positions
        ]
        if request.durable_positions
        else None,
        rack=request.rack,
    )


DATA_CODECS: Final[tuple[ApiCodec[Any, Any], ...]] = (
    ApiCodec(DATA_PRODUCE, methods.DATA_PRODUCE, None, _write_produced),
    ApiCodec(DATA_PRODUCE_STREAM, methods.DATA_PRODUCE_STREAM, None, _write_produced),
    ApiCodec(DATA_FETCH, methods.DATA_FETCH, _read_fetch, None),
    ApiCodec(DATA_FETCH_STREAM, methods.DATA_FETCH_STREAM, _read_fetch, None, _write_fetch),
)
