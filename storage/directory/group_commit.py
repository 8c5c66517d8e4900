"""Group commit: many appends, one fsync. Runs the flushes of one log directory, of several logs in parallel, and the
truncations of its logs, which need an fsync too.

Invariants: at most one flush of a log is in progress; its next flush covers all appends since. A flush covers what the
log contains when it begins, so it covers every append that requested it before. At most `at_once` flushes are in
progress; the others wait in the order of their requests. A truncation is a barrier: it does not wait for the flush in
progress, whose ticket counts only up to the new end, but no other flush of that log begins before the truncation ended.
Flushes run in parallel because a file system commits its journal once for all that wait: six logs together cost a disk
little more than one log, and one after the other six times as much (docs/performance.md).
Not here: the flush itself (log.py), where it runs (the Executor), how a failure is handled (log_directory.py).
"""

from __future__ import annotations

from collections.abc import Callable

from storage.files.disk_executor import Executor
from storage.log.flush import FlushTicket
from storage.log.log import Log
from storage.log.truncation_ticket import TruncationTicket
from tidelog.errors import TidelogError


class GroupCommit:
    """The queue of logs to flush.

    executor: should have at least `at_once` workers. on_durable: called for each log after its flush, when
    `durable_offset` and `recovery_point` have moved. on_failure: called after a flush failed and the directory has
    handled the error. A full disk needs no more: the next append requests another flush.
    """

    def __init__(
        self,
        executor: Executor,
        on_durable: Callable[[Log], None],
        on_failure: Callable[[TidelogError], None] = lambda _: None,
        *,
        at_once: int = 1,
    ) -> None:
        assert at_once > 0, "a flush must be able to begin"
        self.flushes = 0
        """Flushes begun."""
        self._executor = executor
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._at_once = at_once
        self._requested: dict[Log, None] = {}
        self._flushing: dict[Log, None] = {}
        self._truncations = 0

    @property
    def busy(self) -> bool:
        """True if a flush or a truncation is in progress."""
        return bool(self._flushing) or self._truncations > 0

    def request(self, log: Log) -> None:
        """Request a flush of the log; `on_durable` follows. Cheap enough for every append."""
        self._requested[log] = None
        if len(self._flushing) < self._at_once and self._may_begin(log):
            self._begin()

    def _may_begin(self, log: Log) -> bool:
        return log not in self._flushing and log.truncation is None

    def forget(self, log: Log) -> None:
        """The log is closed or deleted: drop its pending request. A flush in progress no longer counts."""
        self._requested.pop(log, None)

    def _begin(self) -> None:
        while self._requested and len(self._flushing) < self._at_once:
            log = next((log for log in self._requested if self._may_begin(log)), None)
            if log is None:
                return
            del self._requested[log]
            try:
                ticket = log.begin_flush()
            except TidelogError as error:
                self._on_failure(error)
                continue
            if ticket is not None:
                self._submit(log, ticket)

    def _submit(self, log: Log, ticket: FlushTicket) -> None:
        self.flushes += 1
        self._flushing[log] = None
        self._executor.submit(ticket.run, lambda result: self._end(log, ticket, result))

    def _end(self, log: Log, ticket: FlushTicket, result: BaseException | None) -> None:
        del self._flushing[log]
        if result is None and log.directory.offline is None:
            log.finish_flush(ticket)
            self._on_durable(log)
        else:
            log.abandon_flush(ticket)
            if result is not None and not log.closed:  # the directory of a deleted log can no longer be synced
                if not isinstance(result, OSError):
                    raise result
                self._on_failure(log.directory.fail(f"flushing {log.path}", result))
        if self._requested:
            self._begin()

    def truncate(self, log: Log, ticket: TruncationTicket, done: Callable[[TidelogError | None], None]) -> None:
        """Run a truncation that `log` began. `done` gets None, or the error that the directory has handled."""
        self._truncations += 1
        self._run(log, ticket, done)

    def _run(self, log: Log, ticket: TruncationTicket, done: Callable[[TidelogError | None], None]) -> None:
        self._executor.submit(ticket.run, lambda result: self._truncation_ran(log, ticket, done, result))

    def _truncation_ran(
        self,
        log: Log,
        ticket: TruncationTicket,
        done: Callable[[TidelogError | None], None],
        result: BaseException | None,
    ) -> None:
        failure: TidelogError | None = None
        try:
            if not log.truncation_ran(ticket, result):
                self._run(log, ticket, done)
                return
        except TidelogError as error:
            failure = error
        self._truncations -= 1
        done(failure)
        if self._requested:
            self._begin()
