"""DeleteRecords of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from node.api.deletions import DeletedRecords, DeleteRecordsAnswer, DeleteRecordsRequest, PartitionDeletion
from node.api.table import DATA_DELETE_RECORDS
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import KafkaApi
from tidelog.errors import TidelogError
from tidelog.protocol.kafka.messages import delete_records_request as asked
from tidelog.protocol.kafka.messages.delete_records_response import (
    DELETE_RECORDS_RESPONSE,
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.types import Offset, PartitionIndex


def _read(message: asked.DeleteRecordsRequest, _version: int) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        tuple(
            PartitionDeletion(topic.name, each.partition_index, Offset(each.offset))
            for topic in message.topics
            for each in topic.partitions
        ),
        message.timeout_ms,
    )


def _write(message: asked.DeleteRecordsRequest, answer: DeleteRecordsAnswer, _version: int) -> DeleteRecordsResponse:
    return _deleted(message, answer.partitions)


def _refuse(message: asked.DeleteRecordsRequest, error: TidelogError, _version: int) -> DeleteRecordsResponse:
    return _deleted(
        message,
        (
            DeletedRecords(topic.name, each.partition_index, error)
            for topic in message.topics
            for each in topic.partitions
        ),
    )


def _deleted(message: asked.DeleteRecordsRequest, outcomes: Iterable[DeletedRecords]) -> DeleteRecordsResponse:
    """outcomes: of all partitions, in the order of the request."""
    following = iter(outcomes)
    return DeleteRecordsResponse(
        0,
        tuple(
            DeleteRecordsTopicResult(topic.name, tuple(_result(next(following)) for _ in topic.partitions))
            for topic in message.topics
        ),
    )


def _result(outcome: DeletedRecords) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        PartitionIndex(outcome.partition), outcome.low_watermark, code_of(outcome.error)
    )


DELETE_RECORDS: Final = KafkaApi(
    range(3),
    asked.DELETE_RECORDS_REQUEST,
    DELETE_RECORDS_RESPONSE,
    DATA_DELETE_RECORDS,
    _read,
    _write,
    _refuse,
)
