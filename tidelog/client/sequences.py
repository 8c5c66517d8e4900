"""Sequence numbers of an idempotent producer in one partition: producer id, epoch, sequences.

A leader appends a batch of a known producer only if its first sequence follows the last one. A repeated batch that is
among the last five is answered with the offset of its first copy (KIP-98). For exactly-once, in-order writes the
producer keeps these invariants:
  1. A sequence belongs to one batch forever. A failed batch never returns its sequences, whatever the answer was: the
     series is broken and continues in a higher epoch from sequence 0. Leaders then reject everything of the old epoch
     that is still in flight (KIP-360).
  2. At most five batches from the oldest one without an outcome to the newest: the leader remembers five.
  3. Until a batch of the epoch is acknowledged, and after a long silence, one batch at a time: a leader without state
     of the producer accepts any first sequence, and would accept the second batch before the first. Not so in a
     transaction of version 2, which a leader lets begin only with sequence 0.
Each partition has its own epoch, except in transactions. As in Kafka the producer increments epochs by itself, since no
other producer has its id, and requests another id when the epochs are exhausted.
Not here: when batches are sent, and the handling of answers (producer_core.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.types import INT16_MAX, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Millis, ProducerId

SEQUENCES: Final = 1 << 31
"""After the last sequence number comes 0 again."""
EPOCH_MAX: Final = INT16_MAX
WINDOW: Final = 5
"""Number of batches of a producer that a leader remembers (Kafka's ProducerStateEntry)."""
PROOF_MS: Final = 600_000
"""For this time after an acknowledgement the leader certainly knows the producer (`producer.id.expiration.ms`: a
day)."""


class Stamp(NamedTuple):
    """Producer fields of a batch header. `sequence` is that of its first record."""

    producer_id: ProducerId
    epoch: int
    sequence: int


PLAIN: Final = Stamp(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
"""Stamp of a batch without idempotence."""


class Series:
    """Numbering of the batches of one partition. `producer_id` is NO_PRODUCER_ID until `begin`."""

    __slots__ = ("begins_at_zero", "broken", "epoch", "exhausted_id", "place", "producer_id", "proven_ms", "sequence")

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_PRODUCER_EPOCH
        self.sequence = 0
        """Sequence of the next record."""
        self.place = 0
        """Position of the next batch, counted across epochs."""
        self.proven_ms: Millis | None = None
        """Time of the last acknowledgement of a batch of this epoch."""
        self.begins_at_zero = False
        """Every leader refuses batches of this epoch until it has the one with sequence 0."""
        self.broken = False
        """A batch of this epoch failed, or the leader lacks one: no batch is numbered until `renew`."""
        self.exhausted_id = NO_PRODUCER_ID
        """An exhausted or fenced producer id."""

    def begin(self, producer_id: ProducerId, epoch: int) -> None:
        """Start the series, or restart it with another id."""
        self.producer_id, self.epoch, self.sequence = producer_id, epoch, 0

    def restart(self, producer_id: ProducerId, epoch: int) -> None:
        """Start the series of a transaction, which has its own epoch (KIP-890)."""
        self.begin(producer_id, epoch)
        self.broken, self.proven_ms, self.begins_at_zero = False, None, True

    def renew(self) -> None:
        """Continue in the next epoch; if the epochs are exhausted, `begin` must set another id."""
        self.broken, self.proven_ms = False, None
        if self.producer_id == NO_PRODUCER_ID:
            return
        self.epoch, self.sequence = self.epoch + 1, 0
        if self.epoch > EPOCH_MAX or self.producer_id == self.exhausted_id:
            self.exhausted_id, self.producer_id = self.producer_id, NO_PRODUCER_ID

    def fence(self) -> None:
        """Stop using the producer id: another producer uses it."""
        self.broken, self.exhausted_id = True, self.producer_id

    def may_follow(self, oldest_place: int, at: Millis) -> bool:
        """Whether another batch may be sent while the batch at `oldest_place` has no outcome yet."""
        known = self.begins_at_zero or (self.proven_ms is not None and at - self.proven_ms < PROOF_MS)
        return known and not self.broken and self.place - oldest_place < WINDOW

    def number(self, records: int) -> tuple[Stamp, int]:
        """Return the stamp and the position of the next batch."""
        stamp, place = Stamp(self.producer_id, self.epoch, self.sequence), self.place
        self.sequence = (self.sequence + records) % SEQUENCES
        self.place += 1
        return stamp, place

    def acknowledged(self, stamp: Stamp, at: Millis) -> None:
        """Note that a batch was acknowledged: the leader knows the producer."""
        if (stamp.producer_id, stamp.epoch) == (self.producer_id, self.epoch):
            self.proven_ms = at
