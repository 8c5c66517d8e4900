"""The numbers of an idempotent producer's batches in one partition: producer id, epoch, sequences.

A leader appends a batch of a known producer only where its first sequence follows the last one, and answers one of the
last five batches that comes again with the offset of its first copy (KIP-98). What the producer must keep true for that
to mean "once and in order":
  1. A sequence belongs to one batch for ever. A batch that is given up never returns its sequences, whatever was said
     about it: the series is broken then, and goes on in a higher epoch from sequence 0, by which leaders refuse
     whatever of the old epoch is still under way (KIP-360).
  2. Never more than five batches from the oldest without an outcome to the newest: the leader remembers no more.
  3. Until a batch of the epoch is acknowledged, and after a long silence, one at a time: a leader that knows nothing
     of the producer takes any first sequence, and would take the second batch before the first.
An epoch is the partition's own: the other partitions of the producer go on in theirs. As in Kafka the producer counts
epochs by itself, since nobody else has its id, and asks for another id when they are used up.
Left to others: what is sent when, and what an answer means for a batch (producer_core.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Millis, ProducerId

SEQUENCES: Final = 1 << 31
"""Behind the last one comes 0 again."""
EPOCH_MAX: Final = (1 << 15) - 1
WINDOW: Final = 5
"""Batches of a producer that a leader remembers (Kafka's ProducerStateEntry)."""
PROOF_MS: Final = 600_000
"""So long after an acknowledgement the leader certainly knows the producer (`producer.id.expiration.ms`: a day)."""


class Stamp(NamedTuple):
    """What a batch's header says of its producer. `sequence` is that of its first record."""

    producer_id: ProducerId
    epoch: int
    sequence: int


PLAIN: Final = Stamp(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
"""Of a batch without idempotence."""


class Series:
    """See the module's words. `producer_id` is NO_PRODUCER_ID until `begin`."""

    __slots__ = ("broken", "epoch", "place", "producer_id", "proven_ms", "sequence", "spent_id")

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_PRODUCER_EPOCH
        self.sequence = 0
        """Of the next record."""
        self.place = 0
        """Of the next batch: batches are counted, whatever the epoch."""
        self.proven_ms: Millis | None = None
        """When a batch of this epoch was last acknowledged."""
        self.broken = False
        """A batch of this epoch was given up, or the leader lacks one: nothing is numbered until `renew`."""
        self.spent_id = NO_PRODUCER_ID
        """An id that can be used no more."""

    def begin(self, producer_id: ProducerId, epoch: int) -> None:
        """The series starts, or starts again under another id."""
        self.producer_id, self.epoch, self.sequence = producer_id, epoch, 0

    def renew(self) -> None:
        """Go on in a higher epoch; where there is none, with another id, which `begin` has to bring."""
        self.broken, self.proven_ms = False, None
        if self.producer_id == NO_PRODUCER_ID:
            return
        self.epoch, self.sequence = self.epoch + 1, 0
        if self.epoch > EPOCH_MAX or self.producer_id == self.spent_id:
            self.spent_id, self.producer_id = self.producer_id, NO_PRODUCER_ID

    def fence(self) -> None:
        """Somebody else uses the id: it is of no use any more."""
        self.broken, self.spent_id = True, self.producer_id

    def may_follow(self, oldest_place: int, at: Millis) -> bool:
        """Whether another batch may be sent while that of `oldest_place` has no outcome yet."""
        known = self.proven_ms is not None and at - self.proven_ms < PROOF_MS
        return known and not self.broken and self.place - oldest_place < WINDOW

    def number(self, records: int) -> tuple[Stamp, int]:
        """The stamp and the place of the next batch."""
        stamp, place = Stamp(self.producer_id, self.epoch, self.sequence), self.place
        self.sequence = (self.sequence + records) % SEQUENCES
        self.place += 1
        return stamp, place

    def acknowledged(self, stamp: Stamp, at: Millis) -> None:
        """A batch is in the log for good."""
        if (stamp.producer_id, stamp.epoch) == (self.producer_id, self.epoch):
            self.proven_ms = at
