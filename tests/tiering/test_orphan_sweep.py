"""Objects without a segment: which ones a sweep of the store removes, and which ones it never does."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from node.coordinators.object_remover import StoreCalls
from node.tiering.orphan_sweep import PAGE, OrphanSweep, SweptObjects
from node.tiering_settings import TieringConfig
from replication.coordination.remote_log_requests import OrphansFound, RemoteObject
from storage.files.disk_executor import InlineExecutor
from testbed.fake_object_store import FakeObjectStore
from tidelog.errors import CoordinatorNotAvailable
from tidelog.tiering.remote_errors import ObjectStoreUnavailable
from tidelog.types import INT64_MAX, Millis, TopicId

ORDERS, ELSEWHERE = TopicId(UUID(int=1)), TopicId(UUID(int=2))
DAY = 86_400_000
NOW = 10 * DAY


def key_of(number: int, suffix: str = "segment", topic_id: TopicId = ORDERS) -> str:
    return f"orders-{topic_id}/0/{number:020d}-{UUID(int=1000 + number)}.{suffix}"


class StillClock:
    """A clock that shows one time and counts pauses."""

    def __init__(self) -> None:
        self.pauses = 0

    def wall_ms(self) -> Millis:
        return Millis(NOW)

    async def sleep_ms(self, _ms: int) -> None:
        self.pauses += 1


class Coordinators:
    """Stands for all coordinators: they know these numbers of segments."""

    def __init__(self, store: FakeObjectStore, known: Iterable[int]) -> None:
        self.config = TieringConfig(url=store.url)
        self.known = {UUID(int=1000 + number) for number in known}
        self.asked: list[Sequence[RemoteObject]] = []
        self.needed_from = INT64_MAX
        """No segment has this offset, or one behind it."""
        self.error: CoordinatorNotAvailable | None = None
        self._store = store

    async def orphans(self, objects: Iterable[RemoteObject]) -> OrphansFound:
        asked = list(objects)
        assert any(each.operation == "list" for each in self._store.calls), "asked after the listing"
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
        unknown = [each for each in asked if each.segment_id not in self.known]
        return OrphansFound(
            tuple(each for each in unknown if each.start_offset < self.needed_from),
            tuple(each for each in unknown if each.start_offset >= self.needed_from),
        )


class Bucket:
    """A store with objects, and a sweep of it."""

    def __init__(self, known: Iterable[int]) -> None:
        self.written_ms = 0
        self.store = FakeObjectStore(clock=lambda: self.written_ms)
        self.coordinators, self.clock = Coordinators(self.store, known), StillClock()
        for number in known:
            self.put(key_of(number))
            self.put(key_of(number, "manifest"))
        image = SimpleNamespace(topics={ORDERS: object()})
        self.sweeper = OrphanSweep(
            cast("Any", self.coordinators),
            StoreCalls(self.store, InlineExecutor()),
            clock=cast("Any", self.clock),
            rng=random.Random(1),
            image=lambda: cast("Any", image),
        )

    def put(self, key: str, age_ms: int = 2 * DAY) -> None:
        self.written_ms = NOW - age_ms
        self.store.put(key, [b"x"])

    async def sweep(self) -> SweptObjects:
        return await self.sweeper.sweep()


async def test_a_late_upload_is_removed_with_its_manifest() -> None:
    bucket = Bucket(range(3))
    before = set(bucket.store.objects)
    bucket.put(key_of(7))
    bucket.put(key_of(7, "manifest"))
    found = await bucket.sweep()
    assert sorted(found.orphans) == [key_of(7, "manifest"), key_of(7)]
    assert set(bucket.store.objects) == before
    assert bucket.sweeper.removed == 2
    assert (await bucket.sweep()).orphans == []


async def test_objects_of_others_and_young_ones_stay() -> None:
    """The store's folder is used by another cluster, and by people; an upload is under way."""
    bucket = Bucket(range(2))
    others = [key_of(8, topic_id=ELSEWHERE), "README.txt", "orders-/0/x.segment"]
    for key in others:
        bucket.put(key)
    bucket.put(key_of(9), age_ms=DAY - 1)
    found = await bucket.sweep()
    assert {*others, key_of(9)} <= set(bucket.store.objects)
    assert (found.foreign, found.orphans, bucket.sweeper.removed) == (3, [], 0)
    asked = {each.segment_id for page in bucket.coordinators.asked for each in page}
    assert asked == bucket.coordinators.known, "no coordinator was asked for them"


async def test_a_coordinator_that_has_lost_its_records_removes_no_history(caplog: pytest.LogCaptureFixture) -> None:
    bucket = Bucket(range(30))
    bucket.coordinators.known.clear()
    found = await bucket.sweep()
    assert len(bucket.store.objects) == 60
    assert (len(found.doubtful), found.orphans) == (60, [])
    assert "restore them, or remove the objects by hand" in caplog.text
    assert [each.levelno for each in caplog.records if "doubt" in each.message or "no segment" in each.message] == [
        logging.ERROR
    ]


async def test_what_was_copied_after_the_records_that_are_left_is_not_removed(caplog: pytest.LogCaptureFixture) -> None:
    """An older copy of `__remote_log_metadata` was restored: the coordinator knows the first segments only."""
    bucket = Bucket(range(30))
    bucket.put(key_of(7, "segment").replace(str(UUID(int=1007)), str(UUID(int=9))))
    bucket.coordinators.known -= {UUID(int=1028), UUID(int=1029)}
    bucket.coordinators.needed_from = 28
    found = await bucket.sweep()
    assert bucket.sweeper.removed == 1, "the late upload, whose offsets a segment has"
    assert len(bucket.store.objects) == 60
    assert min(found.doubtful) == key_of(28, "manifest")
    assert "4 objects in" in caplog.text


async def test_nothing_is_removed_unless_every_coordinator_has_answered() -> None:
    bucket = Bucket(range(PAGE))
    bucket.put(key_of(PAGE + 5))
    bucket.coordinators.error = CoordinatorNotAvailable("it is loading")
    with pytest.raises(CoordinatorNotAvailable):
        await bucket.sweep()
    assert key_of(PAGE + 5) in bucket.store.objects
    bucket.coordinators.error = None
    bucket.store.fail("list")
    with pytest.raises(ObjectStoreUnavailable):
        await bucket.sweep()
    await bucket.sweep()
    assert key_of(PAGE + 5) not in bucket.store.objects
    assert len(bucket.store.objects) == 2 * PAGE
    assert bucket.clock.pauses >= 3, "a pause behind each page"
    assert max(map(len, bucket.coordinators.asked)) <= PAGE
