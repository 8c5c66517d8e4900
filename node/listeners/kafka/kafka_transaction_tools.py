"""What operators ask about transactions (KIP-664): ListTransactions, DescribeTransactions, DescribeProducers, and
WriteTxnMarkers, by which they abort one that hangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Final

from node.api.marker_requests import (
    ANY_TRANSACTION,
    AbortTransactionAnswer,
    AbortTransactionRequest,
    DescribedProducers,
    DescribeProducersAnswer,
    DescribeProducersRequest,
    PartitionId,
)
from node.api.table import (
    DATA_ABORT_TRANSACTION,
    DATA_DESCRIBE_PRODUCERS,
    TRANSACTIONS_DESCRIBE_TRANSACTIONS,
    TRANSACTIONS_LIST_TRANSACTIONS,
)
from node.listeners.kafka.error_codes import NONE, code_of, coordinator_code_of
from node.listeners.kafka.exchange import KafkaApi
from replication.coordination.transaction_requests import (
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsAnswer,
    ListTransactions,
    ListTransactionsAnswer,
)
from replication.coordination.transactions.transaction_states import STATE_NAMES
from tidelog.errors import CoordinatorLoadInProgress, InvalidRequest, Retry, TidelogError
from tidelog.protocol.kafka.messages import describe_producers_request as asked_producers
from tidelog.protocol.kafka.messages import describe_transactions_request as asked_transactions
from tidelog.protocol.kafka.messages import list_transactions_request as asked_list
from tidelog.protocol.kafka.messages import write_txn_markers_request as asked_markers
from tidelog.protocol.kafka.messages.describe_producers_response import (
    DESCRIBE_PRODUCERS_RESPONSE,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidelog.protocol.kafka.messages.describe_transactions_response import (
    DESCRIBE_TRANSACTIONS_RESPONSE,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from tidelog.protocol.kafka.messages.list_transactions_response import (
    LIST_TRANSACTIONS_RESPONSE,
    ListTransactionsResponse,
)
from tidelog.protocol.kafka.messages.list_transactions_response import TransactionState as ListedState
from tidelog.protocol.kafka.messages.write_txn_markers_response import (
    WRITE_TXN_MARKERS_RESPONSE,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tidelog.types import PartitionIndex, ProducerId

# --- ListTransactions ---

_STATES: Final = frozenset(STATE_NAMES.values())
_IN_NO_STATE: Final = "Dead"
"""A state that no transactional id is listed in: a filter of unknown states alone selects nothing."""


def _read_list(message: asked_list.ListTransactionsRequest, _version: int) -> ListTransactions:
    known = tuple(each for each in message.state_filters if each in _STATES)
    return ListTransactions(
        known or ((_IN_NO_STATE,) if message.state_filters else ()),
        tuple(map(ProducerId, message.producer_id_filters)),
        message.duration_filter,
        message.transactional_id_pattern or "",
    )


def _write_list(
    message: asked_list.ListTransactionsRequest, answer: ListTransactionsAnswer, _version: int
) -> ListTransactionsResponse:
    """An answer without the ids of a coordinator is an error: a tool would take its transactions for hanging ones."""
    missing = next((each.error for each in answer.coordinators if each.error is not None), None)
    if missing is not None:
        return _refuse_list(message, missing, _version)
    unknown = tuple(each for each in message.state_filters if each not in _STATES)
    listed = (ListedState(each.transactional_id, each.producer_id, each.state) for each in answer.transactions)
    return ListTransactionsResponse(0, NONE, unknown, tuple(listed))


def _refuse_list(_message: object, error: TidelogError, _version: int) -> ListTransactionsResponse:
    """Kafka's clients ask again on one error only."""
    code = code_of(error) if error.retry is Retry.NEVER else CoordinatorLoadInProgress.code
    return ListTransactionsResponse(0, code, (), ())


LIST_TRANSACTIONS: Final = KafkaApi(
    range(3),
    asked_list.LIST_TRANSACTIONS_REQUEST,
    LIST_TRANSACTIONS_RESPONSE,
    TRANSACTIONS_LIST_TRANSACTIONS,
    _read_list,
    _write_list,
    _refuse_list,
)


# --- DescribeTransactions ---


def _read_transactions(message: asked_transactions.DescribeTransactionsRequest, _version: int) -> DescribeTransactions:
    return DescribeTransactions(message.transactional_ids)


