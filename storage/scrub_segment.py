"""One closed segment read again from its first byte to its last, and compared with its indexes and the epoch cache.

    plan (owner's thread) -> `step` again and again (elsewhere: own handle, own copies) -> judge (owner's thread)

What is checked: checksums; the chain of offsets and epochs, up to the next segment's base; every batch's epoch against
the epoch cache; that every entry of `.index` points at a batch that lookups may start from (older Kafkas name the last
offset of an append of several batches, and the first one's byte); that every entry of
`.timeindex` says the largest timestamp so far and the last one the segment's.
Wrong magics and epochs, which no checksum covers, and wrong indexes are put right at once; the indexes as files of
another name, which the owner puts in place.

Kept true: nothing of the log is changed but the two fields of a batch that proves itself otherwise (header_repair.py).
Left to others: which segment when, and how fast (scrub.py); `.txnindex`, which is compared with the batches before it
is believed (aborted_transactions.py).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum
from typing import Final

from storage.batch_walk import BrokenChain, Link, scan_file, walk_file
from storage.config import LogConfig
from storage.files import File, Files, read_file
from storage.header_repair import EpochWitness, put_right, set_epoch
from storage.offset_index import OffsetIndex
from storage.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment, segment_path
from storage.time_index import TimeIndex
from tidelog.records.header import HEADER_BYTES, BatchHeader
from tidelog.types import NO_LEADER_EPOCH, EpochStart, LeaderEpoch, Millis, Offset

REBUILT_SUFFIX: Final = ".rebuilt"
"""Behind the names of indexes that wait to be put in place of wrong ones."""
_V2: Final = 2


class FindingKind(Enum):
    """What was found wrong."""

    LOG = "log"
    HEADER = "header"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in a closed segment. path, position: the file and the byte; offsets from `first_offset` to below
    `end_offset` are concerned. repaired: it is right again."""

    kind: FindingKind
    path: str
    position: int
    first_offset: Offset
    end_offset: Offset
    reason: str
    repaired: bool

    def __str__(self) -> str:
        outcome = "put right" if self.repaired else "not repaired"
        where = f"{self.path}, byte {self.position}, offsets {self.first_offset}..{self.end_offset - 1}"
        return f"rot in a {self.kind.value} ({where}): {self.reason}; {outcome}"


