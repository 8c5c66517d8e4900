"""The batches that the leaders of one log directory appended last, kept in memory. A leader with followers answers
waiting ones with these bytes and does not read the file again.

Invariants:
  1. All logs of the directory together keep at most `bytes_max`. The oldest batches are dropped first, so the batches
     of one log are always those at its end.
  2. A log forgets its batches whenever bytes or segments are removed from it (`LogReader.forget`).
  3. The bytes are of the batch alone: a view would keep the message in which a producer sent it with others.
Not here: reads of files (log_reader.py). Redpanda's batch cache serves the same purpose.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias

from storage.log.log_read import LogRead
from tidelog.types import Offset

BYTES_MAX: Final = 4 << 20
"""Memory for the recent batches of one log directory: what a node appends in 40 ms at 100 MB/s. Followers fetch about
ten times in that time."""

Tail: TypeAlias = dict[Offset, LogRead]
"""The recent batches of one log by base offset, in order."""


class RecentAppends:
    """The recent batches of all logs of one directory."""

    def __init__(self) -> None:
        self.bytes_max = BYTES_MAX
        self._order: deque[tuple[Tail, Offset]] = deque()
        self._forgotten = 0
        """Entries of `_order` without a batch."""
        self.size = 0
        """The bytes of all batches in memory."""

    def note(self, tail: Tail, base_offset: Offset, batch: LogRead) -> None:
        """Keep a batch that was just appended. Its buffer must not change any more."""
        tail[base_offset] = batch
        self._order.append((tail, base_offset))
        self.size += len(batch.records)
        while self.size > self.bytes_max:
            oldest, offset = self._order.popleft()
            dropped = oldest.pop(offset, None)
            if dropped is None:
                self._forgotten -= 1
            else:
                self.size -= len(dropped.records)

    def forget(self, tail: Tail) -> None:
        """Drop all batches of one log, which then continues with another tail."""
        self.size -= sum(len(batch.records) for batch in tail.values())
        self._forgotten += len(tail)
        tail.clear()
        if 2 * self._forgotten > len(self._order):
            self._order = deque(entry for entry in self._order if entry[0])
            self._forgotten = 0
