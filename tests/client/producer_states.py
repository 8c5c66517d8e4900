"""The state that a leader keeps of idempotent producers: a small model to test producers against.

By producer id: the epoch and the last five batches. `strict`: an unknown producer must start with sequence 0; otherwise
any sequence is accepted (as in Kafka since KIP-360).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidelog.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber, UnknownProducerId
from tidelog.types import NO_PRODUCER_ID

SEQUENCES = 1 << 31


@dataclass
class Known:
    """One producer: its epoch, and (first sequence, records, offset) of its last batches."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))


class ProducerStates:
    """The producers of one partition, by producer id."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.known: dict[int, Known] = {}

    def judge(self, producer_id: int, epoch: int, sequence: int, records: int) -> int | None:
        """Return the offset of the first copy, or None for a batch to append. Raises the reason of a rejection."""
        known = self.known.get(producer_id)
        if producer_id == NO_PRODUCER_ID:
            return None
        if known is None:
            if self.strict and sequence:
                raise UnknownProducerId(f"producer {producer_id} is not known, and its batch has sequence {sequence}")
            return None
        if epoch < known.epoch:
            raise InvalidProducerEpoch(f"producer {producer_id} has epoch {known.epoch}, not {epoch}")
        if epoch > known.epoch:
            if sequence:
                raise OutOfOrderSequenceNumber(f"epoch {epoch} begins with sequence {sequence}, not with 0")
            return None
        for first, count, offset in known.batches:
            if (first, count) == (sequence, records):
                return offset
        last, count, _ = known.batches[-1]
        if sequence != (last + count) % SEQUENCES:
            raise OutOfOrderSequenceNumber(f"sequence {sequence} does not follow {last} and its {count} records")
        return None

    def appended(self, producer_id: int, epoch: int, sequence: int, records: int, offset: int) -> None:
        """A batch was appended."""
        if producer_id == NO_PRODUCER_ID:
            return
        known = self.known.get(producer_id)
        if known is None or known.epoch != epoch:
            known = self.known[producer_id] = Known(epoch)
        known.batches.append((sequence, records, offset))