class SegmentCheck:
    """The checking of one segment. Made on the owner's thread, which closes it; `step` runs elsewhere."""

    def __init__(
        self,
        files: Files,
        segment: LogSegment,
        epochs: tuple[EpochStart, ...],
        config: LogConfig,
        *,
        end_offset: Offset,
        now: Millis,
    ) -> None:
        """end_offset: where the next segment begins. Raises OSError."""
        self.segment, self.size, self.end_offset = segment, segment.size, end_offset
        self.findings: list[Finding] = []
        self.rebuilt: LogSegment | None = None
        """Carries the indexes that wait to be put in place."""
        self._files, self._config, self._now = files, config, now
        self._path = segment.path
        self._epochs = epochs
        self._handle: File = segment.file.share()
        self._link = Link(0, self.size, segment.base_offset)
        self._indexes: _IndexCheck | None = None
        self._agrees: bool | None = None
        """Has the batch before the epoch that the cache says? None: there is none."""
        self._epoch_told = False
        self._put_right = -1
        """Where a batch was put right last: what breaks there again is damage."""
        self._breaks: dict[int, Link] = {}
        """Damage by its byte: the chain as it was before it."""

    @property
    def done(self) -> bool:
        """Has all of it been read?"""
        return self._link.position >= self.size

    def confirms(self, finding: Finding) -> bool:
        """On the owner's thread, of damage: is it there in the segment as it is now? Raises OSError."""
        link = self._breaks.get(finding.position)
        if link is None:
            return True
        try:
            next(scan_file(self.segment.file, link.position, self.size, link.next_offset, link.epoch), None)
        except BrokenChain:
            return True
        return False

    def close(self) -> None:
        """Let go of the file."""
        self._handle.close()

    def step(self, byte_count: int) -> int:
        """Check so many bytes more, at least one batch. Returns how many were read. Raises OSError."""
        if self._indexes is None:
            self._indexes = _IndexCheck(self._files, self.segment, self.size)
        began = self._link.position
        try:
            link = self._link
            for batch, position in scan_file(self._handle, began, self.size, link.next_offset, link.epoch):
                header = batch.header._replace(position=position)
                self._indexes.take(header)
                known = self._compare(header)
                self._link = self._link.behind(header._replace(leader_epoch=known))
                if self._link.position - began >= byte_count or known != header.leader_epoch:
                    break
        except BrokenChain as broken:
            self._broken(broken)
        if self.done:
            self._finish(self._indexes)
        return self._link.position - began

    def _compare(self, header: BatchHeader) -> LeaderEpoch:
        """A batch with what is known beside the file. Returns its epoch, put right where it was wrong."""
        if header.last_offset >= self.end_offset:
            reason = f"the batch reaches to offset {header.last_offset}, the next segment begins at {self.end_offset}"
            self._add(FindingKind.LOG, header.position, header.base_offset, Offset(header.last_offset + 1), reason)
        epoch, known = header.leader_epoch, self._epoch_at(header.base_offset)
        agreed, self._agrees = self._agrees, epoch == known
        if header.magic != _V2 or known < 0 or epoch == known:
            return epoch
        alone = self._is_alone(header, agreed)
        if alone or not self._epoch_told:
            self._epoch_told |= not alone
            reason = f"the batch has leader epoch {epoch}, the epoch cache says {known}"
            end = Offset(header.last_offset + 1)
            self._add(FindingKind.HEADER, header.position, header.base_offset, end, reason, repaired=alone)
        if alone:
            set_epoch(self._handle, header.position, known)
            self._agrees = True
        return known if alone else epoch

    def _is_alone(self, header: BatchHeader, agreed: bool | None) -> bool:
        """Do the batches around this one agree with the epoch cache, as far as there are any? Else it may be the cache
        that is wrong."""
        behind = self._link.behind(header)._replace(epoch=int(NO_LEADER_EPOCH))
        try:
            following = behind.read(self._handle.pread(HEADER_BYTES, behind.position), 0)
        except BrokenChain:
            return False
        if following is None or following.magic != _V2:
            return agreed is True
        return agreed is not False and following.leader_epoch == self._epoch_at(following.base_offset)

    def _epoch_at(self, offset: Offset) -> LeaderEpoch:
        """What the epoch cache says; -1 where it says nothing."""
        found = bisect_right(self._epochs, offset, key=lambda entry: entry.start_offset)
        return self._epochs[found - 1].epoch if found else NO_LEADER_EPOCH

    def _broken(self, broken: BrokenChain) -> None:
        """Put the batch right where it proves itself; else it is damage, and what it leads on to is still looked at."""
        link = Link(broken.position, self.size, broken.next_offset, self._link.epoch)
        wrong = (
            None
            if self._breaks or link.position == self._put_right
            else put_right(self._handle, link, EpochWitness(self._epochs, self.end_offset))
        )
        if wrong is not None:
            self._put_right = link.position
            at = Offset(broken.next_offset)
            self._add(FindingKind.HEADER, broken.position, at, self.end_offset, f"the batch {wrong}", repaired=True)
            return
        self._breaks[broken.position] = link
        header = broken.header
        end = self.end_offset if header is None else Offset(header.last_offset + 1)
        self._add(FindingKind.LOG, broken.position, Offset(broken.next_offset), end, broken.reason)
        if header is None:
            self._link = link._replace(position=self.size)
        else:
            self._link = link.behind(header)

    def _finish(self, indexes: _IndexCheck) -> None:
        if self._breaks:
            return  # a wrong entry is no news then, and there is nothing to rebuild it from
        base = self.segment.base_offset
        for kind, wrong in indexes.wrong():
            reason, position = wrong
            suffix = INDEX_SUFFIX if kind is FindingKind.OFFSET_INDEX else TIME_INDEX_SUFFIX
            path = segment_path(self.segment.folder, base, suffix)
            self._rebuild()
            self.findings.append(Finding(kind, path, position, base, self.end_offset, reason, repaired=True))

    def _rebuild(self) -> None:
        """Write both indexes anew, under another name."""
        if self.rebuilt is not None:
            return
        segment = self.segment
        rebuilt = LogSegment(
            self._files,
            segment.folder,
            segment.base_offset,
            self._config,
            created_ms=self._now,
            suffix=REBUILT_SUFFIX,
        )
        rebuilt.start_rebuild()
        for header in walk_file(self._handle, 0, self.size, segment.base_offset):
            rebuilt.index_batch(header, header.position)
        rebuilt.size = self.size
        rebuilt.become_inactive()
        rebuilt.close()
        self.rebuilt = rebuilt

    def _add(
        self, kind: FindingKind, position: int, first: Offset, end: Offset, reason: str, *, repaired: bool = False
    ) -> None:
        self.findings.append(Finding(kind, self._path, position, first, end, reason, repaired))


