"""Removal of the lost records from a damaged log, so that the rest can be used again.

Not here: which records can be read, and the files that hold them (salvage.py); the decision (the controller).
"""

from __future__ import annotations

from collections.abc import Callable

from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from tidelog.errors import TidelogError
from tidelog.types import PartitionKey


def remove_lost_records(directory: LogDirectory, log: Log, done: Callable[[Log, str | TidelogError], None]) -> None:
    """Continue a damaged log with its readable records. A copy of the log is kept first. Reading and writing run in the
    background; the log is closed meanwhile. `done` receives the reopened log and the path of the copy, or the closed
    log and the error. After an error the call may be repeated."""
    tp, salvage = log.topic_partition, directory.salvage(log)
    key, copy = PartitionKey(log.topic_id, tp.partition), directory.name_aside(tp)
    directory.commit.forget(log)
    log.release()
    directory.logs.pop(tp, None)
    directory.in_salvage.add(tp)

    def prepared(result: object) -> None:
        if isinstance(result, OSError):
            ended(result)
            return
        try:
            make_durable = directory.claims.salvaged(tp, key, salvage.end)
        except OSError as error:
            ended(error)
            return
        reopen = directory.opening(tp, log.topic_id, log.config)

        def replace() -> Log:
            make_durable()
            salvage.replace()
            return reopen()

        directory.background.submit(replace, ended)

    def ended(result: object) -> None:
        if isinstance(result, OSError):
            done(log, directory.fail(f"removing the lost records from {log.path}", result))
        elif isinstance(result, TidelogError):
            done(log, result)
        elif isinstance(result, BaseException):
            raise result
        else:
            assert isinstance(result, Log)
            directory.opened(result)
            directory.in_salvage.discard(tp)
            if log.config is not result.config:
                result.reconfigure(log.config)  # the topic's settings changed meanwhile
            done(result, copy)

    def begin(_: object) -> None:
        directory.background.submit(lambda: salvage.prepare(copy), prepared)

    directory.executor.submit(lambda: None, begin)  # after the renames of retention that are queued there
