"""Recovery of a log after a stop that was not clean: what the disk has is checked, and what was torn is cut.

Kept true:
  1. Damage below what was durable (the recovery point, or the held mark) is never cut away: it is reported, with file,
     byte and offsets, and the bytes stay; what lies behind it stays readable. Above it, a batch that is not whole is a
     torn write, and is cut.
     So is what lies behind offsets that are missing between two segments: a closed segment may have lost its last
     batches whole, and a roll leaves no hole there (log.py); the cleaner does, and says how far it came.
  2. What recovery keeps above the recovery point of an fsync log is written again in place and fsynced before it
     counts as held: after a failed fsync the kernel calls such pages clean without their being on the disk.
  3. Magic, base offset and leader epoch, which no checksum covers, are compared with the batches around and with the
     epoch file. What contradicts those is damage or a torn write like any other: no byte is repaired.
Left to others: whether to recover (loading.py).
Source: Kafka's LogLoader and LogSegment.recover, less what the vectors' README calls fragile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

from storage.checkpoints.checkpoint_file import PARTITION_METADATA
from storage.config import INT32_MAX
from storage.files.file_system import directory_of, read_file, sync_all, write_file
from storage.recovery.epoch_recovery import EpochRecovery
from storage.recovery.loaded import Damage, LoadedLog
from storage.recovery.loading_site import LoadingSite
from storage.segment.batch_walk import BrokenChain, Link, scan_file
from storage.segment.index_errors import CorruptIndex
from storage.segment.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment, segment_path
from tidelog.records.v2.header import HEADER_BYTES, BatchHeader
from tidelog.types import Durability, LeaderEpoch, Offset

_REWRITE_BYTES: Final = 1 << 20


class WrongEpoch(BrokenChain):
    """A batch whose checksum agrees has a leader epoch that cannot be: its records can be read, followers refuse it.
    `header` has the epoch that is due."""

    def __init__(self, link: Link, header: BatchHeader, due: LeaderEpoch) -> None:
        reason = f"the batch has leader epoch {header.leader_epoch}, the epoch file has {due} for its offset"
        super().__init__(link.position, link.next_offset, reason, header._replace(leader_epoch=due))


class Recovery:
    """The recovery of one log; used once."""

    def __init__(self, site: LoadingSite) -> None:
        """Raises OSError."""
        self._site, self._known = site, site.known
        self._epochs = EpochRecovery(site)
        self._trimmed: list[LogSegment] = []
        """Closed segments whose preallocated zeros were cut."""

    def run(self, segments: Sequence[LogSegment]) -> LoadedLog | None:
        """Recover the log that lies in these segments, of which there is one at least. Returns None where none of it
        can stay: all of it lies below where the log starts, or what came before it was lost in the making; it is set
        aside then. Raises OSError."""
        known, site = self._known, self._site
        front = site.lost_front(segments[0].base_offset, self._epochs.found)
        if front is not None and front >= site.protected:
            site.drop(segments, f"offsets {front} to {segments[0].base_offset - 1} before it are lost")
            return None
        if front is not None:
            first_file = segments[0].path
            site.lose(first_file, 0, front, segments[0].base_offset, "the segments before this one are lost")
        # A segment that ends at the recovery point was closed just then: its indexes need not be durable.
        first = max((i for i, segment in enumerate(segments) if segment.base_offset < known.recovery_point), default=0)
        self._check_closed(segments, first)
        self._epochs.begin(segments[:first])
        kept, log_end, rewrite_from = self._recover_from(segments, first)
        lost_from = max(log_end, known.log_start)  # what lies below the start was deleted
        if lost_from < site.protected:
            last = kept[-1]
            site.lose(last.path, last.size, lost_from, site.protected, f"the log ends at offset {log_end}")
        if log_end < known.log_start:
            site.drop(kept, f"it ends at offset {log_end}, the log starts at {known.log_start}")
            return None
        log_start = known.log_start if front is not None else max(known.log_start, kept[0].base_offset)
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
            loaded.read_from = None  # nothing was lost: snapshots say what they said
        elif site.config.durability is Durability.FSYNC:
            self._make_durable(loaded, first, rewrite_from)
            return loaded
        else:
            self._rewrite(loaded.segments[first:], rewrite_from)
        self._leave_to_flush(loaded, first)
        return loaded

    # --- below the recovery point ---------------------------------------------------------------------------------

    def _check_closed(self, segments: Sequence[LogSegment], first: int) -> None:
        """Segments below `first`, the one that holds the recovery point: they were durable. Is one missing between
        them? Only the headers behind their last index entries are read."""
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
        """One past the last offset of a closed segment. Raises BrokenChain."""
        try:
            return segment.check_tail()
        except CorruptIndex as error:
            self._site.rebuild_indexes(segment, str(error))
            return segment.check_tail()

    # --- from the recovery point on -------------------------------------------------------------------------------

    def _recover_from(self, segments: Sequence[LogSegment], first: int) -> tuple[list[LogSegment], Offset, int]:
        """Recover the segments from `first` on. Returns those that stay, where the log ends, and the byte in the first
        recovered one where offsets at or above the recovery point begin."""
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
                    site.drop(segments[i:], f"offsets {next_offset} to {segment.base_offset - 1} before it are lost")
                    break
                reason = "the offsets before the next segment are lost"
                site.lose(kept[-1].path, kept[-1].size, next_offset, segment.base_offset, reason)
            kept.append(segment)
            next_offset = max(next_offset, segment.base_offset)
            behind = segments[i + 1].base_offset if i + 1 < len(segments) else None
            next_offset, from_byte, cut = self._recover_segment(segment, next_offset, behind)
            site.progress(i + 1, len(segments), segment.size)
            if i == first:
                rewrite_from = from_byte
            if cut:
                site.drop(segments[i + 1 :], f"the log was cut at offset {next_offset}, before it")
                break
            if i < len(segments) - 1:
                segment.become_inactive()
        return kept, next_offset, rewrite_from

    def _is_hole(self, last: LogSegment, log_end: Offset, base_offset: Offset) -> bool:
        """Are offsets missing before a segment that begins at `base_offset`? Neither the cleaner's holes are, nor those
        that no segment can hold."""
        return log_end < base_offset <= last.base_offset + INT32_MAX and not self._site.may_lack(base_offset)

    def _recover_segment(
        self, segment: LogSegment, next_offset: Offset, behind: Offset | None
    ) -> tuple[Offset, int, bool]:
        """Check a segment from the recovery point on, rebuild its indexes and epoch entries. behind: where the next one
        starts.

        Returns the offset behind it, the byte where offsets at or above the recovery point begin, and whether it was
        cut.
        """
        site, began, epochs_before = self._site, next_offset, self._epochs.cache.entries
        position, next_offset = self._walk_below(segment, next_offset)
        rewrite_from = end = segment.size
        leap: Link | None = None  # the chain before the last batch, where that leaves a hole or begins an epoch,
        without: Link | None = None  # and what it would come to without that hole or epoch
        while position < end:
            try:
                began_at = Link(position, end, next_offset, self._epochs.before(next_offset))
                for header, link in self._scan(segment, began_at, behind):
                    self._take(segment, header)
                    hole = header.base_offset > link.next_offset
                    leap = link if hole or header.leader_epoch > link.epoch else None
                    without = link if hole else link._replace(next_offset=header.last_offset + 1)
                    if header.last_offset >= self._known.recovery_point:
                        rewrite_from = min(rewrite_from, header.position)
                    position, next_offset = header.end, Offset(header.last_offset + 1)
            except BrokenChain as broken:
                position = broken.position
                if next_offset == behind and self._ends_before(segment, position, behind):
                    break
                header_only, reason = broken.header, broken.reason
                sound = Link(position, end, next_offset, self._epochs.before(next_offset))
                if leap and without and header_only is None and self._contradicts_last(segment, sound, without):
                    sound, reason = leap, f"the batch contradicts the next one: {reason}"
                sound_end = Offset(sound.next_offset)
                if next_offset >= site.protected and not isinstance(broken, WrongEpoch):
                    if sound_end < site.protected:
                        site.lose(segment.path, sound.position, sound_end, next_offset, reason)
                    if site.damage is not None:  # lengths may be wrong: nothing is appended, nothing else is destroyed
                        segment.size = position
                        return next_offset, min(rewrite_from, position), True
                    self._cut(segment, sound.position, sound_end, reason)
                    if sound.position < position:  # indexes and epochs without the batch that is cut
                        self._epochs.cache.restore(epochs_before)
                        sound_end, from_byte, _ = self._recover_segment(segment, began, behind)
                        rewrite_from = min(rewrite_from, from_byte)
                    return sound_end, min(rewrite_from, sound.position), True
                if header_only is None:
                    site.lose(segment.path, sound.position, sound_end, behind, reason)
                    segment.size = position
                    return next_offset, min(rewrite_from, position), False
                damaged_end = self._end_of_damaged(segment, header_only, behind)
                first, leap = header_only.base_offset, None
                readable = isinstance(broken, WrongEpoch)
                site.join(Damage(segment.path, position, first, damaged_end, reason, readable))
                self._take(segment, header_only._replace(last_offset_delta=damaged_end - 1 - first))
                position, next_offset = header_only.end, damaged_end
        return next_offset, rewrite_from, False

    def _contradicts_last(self, segment: LogSegment, link: Link, without: Link) -> bool:
        """Does a whole batch at `link` go back from there, and would it go on from `without`? Then it is the batch
        before it whose base offset or leader epoch is wrong."""
        header = self._header_at(segment, without._replace(position=link.position))
        if header is None or header.leader_epoch < without.epoch:
            return False
        goes_back = header.base_offset < link.next_offset or header.leader_epoch < link.epoch
        return goes_back and self._is_whole(segment, header)

    def _end_of_damaged(self, segment: LogSegment, header: BatchHeader, behind: Offset | None) -> Offset:
        """One past the last offset of a batch whose checksum is wrong, so that what it says of it may be wrong too: at
        most where the next batch or segment begins."""
        following = self._header_at(segment, Link(header.end, segment.size, header.base_offset + 1))
        ends = [header.last_offset + 1, behind, None if following is None else following.base_offset]
        return Offset(max(min(end for end in ends if end is not None), header.base_offset + 1))

    @staticmethod
    def _header_at(segment: LogSegment, link: Link) -> BatchHeader | None:
        """The header with which the chain may go on, None where there is none."""
        with suppress(BrokenChain):
            return link.read(segment.file.pread(HEADER_BYTES, link.position), 0)
        return None

    def _walk_below(self, segment: LogSegment, next_offset: Offset) -> tuple[int, Offset]:
        """Enter the batches below the recovery point by their headers alone: their bytes were durable.

        Returns the byte and the offset to go on with. A chain that does not lead there, has an epoch that is none, or
        ends before the file does with a batch whose checksum is wrong or behind a hole, which a wrong base offset may
        be, is left to the scan, which finds where it broke.
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
            sound = reached and (last is None or self._is_whole(segment, last))
        if not sound:
            segment.start_rebuild()
            epochs.cache.restore(before)
            return 0, start
        return position, next_offset

    @staticmethod
    def _is_whole(segment: LogSegment, header: BatchHeader) -> bool:
        """Is its checksum right? If not, its length may be wrong, and what lies behind it no torn tail."""
        try:
            for _ in scan_file(segment.file, header.position, header.end, header.base_offset):
                pass
        except BrokenChain:
            return False
        return True

    def _scan(self, segment: LogSegment, link: Link, behind: Offset | None) -> Iterator[tuple[BatchHeader, Link]]:
        """The batches of a segment from `link` on, checked, their `position` being that in the file, each with the
        chain before it. Raises BrokenChain."""
        for batch, position in scan_file(segment.file, link.position, link.end, link.next_offset):
            header = batch.header._replace(position=position)
            self._check_offset(segment, header, link, behind)
            due = self._epochs.due(header)
            if header.leader_epoch != due:
                raise WrongEpoch(link, header, due)
            self._epochs.ensure_grows(header, link.epoch)
            yield header, link
            link = link.behind(header)

    def _check_offset(self, segment: LogSegment, header: BatchHeader, link: Link, behind: Offset | None) -> None:
        """Raises BrokenChain where the offset cannot be right: too far for this segment; behind a hole, in the next
        segment; or beyond what was durable behind a hole that reaches below: a log has always ended where a batch
        did."""
        if header.last_offset - segment.base_offset > INT32_MAX:
            raise link.broken(f"offset {header.last_offset} is too far from the base offset {segment.base_offset}")
        if behind is not None and link.next_offset < header.base_offset and header.last_offset >= behind:
            raise link.broken(f"the batch reaches to offset {header.last_offset}, the next segment begins at {behind}")
        if link.next_offset < self._site.protected <= header.base_offset and not self._site.config.compact:
            raise link.broken(
                f"the batch starts at offset {header.base_offset}, the log went on from {link.next_offset}"
            )

    def _take(self, segment: LogSegment, header: BatchHeader) -> None:
        segment.index_batch(header, header.position)
        self._epochs.take(header)

    def _cut(self, segment: LogSegment, position: int, log_end: Offset, reason: str) -> None:
        self._site.note(
            f"{segment.path} was cut from {segment.size} to {position} bytes, the log ends at offset "
            f"{log_end}: {reason}"
        )
        segment.file.truncate(position)
        segment.size = position
        self._site.changed = True

    def _ends_before(self, segment: LogSegment, position: int, behind: Offset) -> bool:
        """The offsets of a closed segment are all there, and bytes behind them. Returns whether that is settled: they
        are zeros, preallocated, whose cut was lost, which is no loss; or the last batch is not whole, and its length
        what is wrong."""
        left = segment.file.pread(segment.size - position, position)
        last = self._last_before(segment, position)
        if last is not None and not self._is_whole(segment, last):
            reason = f"its checksum is wrong, and so may be its length: {len(left)} bytes behind it are of no batch"
            self._site.lose(segment.path, last.position, last.base_offset, behind, reason)
        elif any(left):
            return False
        else:
            self._site.note(f"{segment.path}: {len(left)} zeros behind its last batch, preallocated for more, were cut")
            segment.file.truncate(position)
            self._trimmed.append(segment)
        segment.size = position
        return True

    @staticmethod
    def _last_before(segment: LogSegment, position: int) -> BatchHeader | None:
        """The batch that ends at `position`."""
        last: BatchHeader | None = None
        with suppress(BrokenChain):
            for last in segment.walk():
                if last.end >= position:
                    break
        return last

    # --- durable again --------------------------------------------------------------------------------------------

    def _make_durable(self, loaded: LoadedLog, first: int, rewrite_from: int) -> None:
        """Write what was kept above the recovery point again, and sync it, its names and its epochs."""
        files, directory = self._site.files, self._site.directory
        self._rewrite(loaded.segments[first:], rewrite_from)
        for segment in loaded.segments[first:]:
            sync_all([segment.file])
            if segment is not loaded.segments[-1]:
                for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                    index = files.open(segment_path(directory, segment.base_offset, suffix))
                    index.sync()
                    index.close()
        if self._known.recovery_point == 0:
            self._rewrite_metadata()
        files.sync_directory(directory)
        loaded.epoch_file.write(loaded.epochs.version, loaded.epochs.entries)
        sound = loaded.log_end if loaded.damage is None else min(loaded.log_end, loaded.damage.first_offset)
        loaded.recovery_point = loaded.durable_offset = sound

    @staticmethod
    def _rewrite(segments: Sequence[LogSegment], rewrite_from: int) -> None:
        """Write the bytes of these again, of the first one from `rewrite_from` on: a sync that failed may have left
        them in the page cache alone, and called clean."""
        for i, segment in enumerate(segments):
            position = rewrite_from if i == 0 else 0
            while position < segment.size:
                data = segment.file.pread(min(_REWRITE_BYTES, segment.size - position), position)
                segment.file.pwritev([data], position)
                position += len(data)

    def _leave_to_flush(self, loaded: LoadedLog, first: int) -> None:
        """The next flush makes durable what recovery has seen and done: a cut, a roll or a new log that the stop before
        came in the middle of may have changed names that are not durable, however far the log was.

        Epochs of v0 and v1 are written before their first byte: what is cut must not come back under them.
        """
        loaded.rebuilt = loaded.segments[first:-1]
        loaded.new_names = True
        loaded.fresh = self._known.recovery_point == 0
        if self._site.config.magic < 2:
            sync_all([loaded.segments[-1].file])
            self._site.files.sync_directory(self._site.directory)

    def _rewrite_metadata(self) -> None:
        """No flush of this log may ever have ended: neither its metadata nor its directory's name need be durable."""
        files, directory = self._site.files, self._site.directory
        path = f"{directory}/{PARTITION_METADATA}"
        data = read_file(files, path)
        if data is not None:
            write_file(files, path, data)
        files.sync_directory(directory_of(directory))
