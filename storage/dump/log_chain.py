"""The rules between the batches of one log, across its segments: offsets, leader epochs, transactions.

Invariants: a break in bytes that no file guarantees (at or above recovery point and durable-offset mark) is a torn
write, which the next start truncates: a note. Anywhere else it is damage, as in recovery (loading.py).
Not here: the indexes of a segment (segment_files.py), where the facts come from (walk.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from storage.dump.dump_events import BatchFound, DumpFinding, damage, note
from storage.dump.log_file import Read
from storage.segment.verifier import Gap
from tidelog.types import NO_LEADER_EPOCH, EpochStart

REFETCH = (
    "empty this replica so that it fetches the log again, or truncate the log before it; other replicas have the data"
)
RESTORE = (
    "restore the file from another replica or a copy; without it the node opens the log and reports the lost offsets"
)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What other files record about the log; None where there is no such file."""

    durable_below: int | None = None
    """The larger of recovery point and durable-offset mark: everything below was durable."""
    log_start: int | None = None
    """The log start in the checkpoint."""
    cleaned_to: int | None = None
    """The offset in the cleaner's checkpoint: holes below it are normal."""
    in_log_directory: bool = False
    """The log is in a log directory."""


class LogChain:
    """Checks each batch of a log against the batches before it. Batches are added in order."""

    def __init__(self, known: LogFacts, epochs: Sequence[EpochStart] | None, epochs_path: str) -> None:
        """epochs: entries of the log's leader-epoch-checkpoint; None if there is no readable one."""
        self.known = known
        self.next_offset = 0
        self.batches = 0
        self.records: int | None = 0
        self.cleaned_below = known.cleaned_to or 0
        """Below it, markers and records may be missing, according to the cleaner's checkpoint or a hole."""
        self.torn_from: int | None = None
        """The next start truncates the log here, so indexes may point beyond; None if it truncates nothing."""
        self.open_transactions: dict[int, int] = {}
        self._epochs = epochs
        self._epochs_path = epochs_path
        self._epoch = -1
        self._epoch_at = ""
        self._reported_missing_epoch = False
        self._begun = False
        self._holes = 0
        self._first_hole = (0, 0)

    def begin_segment(self, path: str, base: int) -> Iterator[DumpFinding]:
        """Begin the next .log file, given its name."""
        if self._begun and base > self.next_offset and not self._may_be_cleaned(base):
            cause = f"offsets {self.next_offset} to {base - 1} are missing between the previous segment and this one"
            if self.known.in_log_directory:
                yield damage(path, f"{cause}: a segment is lost", RESTORE, first=self.next_offset, last=base - 1)
            else:
                step = "look for the missing files; in a compacted log this is normal"
                yield note(path, cause, step, first=self.next_offset, last=base - 1)
        elif self._begun and base < self.next_offset:
            yield damage(
                path,
                f"the file name has base offset {base}, but the previous segment ends at {self.next_offset - 1}",
                "keep the segment whose batches continue the log, move the other one away",
                first=base,
                last=self.next_offset - 1,
            )
        self.next_offset = base
        self._begun = True
        self._holes = 0

    def segment_removed(self) -> None:
        """A .log file was deleted meanwhile by retention or compaction, so the next one need not continue the chain."""
        self._begun = False

    def end_segment(self, path: str) -> Iterator[DumpFinding]:
        if self._holes and not self._may_be_cleaned(self._first_hole[0]):
            first, last = self._first_hole
            yield note(
                path,
                f"offsets are missing between two batches {self._holes} time(s), the first are {first} to {last}",
                "nothing if the log is compacted; otherwise records are lost: compare with another replica",
                first=first,
                last=last,
            )

    def _may_be_cleaned(self, offset: int) -> bool:
        """True if compaction may have removed the offset."""
        return self.known.cleaned_to is not None and offset <= self.known.cleaned_to

    def batch(self, read: Read) -> Iterator[DumpFinding]:
        batch = read.batch
        first = min(self.next_offset, batch.last_offset) if batch.base_offset is None else batch.base_offset
        if read.problem is not None:
            yield self._bad_batch(batch, first, read.problem)
        if first < self.next_offset:
            expected = f"expected {self.next_offset} or above: no checksum covers base offsets"
            yield _damaged(batch, first, f"the batch begins at offset {first}, {expected}")
        elif first > self.next_offset:
            self._holes += 1
            self.cleaned_below = max(self.cleaned_below, first)
            if self._holes == 1:
                self._first_hole = (self.next_offset, first - 1)
        yield from self._check_epoch(batch, first)
        self._count(batch, first)
        self.next_offset = max(self.next_offset, batch.last_offset + 1)

    def gap(self, path: str, gap: Gap) -> Iterator[DumpFinding]:
        size = gap.end - gap.position
        if gap.zeros and gap.to_the_end and not self._is_durable():
            self._torn_from(self.next_offset)
            yield note(
                path,
                f"{size} bytes of zeros at the end: preallocated, or a write lost in a crash",
                "nothing: the next start truncates them",
                position=gap.position,
            )
        elif gap.to_the_end and self.known.durable_below is not None and not self._is_durable():
            self._torn_from(self.next_offset)
            yield note(
                path,
                f"the last {size} bytes are no complete batch ({gap.reason}): a torn write, or one in progress; "
                f"nothing from offset {self.next_offset} on was known to be durable",
                "nothing: the next start truncates them",
                position=gap.position,
                first=self.next_offset,
            )
        else:
            self.records = None
            yield damage(
                path,
                f"{size} bytes are no batch ({gap.reason})"
                + (": everything after them is lost" if gap.to_the_end else "; batches continue after them"),
                REFETCH,
                position=gap.position,
                first=self.next_offset,
            )

    def _torn_from(self, offset: int) -> None:
        self.torn_from = offset if self.torn_from is None else min(self.torn_from, offset)

    def _is_durable(self) -> bool:
        """True if a file records that the next offset was durable."""
        return self.known.durable_below is not None and self.next_offset < self.known.durable_below

    def _bad_batch(self, batch: BatchFound, first: int, problem: str) -> DumpFinding:
        self.records = None
        durable_below = self.known.durable_below
        if durable_below is not None and first >= durable_below and not batch.crc_ok:
            self._torn_from(first)
            return note(
                batch.path,
                f"{problem}. Nothing from offset {first} on was known to be durable: a torn write, or one in progress",
                "nothing: the next start truncates the log here",
                position=batch.position,
                first=first,
                last=batch.last_offset,
            )
        return _damaged(batch, first, problem)

    def _count(self, batch: BatchFound, first: int) -> None:
        self.batches += 1
        if batch.count is None:
            self.records = None
            return
        if self.records is not None:
            self.records += batch.count
        if batch.count < batch.last_offset - first + 1:
            self.cleaned_below = max(self.cleaned_below, batch.last_offset + 1)

    def _check_epoch(self, batch: BatchFound, first: int) -> Iterator[DumpFinding]:
        epoch = batch.leader_epoch
        if epoch is None or epoch == NO_LEADER_EPOCH:
            return
        if epoch < 0:
            yield _damaged(batch, first, f"leader epoch {epoch} is negative: it is corrupt; no checksum covers epochs")
            return
        known = self._in_force(first)
        if epoch < self._epoch:
            cause = (
                f"leader epoch {epoch} follows {self._epoch} ({self._epoch_at}): one of them is corrupt; no checksum "
                "covers epochs"
            )
            yield _damaged(batch, first, cause)
        elif known is not None and known != epoch and not self._newer(epoch):
            cause = (
                f"the batch has leader epoch {epoch}, but {self._epochs_path} has epoch {known} for offset "
                f"{first}: one of them is corrupt; no checksum covers epochs"
            )
            step = "compare with another replica; if the checkpoint is wrong, delete it: it is rebuilt from the log"
            yield _damaged(batch, first, cause, step)
        elif not self._reported_missing_epoch and (self._epochs is None or self._newer(epoch)):
            self._reported_missing_epoch = True
            yield self._missing_epoch(batch, epoch, first)
        self._epoch, self._epoch_at = epoch, f"at byte {batch.position} of {batch.path}"

    def _missing_epoch(self, batch: BatchFound, epoch: int, first: int) -> DumpFinding:
        if self._epochs is None:
            step = "nothing: it is rebuilt from the log when the log is next opened"
            return note(self._epochs_path, "the file is missing or cannot be read", step, first=first)
        cause = (
            f"it lacks epoch {epoch} of the batch at byte {batch.position} of {batch.path}: "
            "either the file was not written yet, or the batch is corrupt; no checksum covers epochs"
        )
        step = "compare with another replica; if the batch is right, the file is rebuilt when the log is next opened"
        last = self.known.durable_below
        finding = damage if last is not None and first < last else note
        return finding(self._epochs_path, cause, step, first=first)

    def _in_force(self, offset: int) -> int | None:
        """The epoch at an offset according to the checkpoint; None if unknown."""
        if not self._epochs:
            return None
        slot = bisect_right(self._epochs, offset, key=lambda entry: entry.start_offset) - 1
        return self._epochs[slot].epoch if slot >= 0 else None

    def _newer(self, epoch: int) -> bool:
        return bool(self._epochs) and epoch > self._epochs[-1].epoch  # type: ignore[index]  # checked beside it

    def transaction(self, batch: BatchFound) -> int | None:
        """Track transactions. Returns the first offset of the transaction that this batch aborts, if that was seen and
        nothing of it can have been cleaned."""
        producer = batch.producer_id
        if producer is None or not batch.is_transactional:
            return None
        if not batch.is_control:
            if batch.count:
                self.open_transactions.setdefault(producer, batch.base_offset or 0)
            return None
        began = self.open_transactions.pop(producer, None)
        certain = began is not None and began >= self.cleaned_below
        return began if certain and batch.control == ("ABORT",) else None

    def end(self, directory: str) -> Iterator[DumpFinding]:
        durable_below, start, end = self.known.durable_below, self.known.log_start, self.next_offset
        for least, cause in (
            (durable_below, f"the log ends at offset {end}, but everything below {durable_below} was durable"),
            (start, f"the checkpoint has log start {start}, but the log ends at {end}"),
        ):
            if least is not None and end < least:
                yield damage(directory, cause, REFETCH, first=end, last=least - 1)


def _damaged(batch: BatchFound, first: int, cause: str, step: str = REFETCH) -> DumpFinding:
    return damage(batch.path, cause, step, position=batch.position, first=first, last=batch.last_offset)
