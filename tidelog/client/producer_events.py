"""Events and effects of the producer core. Times are monotonic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.client.accumulator import Attempt, PendingBatch
from tidelog.client.core_events import FindLeader, LeaderKnown, TimePassed
from tidelog.client.node_window import BYTES_MAX, PARTIAL_MAX
from tidelog.client.receipt import StoredBatch
from tidelog.errors import TidelogError
from tidelog.types import NO_TIMESTAMP, Acks, Millis, Offset, ProducerId


@dataclass(frozen=True, slots=True)
class Policy:
    """Options and limits, in milliseconds, bytes and counts."""

    acks: Acks
    linger_ms: int
    batch_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_ms_max: int
    resend_unknown: bool = False
    """Without idempotence, resend batches that may already be written."""
    node_partial_max: int = PARTIAL_MAX
    node_bytes_max: int = BYTES_MAX
    """How many batches that are not full, and how many bytes, may be under way to a node when another batch is sent
    (node_window.py)."""


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducerIdKnown:
    """Answer to InitProducerId: a new producer id."""

    producer_id: ProducerId
    epoch: int
    at: Millis


@dataclass(frozen=True, slots=True)
class ProducerIdRefused:
    """No producer id was obtained."""

    error: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The node has acknowledged an attempt."""

    attempt_id: int
    base_offset: Offset
    append_time: Millis
    at: Millis
    receipt: StoredBatch | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The node has answered an attempt with an error."""

    attempt_id: int
    error: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream failed before an answer. The core knows whether the batch was sent."""

    attempt_id: int
    cause: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class NotEncoded:
    """The batch of an attempt could not be encoded, so nothing was sent. faulty: the records that caused it, by index,
    with their errors."""

    attempt_id: int
    faulty: Mapping[int, TidelogError]
    at: Millis


@dataclass(frozen=True, slots=True)
class Flushed:
    """The application calls flush: send all batches now, without lingering."""

    at: Millis


Event: TypeAlias = (
    LeaderKnown
    | ProducerIdKnown
    | ProducerIdRefused
    | Acknowledged
    | Refused
    | Lost
    | NotEncoded
    | Flushed
    | TimePassed
)


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubmitAttempt:
    """Queue the attempt on the stream of its node. The stream calls `take` before it sends the batch."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Finished:
    """The batch has its outcome and its memory is free: notify its senders."""

    batch: PendingBatch
    error: TidelogError | None = None
    base_offset: Offset = Offset(-1)
    append_time: Millis = NO_TIMESTAMP
    receipt: StoredBatch | None = None

    def notify(self) -> None:
        """Set the outcome of the batch and call the waiting callers."""
        if self.error is not None:
            self.batch.outcome.fail(self.error)
        else:
            self.batch.outcome.succeed(self.base_offset, self.append_time, self.receipt)


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """Request a producer id from any node; answer with ProducerIdKnown or ProducerIdRefused."""

    producer_id: ProducerId
    """The exhausted producer id and epoch; -1 if there were none."""
    epoch: int


Effect: TypeAlias = SubmitAttempt | Finished | FindLeader | InitProducerId
