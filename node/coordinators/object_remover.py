"""Removes the objects of remote segments that are being deleted, for the coordinators of this node.

Invariants:
  1. An object is removed only by the coordinator of its segment, and only after the deletion is committed.
  2. A removal is repeated until it succeeds or its coordinator is dropped; the next one asks for it again. Objects that
     are gone count as removed.
Not here: which segments are deleted (replication/coordination/tiering/).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from node.runtime.work import run_in
from replication.coordination.remote_log_requests import ObjectsRemoved, RemoveObjects
from storage.files.disk_executor import Executor
from tidelog.clock import Clock
from tidelog.errors import InvalidConfig, TidelogError
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.segment_manifest import manifest_key, segment_key
from tidelog.types import PartitionIndex, PartitionKey
from tidelog.values import dataclass

_log = logging.getLogger("node.tiering")

PAUSE_MS_MIN: Final = 1_000
PAUSE_MS_MAX: Final = 60_000
"""Pauses after an error of the store, doubled each time."""


@dataclass(frozen=True, slots=True)
class StoreCalls:
    """The object store, and the threads on which it is called."""

    store: ObjectStore
    executor: Executor


@dataclass(frozen=True, slots=True)
class _Removal:
    """Removals of one effect. load: which load of its coordinator asked for it."""

    partition: PartitionIndex
    load: int
    effect: RemoveObjects


class ObjectRemover:
    """One removal after the other: a store has better things to do, and nobody waits for it."""

    def __init__(
        self,
        calls: StoreCalls | None,
        *,
        clock: Clock,
        report: Callable[[PartitionIndex, ObjectsRemoved], object],
    ) -> None:
        """calls: None without a store; then nothing is removed. report: tells the coordinator of a partition of
        `__remote_log_metadata`."""
        self._calls, self._clock, self._report = calls, clock, report
        self._waiting: asyncio.Queue[_Removal] = asyncio.Queue()
        self._loads: dict[PartitionIndex, int] = {}

    def begin(self, partition: PartitionIndex, effect: object) -> None:
        """Remove the objects of an effect of the coordinator of this partition."""
        assert isinstance(effect, RemoveObjects), f"coordinators of remote segments have no effect {effect}"
        self._waiting.put_nowait(_Removal(partition, self._loads.get(partition, 0), effect))

    def unloaded(self, partition: PartitionIndex) -> None:
        """The coordinator was dropped: what it has asked for is given up."""
        self._loads[partition] = self._loads.get(partition, 0) + 1

    async def run(self) -> None:
        """Remove until cancelled."""
        while True:
            removal = await self._waiting.get()
            pause_ms = PAUSE_MS_MIN
            while self._is_wanted(removal) and not await self._removed(removal.effect):
                await self._clock.sleep_ms(pause_ms)
                pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)
            if self._is_wanted(removal):
                first = removal.effect.segments[0]
                ids = tuple(each.segment_id for each in removal.effect.segments)
                key = PartitionKey(first.topic_id, first.partition)
                self._report(removal.partition, ObjectsRemoved(key, ids))

    def _is_wanted(self, removal: _Removal) -> bool:
        return self._loads.get(removal.partition, 0) == removal.load

    async def _removed(self, effect: RemoveObjects) -> bool:
        try:
            calls = self._calls
            if calls is None:
                raise InvalidConfig("this node has no remote.log.storage.url: set it as on the other nodes")
            await run_in(calls.executor, lambda: _remove(calls.store, effect))
        except TidelogError as error:
            _log.warning(
                "%d remote segments of topic %s stay in the object store for now: %s",
                len(effect.segments),
                effect.topic,
                error.message,
            )
            return False
        return True


def _remove(store: ObjectStore, effect: RemoveObjects) -> None:
    for segment in effect.segments:
        # The object last: while it is there the sweep finds it, whatever becomes of its manifest.
        store.delete(manifest_key(effect.topic, segment))
        store.delete(segment_key(effect.topic, segment))
