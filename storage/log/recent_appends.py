"""The batches that the leaders of one log directory appended last, kept in memory. A leader with followers answers
waiting ones with these bytes and does not read the file again.

Invariants:
  1. All logs of the directory together keep at most `bytes_max`. The oldest batches are dropped first, so the batches
     of one log are always those at its end.
  2. A log forgets its batches whenever bytes or segments are removed from it (`LogReader.forget`).
  3. A batch keeps at most `OWNER_FACTOR` times its size in memory: it may be a view of a larger message.
Not here: reads of files (log_reader.py). Redpanda's batch cache serves the same purpose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from tidelog.types import Buffer, Offset

BYTES_MAX: Final = 4 << 20
"""Memory for the recent batches of one log directory: what a node appends in 40 ms at 100 MB/s. Followers fetch about
ten times in that time."""

JOINED_MAX: Final = 16_384
"""A batch of at most this size is copied: that costs less than looking at its buffers."""

OWNER_FACTOR: Final = 4
"""A smaller part of a message is copied: the rest of the message may be of other logs, or rejected."""


class RecentBatch(NamedTuple):
    """One batch as it was written. next_offset: the offset after its last record. size: its bytes."""

    buffers: tuple[Buffer, ...]
    next_offset: Offset
    size: int


Tail: TypeAlias = dict[Offset, RecentBatch]
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

    def note(self, tail: Tail, base_offset: Offset, batch: RecentBatch) -> None:
        """Keep a batch that was just appended. Its buffers must not change any more."""
        tail[base_offset] = batch
        self._order.append((tail, base_offset))
        self.size += batch.size
        while self.size > self.bytes_max:
            oldest, offset = self._order.popleft()
            dropped = oldest.pop(offset, None)
            if dropped is None:
                self._forgotten -= 1
            else:
                self.size -= dropped.size

    def forget(self, tail: Tail) -> None:
        """Drop all batches of one log, which then continues with another tail."""
        self.size -= sum(batch.size for batch in tail.values())
        self._forgotten += len(tail)
        tail.clear()
        if 2 * self._forgotten > len(self._order):
            self._order = deque(entry for entry in self._order if entry[0])
            self._forgotten = 0


def lasting(buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
    """The buffers as bytes that cannot change any more: `bytes` and views of most of a `bytes` as they are, all others
    copied."""
    return tuple(part if isinstance(part, bytes) or _owns_most(part) else bytes(part) for part in buffers)


def _owns_most(part: Buffer) -> bool:
    """True if the buffer is a view of `bytes` that are not much larger."""
    return (
        isinstance(part, memoryview) and type(part.obj) is bytes and len(part.obj) <= OWNER_FACTOR * max(1, part.nbytes)
    )
