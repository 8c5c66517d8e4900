"""Requests to write transaction markers, and what was sent."""

from __future__ import annotations

from tests.node.wires import CALLER, TOPIC, Cluster
from tidelog.protocol.v1 import data_pb2
from tidelog.records import RecordBatchBuilder

PRODUCER = 9


def batch(sequence: int, *, epoch: int = 0, txn: bool = True) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, is_transactional=txn
    )
    builder.append(key=None, value=b"%d" % sequence, timestamp=1_000)
    return builder.build()


def request_of(
    *partitions: int, epoch: int = 1, coordinator: int = 0, commit: bool = True, version: int = 2, topic: bytes = b""
) -> data_pb2.WriteTxnMarkersRequest:
    request = data_pb2.WriteTxnMarkersRequest()
    marker = request.markers.add(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        coordinator_epoch=coordinator,
        committed=commit,
        transaction_version=version,
    )
    for partition in partitions or (0,):
        marker.partitions.add(topic_id=topic or TOPIC.bytes, partition=partition)
    return request


def sent(cluster: Cluster, request: data_pb2.WriteTxnMarkersRequest, node: int = 1) -> list[int]:
    """The error codes of the partitions; 0: the marker is committed."""
    answer = cluster.wait(cluster.service(node).write_txn_markers(request, CALLER))
    return [partition.error.code for marker in answer.markers for partition in marker.partitions]
