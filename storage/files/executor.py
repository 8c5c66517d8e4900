"""Where work that may wait for a disk is done: handed in by the constructor, so that the log itself knows no
threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """Runs work somewhere else and reports back on the owner's thread. With one worker: one piece at a time and in
    order; with several: as many side by side."""

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work`, then `done` with its result or its exception, on the thread that owns the logs. Never runs `done`
        of two pieces at once."""
        ...


class InlineExecutor:
    """Does the work at once, on the caller's thread: for tools and tests."""

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` and `done` before returning."""
        result: T | BaseException
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - whatever the work raises is its result
            result = error
        done(result)
