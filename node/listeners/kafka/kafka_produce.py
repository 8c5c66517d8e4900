"""Produce and InitProducerId of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from node.api.produce import ProduceAnswer, ProducedBatch
from node.api.producers import InitProducerIdAnswer, InitProducerIdRequest
from node.api.table import DATA_INIT_PRODUCER_ID, DATA_PRODUCE
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import KafkaApi
from tidelog.errors import TidelogError, UnsupportedVersion
from tidelog.protocol.kafka.messages import init_producer_id_request as producer_id_request
from tidelog.protocol.kafka.messages import produce_request as sent
from tidelog.protocol.kafka.messages.init_producer_id_response import INIT_PRODUCER_ID_RESPONSE, InitProducerIdResponse
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
from tidelog.types import NO_LEADER_EPOCH, NO_TIMESTAMP, NodeAddress, Offset, ProducerId

_TRANSACTION_VERSION: Final = 1
"""Clients add partitions to their transactions by requests of their own."""

_LEADERS_FROM: Final = 10
"""Version from which answers name the addresses of next leaders (KIP-951)."""


def _read_produce(message: sent.ProduceRequest, _version: int) -> ProduceRequest:
    batches = [
        ProduceBatch(topic.name, partition.index, partition.records or b"")
        for topic in message.topic_data
        for partition in topic.partition_data
    ]
    return ProduceRequest(
        message.acks, message.timeout_ms, batches, message.transactional_id or "", _TRANSACTION_VERSION
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
            partition_responses=tuple(
                _partition(partition.index, next(batches), leaders) for partition in topic.partition_data
            ),
        )
        for topic in message.topic_data
    )
    endpoints = tuple(
        NodeEndpoint(each.node_id, each.endpoint.host, each.endpoint.port, each.rack or None)
        for each in (leaders or {}).values()
    )
    return ProduceResponse(topics, 0, endpoints)


def _partition(index: int, batch: ProducedBatch, leaders: dict[int, NodeAddress] | None) -> PartitionProduceResponse:
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
        code_of(error),
        Offset(-1),
        NO_TIMESTAMP,
        batch.log_start_offset,
        tuple(BatchIndexAndErrorMessage(each.index, each.message) for each in error.record_errors),
        error.message,
        **hint,
    )


PRODUCE: Final = KafkaApi(
    range(3, 12),
    sent.PRODUCE_REQUEST,
    PRODUCE_RESPONSE,
    DATA_PRODUCE,
    _read_produce,
    _write_produced,
    _refuse_produce,
    announced_from=0,  # librdkafka before 2.11.1 compresses only if version 0 is announced (KAFKA-18659)
    is_pipelined=True,
)


def _read_init_producer_id(message: producer_id_request.InitProducerIdRequest, _version: int) -> InitProducerIdRequest:
    if message.transactional_id is not None:
        raise UnsupportedVersion("this listener has no transactions yet: use a client of Tidelog for them")
    return InitProducerIdRequest(message.producer_id, message.producer_epoch)


def _write_init_producer_id(_message: object, answer: InitProducerIdAnswer, _version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, NONE, answer.producer_id, answer.producer_epoch)


def _refuse_init_producer_id(_message: object, error: TidelogError, _version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, code_of(error), ProducerId(-1), -1)


INIT_PRODUCER_ID: Final = KafkaApi(
    range(5),
    producer_id_request.INIT_PRODUCER_ID_REQUEST,
    INIT_PRODUCER_ID_RESPONSE,
    DATA_INIT_PRODUCER_ID,
    _read_init_producer_id,
    _write_init_producer_id,
    _refuse_init_producer_id,
)
