"""What producers ask: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn.

The version of a request says which protocol of transactions its client uses. In the first one (KIP-98) clients add
partitions and groups to their transactions by requests of their own, and leaders verify that. In the second one
(KIP-890) leaders add them, and the answer to EndTxn names the epoch of the next transaction. A client may change from
one to the other between two transactions. Errors that came with later versions of a request have the code that clients
of the earlier ones know.
Not here: their batches (kafka_produce.py), what operators ask (kafka_transaction_tools.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from node.api.api import Api
from node.api.producers import InitProducerIdAnswer, InitProducerIdRequest
from node.api.table import (
    DATA_INIT_PRODUCER_ID,
    GROUPS_TXN_OFFSET_COMMIT,
    TRANSACTIONS_ADD_OFFSETS_TO_TXN,
    TRANSACTIONS_ADD_PARTITIONS_TO_TXN,
    TRANSACTIONS_END_TXN,
    TRANSACTIONS_INIT_PRODUCER_ID,
)
from node.listeners.kafka.error_codes import NONE, coordinator_code_of
from node.listeners.kafka.exchange import ELEMENTS_MAX, KafkaApi
from replication.coordination.coordinator_machine import TransactionalProducer
from replication.coordination.group_requests import (
    CommittedPartitions,
    NamedPartition,
    OffsetToCommit,
    TxnOffsetCommit,
)
from replication.coordination.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitTransactionalProducer,
)
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotController,
    ProducerFenced,
    RequestTimedOut,
    TidelogError,
    TransactionAbortable,
)
from tidelog.protocol.kafka.message_codec import Data
from tidelog.protocol.kafka.messages import add_offsets_to_txn_request as asked_offsets
from tidelog.protocol.kafka.messages import add_partitions_to_txn_request as asked_partitions
from tidelog.protocol.kafka.messages import end_txn_request as asked_end
from tidelog.protocol.kafka.messages import init_producer_id_request as asked_id
from tidelog.protocol.kafka.messages import txn_offset_commit_request as asked_commit
from tidelog.protocol.kafka.messages.add_offsets_to_txn_response import (
    ADD_OFFSETS_TO_TXN_RESPONSE,
    AddOffsetsToTxnResponse,
)
from tidelog.protocol.kafka.messages.add_partitions_to_txn_response import (
    ADD_PARTITIONS_TO_TXN_RESPONSE,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tidelog.protocol.kafka.messages.end_txn_response import END_TXN_RESPONSE, EndTxnResponse
from tidelog.protocol.kafka.messages.init_producer_id_response import INIT_PRODUCER_ID_RESPONSE, InitProducerIdResponse
from tidelog.protocol.kafka.messages.txn_offset_commit_response import (
    TXN_OFFSET_COMMIT_RESPONSE,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tidelog.types import LeaderEpoch, Offset, PartitionIndex, ProducerId

_FENCED_FROM: Final = 2
"""Version from which clients know PRODUCER_FENCED (KIP-588)."""


def transaction_version(version: int, second_from: int) -> int:
    """The protocol of transactions that a client uses who sends this version of a request. second_from: the first
    version of the request that belongs to the second protocol."""
    return 2 if version >= second_from else 1


def _code(error: TidelogError | None, version: int, fenced_from: int = _FENCED_FROM) -> int:
    """The number of a coordinator's error in this version of a request."""
    if isinstance(error, ProducerFenced) and version < fenced_from:
        return InvalidProducerEpoch.code
    return coordinator_code_of(error)


# --- InitProducerId ---

_INIT_FENCED_FROM: Final = 4
_EITHER_VERSION: Final = 1
"""Clients of both protocols of transactions send the same request."""


def _api_of_init(frame: Data, version: int, body_at: int) -> Api[Any, Any]:
    """Only a transactional id has a coordinator, and needs permission. Raises MalformedMessage."""
    message, _ = asked_id.INIT_PRODUCER_ID_REQUEST.decode(frame, version, body_at, elements_max=ELEMENTS_MAX)
    return DATA_INIT_PRODUCER_ID if message.transactional_id is None else TRANSACTIONS_INIT_PRODUCER_ID


