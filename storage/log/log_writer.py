"""The end of a log: validates batches, writes them into the active segment, and starts new segments.

Invariants:
  1. A failed append leaves no bytes, no epoch and no change of the log end. Only a follower's fetch that no single
     segment can hold is written batch by batch; each batch follows this rule.
  2. v0 and v1 bytes contain no leader epoch: their epoch is in the epoch file, fsynced, before the first byte is
     written.
  3. A segment begins at the log end, so that recovery can tell lost offsets from a hole.
Not here: the rules for batches (validation.py, log_producers.py), writing into a segment (segment.py), syncing
(flush.py).
Source: Kafka's LocalLog.append and UnifiedLog.maybeRoll; design section 3 for the order of steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from storage.append_info import LogAppendInfo
from storage.log.log_positions import LogPositions
from storage.log.log_reader import LogReader
from storage.log.validation import Prepared
from storage.producers.producer_entry import ProducerBatch
from storage.segment.epoch_cache import LeaderEpochCache, ensure_agreed
from storage.segment.segment import LogSegment
from storage.segment.segment_bases import next_base
from tidelog.epochs import epoch_before
from tidelog.types import EpochStart, LeaderEpoch, Millis, Offset

_log: Final = logging.getLogger("storage.log")


class LogWriter:
    """The end of one log. Its methods raise OSError, and BrokenChain if the active segment's index had to be rebuilt
    and its chain of batches is broken."""

    __slots__ = ("_epochs", "_flush", "_log", "_reader", "_rolled", "_segments")

    def __init__(self, log: LogPositions, reader: LogReader, rolled: Callable[[Sequence[str]], None]) -> None:
        """reader: receives the position of each append, where all replicas and most consumers read next. rolled: called
        after a new segment was started, with notes about files in its way."""
        self._reader, self._rolled = reader, rolled
        self._log, self._segments, self._epochs, self._flush = log, log.segments, log.epochs, log.flush_state

    def write(
        self,
        prepared: Prepared,
        now: Millis,
        epochs: Sequence[EpochStart],
        leader_epoch: LeaderEpoch | None,
        batches: Sequence[ProducerBatch],
    ) -> None:
        """Roll if necessary, add the epochs, write, advance the log end, update the producers.

        epochs: the entries of the follower's leader. leader_epoch: None on a follower. batches: those with a producer.
        Raises CorruptRecord, without any change, if a follower's batches contradict `epochs`.
        """
        if leader_epoch is None:
            ensure_agreed(prepared.headers, epochs)
        log, info, headers = self._log, prepared.info, prepared.headers
        if leader_epoch is None and len(headers) > 1 and info.valid_bytes > log.config.segment_bytes:
            self._write_apart(prepared, now, epochs, batches)
            return
        segment = self._segments.active
        why = (  # batches behind a break in the chain would be reachable only through the indexes
            "the batches of the active segment are damaged"
            if log.lost.chain_is_broken
            else segment.roll_reason(now, info.valid_bytes, info.max_timestamp, info.last_offset, log.config)
        )
        if why is not None:
            segment = self.roll(next_base(log.log_end_offset, info.first_offset, info.last_offset), now, why)
            if not segment.index.fits(info.last_offset):
                self._write_apart(prepared, now, epochs, batches)
                return
        debug = _log.isEnabledFor(logging.DEBUG)
        before = _note_epochs(self._epochs, log.log_end_offset, prepared, epochs, leader_epoch)
        try:
            if self._epochs.version > self._flush.epoch_file.written and any(header.magic < 2 for header in headers):
                self._flush.epoch_file.write(self._epochs.version, self._epochs.entries)
            position, entries = segment.size, segment.index_entries if debug else None
            segment.append(prepared.buffers, headers, info.valid_bytes)
            # Not when the segment starts: a full disk may take that back, and the damaged one is active again.
            log.lost.chain_is_broken = False
        except OSError:
            if before is not None:
                self._epochs.restore(before)
            if segment.base_offset > log.log_end_offset:
                self._take_back(segment)
            raise
        self._reader.note(log.log_end_offset, segment, position)
        if self._reader.keeps_recent and leader_epoch is not None and len(headers) == 1:
            end = Offset(info.last_offset + 1)
            self._reader.remember(log.log_end_offset, prepared.buffers, end)
        log.end_at(Offset(info.last_offset + 1))
        if batches:
            log.producers.appended(batches, now)
        if debug:
            self._report(info, segment, position, entries)

    def _report(self, info: LogAppendInfo, segment: LogSegment, position: int, entries: int | None) -> None:
        """Log an append at debug. position, entries: size and index entries of the segment before it."""
        path, size = self._log.path, info.valid_bytes
        first, last, epoch = info.first_offset, info.last_offset, info.last_leader_epoch
        _log.debug("%s: appended offsets %d..%d, %d bytes, leader epoch %d", path, first, last, size, epoch)
        _log.debug("%s: inserted %d bytes into segment %d at byte %d", path, size, segment.base_offset, position)
        if segment.index_entries != entries:
            count = segment.index_entries
            _log.debug("%s: segment %d has %s index entries, before %s", path, segment.base_offset, count, entries)

    def _take_back(self, segment: LogSegment) -> None:
        """Remove a segment that was started after a hole and could not be written to. The log continues at its end;
        otherwise the next segment would begin below this one. Raises OSError."""
        log, before = self._log, self._segments.last_below(segment.base_offset)
        log.producers.truncating(log.log_end_offset)
        self._segments.remove_behind(before)
        self._flush.note_truncation(before)
        log.files.sync_directory(log.path)

    def _write_apart(
        self, prepared: Prepared, now: Millis, epochs: Sequence[EpochStart], batches: Sequence[ProducerBatch]
    ) -> None:
        """Write a follower's append that spans more than one segment batch by batch. If the disk gets full, the batches
        written so far stay, as if they had been fetched alone."""
        data = memoryview(b"".join(prepared.buffers))
        position = 0
        for header in prepared.headers:
            info = prepared.info._replace(
                first_offset=header.base_offset,
                last_offset=header.last_offset,
                max_timestamp=header.max_timestamp,
                valid_bytes=header.size,
            )
            part = Prepared([data[position : position + header.size]], (header,), info)
            own = [batch for batch in batches if batch.header.base_offset == header.base_offset]
            self.write(part, now, epochs, None, own)
            position += header.size

    def roll(self, base_offset: Offset, now: Millis, why: str) -> LogSegment:
        """Close the active segment and start a new one at `base_offset`. Returns the active one if it starts there
        already. why: for the log line.

        Raises OSError; the old segment then stays active.
        """
        closed, clock = self._segments.active, self._log.clock
        if closed.base_offset == base_offset:
            return closed
        began, entries = clock.wall_ms(), closed.index_entries
        self._log.producers.state.take_snapshot(base_offset)
        segment, notes = self._segments.add(base_offset, self._log.config, now)
        self._flush.note_roll(closed)
        self._log.producers.rolled(closed.base_offset, base_offset)
        if _log.isEnabledFor(logging.INFO):
            took, path = max(0, clock.wall_ms() - began), self._log.path
            _log.info(
                "%s: rolled to a new segment at offset %d in %d ms: %s; closed segment %d with %d bytes",
                *(path, base_offset, took, why, closed.base_offset, closed.size),
            )
            figures = closed.size, self._log.config.segment_bytes, entries, max(0, began - closed.created_ms)
            _log.debug("%s: closed segment has %d of %d bytes, %s index entries, opened %d ms ago", path, *figures)
        self._rolled(notes)
        return segment


def _note_epochs(
    cache: LeaderEpochCache,
    log_end: Offset,
    prepared: Prepared,
    epochs: Sequence[EpochStart],
    leader_epoch: LeaderEpoch | None,
) -> tuple[EpochStart, ...] | None:
    """Add the epochs of an append at `log_end` to the cache. leader_epoch: None on a follower. epochs: the entries that
    the follower's leader sent. Returns the previous entries, or None if nothing changed.

    A follower takes the epochs of its leader, or of the batches, which agree (`ensure_agreed`). An epoch that it
    started as leader itself and that has no records is removed.
    """
    if leader_epoch is not None:
        if leader_epoch == cache.latest:
            return None
        before = cache.entries
        cache.assign(leader_epoch, log_end)
        return before
    end = prepared.info.last_offset
    starts = [(entry.epoch, max(entry.start_offset, log_end)) for entry in epochs if entry.start_offset <= end]
    if not starts:
        starts = [(header.leader_epoch, header.base_offset) for header in prepared.headers if header.magic == 2]
    in_force = epoch_before(cache.entries, log_end)
    if in_force == cache.latest == (starts[-1][0] if starts else in_force):
        return None
    before = cache.entries
    cache.truncate_from_end(log_end)
    for epoch, start in starts:
        if epoch > cache.latest:
            cache.assign(epoch, start)
    return before
