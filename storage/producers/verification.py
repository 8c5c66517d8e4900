"""Verification of transactions before their first batch in a log (KIP-890).

A batch of a transaction is appended only if the log contains an open transaction of this producer and epoch, or if the
transaction coordinator has confirmed, since the last marker of the producer, that the partition is part of one.

Invariants:
  1. A guard that a caller got before a marker was appended, or before the first batch of the transaction was, does not
     match any more: a late confirmation does not admit a batch to a transaction that has ended, or to the next one.
     With transaction version 2 the marker of a transaction has the epoch of the next one, and leaves its guards alone.
  2. While a transaction is verified, the batch with the lowest sequence that was seen is appended first.

Not here: the request to the coordinator (node/coordinators/transactions), the checks of epochs and sequences
(producer_entry.py). Source: KIP-890; Kafka's VerificationGuard and VerificationStateEntry.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.types import ProducerId

VERSION_2: Final = 2
"""The transaction version of KIP-890: each transaction has an epoch of its own, which its marker ends."""

KEPT_MAX: Final = 1_000
"""Verifications that a log remembers; beyond, the oldest is forgotten, and its batch must be verified again."""


class VerificationGuard:
    """Permission to append the first batch of a transaction. Only its identity counts."""

    __slots__ = ()


NOTHING_VERIFIED: Final = VerificationGuard()
"""The guard of a batch whose transaction was open in the log: it admits nothing if the transaction has ended since."""


class TransactionCheck(NamedTuple):
    """What an append of a transactional batch, or of a marker, is checked against."""

    version: int = 1
    """The transaction version."""
    guard: VerificationGuard | None = None
    """The guard of a data batch, from `Verifications.begin`; None if the transaction is not verified."""


UNVERIFIED: Final = TransactionCheck()
"""The check of an append whose transaction is not verified."""


class _Verification:
    """One verification in progress. lowest_sequence: of the batches that wait for it or were refused."""

    __slots__ = ("guard", "lowest_sequence")

    def __init__(self, sequence: int) -> None:
        self.guard = VerificationGuard()
        self.lowest_sequence = sequence


class Verifications:
    """The verifications of one log, by producer id and epoch."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[tuple[ProducerId, int], _Verification] = {}

    def begin(self, producer_id: ProducerId, epoch: int, sequence: int) -> VerificationGuard:
        """The guard of the verification of this producer and epoch. sequence: of the first record of the batch."""
        known = self._of.get((producer_id, epoch))
        if known is None:
            known = self._of[producer_id, epoch] = _Verification(sequence)
            while len(self._of) > KEPT_MAX:
                del self._of[next(iter(self._of))]
        known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known.guard

    def lowest_sequence(self, producer_id: ProducerId, epoch: int, guard: VerificationGuard) -> int | None:
        """The lowest sequence that was seen; None if the guard does not match, or not any more."""
        known = self._of.get((producer_id, epoch))
        return known.lowest_sequence if known is not None and known.guard is guard else None

    def end(self, producer_id: ProducerId, last_epoch: int) -> None:
        """A batch of a transaction, or a marker, of this producer was appended: no guard of its epochs up to this one
        matches any more."""
        for key in [key for key in self._of if key[0] == producer_id and key[1] <= last_epoch]:
            del self._of[key]
