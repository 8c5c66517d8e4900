"""An executor that runs its work when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidelog.types import LeaderEpoch

T = TypeVar("T")


class Later:
    """An executor that works when the test lets it."""

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        def run() -> None:
            try:
                result: T | BaseException = work()
            except Exception as error:  # noqa: BLE001 - as a thread pool does
                result = error
            done(result)

        self.work.append(run)

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


EPOCH = LeaderEpoch(1)