def _read_init(
    message: asked_id.InitProducerIdRequest, _version: int
) -> InitProducerIdRequest | InitTransactionalProducer:
    if message.transactional_id is None:
        return InitProducerIdRequest(message.producer_id, message.producer_epoch)
    return InitTransactionalProducer(
        message.transactional_id,
        message.transaction_timeout_ms,
        message.producer_id,
        message.producer_epoch,
        _EITHER_VERSION,
    )


def _write_init(
    _message: object, answer: InitProducerIdAnswer | TransactionalProducer, _version: int
) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, NONE, answer.producer_id, answer.producer_epoch)


def _refuse_init(message: asked_id.InitProducerIdRequest, error: TidelogError, version: int) -> InitProducerIdResponse:
    code = _code(error, version, _INIT_FENCED_FROM)
    # The controller gave no producer ids. As in Kafka: aiokafka takes NOT_CONTROLLER for the end of the producer, and
    # Java's client looks a coordinator up after another number, which a producer without a transactional id has not.
    if isinstance(error, NotController) or (message.transactional_id is None and isinstance(error, RequestTimedOut)):
        code = CoordinatorLoadInProgress.code
    return InitProducerIdResponse(0, code, ProducerId(-1), -1)


INIT_PRODUCER_ID: Final = KafkaApi(
    range(6),
    asked_id.INIT_PRODUCER_ID_REQUEST,
    INIT_PRODUCER_ID_RESPONSE,
    DATA_INIT_PRODUCER_ID,
    _read_init,
    _write_init,
    _refuse_init,
    api_of=_api_of_init,
)


# --- AddPartitionsToTxn ---


def _read_partitions(message: asked_partitions.AddPartitionsToTxnRequest, _version: int) -> AddPartitionsToTxn:
    return AddPartitionsToTxn(
        message.v3_and_below_transactional_id,
        ProducerId(message.v3_and_below_producer_id),
        message.v3_and_below_producer_epoch,
        tuple(NamedPartition(topic.name, index) for topic in message.v3_and_below_topics for index in topic.partitions),
    )


def _write_partitions(
    message: asked_partitions.AddPartitionsToTxnRequest, answer: CommittedPartitions, version: int
) -> AddPartitionsToTxnResponse:
    return _added(message, (_code(each.error, version) for each in answer.partitions))


def _refuse_partitions(
    message: asked_partitions.AddPartitionsToTxnRequest, error: TidelogError, version: int
) -> AddPartitionsToTxnResponse:
    refused = _code(error, version)
    return _added(message, (refused for topic in message.v3_and_below_topics for _ in topic.partitions))


def _added(message: asked_partitions.AddPartitionsToTxnRequest, codes: Iterable[int]) -> AddPartitionsToTxnResponse:
    """codes: of all partitions, in the order of the request."""
    code = iter(codes)
    return AddPartitionsToTxnResponse(
        0,
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                topic.name, tuple(AddPartitionsToTxnPartitionResult(index, next(code)) for index in topic.partitions)
            )
            for topic in message.v3_and_below_topics
        ),
    )


ADD_PARTITIONS_TO_TXN: Final = KafkaApi(
    range(4),  # the later ones are between brokers
    asked_partitions.ADD_PARTITIONS_TO_TXN_REQUEST,
    ADD_PARTITIONS_TO_TXN_RESPONSE,
    TRANSACTIONS_ADD_PARTITIONS_TO_TXN,
    _read_partitions,
    _write_partitions,
    _refuse_partitions,
)


# --- AddOffsetsToTxn ---


def _read_offsets(message: asked_offsets.AddOffsetsToTxnRequest, _version: int) -> AddOffsetsToTxn:
    return AddOffsetsToTxn(message.transactional_id, message.producer_id, message.producer_epoch, message.group_id)


