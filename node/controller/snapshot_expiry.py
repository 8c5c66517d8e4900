"""Removes topic snapshots that have expired, while this node's controller is the active one.

Not here: what a snapshot keeps (replication/controller/pinned_topics.py).
"""

from __future__ import annotations

import logging
from typing import Final

from node.controller.controller_driver import ControllerDriver
from replication.controller import snapshot_events
from replication.controller.pinned_topics import expired
from tidelog.clock import Clock
from tidelog.errors import TidelogError

_log = logging.getLogger("node.controller")

REVIEW_MS: Final = 1_000


async def remove_expired_snapshots(controller: ControllerDriver, clock: Clock) -> None:
    """Review the snapshots every second, by the wall clock of this node, until cancelled."""
    while True:
        await clock.sleep_ms(REVIEW_MS)
        if not controller.active:
            continue
        for removal in expired(controller.image, clock.wall_ms()):
            try:
                await controller.ask(removal, snapshot_events.TopicSnapshotChanged)
            except TidelogError as error:
                _log.info("the expired snapshot %s is not removed yet: %s", removal.name, error.message)
            else:
                _log.info("snapshot %s has expired: its topics keep no records for it any more", removal.name)
