"""Produce: the outcome of each batch of a request (tidelog/record_exchange.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.types import BatchReceipt, LeaderEpoch, Millis, Offset


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
