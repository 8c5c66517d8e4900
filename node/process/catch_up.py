"""Whether a node that was started has caught up: its replicas have been in sync once since.

A rolling update takes the next pod when this one is ready, and two pods whose replicas are not in sync stop writes.
That the node is registered and unfenced does not say it: its replicas leave the in-sync sets when it stops, and join
them when they have fetched what they missed.

Invariants:
  1. Once caught up, it stays so until the process ends. A node whose replicas fall behind later still serves clients,
     and under a load that slows all nodes none of them may leave the service where clients begin.
  2. Not all nodes of a cluster wait: `awaited_replicas`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from replication.controller.explain import awaited_replicas, some_of
from replication.controller.image import ClusterImage
from tidelog.clock import Clock
from tidelog.types import NodeId

_log = logging.getLogger("node.lifecycle")

LOOK_MS: Final = 500
"""Interval of looking for replicas that are not in sync: each look passes all partitions of the cluster."""


async def wait_until_caught_up(
    node_id: NodeId, image: Callable[[], ClusterImage], is_ready: Callable[[], bool], clock: Clock
) -> None:
    """Return once the replicas of this node are in sync, or are not to be waited for. image: the newest one. is_ready:
    whether the node is in service; a node that is not has caught up with nothing."""
    is_logged = False
    while True:
        if is_ready():
            awaited = awaited_replicas(image(), node_id)
            if not awaited:
                break
            if not is_logged:
                is_logged = True
                names = some_of(awaited)
                _log.info("node %d catches up: %d replicas are not in sync yet: %s", node_id, len(awaited), names)
        await clock.sleep_ms(LOOK_MS)
    _log.info("node %d has caught up: it waits for no replica", node_id)
