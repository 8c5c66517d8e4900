"""Logs of one log directory that are deleted, set aside, or start elsewhere: many at a time, on the directory's
executor.

    one batch    claims of all its logs fall, durably: one sync of the marks, one write of each checkpoint that changes
                 then the directories get their new names; one sync of all, before any file in them goes
                 then each log that starts elsewhere is told, on the owner's thread

What comes while a batch runs goes into the next one, so that 1,000 deletions of one image cost a few batches and not
1,000 times their fsyncs. A batch begins only when the executor has been free once since it was asked for.

Kept true:
  1. A log's directory gets another name only when no file claims anything about it any more.
  2. A log starts at a higher offset, in memory, only when that is durable; a cut that begins meanwhile wins.
  3. What a full disk refused is tried again with `retry`; any other error takes the log directory offline.
  4. A log that is being deleted is whole or gone after a crash: its files go only when its new name is durable.
  5. Work that is given to the executor after `hand_over` finds all directories renamed that were deleted before, or is
     told by `ensure_free` which are not.
Left to others: which logs (node/), removing files of a deleted log (log_directory.py), what claims are
(directory_claims.py).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from storage.directory.directory_claims import DirectoryClaims
from storage.files.executor import Executor
from storage.files.file_system import Files, is_full
from storage.log.log import Log
from tidelog.errors import DiskFull, TidelogError
from tidelog.types import Offset, PartitionKey, TopicPartition

RETIRED_AT_ONCE: Final = 250
"""Logs in one batch: each has a mark, which the owner's thread writes into the page cache."""

Started = Callable[[TidelogError | None], None]
"""Told that the log starts there, or why not."""


@dataclass(frozen=True, slots=True)
class Retired:
    """A log that is in use no more. aside: keep what is in its directory, under the new name."""

    tp: TopicPartition
    key: PartitionKey
    path: str
    new_path: str
    aside: bool


@dataclass(slots=True)
class _Batch:
    retired: list[Retired] = field(default_factory=list)
    starts: dict[Log, Offset] = field(default_factory=dict)
    first: list[Callable[[], None]] = field(default_factory=list)
    told: list[Started] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.retired and not self.starts


class DirectoryChanges:
    """The changes of one log directory. For the owner's thread."""

    def __init__(
        self,
        path: str,
        files: Files,
        claims: DirectoryClaims,
        executor: Executor,
        *,
        ensure_online: Callable[[], None],
        failed: Callable[[str, OSError], TidelogError],
        report: Callable[[BaseException], None],
        renamed: Callable[[Retired], None],
    ) -> None:
        """ensure_online: raises why the directory is out of use. failed: judges an error of the disk. report: told what
        failed. renamed: the log's directory has its new name."""
        self._path, self._files, self._claims, self._executor = path, files, claims, executor
        self._ensure_online, self._failed, self._report, self._renamed = ensure_online, failed, report, renamed
        self._next = _Batch()
        self._waits = False
        """Has the executor been asked to say when it is free?"""
        self._running = 0
        self._named: set[str] = set()
        """Paths of retired logs that have not got their new names yet."""
        self.batches = 0
        """Batches begun."""

    @property
    def busy(self) -> bool:
        """Is a change under way, or does one wait?"""
        return self._running > 0 or self._waits

    def retire(self, log: Retired) -> None:
        """Rename the directory of a log that is closed."""
        self._named.add(log.path)
        self._next.retired.append(log)
        self._ask()

    def ensure_free(self, path: str) -> None:
        """On the executor, behind `hand_over`: raises OSError where a retired log still has that path, because a full
        disk has refused it another: a new log there would be taken for the retired one with the next attempt."""
        if path in self._named:
            raise OSError(errno.ENOSPC, "the log that was there before it has not been moved out of the way", path)

    def move_start(
        self, log: Log, offset: Offset, told: Started | None = None, *, first: Callable[[], None] | None = None
    ) -> None:
        """Let a log start at `offset`, which is not above its high watermark; at or below its start nothing happens.
        first: run before that is claimed, on the executor; raises OSError."""
        batch = self._next
        if told is not None:
            batch.told.append(told)
        if first is not None:
            batch.first.append(first)
        batch.starts[log] = max(offset, batch.starts.get(log, offset))
        self._ask()

    def retry(self) -> None:
        """Try again what a full disk refused."""
        if not self._next.is_empty:
            self._ask()

    def _ask(self) -> None:
        if not self._waits and not self._running:
            self._waits = True
            self._executor.submit(_nothing, self._free)

    def _free(self, _: object) -> None:
        self._waits = False
        if not self._next.is_empty:
            self._hand_over_some()

    def hand_over(self) -> None:
        """Give all that waits to the executor now, unless a full disk refuses it."""
        while not self._next.is_empty and self._hand_over_some():
            continue

    def _hand_over_some(self) -> bool:
        """Returns whether the executor has some of it."""
        batch, self._next = self._next, _Batch()
        self._next.retired = batch.retired[RETIRED_AT_ONCE:]
        del batch.retired[RETIRED_AT_ONCE:]
        try:
            self._ensure_online()
            write = self._prepare(batch)
        except OSError as error:
            self._keep_for_retry(batch, error)
            self._refuse(batch, self._failed(f"changing logs of {self._path}", error))
            return False
        except TidelogError as error:
            self._refuse(batch, error)
            return False
        self.batches += 1
        self._running += 1
        self._executor.submit(lambda: self._run(batch, write), lambda result: self._done(batch, result))
        return True

    def _keep_for_retry(self, batch: _Batch, error: OSError) -> None:
        if is_full(error):
            self._next.retired[:0] = batch.retired

    def _refuse(self, batch: _Batch, error: TidelogError) -> None:
        self._report(error)
        for told in batch.told:
            told(error)

    def _prepare(self, batch: _Batch) -> Callable[[], None]:
        for log, offset in list(batch.starts.items()):
            if log.closed or log.cut is not None or offset <= log.log_start_offset:
                del batch.starts[log]
        deleted = [(each.tp, each.key) for each in batch.retired if not each.aside]
        drop = self._claims.forgetting(deleted, [each.key for each in batch.retired if each.aside])
        start = self._claims.starting_all({log.topic_partition: offset for log, offset in batch.starts.items()})

        def write() -> None:
            drop()
            start()

        return write

    def _run(self, batch: _Batch, write: Callable[[], None]) -> None:
        """On the executor."""
        for first in batch.first:
            first()
        write()
        for each in batch.retired:
            if self._files.is_directory(each.path):  # else renamed by an attempt before
                self._files.rename(each.path, each.new_path)
        if batch.retired:
            self._files.sync_directory(self._path)
            self._named.difference_update(each.path for each in batch.retired)

    def _done(self, batch: _Batch, result: BaseException | None) -> None:
        self._running -= 1
        failure: TidelogError | None = None
        if isinstance(result, OSError):
            failure = self._failed(f"changing logs of {self._path}", result)
            self._keep_for_retry(batch, result)
            self._report(failure)
        elif isinstance(result, BaseException):
            raise result
        else:
            for each in batch.retired:
                self._renamed(each)
        for log, offset in batch.starts.items():
            # A cut that began meanwhile has lowered the claim again.
            if self._claims.take_start(log.topic_partition, offset) and failure is None and not log.closed:
                log.front.started_at(offset)
        for told in batch.told:
            told(failure)
        if not isinstance(failure, DiskFull) and not self._next.is_empty:
            self._ask()  # where the directory is out of use by now, what waits is told so


def _nothing() -> None:
    """Only its report counts."""
