"""Executor for work that may wait for the disk: a constructor argument, so that the log itself uses no threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """Runs work elsewhere and reports the result on the owner's thread. One worker runs one piece at a time, in order;
    several workers run pieces concurrently."""

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work`, then `done` with its result or its exception, on the thread that owns the logs. Two `done` calls
        never run at the same time."""


class InlineExecutor:
    """Runs the work at once on the caller's thread: for tools and tests."""

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` and `done` before returning."""
        result: T | BaseException
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - any exception of the work is its result
            result = error
        done(result)
