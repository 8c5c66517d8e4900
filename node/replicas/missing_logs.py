"""Creation of the logs that the metadata assigns to this node and that are missing: one after the other, on the
executors of their directories.

Not here: whether a log may be created, and where (log_registry.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from node.replicas.log_registry import LogRegistry
from replication.controller.image import ClusterImage, PartitionState, TopicState
from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from tidelog.types import NodeId, PartitionKey, TopicPartition


class MissingLogs:
    """The partitions whose logs are to be created."""

    def __init__(
        self,
        me: NodeId,
        registry: LogRegistry,
        *,
        image: Callable[[], ClusterImage],
        has_log: Callable[[TopicPartition], bool],
        made: Callable[[TopicState, PartitionState, LogDirectory, Log], None],
        resign: Callable[[PartitionKey], None],
    ) -> None:
        """image: returns the newest image applied. has_log: true if a log of that name is in use. made: called with a
        new log. resign: asks the controller for another leader."""
        self._me, self._registry, self._image = me, registry, image
        self._has_log, self._made, self._resign = has_log, made, resign
        self._wanted: dict[PartitionKey, None] = {}
        self._failed: dict[PartitionKey, int] = {}
        """Those of `_wanted` whose log could not be created, with the number of attempts."""
        self._stopped = False
        self._wake = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, key: PartitionKey) -> None:
        """Create the log of this partition."""
        self._wanted[key] = None
        self._wake.set()

    def is_creating(self, key: PartitionKey) -> bool:
        """True if its log will be there soon: no attempt has failed."""
        return key in self._wanted and key not in self._failed

    def discard(self, key: PartitionKey) -> None:
        """The log is not wanted any more."""
        self._wanted.pop(key, None)
        self._failed.pop(key, None)

    def clear(self) -> None:
        """No log is wanted any more."""
        self._wanted.clear()
        self._failed.clear()

    def stop(self) -> None:
        """Neither create nor use further logs."""
        self._stopped = True

    def try_again(self) -> None:
        """A reason why a log could not be created may have gone."""
        if self._wanted:
            self._wake.set()

    def review(self) -> None:
        """Try again, and ask for other leaders of the partitions whose logs could not be created twice."""
        for key, attempts in self._failed.items():
            if attempts > 1:
                self._resign(key)
        self.try_again()

    async def run(self) -> None:
        """Create logs until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for key in list(self._wanted):
                await self._create(key)

    async def _create(self, key: PartitionKey) -> None:
        attempts = self._failed.pop(key, 0)
        wanted = self._still_wanted(key)
        if wanted is None or self._has_log(TopicPartition(wanted[0].name, key.partition)):
            return  # in the second case the log of an earlier topic of this name is not deleted yet
        made = await self._registry.make(*wanted)
        if made is None:
            if key in self._wanted:
                self._failed[key] = attempts + 1
        elif (wanted := self._still_wanted(key)) is not None:
            del self._wanted[key]
            self._made(*wanted, *made)
        elif not self._stopped:
            self._registry.give_up(*made)

    def _still_wanted(self, key: PartitionKey) -> tuple[TopicState, PartitionState] | None:
        """The metadata of the partition; None if they require no log of it any more."""
        topic, state = self._image().topics.get(key.topic_id), self._image().partition(key)
        if key in self._wanted and topic is not None and state is not None and self._me in state.replicas:
            return None if self._stopped else (topic, state)
        self._wanted.pop(key, None)
        return None
