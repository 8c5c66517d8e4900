"""Logs of one log directory that are deleted, set aside, or get a new log start: in batches, on the directory's
executor.

    one batch    lowers the recorded offsets of all its logs, durably: one sync of the marks, one write of each
                 checkpoint that changes
                 then renames the directories, with one sync before any file in them is removed
                 then moves the log starts in memory, on the owner's thread

Changes that arrive during a batch go into the next one, so that deleting 1,000 logs of one metadata image takes a few
batches instead of 1,000 times their fsyncs. A batch begins after the executor has been free once.

Invariants:
  1. A partition directory is renamed only when no checkpoint or mark records anything about its log, unless another log
     directory has the log now.
  2. A log start rises in memory only after it is durable. A truncation that begins meanwhile takes precedence.
  3. Changes that a full disk rejected are repeated by `retry`. Any other error takes the log directory offline.
  4. After a crash a log that was being deleted is either whole or gone: its files are removed only after its new name
     is durable.
  5. Work submitted to the executor after `hand_over` runs after all earlier deletions were renamed. `ensure_free`
     raises for those that were not.
Not here: which logs (node/), removing the files of a deleted log (log_directory.py), the recorded offsets
(directory_claims.py).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from storage.files.disk_executor import Executor
from storage.files.file_system import Files, is_full
from storage.log.directory_claims import DirectoryClaims, in_order
from storage.log.log import Log
from tidelog.errors import DiskFull, TidelogError
from tidelog.types import Offset, PartitionKey, TopicPartition

RETIRED_AT_ONCE: Final = 250
"""Logs in one batch. Each has a mark, which the owner's thread writes into the page cache."""

Started = Callable[[TidelogError | None], None]
"""Called with None when the log starts at the new offset, or with the error."""


@dataclass(frozen=True, slots=True)
class Retired:
    """A closed log to delete or set aside. aside: keep the files in its directory under the new name."""

    tp: TopicPartition
    key: PartitionKey
    path: str
    new_path: str
    aside: bool
    keep_mark: Callable[[], None] | None = None
    """Of a log that another log directory has now: makes its mark here durable (DirectoryClaims.leaving)."""
    renamed: Callable[[], None] | None = None
    """Called once the directory has its new name, durably."""


@dataclass(slots=True)
class _Batch:
    retired: list[Retired] = field(default_factory=list)
    starts: dict[Log, Offset] = field(default_factory=dict)
    first: list[Callable[[], None]] = field(default_factory=list)
    callbacks: list[Started] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not self.retired and not self.starts


