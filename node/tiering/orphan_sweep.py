"""Looks for objects without a segment now and then, and removes them: an upload that ended late, after its segment was
deleted, leaves one.

    list all objects -> ask their coordinators -> if all have answered, and the share is small: remove, a few at a time

Invariants:
  1. An object is removed only if its coordinator, asked after the object was listed, does not know its segment.
  2. An object is looked at only if its key names a topic of this cluster by id: others may be of another cluster that
     uses the same folder. Those are counted and stay.
  3. An object that was written lately stays, whatever the coordinator says.
  4. An object is removed only if a finished segment has the offset at which it starts, or the log starts behind that.
     Any other one may be all that is left of its records: its segment's record was lost, and the coordinator knows
     nothing of it, if an older copy of `__remote_log_metadata` was restored.
  5. If most objects of a partition seem to be orphans, and they are more than a few, none of them is removed: more
     likely its coordinator has lost its records, and the objects are all that is left.
Not here: what a coordinator knows (replication/coordination/tiering/), removal of known segments (object_remover.py).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from itertools import islice
from typing import Final

from node.coordinators.object_remover import StoreCalls
from node.runtime.work import run_in
from node.tiering.remote_log_client import RemoteLogClient
from replication.controller.image import ClusterImage
from replication.coordination.remote_log_requests import RemoteObject
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.tiering.object_store import StoredObject
from tidelog.tiering.segment_manifest import parse_key
from tidelog.types import PartitionKey
from tidelog.values import dataclass

_log = logging.getLogger("node.tiering")

PAGE: Final = 500
"""Objects listed, asked for or removed at a time."""

PAGE_PAUSE_MS: Final = 200
"""Pause behind each page: at most 2,500 objects a second."""

RETRY_MS: Final = 3_600_000
"""After a sweep that failed, if the next one is not due before."""

FEW: Final = 4
"""So many orphans of a partition are removed whatever their share is: two late uploads."""

IDLE_MS: Final = 60_000
"""How often a node that does not sweep looks whether it should."""


@dataclass(slots=True)
class SweptPartition:
    """The objects of one partition. known: of segments, and those that are too young to be judged."""

    known: int = 0
    orphans: list[str] = field(default_factory=list)
    """Their keys."""
    needed: list[str] = field(default_factory=list)
    """Keys of those without a segment that may be all that is left of their offsets."""

    @property
    def is_credible(self) -> bool:
        """False if the coordinator may have lost its records."""
        return len(self.orphans) <= max(FEW, self.known)


@dataclass(slots=True)
class SweptObjects:
    """What a sweep has found."""

    listed: int = 0
    foreign: int = 0
    """Objects that are of no topic of this cluster."""
    partitions: dict[PartitionKey, SweptPartition] = field(default_factory=dict)

    @property
    def orphans(self) -> list[str]:
        """The keys to remove."""
        return [key for each in self.partitions.values() if each.is_credible for key in each.orphans]

    @property
    def doubtful(self) -> list[str]:
        """The keys of objects whose coordinator may have lost its records."""
        partitions = self.partitions.values()
        return [key for each in partitions for key in (*each.needed, *(() if each.is_credible else each.orphans))]


class OrphanSweep:
    """The sweeps of one node. `last`: the result of the last one; `removed`: by all of them."""

    def __init__(
        self,
        client: RemoteLogClient,
        calls: StoreCalls,
        *,
        clock: Clock,
        rng: random.Random,
        image: Callable[[], ClusterImage],
    ) -> None:
        self._client, self._calls, self._clock, self._rng, self._image = client, calls, clock, rng, image
        self.last = SweptObjects()
        self.removed = 0

    async def run(self) -> None:
        """Sweep until cancelled, on the node whose turn it is."""
        interval = self._client.config.sweep_ms
        if interval < 0:
            return
        pause = self._rng.randrange(interval + 1)  # not all clusters that share a store at once
        while True:
            await self._clock.sleep_ms(pause)
            pause = min(IDLE_MS, interval)
            if not self._client.sweeps_here:
                continue
            pause = interval // 2 + self._rng.randrange(interval // 2 + 1)
            try:
                await self.sweep()
            except TidelogError as error:
                pause = min(pause, RETRY_MS)
                _log.warning("a sweep of the object store ended early: %s", error.message)

    async def sweep(self) -> SweptObjects:
        """Look for orphans, and remove them. Raises what the store and the coordinators do."""
        calls, found = self._calls, SweptObjects()
        listing = await run_in(calls.executor, partial(calls.store.list, ""))
        while page := await run_in(calls.executor, lambda: list(islice(listing, PAGE))):
            await self._judge(page, found)
            await self._clock.sleep_ms(PAGE_PAUSE_MS)
        self.last = found
        await self._remove(found.orphans)
        if doubtful := found.doubtful:
            _log.error(
                "%d objects in %s have no segment and were not removed, because no segment has their offsets, or they "
                "are most of their partitions: records of __remote_log_metadata may be lost; restore them, or remove "
                "the objects by hand; the first is %s",
                len(doubtful),
                calls.store.url,
                doubtful[0],
            )
        if found.foreign:
            _log.info("%d objects in %s are of no topic of this cluster: they stay", found.foreign, calls.store.url)
        return found

    async def _judge(self, page: list[StoredObject], found: SweptObjects) -> None:
        oldest, topics = self._clock.wall_ms() - self._client.config.orphan_age_ms, self._image().topics
        objects: dict[RemoteObject, list[str]] = {}
        found.listed += len(page)
        for each in page:
            name = parse_key(each.key)
            if name is None or name.topic_id not in topics:
                found.foreign += 1
                continue
            asked = RemoteObject(PartitionKey(name.topic_id, name.partition), name.segment_id, name.start_offset)
            if each.modified_ms > oldest:
                found.partitions.setdefault(asked.key, SweptPartition()).known += 1
            else:
                objects.setdefault(asked, []).append(each.key)
        answer = await self._client.orphans(objects)
        orphans, doubtful = frozenset(answer.objects), frozenset(answer.doubtful)
        for asked, keys in objects.items():
            swept = found.partitions.setdefault(asked.key, SweptPartition())
            if asked in orphans:
                swept.orphans += keys
            elif asked in doubtful:
                swept.needed += keys
            else:
                swept.known += len(keys)

    async def _remove(self, keys: Sequence[str]) -> None:
        store = self._calls.store
        for number, key in enumerate(keys, 1):
            await run_in(self._calls.executor, partial(store.delete, key))
            self.removed += 1
            _log.info("removed %s from %s: no segment has this object", key, store.url)
            if number % PAGE == 0:
                await self._clock.sleep_ms(PAGE_PAUSE_MS)
