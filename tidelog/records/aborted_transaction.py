"""An aborted transaction of a log, and the entries of Kafka's `.txnindex`.

    version             int16    0   0
    producer id         int64    2
    first offset        int64   10   of the transaction's first record in this log
    last offset         int64   18   of its marker
    last stable offset  int64   26   after the marker: first offset of the oldest open transaction, else one past the
                                     marker. No later entry concerns offsets below it

Invariants: last offsets grow from entry to entry. An incomplete entry at the end, left by a crash, is ignored.
Not here: files (storage/segment/transaction_index.py). Source: KIP-98; Kafka's AbortedTxn.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tidelog.errors import CorruptRecord
from tidelog.types import Buffer, Offset, ProducerId

_VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")
TRANSACTION_ENTRY_BYTES: Final = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """An aborted transaction, from its first record to its marker. last_stable_offset: after the marker."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


def encode_transactions(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *transaction) for transaction in transactions)


def decode_transactions(data: Buffer, base_offset: int) -> list[AbortedTransaction]:
    """The entries of the index of the segment at `base_offset`. Raises CorruptRecord."""
    entries: list[AbortedTransaction] = []
    before = base_offset - 1
    for version, *fields in _ENTRY.iter_unpack(memoryview(data)[: len(data) - len(data) % _ENTRY.size]):
        entry = AbortedTransaction._make(fields)
        if version != _VERSION:
            raise CorruptRecord(f"an entry has version {version}, supported is {_VERSION}")
        if entry.last_offset <= before:
            raise CorruptRecord(f"last offset {entry.last_offset} of an entry is not above {before}")
        if not 0 <= entry.first_offset <= entry.last_offset:
            raise CorruptRecord(f"invalid transaction from offset {entry.first_offset} to {entry.last_offset}")
        before = entry.last_offset
        entries.append(entry)
    return entries


def collect_transactions(
    entries: Iterable[AbortedTransaction], start: Offset, end: Offset
) -> tuple[tuple[AbortedTransaction, ...], bool]:
    """The transactions with records in [start, end), and True if no later segment can contain more. entries: those of
    one segment."""
    found = []
    for transaction in entries:
        if transaction.last_offset >= start and transaction.first_offset < end:
            found.append(transaction)
        if transaction.last_stable_offset >= end:
            return tuple(found), True
    return tuple(found), False
