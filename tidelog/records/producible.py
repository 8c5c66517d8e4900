"""What a leader rejects in a producer's batch by its header alone.

`RecordBatch.ensure_valid` checks that bytes are a batch; this module checks that a producer may send the batch.
Invariants: an accepted batch may be stamped and appended; a rejected one raises a typed error and is unchanged.
Not here: the records (record_check.py), sizes and other rules of a topic (assignment.py).
Source: Kafka's LogValidator.validateBatch and UnifiedLog.analyzeAndValidateRecords.
"""

from __future__ import annotations

from tidelog.errors import InvalidRecord, InvalidTimestamp
from tidelog.records.v2.batch import CONTROL_BIT, DELETE_HORIZON_BIT, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, RecordBatch
from tidelog.records.v2.header import RESERVED_ATTRIBUTES
from tidelog.types import NO_PRODUCER_ID


def ensure_producible(batch: RecordBatch) -> None:
    """Reject broker-only features, and incomplete offsets and sequences, in a producer's batch.

    batch: after `ensure_valid`. A sequence without a producer id is ignored, because some clients send one (aiokafka:
    0). Raises InvalidRecord, or InvalidTimestamp if the batch claims log append time.
    """
    reason, header = None, batch.header
    attributes, producer_id, delta = header.attributes, header.producer_id, header.last_offset_delta
    if header.base_offset != 0:
        reason = f"its base offset is {header.base_offset}, but a producer's offsets start at 0"
    elif header.record_count == 0 or header.record_count != delta + 1:
        reason = f"it declares {header.record_count} records over offsets 0 to {delta}"
    elif attributes & RESERVED_ATTRIBUTES[2]:
        reason = f"it has attributes {attributes & 0xFFFF:#06x}, of which bits 7 to 15 are reserved"
    elif attributes & CONTROL_BIT:
        reason = "it is a control batch, which only brokers write"
    elif attributes & DELETE_HORIZON_BIT:
        reason = "it has a delete horizon, which only the cleaner sets"
    elif producer_id < NO_PRODUCER_ID:
        reason = f"its producer id {producer_id} is below 0 and not -1 (none)"
    elif producer_id != NO_PRODUCER_ID and (header.producer_epoch < 0 or header.base_sequence < 0):
        reason = (
            f"its producer id {producer_id} comes with epoch {header.producer_epoch} and sequence "
            f"{header.base_sequence}"
        )
    elif producer_id == NO_PRODUCER_ID and attributes & TRANSACTIONAL_BIT:
        reason = "it is transactional, but has no producer id"
    if reason is not None:
        raise InvalidRecord(f"the batch was rejected: {reason}; this is a defect of the producer's library")
    if attributes & TIMESTAMP_TYPE_BIT:
        raise InvalidTimestamp(
            "the batch was rejected: it claims log append time, which only a broker sets; send it with create time"
        )
