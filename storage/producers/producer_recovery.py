"""Producer state when a log is opened, and after a cut: the newest snapshot that can be believed, and what came after.

Kept true:
  1. A snapshot above the log's end, or above both the log's start and where recovery began to read, is not believed: it
     is removed, durably, before anything is appended, and written anew. One that cannot be read gives way to the next
     older one; where there is none, the state comes from the first batch that is there.
  2. A producer is not forgotten because the log's start has passed its batches, as the running log has not forgotten
     it: a snapshot up to the start says what is committed and cannot have changed, and where there is none the batches
     below the start are read, as far as they are there. (Kafka forgets it: its truncateAndReload drops both.)
  3. What was completed above the high watermark stays unstable until that has passed it: where there are
     transactions, the state is rebuilt from a snapshot below the high watermark.
  4. Segments of which every batch was read again have a transaction index that says what they say.
  5. A batch that cannot be read ends the replay of its segment, and is told as damage: no append may follow.
Left to others: what is cut, what becomes of damage (loading.py), indexes of the segments that were not read
(aborted_transactions.py).
Source: Kafka's UnifiedLog.rebuildProducerState, LogLoader.recoverSegment, ProducerStateManager.removeStraySnapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from storage.files.file_system import Files
from storage.producers.aborted_transactions import AbortedTransactions
from storage.producers.producer_replay import Batches, walk_producers
from storage.producers.producer_state import ProducerStateManager
from storage.segment.batch_walk import BrokenChain
from storage.segment.transaction_index import AbortedTransaction
from tidelog.types import Millis, Offset


class Replayed(NamedTuple):
    """What a replay has met. notes: sentences for the node's log. broken: where segments cannot be read."""

    notes: list[str]
    broken: list[tuple[Batches, BrokenChain]]


class LoadedProducers(NamedTuple):
    """The producers of a log as loading leaves them."""

    state: ProducerStateManager
    aborted: AbortedTransactions
    replayed: Replayed


def load_producers(
    files: Files,
    directory: str,
    segments: Sequence[Batches],
    *,
    log_start: Offset,
    log_end: Offset,
    trusted: Offset,
    high_watermark: Offset,
    expiration_ms: int,
    now: Millis,
) -> LoadedProducers:
    """The state of a log that has just been opened.

    segments: oldest first, as they are now, indexes sound. trusted: snapshots above it and the log start are not
    believed: the log end after a clean stop, else the base of the first segment that recovery has read.
    high_watermark: as the checkpoint has it, not below the log start.
    Reads a snapshot, and the batch headers behind it; after a clean stop one snapshot is all. Raises OSError.
    """
    state = ProducerStateManager(files, directory, expiration_ms)
    aborted = AbortedTransactions(files, directory)
    read_from = min(trusted, log_end)
    removed = state.remove_snapshots_above(max(read_from, log_start))
    state.remove_strays([segment.base_offset for segment in segments])
    if removed:
        files.sync_directory(directory)
    replayed = rebuild(
        state,
        segments,
        log_start=log_start,
        log_end=log_end,
        high_watermark=high_watermark,
        now=now,
        aborted=aborted,
        read_from=read_from,
    )
    return LoadedProducers(state, aborted, replayed)


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
    """Make the state that of a log which ends at `log_end`; its snapshots reach no further. Missing snapshots of
    segments on the way are written, and one at the log end. now: from when on producers count as idle.

    read_from: the transaction indexes (`aborted`) of segments from there on are made anew. Raises OSError.
    """
    known, notes = state.load(log_end)
    if state.has_transactions and high_watermark < log_end:
        known, more = state.load(high_watermark)
        notes += more
    start = min(segments[0].base_offset, log_start) if known is None else known
    broken = _replay(state, segments, start, log_end, aborted, read_from)
    if start < log_start and broken and broken[0][1].next_offset < log_start:
        state.clear()  # what was deleted cannot be read any more: as if there were no snapshot
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
    """Enter what lies from `start` on, also below the log's start. Returns where segments cannot be read. Raises
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
