"""Fetched batches as rows of one Arrow record batch, without an object per record.

Invariants: rows of a partition are in order, each once. No cursor moves before all rows are built: if that fails, the
same records are read again. A batch that does not fit is read in part; the rest stays buffered.
Not here: waiting for data (consumer.py), the columns (records/arrow_columns.py), what is fetched (fetch_core.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.client.cursor import Cursor
from tidelog.client.plausible import plausible_epoch
from tidelog.errors import RecordTooLarge, TidelogError
from tidelog.records import RecordBatch
from tidelog.records.arrow_columns import TableBuilder
from tidelog.types import Offset

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(slots=True)
class _Advance:
    """The progress of one cursor."""

    cursor: Cursor
    whole: int
    """Number of batches that were read to their end."""
    position: Offset
    """The offset after the last row."""
    last: RecordBatch
    """The batch of the last row."""


class ArrowRows:
    """The rows of one call. max_records, max_bytes: bounds of the rows; the last batch may exceed `max_bytes`."""

    def __init__(self, columns: Iterable[str], *, check_crcs: bool, max_records: int, max_bytes: int) -> None:
        self._table = TableBuilder(columns, check_crcs=check_crcs)
        self._max_records, self._max_bytes = max_records, max_bytes
        self._advances: list[_Advance] = []
        self.is_full = False
        """Whether no further batch may be added."""

    @property
    def rows(self) -> int:
        """Number of rows so far."""
        return self._table.rows

    def expect(self, size: int) -> None:
        """Announce batches of about `size` bytes."""
        self._table.expect(min(size, self._max_bytes))

    def add(self, cursor: Cursor) -> tuple[RecordBatch, TidelogError] | None:
        """Add the buffered batches of a cursor from its position on, as far as they fit. Returns the first batch and
        its error if that one cannot be decoded; a later one is reported when it is the first."""
        assert cursor.position is not None or not cursor.batches, "nothing is fetched before the position is known"
        key = cursor.topic_partition
        advance: _Advance | None = None
        for batch in cursor.batches:
            position = cursor.position if advance is None else advance.position
            assert position is not None
            try:
                end = _end_of(batch, position, self._max_records - self.rows)
                self._table.add(key.topic, key.partition, batch, start=position, end=end)
            except TidelogError as error:
                if isinstance(error, RecordTooLarge) and self.rows:  # the columns are full
                    self.is_full = True
                elif advance is None:
                    return batch, error
                break
            if advance is None:
                advance = _Advance(cursor, 0, position, batch)
                self._advances.append(advance)
            advance.last, advance.position = batch, end
            self.is_full = self.rows >= self._max_records or self._table.size >= self._max_bytes
            if advance.position < batch.next_offset:
                break
            advance.whole += 1
            if self.is_full:
                break
        return None

    def take(self, moving: Callable[[Cursor], None] = lambda _cursor: None) -> tuple[pa.RecordBatch, list[Cursor]]:
        """Return the rows, and the cursors, moved past them. moving: called with each cursor before it moves."""
        advances, self._advances = self._advances, []
        table = self._table.take()
        for advance in advances:
            cursor = advance.cursor
            moving(cursor)
            for _ in range(advance.whole):
                cursor.buffered -= cursor.batches.popleft().size
            cursor.position_epoch = plausible_epoch(advance.last, cursor.position_epoch, cursor.leader_epoch)
            cursor.position = advance.position
        return table, [advance.cursor for advance in advances]


def _end_of(batch: RecordBatch, position: Offset, count: int) -> Offset:
    """Return the offset after the first `count` records of the batch from `position` on. Raises CorruptRecord."""
    if batch.count <= count:
        return batch.next_offset
    if batch.count == batch.last_offset_delta + 1:
        return min(Offset(max(position, batch.base_offset) + count), batch.next_offset)
    # Compaction has left gaps between the offsets: only the records show which offset follows.
    offsets = [record.offset for record in batch.records() if record.offset >= position]
    return offsets[count] if len(offsets) > count else batch.next_offset
