"""Produce: batches to append, and one answer for each batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from node.api.record_bytes import Records
from node.api.topic_reference import TopicReference
from tidelog.errors import TidelogError
from tidelog.types import NO_LEADER_EPOCH, BatchReceipt, LeaderEpoch, Millis, Offset


class ProduceBatch(NamedTuple):
    """One batch of a request.

    records: one record batch. leader_epoch: of the node as known to the sender; -1 skips the check. correlation_id: on
    a stream, whose answers come in any order: returned in the answer.
    """

    topic_id: TopicReference
    partition: int
    records: Records
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    correlation_id: int = 0


class ProduceRequest(NamedTuple):
    """Batches to append. acks: as sent, not checked. timeout_ms: how long the node may wait for the acks.

    transactional_id: of transactional batches; empty: there are none. transaction_version: of transactional batches; 2:
    the leader adds the partition to the transaction, 1: the producer has added it. receipts: answer each batch with a
    receipt.
    """

    acks: int
    timeout_ms: int
    partitions: Sequence[ProduceBatch]
    transactional_id: str = ""
    transaction_version: int = 0
    receipts: bool = False


class ProducedBatch(NamedTuple):
    """The outcome of one batch: acknowledged if `error` is None.

    base_offset: of the first record; for a duplicate, of its first copy; -1 on errors. log_append_time_ms: the
    timestamp of the node with log append time, else -1. leader_epoch: the epoch that appended the batch.
    duplicate: an idempotent producer had already sent this batch. receipt: None unless the request asks for receipts
    and the node can state what is stored.
    """

    error: TidelogError | None
    base_offset: Offset
    log_append_time_ms: Millis
    log_start_offset: Offset
    leader_epoch: LeaderEpoch
    duplicate: bool = False
    receipt: BatchReceipt | None = None
    correlation_id: int = 0


class ProduceAnswer(NamedTuple):
    """Outcomes of batches, in the order of the request; on a stream those that are known, in any order."""

    partitions: Sequence[ProducedBatch]
