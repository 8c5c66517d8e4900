"""What is done to all logs of a node from time to time: checkpoints, `flush.ms`, the reserve.

Kept true: each kind of work has its own interval, and a late tick does it once; trouble with one log or folder does not
keep the others waiting.
Left to others: calling `tick` (node/log_care.py), the work itself (log.py, data_folder.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from storage.data_folder import DataFolder
from storage.log_manager import LogManager
from storage.upkeep_config import UpkeepConfig
from tidelog.errors import TidelogError
from tidelog.types import Millis


@dataclass(slots=True)
class _Job:
    """Some work and when it is due again (monotonic milliseconds)."""

    work: Callable[[], None]
    every_ms: int
    due: Millis


class Upkeep:
    """The periodic work over all data folders. All on the owner's thread."""

    def __init__(
        self,
        logs: LogManager,
        config: UpkeepConfig,
        now: Millis,
        *,
        on_trouble: Callable[[TidelogError], None],
        on_room: Callable[[DataFolder], None],
    ) -> None:
        """now: monotonic milliseconds. on_trouble: told what failed; a broken disk has taken its folder offline by
        then, the other errors pass. on_room: a folder has fallen below its reserve, or is above it again."""
        self._logs = logs
        self._on_trouble, self._on_room = on_trouble, on_room
        self._low: set[DataFolder] = set()
        self._jobs = [
            _Job(self._look_for_room_and_flushes, config.flush_check_ms, now),
            _Job(self._write_checkpoints, config.checkpoint_ms, Millis(now + config.checkpoint_ms)),
        ]

    def tick(self, now: Millis) -> None:
        """Do what is due. now: monotonic milliseconds."""
        for job in self._jobs:
            if now >= job.due:
                job.due = Millis(now + job.every_ms)
                job.work()

    def _look_for_room_and_flushes(self) -> None:
        for folder in self._logs.working:
            self._try(folder.look_for_room)
            if folder.reserve.low != (folder in self._low):
                self._low ^= {folder}
                self._on_room(folder)
            folder.request_flushes()

    def _write_checkpoints(self) -> None:
        for folder in self._logs.working:
            folder.write_checkpoints()

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except TidelogError as error:
            self._on_trouble(error)
