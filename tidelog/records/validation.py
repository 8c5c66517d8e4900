"""What a leader refuses in a producer's batch by its header alone.

`RecordBatch.ensure_valid` asks whether bytes can be a batch at all; this asks whether a producer may send it.
Kept true: what passes may be stamped and appended; what does not raises a typed error and nothing was changed.
Left to others: the records themselves, sizes and other rules of a topic (storage).
Source: Kafka's LogValidator.validateBatch and UnifiedLog.analyzeAndValidateRecords.
"""

from __future__ import annotations

from tidelog.errors import InvalidRecord, InvalidTimestamp
from tidelog.records.batch import RecordBatch
from tidelog.types import NO_PRODUCER_ID, TimestampType


def ensure_producible(batch: RecordBatch) -> None:
    """Check what only brokers may write is not in a producer's batch, and that its offsets and sequences are whole.

    batch: after `ensure_valid`. A sequence without a producer id means nothing, and some clients send one (aiokafka:
    0). Raises InvalidRecord, or InvalidTimestamp where it claims the broker's clock.
    """
    reason = None
    if batch.base_offset != 0:
        reason = f"its base offset is {batch.base_offset}, a producer's offsets begin at 0"
    elif batch.count == 0 or batch.count != batch.last_offset_delta + 1:
        reason = f"it declares {batch.count} records over offsets 0 to {batch.last_offset_delta}"
    elif batch.is_control:
        reason = "it is a control batch, which only brokers write"
    elif batch.delete_horizon_ms is not None:
        reason = "it has a delete horizon, which only the cleaner sets"
    elif batch.producer_id != NO_PRODUCER_ID and (batch.producer_epoch < 0 or batch.base_sequence < 0):
        reason = (
            f"its producer id {batch.producer_id} comes with epoch {batch.producer_epoch} and "
            f"sequence {batch.base_sequence}"
        )
    elif batch.producer_id == NO_PRODUCER_ID and batch.is_transactional:
        reason = "it is transactional, but has no producer id"
    if reason is not None:
        raise InvalidRecord(f"the batch was refused: {reason}; the producer's library is at fault")
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestamp(
            "the batch was refused: it claims log append time, which only a broker sets; send it with create time"
        )
