"""Giving up what a damaged log has lost, so that the rest of it can be used again.

Left to others: which records can be read, and the files that hold them (salvage.py); who decides it (the controller).
"""

from __future__ import annotations

from collections.abc import Callable

from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from tidelog.errors import TidelogError
from tidelog.types import PartitionKey


def give_up_lost(directory: LogDirectory, log: Log, done: Callable[[Log, str | TidelogError], None]) -> None:
    """Let a damaged log go on with what can be read of it. All that it had is kept aside first; what is read and
    written runs in the background, the log is closed meanwhile. `done` is told the log as it is opened again and
    where the copy lies, or the log, closed, and why nothing was given up: that may be tried again."""
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
            done(log, directory.fail(f"giving up what {log.path} lost", result))
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

    def quiet(_: object) -> None:
        directory.background.submit(lambda: salvage.prepare(copy), prepared)

    directory.executor.submit(lambda: None, quiet)  # behind what retention took out and is being renamed there
