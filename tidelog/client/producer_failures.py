"""The errors that a producer reports for batches without an acknowledgement, and for records that it does not queue.

Not here: whether a batch has failed (producer_core.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from tidelog.client.accumulator import Attempt, PartitionQueue, PendingBatch
from tidelog.client.sequences import PLAIN
from tidelog.errors import (
    BufferExhausted,
    CommitUnknown,
    DeliveryTimedOut,
    InvalidRequest,
    RecordTooLarge,
    TidelogError,
)
from tidelog.types import NO_NODE

_log: Final = logging.getLogger("tidelog.producer")


def unsent_error(batch: PendingBatch, why: str, *, is_late: bool = True) -> TidelogError:
    """Return the error for a batch that the producer gives up: DeliveryTimedOut if no node has it, CommitUnknown if a
    node may have it from an earlier attempt. why: as the beginning of a clause. is_late: its time is over."""
    queue, records, cause = batch.queue, batch.outcome.records, batch.unknown_cause or batch.cause
    if cause is None and queue.failure is not None:
        cause = queue.failure.cause  # the batch was never sent: it waited for earlier batches, which failed
    tried = f"{why}, after {batch.attempts} attempts" if batch.attempts else f"{why} before it was sent"
    no_leader = "no node reported its leader." if queue.leader == NO_NODE else "earlier batches took too long."
    last_error = cause.message if cause is not None else no_leader if is_late else "it was waiting for its turn."
    error: TidelogError
    if batch.unknown_cause is not None:
        error = _about(
            batch,
            CommitUnknown(
                f"it is unknown whether {records} records for "
                f"{queue.topic_partition} are committed: {tried}: {last_error}"
            ),
        )
    else:
        error = DeliveryTimedOut(
            f"{records} records for {queue.topic_partition} were not written: {tried}: {last_error}"
        )
    error.__cause__ = cause
    return error


def commit_unknown(batch: PendingBatch, attempt: Attempt, cause: TidelogError) -> CommitUnknown:
    """Return the error for the senders of a batch whose outcome is unknown."""
    next_step = "Read the partition to find out, or send them again and accept duplicates"
    if batch.stamp is PLAIN:
        next_step += ' (on_unknown="resend" does that in order)'
    error = CommitUnknown(
        f"it is unknown whether {batch.outcome.records} records for {batch.queue.topic_partition} are committed: "
        f"sent to node {attempt.node} in leader epoch {attempt.leader_epoch}, then: {cause.message} {next_step}."
    )
    error.__cause__ = cause
    return _about(batch, error)


def _about(batch: PendingBatch, error: CommitUnknown) -> CommitUnknown:
    """Name the partition and the number of records in fields, for programs that look for them in the log."""
    error.topic_partition, error.records = batch.queue.topic_partition, batch.outcome.records
    return error


def ensure_fits(topic: str, size: int, limits: Mapping[str, int], record: int | None) -> None:
    """Raise RecordTooLarge if an encoded record of this size exceeds the smallest limit. record: its index in a call
    with many records."""
    name, limit = min(limits.items(), key=lambda item: item[1])
    if size > limit:
        what = "a record" if record is None else f"record {record}"
        raise RecordTooLarge(
            f"{what} for topic {topic!r} takes {size} bytes, {name} allows {limit}: split the record or raise the "
            "limit. Nothing was queued."
        )


def not_known(topic: str) -> InvalidRequest:
    """Return the error for a topic without metadata."""
    return InvalidRequest(f"the metadata of topic {topic!r} are not loaded: await partitions({topic!r}) first")


def memory_exhausted(buffer_bytes: int, what: str, queues: Iterable[PartitionQueue]) -> BufferExhausted:
    """Return the error for a record for which there is no memory. what: the state of the memory, as a predicate.
    queues: those whose records occupy it. If one of them is refused, as by a full disk, sending more slowly is no
    remedy: that refusal is the reason."""
    refusals = (
        (queue.topic_partition, batch.cause)
        for queue in queues
        for batch in (*queue.begun[:1], *islice(queue.batches, 1))
        if batch.cause is not None
    )
    key, cause = next(refusals, (None, None))
    why = "records arrive faster than the nodes acknowledge them; send more slowly, or raise buffer_bytes."
    if cause is not None:
        why = f"records for {key} are not acknowledged: {cause.message.rstrip('.')}."
    error = BufferExhausted(f"the producer's memory (buffer_bytes={buffer_bytes}) {what}: {why} Nothing was queued.")
    error.__cause__ = cause
    return error


def warn_of_format(topic: str, message_format: str) -> None:
    """Log that the records of a topic are sent without idempotence."""
    _log.warning(
        "topic %r has message.format=%s: its records are sent without idempotence, which needs v2",
        topic,
        message_format,
    )
