"""Checks of batches in an answer before their checksums are verified, and of fields that no checksum covers.

Not here: the handling of implausible batches (fetch_core.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.records import RecordBatch
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Offset


def plausible_epoch(batch: RecordBatch, before: LeaderEpoch, leader_epoch: LeaderEpoch) -> LeaderEpoch:
    """Return the leader epoch of a batch that follows a record of epoch `before` and was read in `leader_epoch`, or
    NO_LEADER_EPOCH if it is outside that range: the checksum does not cover the field, so it may be corrupt."""
    epoch = batch.partition_leader_epoch
    return epoch if before <= epoch <= leader_epoch else NO_LEADER_EPOCH


def possible_batches(batches: tuple[RecordBatch, ...], ahead: Offset, high_watermark: Offset) -> Sequence[RecordBatch]:
    """Return the batches before the first one whose offsets are impossible in an answer to a fetch of `ahead`: at or
    above the high watermark, or not above those of the batch before it."""
    # A batch's offsets move `Cursor.ahead` before its checksum is verified, and it does not cover the base offset.
    at: Offset | None = None
    for index, batch in enumerate(batches):
        next_offset = batch.next_offset
        if next_offset > high_watermark or (at is not None and batch.base_offset < at):
            return batches[:index]
        if next_offset > ahead:
            at = next_offset
    return batches