def _write_transactions(
    _message: object, answer: DescribeTransactionsAnswer, _version: int
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(0, tuple(map(_transaction, answer.transactions)))


def _transaction(described: DescribedTransaction) -> TransactionState:
    by_topic = groupby(described.partitions, key=attrgetter("topic"))  # they are sorted, as in their record
    return TransactionState(
        coordinator_code_of(described.error),
        described.transactional_id,
        described.state,
        described.transaction_timeout_ms,
        described.start_ms,
        described.producer_id,
        described.producer_epoch,
        tuple(
            TopicData(topic, tuple(PartitionIndex(each.partition) for each in partitions))
            for topic, partitions in by_topic
        ),
    )


def _refuse_transactions(
    message: asked_transactions.DescribeTransactionsRequest, error: TidelogError, version: int
) -> DescribeTransactionsResponse:
    refused = tuple(DescribedTransaction(each, error) for each in message.transactional_ids)
    return _write_transactions(message, DescribeTransactionsAnswer(refused), version)


DESCRIBE_TRANSACTIONS: Final = KafkaApi(
    range(1),
    asked_transactions.DESCRIBE_TRANSACTIONS_REQUEST,
    DESCRIBE_TRANSACTIONS_RESPONSE,
    TRANSACTIONS_DESCRIBE_TRANSACTIONS,
    _read_transactions,
    _write_transactions,
    _refuse_transactions,
)


# --- DescribeProducers ---


def _read_producers(message: asked_producers.DescribeProducersRequest, _version: int) -> DescribeProducersRequest:
    """As in Kafka, the node that is asked answers for its replica, whether it leads or not."""
    return DescribeProducersRequest(
        tuple(PartitionId(topic.name, index) for topic in message.topics for index in topic.partition_indexes),
        of_any_replica=True,
    )


def _write_producers(
    message: asked_producers.DescribeProducersRequest, answer: DescribeProducersAnswer, _version: int
) -> DescribeProducersResponse:
    return _described(message, iter(answer.partitions))


def _refuse_producers(
    message: asked_producers.DescribeProducersRequest, error: TidelogError, _version: int
) -> DescribeProducersResponse:
    asked = _read_producers(message, _version).partitions
    return _described(message, (DescribedProducers(each.topic_id, each.partition, error) for each in asked))


def _described(
    message: asked_producers.DescribeProducersRequest, partitions: Iterator[DescribedProducers]
) -> DescribeProducersResponse:
    """partitions: in the order of the request."""
    return DescribeProducersResponse(
        0,
        tuple(
            TopicResponse(topic.name, tuple(_partition(next(partitions)) for _ in topic.partition_indexes))
            for topic in message.topics
        ),
    )


def _partition(described: DescribedProducers) -> PartitionResponse:
    error = described.error
    return PartitionResponse(
        described.partition,
        code_of(error),
        None if error is None else error.message,
        tuple(
            ProducerState(
                each.producer_id,
                each.producer_epoch,
                each.last_sequence,
                each.last_timestamp_ms,
                each.coordinator_epoch,
                each.transaction_start,
            )
            for each in described.producers
        ),
    )


DESCRIBE_PRODUCERS: Final = KafkaApi(
    range(1),
    asked_producers.DESCRIBE_PRODUCERS_REQUEST,
    DESCRIBE_PRODUCERS_RESPONSE,
    DATA_DESCRIBE_PRODUCERS,
    _read_producers,
    _write_producers,
    _refuse_producers,
)


# --- WriteTxnMarkers ---


def _read_markers(message: asked_markers.WriteTxnMarkersRequest, _version: int) -> AbortTransactionRequest:
    """Raises InvalidRequest for markers that only coordinators write: nodes send each other theirs by gRPC."""
    places = [
        (marker, topic.name, index)
        for marker in message.markers
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    if len(places) != 1:
        raise InvalidRequest(f"the request has {len(places)} markers: operators abort one transaction at a time")
    [(marker, topic, index)] = places
    if marker.transaction_result:
        raise InvalidRequest("a marker that commits: only the coordinator of a transaction does that")
    return AbortTransactionRequest(topic, index, marker.producer_id, marker.producer_epoch, ANY_TRANSACTION)


def _write_markers(
    message: asked_markers.WriteTxnMarkersRequest, _answer: AbortTransactionAnswer, _version: int
) -> WriteTxnMarkersResponse:
    return _marked(message, NONE)


def _refuse_markers(
    message: asked_markers.WriteTxnMarkersRequest, error: TidelogError, _version: int
) -> WriteTxnMarkersResponse:
    return _marked(message, code_of(error))


def _marked(message: asked_markers.WriteTxnMarkersRequest, code: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        tuple(
            WritableTxnMarkerResult(
                marker.producer_id,
                tuple(
                    WritableTxnMarkerTopicResult(
                        topic.name,
                        tuple(WritableTxnMarkerPartitionResult(index, code) for index in topic.partition_indexes),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in message.markers
        )
    )


WRITE_TXN_MARKERS: Final = KafkaApi(
    range(1, 2),
    asked_markers.WRITE_TXN_MARKERS_REQUEST,
    WRITE_TXN_MARKERS_RESPONSE,
    DATA_ABORT_TRANSACTION,
    _read_markers,
    _write_markers,
    _refuse_markers,
)
