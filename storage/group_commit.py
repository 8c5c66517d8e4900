"""Many appends, one fsync: the flushes of one data folder, round after round.

Kept true: at most one round is under way; all that is asked for meanwhile is taken by the next one. A round takes what
its logs have when it begins, so an append that asked before is covered by it.
Left to others: what a flush is (log.py), where it runs (the Executor), what a failure means (the data folder).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from storage.executor import Executor
from storage.flush import FlushTicket
from storage.log import Log
from tidelog.errors import TidelogError


class GroupCommit:
    """The queue of logs that wait to be made durable.

    on_held: called for each log whose flush has ended, when `held` and `recovery_point` have moved. on_failure: a flush
    failed; the folder has been told first.
    """

    def __init__(
        self, executor: Executor, on_held: Callable[[Log], None], on_failure: Callable[[BaseException], None]
    ) -> None:
        self.rounds = 0
        """Rounds begun."""
        self._executor = executor
        self._on_held = on_held
        self._on_failure = on_failure
        self._wanted: dict[Log, None] = {}
        self._running = False

    def request(self, log: Log) -> None:
        """The log has something to sync; `on_held` follows. Cheap to call for every append."""
        self._wanted[log] = None
        if not self._running:
            self._begin()

    def forget(self, log: Log) -> None:
        """The log is closed or deleted: a round that has not begun leaves it out."""
        self._wanted.pop(log, None)

    def _begin(self) -> None:
        wanted, self._wanted = self._wanted, {}
        round_ = []
        for log in wanted:
            try:
                ticket = log.begin_flush()
            except TidelogError as error:
                self._on_failure(error)
                continue
            if ticket is not None:
                round_.append((log, ticket))
        if not round_:
            return
        self._running = True
        self.rounds += 1
        self._executor.submit(lambda: _run([ticket for _, ticket in round_]), lambda result: self._end(round_, result))

    def _end(self, round_: list[tuple[Log, FlushTicket]], result: list[OSError | None] | BaseException) -> None:
        self._running = False
        errors: Iterable[BaseException | None] = [result] * len(round_) if isinstance(result, BaseException) else result
        held = []
        for (log, ticket), error in zip(round_, errors, strict=True):
            if error is None:
                log.finish_flush(ticket)
                held.append(log)
                continue
            log.abandon_flush(ticket)
            if log.closed:
                continue  # deleted meanwhile: its names are gone
            self._on_failure(log.folder.fail(f"flushing {log.path}", error) if isinstance(error, OSError) else error)
        for log in held:
            self._on_held(log)
        if self._wanted and not self._running:
            self._begin()


def _run(tickets: list[FlushTicket]) -> list[OSError | None]:
    """Run the tickets of a round. After a failure the rest is not tried: their folder goes offline, or is full."""
    outcomes: list[OSError | None] = []
    failed: OSError | None = None
    for ticket in tickets:
        if failed is None:
            try:
                ticket.run()
            except OSError as error:
                failed = error
        outcomes.append(failed)
    return outcomes
