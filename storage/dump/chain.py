"""What the batches of one log must be to each other, segment after segment: offsets, leader epochs, transactions.

Kept true: a break in bytes that no file vouches for (above recovery point and held mark) is a torn write, which the
next start cuts, and a note; anywhere else it is damage, as in recovery (loading.py).
Left to others: the indexes of a segment (segment_files.py), where the facts come from (walk.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from storage.dump.events import BatchFound, Finding, damage, note
from storage.dump.log_file import Gap, Read
from tidelog.types import EpochStart

REFETCH = "empty this replica and let it fetch the log again, or cut the log before it; other replicas have the bytes"
RESTORE = "restore the file from another replica or a copy; the node opens the log without it and says what is lost"


@dataclass(frozen=True, slots=True)
class Known:
    """What other files say of the log; None where none does.

    vouched: recovery point or held mark, the larger one: everything below was durable. log_start: of the checkpoint.
    cleaned_to: of the cleaner's checkpoint: holes below it are normal. in_log_directory: the log lies in a log
    directory.
    """

    vouched: int | None = None
    log_start: int | None = None
    cleaned_to: int | None = None
    in_log_directory: bool = False


class LogChain:
    """Fed with the batches of a log in order, says what does not follow from what came before."""

    def __init__(self, known: Known, epochs: Sequence[EpochStart] | None, epochs_path: str) -> None:
        """epochs: entries of the log's leader-epoch-checkpoint, None where there is no readable one."""
        self.known = known
        self.next_offset = 0
        self.batches = 0
        self.records: int | None = 0
        self.cleaned_below = known.cleaned_to or 0
        """Below, markers and records may be missing: the cleaner's checkpoint says so, or a hole was seen."""
        self.torn_from: int | None = None
        """From this offset on the next start cuts the log, so indexes may point there; None where it cuts nothing."""
        self.open_transactions: dict[int, int] = {}
        self._epochs = epochs
        self._epochs_path = epochs_path
        self._epoch = -1
        self._epoch_at = ""
        self._lacking = False
        self._begun = False
        self._holes = 0
        self._first_hole = (0, 0)

    # --- segments -------------------------------------------------------------------------------------------------

    def begin_segment(self, path: str, base: int) -> Iterator[Finding]:
        """The next .log file, by its name."""
        if self._begun and base > self.next_offset and not self._may_lack(base):
            cause = f"offsets {self.next_offset} to {base - 1} are missing between the segment before and this one"
            if self.known.in_log_directory:
                yield damage(path, f"{cause}: a segment is lost", RESTORE, first=self.next_offset, last=base - 1)
            else:
                step = "look for the missing files; in a compacted log this is normal"
                yield note(path, cause, step, first=self.next_offset, last=base - 1)
        elif self._begun and base < self.next_offset:
            yield damage(
                path,
                f"the name says offset {base}, but the segment before reaches to {self.next_offset - 1}",
                "keep the one whose batches lead on, move the other away",
                first=base,
                last=self.next_offset - 1,
            )
        self.next_offset = base
        self._begun = True
        self._holes = 0

    def segment_went(self) -> None:
        """A .log file was deleted meanwhile, by retention or compaction: what follows need not follow."""
        self._begun = False

    def end_segment(self, path: str) -> Iterator[Finding]:
        """The .log file has ended."""
        if self._holes and not self._may_lack(self._first_hole[0]):
            first, last = self._first_hole
            yield note(
                path,
                f"{self._holes} time(s) offsets are missing between two batches, first {first} to {last}",
                "nothing, where the log is compacted; else records are lost: compare with another replica",
                first=first,
                last=last,
            )

    def _may_lack(self, offset: int) -> bool:
        return self.known.cleaned_to is not None and offset <= self.known.cleaned_to

    # --- batches --------------------------------------------------------------------------------------------------

    def batch(self, read: Read) -> Iterator[Finding]:
        """The next batch."""
        batch, path = read.batch, read.batch.path
        first = min(self.next_offset, batch.last_offset) if batch.base_offset is None else batch.base_offset
        if read.problem is not None:
            yield self._bad_batch(batch, first, read.problem)
        if first < self.next_offset:
            yield damage(
                path,
                f"the batch begins at offset {first}, but {self.next_offset} or a larger one must follow: base offsets "
                "are not covered by the checksum",
                REFETCH,
                position=batch.position,
                first=first,
                last=batch.last_offset,
            )
        elif first > self.next_offset:
            self._holes += 1
            self.cleaned_below = max(self.cleaned_below, first)
            if self._holes == 1:
                self._first_hole = (self.next_offset, first - 1)
        yield from self._check_epoch(batch, first)
        self._count(batch, first)
        self.next_offset = max(self.next_offset, batch.last_offset + 1)

    def gap(self, path: str, gap: Gap) -> Iterator[Finding]:
        """Bytes without a batch."""
        size = gap.end - gap.position
        if gap.zeros and gap.to_the_end and not self._vouched_for():
            self._torn_from(self.next_offset)
            yield note(
                path,
                f"{size} bytes of zeros at the end: room taken beforehand (preallocate), or a write that a crash undid",
                "nothing: the next start cuts them",
                position=gap.position,
            )
        elif gap.to_the_end and self.known.vouched is not None and not self._vouched_for():
            self._torn_from(self.next_offset)
            yield note(
                path,
                f"the last {size} bytes are no whole batch ({gap.reason}): a write was torn, or is under way; nothing "
                f"from offset {self.next_offset} on was known to be durable",
                "nothing: the next start cuts them",
                position=gap.position,
                first=self.next_offset,
            )
        else:
            self.records = None
            yield damage(
                path,
                f"{size} bytes are no batch ({gap.reason})"
                + (": whatever followed is lost" if gap.to_the_end else "; behind them batches go on"),
                REFETCH,
                position=gap.position,
                first=self.next_offset,
            )

    def _torn_from(self, offset: int) -> None:
        self.torn_from = offset if self.torn_from is None else min(self.torn_from, offset)

    def _vouched_for(self) -> bool:
        """Does a file say that a record at the next offset was durable?"""
        return self.known.vouched is not None and self.next_offset < self.known.vouched

    def _bad_batch(self, batch: BatchFound, first: int, problem: str) -> Finding:
        self.records = None
        vouched = self.known.vouched
        if vouched is not None and first >= vouched and not batch.crc_ok:
            self._torn_from(first)
            return note(
                batch.path,
                f"{problem}. Nothing from offset {first} on was known to be durable: a write was torn, or is under way",
                "nothing: the next start cuts the log here",
                position=batch.position,
                first=first,
                last=batch.last_offset,
            )
        return damage(batch.path, problem, REFETCH, position=batch.position, first=first, last=batch.last_offset)

    def _count(self, batch: BatchFound, first: int) -> None:
        self.batches += 1
        if batch.count is None:
            self.records = None
            return
        if self.records is not None:
            self.records += batch.count
        if batch.count < batch.last_offset - first + 1:
            self.cleaned_below = max(self.cleaned_below, batch.last_offset + 1)

    # --- epochs ---------------------------------------------------------------------------------------------------

    def _check_epoch(self, batch: BatchFound, first: int) -> Iterator[Finding]:
        epoch = batch.leader_epoch
        if epoch is None or epoch < 0:
            return
        said = self._in_force(first)
        if epoch < self._epoch:
            yield damage(
                batch.path,
                f"leader epoch {epoch} follows {self._epoch} ({self._epoch_at}): one of the two was changed, which no "
                "checksum covers",
                REFETCH,
                position=batch.position,
                first=first,
                last=batch.last_offset,
            )
        elif said is not None and said != epoch and not self._newer(epoch):
            yield damage(
                batch.path,
                f"the batch has leader epoch {epoch}, but by {self._epochs_path} epoch {said} is in force at offset "
                f"{first}: one of the two was changed, which no checksum covers",
                "compare with another replica; delete the checkpoint if it is at fault, it is rebuilt from the log",
                position=batch.position,
                first=first,
                last=batch.last_offset,
            )
        elif not self._lacking and (self._epochs is None or self._newer(epoch)):
            self._lacking = True
            yield self._lacks(batch, epoch, first)
        self._epoch, self._epoch_at = epoch, f"at byte {batch.position} of {batch.path}"

    def _lacks(self, batch: BatchFound, epoch: int, first: int) -> Finding:
        """The checkpoint does not know an epoch that the log has."""
        if self._epochs is None:
            step = "nothing: it is rebuilt from the log when the log is next opened"
            return note(self._epochs_path, "there is no such file that can be read", step, first=first)
        cause = (
            f"epoch {epoch}, which the batch at byte {batch.position} of {batch.path} has, is not in it: "
            "either the file was not written yet, or that batch was changed, which no checksum covers"
        )
        step = "compare with another replica; where the batch is right, the file is rebuilt when the log is next opened"
        last = self.known.vouched
        tell = damage if last is not None and first < last else note
        return tell(self._epochs_path, cause, step, first=first)

    def _in_force(self, offset: int) -> int | None:
        """The epoch at an offset by the checkpoint, None where it does not tell."""
        if not self._epochs:
            return None
        slot = bisect_right(self._epochs, offset, key=lambda entry: entry.start_offset) - 1
        return self._epochs[slot].epoch if slot >= 0 else None

    def _newer(self, epoch: int) -> bool:
        return bool(self._epochs) and epoch > self._epochs[-1].epoch  # type: ignore[index]  # checked beside it

    # --- transactions ---------------------------------------------------------------------------------------------

    def transaction(self, batch: BatchFound) -> int | None:
        """Follow transactions. Returns the first offset of the one that this batch aborts, where it has been seen and
        nothing of it can have been cleaned away."""
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

    # --- the end --------------------------------------------------------------------------------------------------

    def end(self, directory: str) -> Iterator[Finding]:
        """The log has ended."""
        vouched = self.known.vouched
        if vouched is not None and self.next_offset < vouched:
            yield damage(
                directory,
                f"the log ends at offset {self.next_offset}, but everything below {vouched} was durable once",
                REFETCH,
                first=self.next_offset,
                last=vouched - 1,
            )
        start = self.known.log_start
        if start is not None and start > self.next_offset:
            yield damage(
                directory,
                f"by the checkpoint the log starts at offset {start}, but it ends at {self.next_offset}",
                REFETCH,
                first=self.next_offset,
                last=start - 1,
            )