class DirectoryChanges:
    """The pending changes of one log directory. For the owner's thread."""

    def __init__(
        self,
        files: Files,
        path: str,
        claims: DirectoryClaims,
        executor: Executor,
        *,
        ensure_online: Callable[[], None],
        fail: Callable[[str, OSError], TidelogError],
        on_renamed: Callable[[Retired], None],
    ) -> None:
        """path: of the log directory; ensure_online, fail: its methods. on_renamed: a log has its new path, durably."""
        self._files, self._path, self._claims, self._executor = files, path, claims, executor
        self._ensure_online, self._fail = ensure_online, fail
        self._on_renamed = on_renamed
        self._next = _Batch()
        self._waits = False
        """True while a request for a free executor is pending."""
        self._running = 0
        self._named: set[str] = set()
        """Paths of retired logs that have not been renamed yet."""
        self.batches = 0
        """Batches begun."""

    @property
    def busy(self) -> bool:
        """True if a change is in progress or pending."""
        return self._running > 0 or self._waits

    def retire(self, log: Retired) -> None:
        """Rename the directory of a closed log."""
        self._named.add(log.path)
        self._next.retired.append(log)
        self._request_turn()

    def ensure_free(self, path: str) -> None:
        """Raises OSError if a retired log still has this path, because a full disk rejected the rename. The next
        attempt would rename a new log in its place. On the executor, after `hand_over`."""
        if path in self._named:
            raise OSError(errno.ENOSPC, "the previous log at this path has not been renamed yet", path)

    def move_start(
        self, log: Log, offset: Offset, callback: Started | None = None, *, first: Callable[[], None] | None = None
    ) -> None:
        """Move a log start up to `offset`, which is not above the high watermark. Does nothing at or below the log
        start. first: runs on the executor before the new start is recorded; raises OSError."""
        batch = self._next
        if callback is not None:
            batch.callbacks.append(callback)
        if first is not None:
            batch.first.append(first)
        batch.starts[log] = max(offset, batch.starts.get(log, offset))
        self._request_turn()

    def retry(self) -> None:
        """Repeat the changes that a full disk rejected."""
        if not self._next.is_empty:
            self._request_turn()

    def _request_turn(self) -> None:
        if not self._waits and not self._running:
            self._waits = True
            self._executor.submit(lambda: None, self._free)

    def _free(self, _: object) -> None:
        self._waits = False
        if not self._next.is_empty:
            self._hand_over_some()

    def hand_over(self) -> None:
        """Submit all pending changes to the executor now, unless a full disk rejects them."""
        while not self._next.is_empty and self._hand_over_some():
            continue

    def _hand_over_some(self) -> bool:
        """Submit one batch. Returns False if it was rejected."""
        batch, self._next = self._next, _Batch()
        self._next.retired = batch.retired[RETIRED_AT_ONCE:]
        del batch.retired[RETIRED_AT_ONCE:]
        try:
            self._ensure_online()
            write = self._prepare(batch)
        except OSError as error:
            self._keep_for_retry(batch, error)
            _reject(batch, self._fail(f"changing logs of {self._path}", error))
            return False
        except TidelogError as error:
            _reject(batch, error)
            return False
        self.batches += 1
        self._running += 1
        self._executor.submit(lambda: self._run(batch, write), lambda result: self._done(batch, result))
        return True

    def _keep_for_retry(self, batch: _Batch, error: OSError) -> None:
        if is_full(error):
            self._next.retired[:0] = batch.retired

    def _prepare(self, batch: _Batch) -> Callable[[], None]:
        for log, offset in list(batch.starts.items()):
            if log.closed or log.truncation is not None or log.sealed or offset <= log.log_start_offset:
                del batch.starts[log]
        claims = self._claims
        deleted = [(each.tp, each.key) for each in batch.retired if not each.aside and each.keep_mark is None]
        drop = claims.forgetting(deleted, [each.key for each in batch.retired if each.aside])
        start = claims.starting_all({log.topic_partition: offset for log, offset in batch.starts.items()})
        return in_order(drop, start, *(each.keep_mark for each in batch.retired if each.keep_mark is not None))

    def _run(self, batch: _Batch, write: Callable[[], None]) -> None:
        """Run a batch. On the executor."""
        for first in batch.first:
            first()
        write()
        for each in batch.retired:
            if self._files.is_directory(each.path):  # else an earlier attempt renamed it
                self._files.rename(each.path, each.new_path)
        if batch.retired:
            self._files.sync_directory(self._path)
            self._named.difference_update(each.path for each in batch.retired)

    def _done(self, batch: _Batch, result: BaseException | None) -> None:
        self._running -= 1
        failure: TidelogError | None = None
        if isinstance(result, OSError):
            failure = self._fail(f"changing logs of {self._path}", result)
            self._keep_for_retry(batch, result)
        elif isinstance(result, BaseException):
            raise result
        else:
            for each in batch.retired:
                self._on_renamed(each)
                if each.renamed is not None:
                    each.renamed()
        for log, offset in batch.starts.items():
            # A truncation that began meanwhile has lowered the recorded start again.
            if self._claims.take_start(log.topic_partition, offset) and failure is None and not log.closed:
                log.started_at(offset)
        for callback in batch.callbacks:
            callback(failure)
        if not isinstance(failure, DiskFull) and not self._next.is_empty:
            self._request_turn()  # if the directory is offline by now, this reports it to the pending changes


def _reject(batch: _Batch, error: TidelogError) -> None:
    for callback in batch.callbacks:
        callback(error)
