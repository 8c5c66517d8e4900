"""Produce of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from node.api.produce import ProduceAnswer, ProducedBatch
from node.api.table import DATA_PRODUCE
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import KafkaApi
from node.listeners.kafka.kafka_transactions import transaction_version
from tidelog.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidTxnState,
    NotEnoughReplicas,
    TidelogError,
    TransactionAbortable,
)
from tidelog.protocol.kafka.messages import produce_request as sent
from tidelog.protocol.kafka.messages.produce_response import (
    PRODUCE_RESPONSE,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, NodeAddress, Offset

_LEADERS_FROM: Final = 10
"""Version from which answers name the addresses of next leaders (KIP-951)."""

_ABORTABLE_FROM: Final = 11
"""Version from which clients know TRANSACTION_ABORTABLE (KIP-890)."""

_ADDS_FROM: Final = 12
"""Version from which the partition of a batch becomes part of its transaction, and from which clients know
CONCURRENT_TRANSACTIONS (KIP-890)."""

_IDS_FROM: Final = 13
"""Version from which topics are named by their ids (KIP-516)."""

_NOT_VERIFIED: Final = (ConcurrentTransactions, CoordinatorLoadInProgress, CoordinatorNotAvailable)
"""The transaction of a batch could not be verified yet. As in Kafka, the number is one on which all clients send the
batch again: producers know errors of coordinators as those of their own requests only."""


def _read_produce(message: sent.ProduceRequest, version: int) -> ProduceRequest:
    numbers = count()  # as the handler numbers them: it copies none then
    batches = [
        ProduceBatch(
            topic.topic_id.bytes if version >= _IDS_FROM else topic.name,
            partition.index,
            partition.records or b"",
            correlation_id=next(numbers),
        )
        for topic in message.topic_data
        for partition in topic.partition_data
    ]
    return ProduceRequest(
        message.acks,
        message.timeout_ms,
        batches,
        message.transactional_id or "",
        transaction_version(version, _ADDS_FROM),
    )


def _write_produced(message: sent.ProduceRequest, answer: ProduceAnswer, version: int) -> ProduceResponse | None:
    return _produced(message, iter(answer.partitions), version)


def _refuse_produce(message: sent.ProduceRequest, error: TidelogError, version: int) -> ProduceResponse | None:
    refused = ProducedBatch(error, Offset(-1), NO_TIMESTAMP, Offset(-1), NO_LEADER_EPOCH)
    return _produced(message, (refused for topic in message.topic_data for _ in topic.partition_data), version)


def _produced(message: sent.ProduceRequest, batches: Iterator[ProducedBatch], version: int) -> ProduceResponse | None:
    """None for acks=0: no answer is expected, and if the request failed, the end of the connection tells it."""
    if message.acks == 0:
        return None
    leaders: dict[int, NodeAddress] | None = {} if version >= _LEADERS_FROM else None
    topics = tuple(
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=tuple(
                _partition(partition.index, next(batches), leaders, version) for partition in topic.partition_data
            ),
        )
        for topic in message.topic_data
    )
    endpoints = tuple(
        NodeEndpoint(each.node_id, each.endpoint.host, each.endpoint.port, each.rack or None)
        for each in (leaders or {}).values()
    )
    return ProduceResponse(topics, 0, endpoints)


def _partition(
    index: int, batch: ProducedBatch, leaders: dict[int, NodeAddress] | None, version: int
) -> PartitionProduceResponse:
    """leaders: gets the next leader if the answer names it; None: the version cannot."""
    error = batch.error
    if error is None:
        return PartitionProduceResponse(
            index, NONE, batch.base_offset, batch.log_append_time_ms, batch.log_start_offset
        )
    hint = {}
    if leaders is not None and error.leader is not None:
        leaders[error.leader.node_id] = error.leader
        hint["current_leader"] = LeaderIdAndEpoch(error.leader.node_id, error.leader.leader_epoch)
    return PartitionProduceResponse(
        index,
        _code(error, version),
        Offset(-1),
        NO_TIMESTAMP,
        batch.log_start_offset,
        tuple(BatchIndexAndErrorMessage(each.index, each.message) for each in error.record_errors),
        error.message,
        **hint,
    )


def _code(error: TidelogError, version: int) -> int:
    if isinstance(error, ConcurrentTransactions) and version >= _ADDS_FROM:
        return code_of(error)
    if isinstance(error, _NOT_VERIFIED):
        return NotEnoughReplicas.code
    if isinstance(error, TransactionAbortable) and version < _ABORTABLE_FROM:
        return InvalidTxnState.code
    return code_of(error)


PRODUCE: Final = KafkaApi(
    range(3, 14),
    sent.PRODUCE_REQUEST,
    PRODUCE_RESPONSE,
    DATA_PRODUCE,
    _read_produce,
    _write_produced,
    _refuse_produce,
    announced_from=0,  # librdkafka before 2.11.1 compresses only if version 0 is announced (KAFKA-18659)
    is_pipelined=True,
)
