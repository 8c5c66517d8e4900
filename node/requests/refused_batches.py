"""The batches of idempotent producers that this node has just refused, for the batches behind them.

A producer has several batches of a partition on their way. If the first is refused because the node does not lead or
too few replicas are in sync, and this changes before the second arrives, the second leaves a gap. So it does behind one
for which the disk has no room, since the log looks at the sequence first. OUT_OF_ORDER would be right, but librdkafka
then gives all its partitions another producer epoch, and writes the records of unknown outcome of any of them twice
(its issue 4953, with Kafka too). Such a batch is refused for the reason of the first instead: all clients send both
again, in order.

Invariant: only a batch that the log refuses as out of order gets another reason, and only if its sequence is the one
after the refused batch; hence a gap that has another cause is still told as such. After NOTED_MS it is told in any
case: a producer may have given the refused batch up, and must learn that the gap stays.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.clock import Clock
from tidelog.errors import DiskFull, NotEnoughReplicas, NotLeaderOrFollower, OutOfOrderSequenceNumber, TidelogError
from tidelog.records.v2.header import peek_header
from tidelog.types import INT32_MAX, NO_PRODUCER_ID, Buffer, Millis, PartitionKey, ProducerId

NOTED_MS: Final = 5_000
"""Longer than a batch that was sent before the refusal was read is on its way."""

NOTED_MAX: Final = 1_000
"""Of a node; the oldest is forgotten first."""

_PASSING: Final = (NotLeaderOrFollower, NotEnoughReplicas, DiskFull)
"""What may be over when the next batch arrives. All say that nothing was written."""


class _Refused(NamedTuple):
    epoch: int
    next_sequence: int
    reason: TidelogError
    at: Millis


class RefusedBatches:
    """See above."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted: dict[tuple[PartitionKey, ProducerId], _Refused] = {}

    def reason_of(self, partition: PartitionKey, records: Buffer, error: TidelogError) -> TidelogError:
        """The reason to answer for a batch that was refused with `error`."""
        if not isinstance(error, (*_PASSING, OutOfOrderSequenceNumber)):
            return error
        header = peek_header(records)
        if header is None or header.producer_id == NO_PRODUCER_ID:
            return error
        key, now = (partition, header.producer_id), self._clock.monotonic_ms()
        reason: TidelogError = error
        answer: TidelogError = error
        if isinstance(error, OutOfOrderSequenceNumber):
            before = self._noted.get(key)
            where = (header.producer_epoch, header.base_sequence)
            if before is None or before[:2] != where or now - before.at > NOTED_MS:
                return error
            reason = before.reason
            answer = type(reason)(
                f"the batch before this one, up to sequence {header.base_sequence - 1} of producer "
                f"{header.producer_id}, was refused: {reason.message}; send both again, in order"
            )
        self._noted.pop(key, None)
        if len(self._noted) >= NOTED_MAX:
            del self._noted[next(iter(self._noted))]
        following = (header.base_sequence + header.last_offset_delta + 1) & INT32_MAX
        self._noted[key] = _Refused(header.producer_epoch, following, reason, now)
        return answer
