"""Many appends, one fsync: the flushes of one log directory, several logs side by side, round after round for each; and
the cuts of its logs, which need an fsync too.

Kept true: of one log at most one flush is under way; all that is appended meanwhile is taken by its next one. A flush
takes what the log has when it begins, so an append that asked before is covered by it. At most `at_once` flushes are
under way, the others wait in the order in which they asked. A cut is a barrier: it does not wait for the flush under
way, whose ticket counts only up to the cut, but no other one of that log begins before it has ended.
Side by side, because a file system writes its journal once for all that wait for it then: six logs together cost a
disk little more than one, one after the other six times as much (docs/performance.md).
Left to others: what a flush is (log.py), where it runs (the Executor), what a failure means (the log directory).
"""

from __future__ import annotations

from collections.abc import Callable

from storage.files.executor import Executor
from storage.log.flush import FlushTicket
from storage.log.log import Log
from storage.log.log_truncation import TruncationTicket
from tidelog.errors import TidelogError


class GroupCommit:
    """The queue of logs that wait to be made durable.

    executor: with at least `at_once` workers, to have any use of them. on_durable: called for each log whose flush has
    ended, when `held` and `recovery_point` have moved. on_failure: a flush failed; the directory has been told first.
    """

    def __init__(
        self,
        executor: Executor,
        on_durable: Callable[[Log], None],
        on_failure: Callable[[BaseException], None],
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
        self._wanted: dict[Log, None] = {}
        self._flushing: dict[Log, None] = {}
        self._cuts = 0

    @property
    def busy(self) -> bool:
        """Is a flush or a cut under way?"""
        return bool(self._flushing) or self._cuts > 0

    def request(self, log: Log) -> None:
        """The log has something to sync; `on_durable` follows. Cheap to call for every append."""
        self._wanted[log] = None
        if len(self._flushing) < self._at_once and self._may_begin(log):
            self._begin()

    def _may_begin(self, log: Log) -> bool:
        return log not in self._flushing and log.cut is None

    def forget(self, log: Log) -> None:
        """The log is closed or deleted: a flush that has not begun is left out, one under way counts no more."""
        self._wanted.pop(log, None)

    def _begin(self) -> None:
        """Begin as many flushes as may be under way."""
        while self._wanted and len(self._flushing) < self._at_once:
            log = next((log for log in self._wanted if self._may_begin(log)), None)
            if log is None:
                return
            del self._wanted[log]
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
            if result is not None and not log.closed:  # the names of a deleted log cannot be synced any more
                self._on_failure(
                    log.directory.fail(f"flushing {log.path}", result) if isinstance(result, OSError) else result
                )
        if self._wanted:
            self._begin()

    # --- cuts -----------------------------------------------------------------------------------------------------

    def cut(self, log: Log, ticket: TruncationTicket, done: Callable[[TidelogError | None], None]) -> None:
        """Run a cut that `log` has begun. `done` follows, with why it failed; the directory has been told first."""
        self._cuts += 1
        self._run(log, ticket, done)

    def _run(self, log: Log, ticket: TruncationTicket, done: Callable[[TidelogError | None], None]) -> None:
        self._executor.submit(ticket.run, lambda result: self._cut_ran(log, ticket, done, result))

    def _cut_ran(
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
        self._cuts -= 1
        done(failure)
        if self._wanted:
            self._begin()
