"""The result of a read of a log; a leader keeps its last appends in memory in this form, too."""

from __future__ import annotations

from typing import NamedTuple

from storage.segment.transaction_index import AbortedTransaction
from tidelog.types import Buffer, EpochStart, Offset


class LogRead(NamedTuple):
    """Whole batches, the first of which may begin below the requested offset."""

    records: Buffer
    next_offset: Offset
    """Where to continue."""
    epochs: tuple[EpochStart, ...]
    """The epoch entries over the range of the batches."""
    aborted: tuple[AbortedTransaction, ...] = ()
    """The aborted transactions with records in the range, if only decided records are read."""
