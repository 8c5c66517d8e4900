"""Recovery of a log after an unclean stop: checks the data on the disk and truncates torn writes.

Invariants:
  1. Damage below what was durable (the recovery point, or the durable-offset mark) is never truncated: it is reported
     with file, byte and offsets, its bytes stay, and the batches after it stay readable. Above it, an incomplete batch
     is a torn write and is truncated.
     The same holds for offsets that are missing between two segments: a closed segment may have lost its last batches
     completely. A roll leaves no hole there (log.py). The cleaner does, and records how far it came.
  2. Bytes that recovery keeps above the recovery point of an fsync log are rewritten in place and fsynced before they
     count as durable: after a failed fsync the kernel reports such pages as clean although they are not on the disk.
  3. Magic, base offset and leader epoch, which no checksum covers, are compared with the neighboring batches and the
     epoch file. A contradiction is damage or a torn write like any other. No byte is repaired.
Not here: whether to recover (loading.py).
Source: Kafka's LogLoader and LogSegment.recover, without the parts that the vectors' README lists as fragile.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

from storage.checkpoints.checkpoint_file import PARTITION_METADATA
from storage.files.file_system import directory_of, read_file, sync_all, write_file
from storage.recovery.epoch_recovery import EpochRecovery
from storage.recovery.loaded import Damage, LoadedLog
from storage.recovery.loading_site import LoadingSite
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain, Link
from storage.segment.segment import LogSegment
from storage.segment.segment_bases import begins_behind_a_hole
from storage.segment.verifier import FaultKind, SegmentRules, is_sound, verify
from tidelog.records.v2.header import HEADER_BYTES, BatchHeader
from tidelog.types import INT64_MAX, Durability, Offset

_REWRITE_BYTES: Final = 1 << 20


class Recovery:
    def __init__(self, site: LoadingSite) -> None:
        """Raises OSError."""
        self._site, self._known = site, site.known
        self._epochs = EpochRecovery(site)
        self._trimmed: list[LogSegment] = []
        """Closed segments whose preallocated zeros were truncated."""

    def run(self, segments: Sequence[LogSegment]) -> LoadedLog | None:
        """Recover the log from its segments, at least one. Returns None if no segment can stay: all end below the log
        start, or data before them was lost while the log was being created. They are set aside then. Raises OSError."""
        known, site = self._known, self._site
        expected_start = site.missing_start(segments[0].base_offset, self._epochs.found)
        if expected_start is not None and expected_start >= site.protected:
            site.drop(segments, f"offsets {expected_start}..{segments[0].base_offset - 1} before it are lost")
            return None
        if expected_start is not None:
            first_file = segments[0].path
            site.lose(first_file, 0, expected_start, segments[0].base_offset, "the segments before this one are lost")
        # A segment that ends at the recovery point may have been closed by that flush: its indexes may not be durable.
        first = max((i for i, segment in enumerate(segments) if segment.base_offset < known.recovery_point), default=0)
        self._check_closed(segments, first)
        self._epochs.begin(segments[:first], known.log_start)
        kept, log_end, rewrite_from = self._recover_from(segments, first)
        lost_from = max(log_end, known.needed_from)  # offsets below the log start were deleted
        if lost_from < site.protected:
            last = kept[-1]
            site.lose(last.path, last.size, lost_from, site.protected, f"the log ends at offset {log_end}")
        if log_end < known.needed_from:
            site.drop(kept, f"it ends at offset {log_end}, the log starts at {known.needed_from}")
            return None
        log_start = known.log_start if expected_start is not None else known.start_with(kept[0].base_offset)
        self._epochs.finish(log_start, log_end)
        sync_all([segment.file for segment in self._trimmed])
        loaded = LoadedLog(
            kept,
            self._epochs.cache,
            self._epochs.file,
            log_start,
            log_end,
            min(known.recovery_point, log_end),
            log_end,
            site.damage,
            read_from=max(
                (s.base_offset for s in segments if s.base_offset <= known.recovery_point),
                default=segments[0].base_offset,
            ),
        )
        as_flushed = log_end == known.recovery_point and site.damage is None and not site.changed
        if as_flushed:
            loaded.read_from = None  # nothing was lost: the snapshots are valid
        elif site.config.durability is Durability.FSYNC:
            self._make_durable(loaded, first, rewrite_from)
            return loaded
        else:
            self._rewrite(loaded.segments[first:], rewrite_from)
        self._leave_to_flush(loaded, first)
        return loaded

    # --- below the recovery point ---------------------------------------------------------------------------------

    def _check_closed(self, segments: Sequence[LogSegment], first: int) -> None:
        """Check the segments below `first`, the one that contains the recovery point. They were durable: report missing
        offsets between them. Reads only the headers after their last index entries."""
        site = self._site
        for done, (segment, behind) in enumerate(pairwise(segments[: first + 1])):
            site.ensure_indexes(segment)
            try:
                end = self._end_of(segment)
                if self._is_hole(segment, end, behind.base_offset):
                    reason = "the offsets before the next segment are lost"
                    site.lose(segment.path, segment.size, end, behind.base_offset, reason)
            except BrokenChain as broken:
                lost_from, to = Offset(broken.next_offset), behind.base_offset
                if lost_from != to or not self._ends_before(segment, broken.position, to):
                    site.lose(segment.path, broken.position, lost_from, to, broken.reason)
            segment.close()
            site.progress(done + 1, len(segments), 0)

    def _end_of(self, segment: LogSegment) -> Offset:
        """The offset after the last one of a closed segment. Raises BrokenChain."""
        try:
            return segment.check_tail()
        except CorruptIndex as error:
            self._site.rebuild_indexes(segment, str(error))
            return segment.check_tail()

    # --- from the recovery point on -------------------------------------------------------------------------------

    def _recover_from(self, segments: Sequence[LogSegment], first: int) -> tuple[list[LogSegment], Offset, int]:
        """Recover the segments from `first` on. Returns the remaining segments, the log end, and the byte in segment
        `first` where offsets at or above the recovery point begin."""
        site, protected = self._site, self._site.protected
        next_offset = segments[first].base_offset
        kept, rewrite_from = list(segments[:first]), 0
        for i in range(first, len(segments)):
            segment = segments[i]
            if segment.base_offset < next_offset and not (i > first and segment.base_offset < protected):
                site.drop(segments[i:], f"it starts below offset {next_offset}, where the log ends")
                break
            if i > first and self._is_hole(kept[-1], next_offset, segment.base_offset):
                if next_offset >= protected:
                    site.drop(segments[i:], f"offsets {next_offset}..{segment.base_offset - 1} before it are lost")
                    break
                reason = "the offsets before the next segment are lost"
                site.lose(kept[-1].path, kept[-1].size, next_offset, segment.base_offset, reason)
            kept.append(segment)
            next_offset = max(next_offset, segment.base_offset)
            behind = segments[i + 1].base_offset if i + 1 < len(segments) else None
            next_offset, from_byte, truncated = self._recover_segment(segment, next_offset, behind)
            site.progress(i + 1, len(segments), segment.size)
            if i == first:
                rewrite_from = from_byte
            if truncated:
                site.drop(segments[i + 1 :], f"the log was truncated before it, at offset {next_offset}")
                break
            if i < len(segments) - 1:
                segment.become_inactive()
        return kept, next_offset, rewrite_from

    def _is_hole(self, last: LogSegment, log_end: Offset, base_offset: Offset) -> bool:
        """True if offsets that are missing before a segment at `base_offset` are lost. Holes of the cleaner are no
        loss, nor holes that no segment can span."""
        may_lack = begins_behind_a_hole(base_offset, last.base_offset) or self._site.may_lack(base_offset)
        return log_end < base_offset and not may_lack

    def _recover_segment(
        self, segment: LogSegment, next_offset: Offset, behind: Offset | None
    ) -> tuple[Offset, int, bool]:
        """Check a segment from the recovery point on, and rebuild its indexes and epoch entries. behind: base offset of
        the next segment.

        Returns the offset after the segment, the byte where offsets at or above the recovery point begin, and True if
        it was truncated.
        """
        site, began, epochs_before = self._site, next_offset, self._epochs.cache.entries
        position, next_offset = self._walk_below(segment, next_offset)
        protected = 0 if site.config.compact else site.protected
        rules = SegmentRules(segment.base_offset, INT64_MAX if behind is None else behind, self._epochs.due, protected)
        rewrite_from = end = segment.size
        before_last: Link | None = None  # the chain before the last batch, if that leaves a hole or begins an epoch,
        skipping: Link | None = None  # and the same chain without that hole or epoch
        while position < end:
            began_at = Link(position, end, next_offset, self._epochs.before(next_offset))
            for _, header, link, _, broken in verify(segment.file, began_at, rules):
                if broken is not None:
                    break
                assert header is not None
                self._take(segment, header)
                hole = header.base_offset > link.next_offset
                before_last = link if hole or header.leader_epoch > link.epoch else None
                skipping = link if hole else link._replace(next_offset=header.last_offset + 1)
                if header.last_offset >= self._known.recovery_point:
                    rewrite_from = min(rewrite_from, header.position)
                position, next_offset = header.end, Offset(header.last_offset + 1)
            else:
                break
            position = broken.position
            if next_offset == behind and self._ends_before(segment, position, behind):
                break
            header_only, reason = broken.header, broken.reason
            sound = Link(position, end, next_offset, self._epochs.before(next_offset))
            if before_last and skipping and header_only is None and self._contradicts_last(segment, sound, skipping):
                sound, reason = before_last, f"the batch contradicts the next one: {reason}"
            sound_end = Offset(sound.next_offset)
            if next_offset >= site.protected and broken.kind is not FaultKind.EPOCH:
                if sound_end < site.protected:
                    site.lose(segment.path, sound.position, sound_end, next_offset, reason)
                if site.damage is not None:  # lengths may be wrong: do not append or destroy anything
                    segment.size = position
                    return next_offset, min(rewrite_from, position), True
                self._truncate(segment, sound.position, sound_end, reason)
                if sound.position < position:  # indexes and epochs without the truncated batch
                    self._epochs.cache.restore(epochs_before)
                    sound_end, from_byte, _ = self._recover_segment(segment, began, behind)
                    rewrite_from = min(rewrite_from, from_byte)
                return sound_end, min(rewrite_from, sound.position), True
            if header_only is None:
                site.lose(segment.path, sound.position, sound_end, behind, reason)
                segment.size = position
                return next_offset, min(rewrite_from, position), False
            damaged_end = self._end_of_damaged(segment, header_only, behind)
            first, before_last = header_only.base_offset, None
            readable = broken.kind is FaultKind.EPOCH
            site.join(Damage(segment.path, position, first, damaged_end, reason, readable))
            self._take(segment, header_only._replace(last_offset_delta=damaged_end - 1 - first))
            position, next_offset = header_only.end, damaged_end
        return next_offset, rewrite_from, False

    def _contradicts_last(self, segment: LogSegment, link: Link, skipping: Link) -> bool:
        """True if a complete batch at `link` goes back from there but would follow `skipping`: then the base offset or
        leader epoch of the batch before it is wrong."""
        header = self._header_at(segment, skipping._replace(position=link.position))
        if header is None or header.leader_epoch < skipping.epoch:
            return False
        goes_back = header.base_offset < link.next_offset or header.leader_epoch < link.epoch
        return goes_back and is_sound(segment.file, header)

    def _end_of_damaged(self, segment: LogSegment, header: BatchHeader, behind: Offset | None) -> Offset:
        """The offset after a batch with a wrong checksum. Its own claim may be wrong too, so at most where the next
        batch or segment begins."""
        following = self._header_at(segment, Link(header.end, segment.size, header.base_offset + 1))
        ends = [header.last_offset + 1, behind, None if following is None else following.base_offset]
        return Offset(max(min(end for end in ends if end is not None), header.base_offset + 1))

    @staticmethod
    def _header_at(segment: LogSegment, link: Link) -> BatchHeader | None:
        """The header that continues the chain at `link`; None if there is none."""
        with suppress(BrokenChain):
            return link.read(segment.file.pread(HEADER_BYTES, link.position), 0)
        return None

    def _walk_below(self, segment: LogSegment, next_offset: Offset) -> tuple[int, Offset]:
        """Add the batches below the recovery point by their headers alone: their bytes were durable.

        Returns the byte and the offset where the scan continues. The scan starts at the beginning of the segment, to
        find where the chain breaks, in these cases: the chain does not reach the recovery point; a batch has a wrong
        epoch; the chain ends before the file does, with a batch whose checksum is wrong or after a hole, which may be a
        wrong base offset.
        """
        segment.start_rebuild()
        epochs, start, before = self._epochs, next_offset, self._epochs.cache.entries
        position, last, hole = 0, None, False
        try:
            for header in segment.walk(0, next_offset):
                if header.last_offset >= self._known.recovery_point:
                    break
                if header.leader_epoch != epochs.due(header):
                    raise BrokenChain(header.position, header.base_offset, f"leader epoch {header.leader_epoch}")
                self._take(segment, header)
                hole = hole or header.base_offset > next_offset
                position, next_offset, last = header.end, Offset(header.last_offset + 1), header
            sound = True
        except BrokenChain:
            reached = next_offset >= self._known.recovery_point and not hole
            sound = reached and (last is None or is_sound(segment.file, last))
        if not sound:
            segment.start_rebuild()
            epochs.cache.restore(before)
            return 0, start
        return position, next_offset

    def _take(self, segment: LogSegment, header: BatchHeader) -> None:
        segment.index_batch(header, header.position)
        self._epochs.take(header)

    def _truncate(self, segment: LogSegment, position: int, log_end: Offset, reason: str) -> None:
        self._site.note(
            f"{segment.path} was truncated from {segment.size} to {position} bytes, new log end {log_end}: {reason}"
        )
        segment.file.truncate(position)
        segment.size = position
        self._site.changed = True

    def _ends_before(self, segment: LogSegment, position: int, behind: Offset) -> bool:
        """Check the bytes after the last offset of a closed segment. Returns True if they are explained: preallocated
        zeros that an unfinished truncation left, which is no loss; or the last batch is damaged and its length is
        wrong."""
        left = segment.file.pread(segment.size - position, position)
        last = self._last_before(segment, position)
        if last is not None and not is_sound(segment.file, last):
            reason = f"its checksum is wrong, and its length may be: the {len(left)} bytes after it are no batch"
            self._site.lose(segment.path, last.position, last.base_offset, behind, reason)
        elif any(left):
            return False
        else:
            self._site.note(f"{segment.path}: {len(left)} preallocated zeros after its last batch were truncated")
            segment.file.truncate(position)
            self._trimmed.append(segment)
        segment.size = position
        return True

    @staticmethod
    def _last_before(segment: LogSegment, position: int) -> BatchHeader | None:
        last: BatchHeader | None = None
        with suppress(BrokenChain):
            for last in segment.walk():
                if last.end >= position:
                    break
        return last

    # --- durable again --------------------------------------------------------------------------------------------

    def _make_durable(self, loaded: LoadedLog, first: int, rewrite_from: int) -> None:
        """Rewrite the batches that were kept above the recovery point, and sync them, their file names and epochs."""
        files, directory = self._site.files, self._site.directory
        self._rewrite(loaded.segments[first:], rewrite_from)
        for segment in loaded.segments[first:]:
            sync_all([segment.file])
            if segment is not loaded.segments[-1]:
                segment.sync_indexes()
        if self._known.recovery_point == 0:
            self._rewrite_metadata()
        files.sync_directory(directory)
        loaded.epoch_file.write(loaded.epochs.version, loaded.epochs.entries)
        sound = loaded.log_end if loaded.damage is None else min(loaded.log_end, loaded.damage.first_offset)
        loaded.recovery_point = loaded.durable_offset = sound

    @staticmethod
    def _rewrite(segments: Sequence[LogSegment], rewrite_from: int) -> None:
        """Rewrite the bytes of these segments, of the first one from `rewrite_from` on: a failed sync may have left
        them only in the page cache, marked as clean."""
        for i, segment in enumerate(segments):
            position = rewrite_from if i == 0 else 0
            while position < segment.size:
                data = segment.file.pread(min(_REWRITE_BYTES, segment.size - position), position)
                segment.file.pwritev([data], position)
                position += len(data)

    def _leave_to_flush(self, loaded: LoadedLog, first: int) -> None:
        """Let the next flush make the result durable. The stop may have interrupted a truncation, a roll or the
        creation of the log, and left names that are not durable, whatever the recovery point.

        Epochs of v0 and v1 are written before their first byte: truncated bytes must not reappear under these epochs.
        """
        loaded.rebuilt = loaded.segments[first:-1]
        loaded.new_names = True
        loaded.fresh = self._known.recovery_point == 0
        if self._site.config.magic < 2:
            sync_all([loaded.segments[-1].file])
            self._site.files.sync_directory(self._site.directory)

    def _rewrite_metadata(self) -> None:
        """Rewrite the log's metadata: if no flush of this log ever finished, neither the metadata nor the name of the
        directory is durable."""
        files, directory = self._site.files, self._site.directory
        path = f"{directory}/{PARTITION_METADATA}"
        data = read_file(files, path)
        if data is not None:
            write_file(files, path, data)
        files.sync_directory(directory_of(directory))
