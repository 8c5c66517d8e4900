"""Looks after the logs of a node while it lives: calls storage's upkeep, and says what goes wrong.

Left to others: what is done and when (storage/upkeep.py).
"""

from __future__ import annotations

import logging
from typing import Final

from node.clock import Clock
from storage.data_folder import DataFolder
from storage.log_manager import LogManager
from storage.upkeep import Upkeep
from storage.upkeep_config import UpkeepConfig
from tidelog.errors import TidelogError

_log = logging.getLogger("node.care")

TICK_MS: Final = 500
"""How exact the intervals are."""


class LogCare:
    """See the module's words."""

    def __init__(self, logs: LogManager, config: UpkeepConfig, *, clock: Clock) -> None:
        self._clock = clock
        self._upkeep = Upkeep(logs, config, clock.monotonic_ms(), on_trouble=_say, on_room=_say_room)

    async def run(self) -> None:
        """Look after the logs until cancelled."""
        while True:
            self._upkeep.tick(self._clock.monotonic_ms())
            await self._clock.sleep_ms(TICK_MS)


def _say_room(folder: DataFolder) -> None:
    reserve = folder.reserve
    if reserve.low:
        _log.error(
            "the disk of %s is full but for its reserve: appends are refused, reads and deletions go on",
            folder.path,
            extra={"free": reserve.free, "reserve": reserve.wanted, "enough": reserve.enough},
        )
    else:
        _log.info("the disk of %s has room again: appends go on", folder.path, extra={"free": reserve.free})


def _say(error: TidelogError) -> None:
    _log.warning("%s", error.message)