def _write_offsets(_message: object, _answer: object, _version: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(0, NONE)


def _refuse_offsets(_message: object, error: TidelogError, version: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(0, _code(error, version))


ADD_OFFSETS_TO_TXN: Final = KafkaApi(
    range(5),
    asked_offsets.ADD_OFFSETS_TO_TXN_REQUEST,
    ADD_OFFSETS_TO_TXN_RESPONSE,
    TRANSACTIONS_ADD_OFFSETS_TO_TXN,
    _read_offsets,
    _write_offsets,
    _refuse_offsets,
)


# --- TxnOffsetCommit ---

_LOADING_FROM: Final = 2
"""Version from which clients know COORDINATOR_LOAD_IN_PROGRESS here (KAFKA-7296)."""

_ABORTABLE_FROM: Final = 4
"""Version from which clients know TRANSACTION_ABORTABLE here (KIP-890)."""

_COMMIT_ADDS_FROM: Final = 5
"""Version from which the request makes the partition of the group a part of the transaction."""


def _read_commit(message: asked_commit.TxnOffsetCommitRequest, version: int) -> TxnOffsetCommit:
    return TxnOffsetCommit(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        transaction_version(version, _COMMIT_ADDS_FROM),
        message.group_id,
        message.member_id,
        message.generation_id,
        message.group_instance_id,
        tuple(
            OffsetToCommit(
                topic.name,
                PartitionIndex(each.partition_index),
                Offset(each.committed_offset),
                LeaderEpoch(each.committed_leader_epoch),
                each.committed_metadata or "",
            )
            for topic in message.topics
            for each in topic.partitions
        ),
    )


def _commit_code(error: TidelogError | None, version: int) -> int:
    if isinstance(error, TransactionAbortable) and version < _ABORTABLE_FROM:
        return InvalidTxnState.code
    if isinstance(error, CoordinatorLoadInProgress) and version < _LOADING_FROM:
        return CoordinatorNotAvailable.code
    return coordinator_code_of(error)


def _write_commit(
    message: asked_commit.TxnOffsetCommitRequest, answer: CommittedPartitions, version: int
) -> TxnOffsetCommitResponse:
    return _committed(message, (_commit_code(each.error, version) for each in answer.partitions))


def _refuse_commit(
    message: asked_commit.TxnOffsetCommitRequest, error: TidelogError, version: int
) -> TxnOffsetCommitResponse:
    refused = _commit_code(error, version)
    return _committed(message, (refused for topic in message.topics for _ in topic.partitions))


def _committed(message: asked_commit.TxnOffsetCommitRequest, codes: Iterable[int]) -> TxnOffsetCommitResponse:
    """codes: of all partitions, in the order of the request."""
    code = iter(codes)
    return TxnOffsetCommitResponse(
        0,
        tuple(
            TxnOffsetCommitResponseTopic(
                topic.name,
                tuple(TxnOffsetCommitResponsePartition(each.partition_index, next(code)) for each in topic.partitions),
            )
            for topic in message.topics
        ),
    )


TXN_OFFSET_COMMIT: Final = KafkaApi(
    range(6),
    asked_commit.TXN_OFFSET_COMMIT_REQUEST,
    TXN_OFFSET_COMMIT_RESPONSE,
    GROUPS_TXN_OFFSET_COMMIT,
    _read_commit,
    _write_commit,
    _refuse_commit,
)


# --- EndTxn ---

_RAISES_EPOCH_FROM: Final = 5
"""Version from which each end of a transaction raises the epoch."""


def _read_end(message: asked_end.EndTxnRequest, version: int) -> EndTxn:
    return EndTxn(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        message.committed,
        transaction_version(version, _RAISES_EPOCH_FROM),
    )


def _write_end(_message: object, answer: TransactionalProducer, _version: int) -> EndTxnResponse:
    return EndTxnResponse(0, NONE, answer.producer_id, answer.producer_epoch)


def _refuse_end(_message: object, error: TidelogError, version: int) -> EndTxnResponse:
    return EndTxnResponse(0, _code(error, version))


END_TXN: Final = KafkaApi(
    range(6),
    asked_end.END_TXN_REQUEST,
    END_TXN_RESPONSE,
    TRANSACTIONS_END_TXN,
    _read_end,
    _write_end,
    _refuse_end,
)
