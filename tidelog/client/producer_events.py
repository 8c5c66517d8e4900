"""What the producer's core is told and what it says: events in, effects out, as values. Times are monotonic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.client.accumulator import Attempt, PendingBatch
from tidelog.errors import TidelogError
from tidelog.types import (
    NO_TIMESTAMP,
    Acks,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class Policy:
    """How long, how often, how many; milliseconds and bytes.

    resend_unknown: of batches without idempotence: send again what may be written already.
    """

    acks: Acks
    linger_ms: int
    batch_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_ms_max: int
    resend_unknown: bool = False


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeaderKnown:
    """The answer to FindLeader, or news: who leads a partition. NO_NODE: nobody, as far as `cause` tells why."""

    topic_partition: TopicPartition
    topic_id: TopicId | None
    node: NodeId
    leader_epoch: LeaderEpoch
    at: Millis
    cause: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class ProducerIdKnown:
    """The answer to InitProducerId: an id that nobody else has."""

    producer_id: ProducerId
    epoch: int
    at: Millis


@dataclass(frozen=True, slots=True)
class ProducerIdRefused:
    """No id came."""

    error: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The node has answered an attempt: done as asked."""

    attempt_id: int
    base_offset: Offset
    append_time: Millis
    at: Millis


@dataclass(frozen=True, slots=True)
class Refused:
    """The node has answered an attempt with an error."""

    attempt_id: int
    error: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream broke, or never came about, before an answer. Whether the batch was taken from here is known here."""

    attempt_id: int
    cause: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class NotEncoded:
    """The batch of an attempt could not be turned into bytes, so that nothing of it was sent. faulty: the records that
    are the cause, by their index, and what is wrong with each."""

    attempt_id: int
    faulty: Mapping[int, TidelogError]
    at: Millis


@dataclass(frozen=True, slots=True)
class Flushed:
    """Send everything now, without lingering."""

    at: Millis


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed, or records have come."""

    at: Millis


Event: TypeAlias = (
    LeaderKnown | ProducerIdKnown | ProducerIdRefused | Acknowledged | Refused | Lost | NotEncoded | Flushed | Ticked
)


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Give:
    """Give the attempt to the stream of its node; that asks `take` before it puts the batch on the wire."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Finished:
    """The batch is done with and its memory free: tell its senders."""

    batch: PendingBatch
    error: TidelogError | None = None
    base_offset: Offset = Offset(-1)
    append_time: Millis = NO_TIMESTAMP

    def tell(self) -> None:
        """Give the batch its outcome; whoever waits is called."""
        if self.error is not None:
            self.batch.outcome.fail(self.error)
        else:
            self.batch.outcome.succeed(self.base_offset, self.append_time)


@dataclass(frozen=True, slots=True)
class FindLeader:
    """Look up who leads, and answer with LeaderKnown."""

    topic_partition: TopicPartition


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """Ask any node for a producer id, and answer with ProducerIdKnown or ProducerIdRefused.

    producer_id, epoch: what is used up; -1 where there was none.
    """

    producer_id: ProducerId
    epoch: int


Effect: TypeAlias = Give | Finished | FindLeader | InitProducerId
