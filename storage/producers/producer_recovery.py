"""Producer state of an opened or truncated log: the newest valid snapshot, and a replay of the batches above it.

Invariants:
  1. A snapshot above the log's end, or above both the log's start and the start of recovery, is not trusted: it is
     durably removed before anything is appended, and written again. An unreadable snapshot is replaced by the next
     older one. Without a snapshot, the replay starts at the first batch.
  2. A producer whose batches are below the log's start is kept, as the running log keeps it. A snapshot at or below the
     start contains committed state, which cannot have changed. Without one, the remaining batches below the start are
     replayed. (Kafka's truncateAndReload drops such producers.)
  3. A transaction that ended above the high watermark stays unstable until the high watermark passes its marker: if
     there are transactions, the state is rebuilt from a snapshot below the high watermark.
  4. Segments whose batches were all read again have a transaction index that agrees with them.
  5. An unreadable batch ends the replay of its segment and is reported as damage: no append may follow.
Not here: the truncation (log_truncation.py), handling of damage (loading.py), indexes of segments that are not read
(aborted_transactions.py).
Source: Kafka's UnifiedLog.rebuildProducerState, LogLoader.recoverSegment, ProducerStateManager.removeStraySnapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.producers.aborted_transactions import AbortedTransactions
from storage.producers.producer_replay import Batches, walk_producers
from storage.producers.producer_state import ProducerStateManager
from storage.segment.batch_walk import BrokenChain
from storage.segment.transaction_index import AbortedTransaction
from tidelog.types import Millis, Offset


class Replayed(NamedTuple):
    """Result of a replay."""

    notes: list[str]
    """Sentences for the node's log."""
    broken: list[tuple[Batches, BrokenChain]]
    """Segments with an unreadable batch, each with the error."""


def rebuild(
    state: ProducerStateManager,
    segments: Sequence[Batches],
    *,
    log_start: Offset,
    log_end: Offset,
    high_watermark: Offset,
    now: Millis,
    aborted: AbortedTransactions | None = None,
    read_from: Offset | None = None,
) -> Replayed:
    """Rebuild the state of a log that ends at `log_end`; its snapshots must not be above. Writes the missing snapshots
    of the replayed segments and one at the log end. now: producers count as idle from this time on.

    read_from: rebuild the transaction indexes (`aborted`) of segments from this offset on. Raises OSError.
    """
    known, notes = state.load(log_end)
    if state.has_transactions and high_watermark < log_end:
        known, more = state.load(high_watermark)
        notes += more
    start = min(segments[0].base_offset, log_start) if known is None else known
    broken = _replay(state, segments, start, log_end, aborted, read_from)
    if start < log_start and broken and broken[0][1].next_offset < log_start:
        state.clear()  # deleted batches are unreadable: start without a snapshot
        broken = _replay(state, segments, log_start, log_end, aborted, read_from)
    state.high_watermark_moved(high_watermark)
    state.loaded(now)
    if not broken:
        state.take_snapshot(log_end)
    return Replayed(notes, broken)


def _replay(
    state: ProducerStateManager,
    segments: Sequence[Batches],
    start: Offset,
    log_end: Offset,
    aborted: AbortedTransactions | None,
    read_from: Offset | None,
) -> list[tuple[Batches, BrokenChain]]:
    """Replay the batches from `start` on, also below the log's start. Returns the unreadable segments. Raises
    OSError."""
    broken: list[tuple[Batches, BrokenChain]] = []
    for i, segment in enumerate(segments):
        base = segment.base_offset
        behind = segments[i + 1].base_offset if i + 1 < len(segments) else log_end
        if behind <= start and base != start:
            continue
        if base > start and not broken:
            state.take_snapshot(base)
        found: list[AbortedTransaction] = []
        try:
            for batch in walk_producers(segment, max(start, base), log_end):
                found += state.replay(batch)
        except BrokenChain as error:
            broken.append((segment, error))
            continue
        if aborted is not None and read_from is not None and base >= max(read_from, start):
            aborted.rebuilt(base, found)
            if i + 1 < len(segments):
                aborted.close(base, next(iter(state.open_transactions), None))
    return broken
