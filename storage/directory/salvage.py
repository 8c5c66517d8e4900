"""Removal of the lost records from a damaged log, and of nothing else: a copy of the log is kept, then its segments are
rewritten without what cannot be read.

    prepare    any thread: the copy (kept_copy.py); each damaged segment is rewritten beside itself with its sound
               batches only, at their offsets
    claims     owner's thread, between the two: the log may have holes, and ends at `end`
    replace    any thread: the new segments take the names of the old ones

A batch stays if its checksum is correct, its offsets are after those before it and before those after it, and its epoch
is the one in the epoch file. No batch is changed.
Invariants: the copy contains every byte of the log. The log is unchanged until `replace`.
Not here: whether to give records up (node/replicas/salvaging.py), opening the rest (loading.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from storage.directory.kept_copy import keep_copy, names_of
from storage.files.file_system import File, Files, remove_files
from storage.segment.epoch_cache import epoch_due
from storage.segment.segment import ALL_SUFFIXES, LOG_SUFFIX, SEGMENT_FILE, segment_path
from storage.segment.verifier import Checked, verify_around_gaps
from tidelog.errors import TidelogError
from tidelog.types import INT64_MAX, EpochStart, Offset

SALVAGED: Final = ".salvaged"
"""Suffix of a segment that is being rewritten. Loading ignores such files."""


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """Offsets from `first` to below `end` that cannot be read."""

    first: Offset
    end: Offset

    def __str__(self) -> str:
        return f"{self.first}..{self.end - 1}"


@dataclass(frozen=True, slots=True)
class _Sound:
    """A batch that stays: its bytes in the file and its offsets."""

    position: int
    size: int
    first: int
    last: int


@dataclass(slots=True)
class Salvage:
    """The readable part of one damaged log, which is not used otherwise meanwhile."""

    files: Files
    directory: str
    start: Offset
    durable_offset: Offset
    """Where the log should end."""
    epochs: Sequence[EpochStart]
    holes: bool
    """True if offsets may be missing without a loss, because of compaction."""
    end: Offset = Offset(0)
    """The end of the log, after `search` or `prepare`."""
    lost: list[LostOffsets] = field(default_factory=list)
    _damaged: list[int] = field(default_factory=list)
    """Base offsets of the segments to rewrite."""
    _empty: set[int] = field(default_factory=set)
    """Those without any sound batch, except the first segment."""

    def search(self) -> None:
        """Find the lost offsets without writing. Reads the whole log. Any thread. Raises OSError."""
        for _ in self._search():
            pass

    def prepare(self, copy: str) -> None:
        """Keep a copy, and rewrite the damaged segments. Any thread. Raises OSError."""
        bases = self._bases()
        keep_copy(self.files, self.directory, copy, names_of(bases[-1]) if bases else ())
        for base, sound in self._search():
            if base in self._damaged:
                self._write(base, sound)
            if not sound and base != bases[0]:
                self._empty.add(base)

    def replace(self) -> None:
        """Rename the new segments. Any thread. Raises OSError."""
        for base in self._damaged:
            _, *indexes = (segment_path(self.directory, base, suffix) for suffix in ALL_SUFFIXES)
            remove_files(self.files, indexes)
            path = segment_path(self.directory, base, LOG_SUFFIX)
            self.files.rename(path + SALVAGED, path)
            if base in self._empty:
                self.files.remove(path)
        self.files.sync_directory(self.directory)

    def _bases(self) -> list[int]:
        names = map(SEGMENT_FILE.fullmatch, self.files.list(self.directory))
        return sorted(int(match["base"]) for match in names if match is not None and match["suffix"] == LOG_SUFFIX)

    def _search(self) -> Iterator[tuple[int, list[_Sound]]]:
        """The batches that stay, segment by segment."""
        self.lost, self._damaged, self._empty = [], [], set()
        next_offset = int(self.start)
        for base, behind in pairwise([*self._bases(), INT64_MAX]):
            with closing(self.files.open(segment_path(self.directory, base, LOG_SUFFIX), read_only=True)) as file:
                sound, whole = self._sound(file, max(base, 0), behind)
            if not whole:
                self._damaged.append(base)
            for batch in sound:
                if batch.first > next_offset and not (self.holes and whole):
                    self.lost.append(LostOffsets(Offset(next_offset), Offset(batch.first)))
                next_offset = max(next_offset, batch.last + 1)
            yield base, sound
        self.end = Offset(next_offset)
        if self.durable_offset > next_offset:
            self.lost.append(LostOffsets(Offset(next_offset), self.durable_offset))

    def _sound(self, file: File, base: int, behind: int) -> tuple[list[_Sound], bool]:
        """The batches of a segment that stay, and True if they are the whole segment."""
        found, whole = [], True
        for step in verify_around_gaps(file, file.size()):
            batch = self._accepted(step, base, behind) if isinstance(step, Checked) else None
            if batch is None:
                whole = False
                continue
            found.append(batch)
        sound: list[_Sound] = []
        for batch, following in pairwise([*found, _Sound(0, 0, behind, behind)]):
            in_order = batch.first > (sound[-1].last if sound else -1) and batch.last < following.first
            if in_order:
                sound.append(batch)
            else:
                whole = False
        return sound, whole

    def _accepted(self, step: Checked, base: int, behind: int) -> _Sound | None:
        header, batch = step.header, step.batch
        if header is None or batch is None or step.fault is not None:
            return None
        try:
            first, last = batch.base_offset, header.last_offset
        except TidelogError:
            return None  # the messages of a wrapper cannot be read
        if not base <= first <= last < behind or epoch_due(self.epochs, header) != header.leader_epoch:
            return None
        return _Sound(header.position, header.size, first, last)

    def _write(self, base: int, sound: Sequence[_Sound]) -> None:
        path = segment_path(self.directory, base, LOG_SUFFIX)
        with (
            closing(self.files.open(path, read_only=True)) as source,
            closing(self.files.open(path + SALVAGED, create=True)) as target,
        ):
            target.truncate(0)
            written = 0
            for batch in sound:
                target.pwritev([source.pread(batch.size, batch.position)], written)
                written += batch.size
            target.sync()
