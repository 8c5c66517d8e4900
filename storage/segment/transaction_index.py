"""The aborted transactions of one segment: Kafka's .txnindex. Readers use it to skip their records.

The index of the segment with the transaction's marker contains the entry (tidelog/records/aborted_transaction.py).

Invariants:
  1. Last offsets grow from entry to entry. An incomplete entry at the end of the file, left by a crash, is ignored.
  2. The file is created with its first entry: a segment without aborted transactions has none.
  3. A full disk does not fail an append: the file lacks entries that are in memory, until a later append succeeds.
Not here: whether an index agrees with its log (aborted_transactions.py). The file is derived data and not synced.
Source: KIP-98; Kafka's TransactionIndex and AbortedTxn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Final

from storage.files.file_system import Files, is_full, read_file, remove_files, write_file
from storage.segment.abstract_index import CorruptIndex
from tidelog.errors import CorruptRecord
from tidelog.records.aborted_transaction import (
    TRANSACTION_ENTRY_BYTES,
    AbortedTransaction,
    collect_transactions,
    decode_transactions,
    encode_transactions,
)
from tidelog.types import Offset

__all__ = ["TRANSACTION_INDEX_SUFFIX", "AbortedTransaction", "TransactionIndex", "encode_transactions"]

TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"


class TransactionIndex:
    """The index file of one segment. It is read at first use and not kept open."""

    __slots__ = ("_behind", "_entries", "_files", "base_offset", "path")

    def __init__(self, files: Files, path: str, base_offset: Offset) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        self._entries: list[AbortedTransaction] | None = None
        self._behind = False
        """True if the file lacks entries that are in memory."""

    @property
    def entries(self) -> Sequence[AbortedTransaction]:
        """All entries in order. Raises CorruptIndex for an invalid file, OSError."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def _read(self) -> list[AbortedTransaction]:
        data = read_file(self._files, self.path) or b""
        try:
            return decode_transactions(data, self.base_offset)
        except CorruptRecord as error:
            raise CorruptIndex(f"{self.path}: {error.message}") from error

    @property
    def is_read(self) -> bool:
        return self._entries is not None

    def begin(self) -> None:
        """Start empty: the segment is new and has no index file."""
        self._entries = []

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction that ends after the existing ones. Raises CorruptIndex, OSError."""
        entries = self.entries
        if entries and transaction.last_offset <= entries[-1].last_offset:
            raise CorruptIndex(
                f"{self.path}: a transaction that ends at {transaction.last_offset} cannot follow one that ends at "
                f"{entries[-1].last_offset}"
            )
        self._entries = [*entries, transaction]
        if self._behind:
            self._write()
            return
        try:
            with closing(self._files.open(self.path, create=True)) as file:
                end = len(entries) * TRANSACTION_ENTRY_BYTES
                file.pwritev([encode_transactions([transaction])], end)
                if file.size() > end + TRANSACTION_ENTRY_BYTES:
                    file.truncate(end + TRANSACTION_ENTRY_BYTES)
        except OSError as error:
            self._note_full(error)

    def _write(self) -> None:
        try:
            write_file(self._files, self.path, encode_transactions(self.entries), sync=False)
            self._behind = False
        except OSError as error:
            self._note_full(error)

    def _note_full(self, error: OSError) -> None:
        if not is_full(error):
            raise error
        self._behind = True

    def collect(self, start: Offset, end: Offset) -> tuple[tuple[AbortedTransaction, ...], bool]:
        """The transactions with records in [start, end), and True if no later segment can contain more. Raises
        CorruptIndex, OSError."""
        return collect_transactions(self.entries, start, end)

    def truncate_to(self, offset: Offset) -> None:
        """Remove the transactions whose markers are at or above `offset`. Raises OSError."""
        try:
            kept = [entry for entry in self.entries if entry.last_offset < offset]
        except CorruptIndex:
            self.remove()
            return
        if len(kept) < len(self.entries):
            self.replace(kept)

    def replace(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Replace the contents of the file atomically. Raises OSError."""
        self._entries = list(transactions)
        if self._entries:
            self._write()
        else:
            self.remove()

    def remove(self) -> None:
        """Remove all entries and the file. Raises OSError."""
        remove_files(self._files, [self.path])
        self._entries, self._behind = [], False