class _IndexCheck:
    """Both index files of a segment, compared with its batches as they go by."""

    def __init__(self, files: Files, segment: LogSegment, size: int) -> None:
        base, folder = segment.base_offset, segment.folder
        offsets = read_file(files, segment_path(folder, base, INDEX_SUFFIX)) or b""
        times = read_file(files, segment_path(folder, base, TIME_INDEX_SUFFIX)) or b""
        self._base, self._size = base, size
        self._offsets = list(OffsetIndex.ENTRY.iter_unpack(offsets[: len(offsets) // 8 * 8]))
        self._times = list(TimeIndex.ENTRY.iter_unpack(times[: len(times) // 12 * 12]))
        self._next_offset = self._next_time = 0
        self._wrong_offset = self._cut(offsets, OffsetIndex.ENTRY.size)
        self._wrong_time = self._cut(times, TimeIndex.ENTRY.size)
        self._last = self._last_entry = base - 1
        self._largest = -1

    @staticmethod
    def _cut(data: bytes, entry_bytes: int) -> tuple[str, int] | None:
        left = len(data) % entry_bytes
        return (f"{left} bytes are left behind the last whole entry", len(data) - left) if left else None

    def take(self, header: BatchHeader) -> None:
        """The next batch."""
        if self._next_offset < len(self._offsets):
            self._take_offset(header)
        largest = max(self._largest, header.max_timestamp)
        if self._next_time < len(self._times):
            self._take_time(header, largest)
        self._last, self._largest = header.last_offset, largest

    def _take_offset(self, header: BatchHeader) -> None:
        relative, position = self._offsets[self._next_offset]
        if position > header.position:
            return
        offset, at = self._base + relative, self._next_offset * OffsetIndex.ENTRY.size
        self._next_offset += 1
        if position < header.position or position == 0:
            self._wrong_offset = self._wrong_offset or (f"byte {position}, to which it points, begins no batch", at)
        elif offset <= self._last:
            reason = f"offset {offset} lies before byte {position}, to which it points"
            self._wrong_offset = self._wrong_offset or (reason, at)
        elif offset <= self._last_entry:
            reason = f"offset {offset} does not grow over {self._last_entry}, that of the entry before"
            self._wrong_offset = self._wrong_offset or (reason, at)
        self._last_entry = offset

    def _take_time(self, header: BatchHeader, largest: int) -> None:
        while self._next_time < len(self._times):
            timestamp, relative = self._times[self._next_time]
            offset = self._base + relative
            if offset > header.last_offset:
                return
            if (
                offset <= self._last
                or timestamp != largest
                or (self._next_time and timestamp <= self._times[self._next_time - 1][0])
            ):
                reason = f"it says {timestamp} for offset {offset}, the largest timestamp up to there is {largest}"
                at = self._next_time * TimeIndex.ENTRY.size
                self._wrong_time = self._wrong_time or (reason, at)
            self._next_time += 1

    def wrong(self) -> list[tuple[FindingKind, tuple[str, int]]]:
        """What is wrong with either, once all batches have gone by: the reason and the byte."""
        found = []
        if self._wrong_offset is None and self._next_offset < len(self._offsets):
            position = self._offsets[self._next_offset][1]
            reason = f"it points at byte {position}, the segment has {self._size} bytes"
            self._wrong_offset = (reason, self._next_offset * OffsetIndex.ENTRY.size)
        if self._wrong_offset is None and self._last_entry > self._last:
            reason = f"it points at offset {self._last_entry}, the last one of the segment is {self._last}"
            self._wrong_offset = (reason, (self._next_offset - 1) * OffsetIndex.ENTRY.size)
        if self._wrong_time is None and self._next_time < len(self._times):
            reason = "it points at an offset behind the segment's last"
            self._wrong_time = (reason, self._next_time * TimeIndex.ENTRY.size)
        if (
            self._wrong_time is None
            and self._largest >= 0
            and (self._times[-1][0] if self._times else -1) != self._largest
        ):
            reason = f"the largest timestamp of the segment, {self._largest}, is missing at its end"
            self._wrong_time = (reason, len(self._times) * TimeIndex.ENTRY.size)
        if self._wrong_offset is not None:
            found.append((FindingKind.OFFSET_INDEX, self._wrong_offset))
        if self._wrong_time is not None:
            found.append((FindingKind.TIME_INDEX, self._wrong_time))
        return found
