"""The records of one page: what is kept of each is cut while it is read, and a page is bounded in all.

Invariant: a page keeps at most `KEPT_BYTES_MAX` and one record, whatever the log contains; and looks at no more than
`LOOKED_BYTES_MAX` of decompressed records and one batch, which takes a second or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.records import Record, iter_batches
from tidelog.types import Buffer, Millis, Offset

RECORDS_SHOWN: Final = 50
VALUE_BYTES_SHOWN: Final = 16 << 10
"""Of a key, and of a value."""
HEADERS_SHOWN: Final = 20
HEADER_BYTES_SHOWN: Final = 1 << 10
NAME_CHARACTERS_SHOWN: Final = 256
KEPT_BYTES_MAX: Final = 1 << 20
"""Of all records of a page, after they were cut. The page itself is a few times as large."""
LOOKED_BYTES_MAX: Final = 32 << 20
"""A megabyte of compressed batches may become many gigabytes. The next page continues behind them."""
RECORD_BYTES: Final = 64
"""What a record counts besides its parts: millions without any take seconds too."""
DECOMPRESSED_BYTES_MAX: Final = 128 << 20
"""Of one batch: it cannot be read in parts."""


@dataclass(frozen=True, slots=True)
class SeenBytes:
    """The first bytes of a key, of a value, or of a header."""

    data: bytes
    length: int
    """Of the whole."""


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """What a page keeps of a record."""

    offset: Offset
    timestamp: Millis
    key: SeenBytes | None
    value: SeenBytes | None
    headers: Sequence[tuple[str, SeenBytes | None]]
    headers_more: int
    """How many headers are left out."""
    is_transactional: bool

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        parts = (self.key, self.value, *(value for _, value in self.headers))
        return sum(len(each.data) for each in parts if each is not None) + sum(len(name) for name, _ in self.headers)


class PageContent:
    """The records of a page, while it is filled."""

    def __init__(self, position: Offset, wanted: bytes | None) -> None:
        """position: where the page begins. wanted: only records with this key; None: all."""
        self.records: list[SeenRecord] = []
        self.position = position
        """Behind the last record that was looked at."""
        self._wanted = wanted
        self._kept = self._looked = 0

    @property
    def is_full(self) -> bool:
        """Whether no more fits, or enough was searched."""
        return len(self.records) >= RECORDS_SHOWN or self._kept >= KEPT_BYTES_MAX or self._looked >= LOOKED_BYTES_MAX

    def take(self, data: Buffer) -> None:
        """Look at the records of these batches from the position on, until the page is full."""
        for batch in iter_batches(data):
            for record in () if batch.is_control else batch.records(max_bytes=DECOMPRESSED_BYTES_MAX):
                if record.offset < self.position:
                    continue
                if self.is_full:
                    return
                self.position = Offset(record.offset + 1)
                self._looked += _looked_bytes(record)
                if self._wanted is None or record.key == self._wanted:
                    seen = _seen(record, is_transactional=batch.is_transactional)
                    self._kept += seen.size
                    self.records.append(seen)
            # Also of a batch without records, as compaction leaves them.
            self.position = max(self.position, batch.next_offset)
            self._looked += batch.size
            if self.is_full:
                return


def _looked_bytes(record: Record) -> int:
    headers = sum(len(name) + len(data or b"") for name, data in record.headers)
    return RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _seen(record: Record, *, is_transactional: bool) -> SeenRecord:
    return SeenRecord(
        record.offset,
        record.timestamp,
        _cut(record.key, VALUE_BYTES_SHOWN),
        _cut(record.value, VALUE_BYTES_SHOWN),
        [
            (name[:NAME_CHARACTERS_SHOWN], _cut(data, HEADER_BYTES_SHOWN))
            for name, data in record.headers[:HEADERS_SHOWN]
        ],
        max(0, len(record.headers) - HEADERS_SHOWN),
        is_transactional,
    )


def _cut(data: bytes | None, most: int) -> SeenBytes | None:
    return None if data is None else SeenBytes(bytes(data[:most]), len(data))
