"""The fetchers of one node: one for each node that leads a partition followed here.

Not here: the stream of a fetcher (replica_fetcher.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from node.replicas.replica_fetcher import ReplicaFetcher
from tidelog.types import Millis, NodeId


class LeaderFetchers:
    """The fetchers by leader. Creates one when the first replica follows that leader, and runs their tasks."""

    def __init__(self, create: Callable[[NodeId], ReplicaFetcher]) -> None:
        self._create = create
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def of(self, leader: NodeId) -> ReplicaFetcher:
        """The fetcher of this leader, created if there is none."""
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._create(leader)
            if self._tasks is not None:
                self._tasks.create_task(fetcher.run())
        return fetcher

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run all fetchers in this group, also those that are created later."""
        self._tasks = tasks
        for fetcher in self._fetchers.values():
            tasks.create_task(fetcher.run())

    def stop(self) -> None:
        """End the tasks."""
        self._tasks = None
        for fetcher in self._fetchers.values():
            fetcher.stop()

    def tick(self, ticks: int) -> None:
        """Report to each fetcher that this number of ticks has passed."""
        for fetcher in self._fetchers.values():
            fetcher.tick(ticks)

    def due_times(self, now: Millis) -> list[Millis]:
        """The times at which the fetchers need their next ticks."""
        return [fetcher.due(now) for fetcher in self._fetchers.values()]
