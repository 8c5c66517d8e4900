"""An executor that records whether its work is running."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.storage.workbench import Deferred

T = TypeVar("T")


class Elsewhere(Deferred):
    """A Deferred that records whether its work is running."""

    def __init__(self) -> None:
        super().__init__()
        self.at_work = False

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        def run() -> T:
            self.at_work = True
            try:
                return work()
            finally:
                self.at_work = False

        super().submit(run, done)
