"""Produce: the outcome of each batch of a request (tidelog/record_exchange.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.types import BatchReceipt, LeaderEpoch, Millis, Offset


class ProducedBatch(NamedTuple):
    """The outcome of one batch: acknowledged if `error` is None."""

    error: TidelogError | None
    base_offset: Offset
    """Offset of the first record, for a duplicate that of its first copy; -1 on errors."""
    log_append_time_ms: Millis
    """The node's timestamp with log append time, else -1."""
    log_start_offset: Offset
    leader_epoch: LeaderEpoch
    """The epoch in which the batch was appended."""
    duplicate: bool = False
    """An idempotent producer had already sent this batch."""
    receipt: BatchReceipt | None = None
    """None unless the request asks for receipts and the node can make one."""
    correlation_id: int = 0


class ProduceAnswer(NamedTuple):
    """Outcomes of batches, in the order of the request; on a stream those that are known, in any order."""

    partitions: Sequence[ProducedBatch]
