"""One tiered partition, step by step: what ends its role, truncates its log or moves its log start while it waits."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

import pytest

from node.coordinators.object_remover import StoreCalls
from node.replicas.follower_replica import FollowerReplica
from node.replicas.leader_replica import LeaderReplica
from node.replicas.replica import CopyFailure, Replica
from node.replicas.replica_manager import ReplicaManager
from node.tiering.remote_log_client import RemoteLogClient
from node.tiering.remote_tier import TICK_MS, RemoteTier
from node.tiering.tiered_partition import Superseded, TieredPartition, TierServices
from node.tiering_settings import TieringConfig
from replication.coordination.coordinator_machine import Instant
from replication.coordination.encoded_segment import segment_head
from replication.coordination.remote_log_requests import (
    FOLLOWED_MAX,
    BeginCopy,
    BeginRemoteLog,
    DeleteRemoteSegments,
    FinishCopy,
    FollowRemoteLogs,
    ListRemoteSegments,
    RemoteSegmentsPage,
    RemoteSegmentsPages,
    SegmentPlace,
)
from replication.coordination.tiering.remote_log import RemoteLog
from replication.coordination.tiering.remote_log_machine import RemoteLogMachine
from storage.directory.log_directory import LogDirectory
from storage.files.disk_executor import InlineExecutor
from storage.log.log import Log
from testbed.fake_object_store import FakeObjectStore, StoreCall
from tests.replication.transaction_world import image
from tests.storage.filled_logs import filled
from tests.storage.workbench import NOW, SMALL, TP, Bench, stamped
from tidelog.clock import MachineClock
from tidelog.errors import TidelogError, UnsupportedForMessageFormat
from tidelog.tiering.remote_errors import ObjectStoreUnavailable
from tidelog.tiering.remote_segment import RemoteSegmentState
from tidelog.types import EpochStart, LeaderEpoch, Millis, NodeId, Offset, PartitionIndex, PartitionKey

TIERED = replace(SMALL, remote_storage=True)
FOREVER = replace(TIERED, retention_ms=-1)
IMAGE = image({"orders": 1})
KEY = PartitionKey(next(iter(IMAGE.topics)), TP.partition)
STARTED, FINISHED = RemoteSegmentState.COPY_SEGMENT_STARTED, RemoteSegmentState.COPY_SEGMENT_FINISHED


class HeldDirectory:
    """Moves log starts when the test lets it, as a slow disk."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self.held: list[Callable[[], None]] = []

    def move_log_start(self, log: Log, offset: Offset, moved: Callable[[TidelogError | None], None]) -> None:
        self.held.append(lambda: self._directory.move_log_start(log, offset, moved))


@dataclass
class SeenReplica:
    """What a tiered partition sees of a replica, by default of one that leads."""

    log: Log
    directory: HeldDirectory
    key: PartitionKey = KEY
    name: object = TP
    leader_epoch: LeaderEpoch = LeaderEpoch(1)
    remote: RemoteLog | None = None
    copy_failure: CopyFailure | None = None
    role: LeaderReplica | FollowerReplica | None = field(default_factory=lambda: LeaderReplica.__new__(LeaderReplica))

    def __str__(self) -> str:
        return str(self.name)

    def read_from(self, remote: RemoteLog) -> None:
        """As `Replica.read_from`."""
        self.remote = remote

    def end_role(self) -> None:
        """As `Replica._end_role`."""
        self.role, self.remote, self.log.copied_end = None, None, Offset(0)


class Coordinator:
    """The machine, asked directly. `answered`: called between a decision and its answer."""

    def __init__(self) -> None:
        self.machine = RemoteLogMachine()
        self.now = Instant(Millis(0), Millis(1))
        self.machine.loaded(IMAGE, 0, self.now)
        self.requests: list[object] = []
        self.config, self.sweeps_here = TieringConfig(), False
        self.answered: Callable[[object], None] = lambda _request: None

    async def ensure_topic(self) -> None:
        pass

    async def change(self, request: object) -> None:
        self._ask(request)

    async def pages(self, key: PartitionKey, after: SegmentPlace | None) -> AsyncIterator[RemoteSegmentsPage]:
        yield self._ask(ListRemoteSegments(key, after))

    def coordinator_of(self, _key: PartitionKey) -> PartitionIndex:
        return PartitionIndex(0)

    async def first_pages(self, lists: Sequence[ListRemoteSegments]) -> tuple[RemoteSegmentsPage, ...]:
        answer: RemoteSegmentsPages = self._ask(FollowRemoteLogs(tuple(lists)))
        return answer.pages

    def _ask(self, request: object) -> Any:
        decision = self.machine.handle(request, self.now)
        if isinstance(decision.answer, TidelogError):
            raise decision.answer
        for record in decision.records:
            self.machine.apply(record, Offset(0), None)
        self.requests.append(request)
        self.answered(request)
        return decision.answer

    def states(self) -> list[RemoteSegmentState]:
        page = self.machine.handle(ListRemoteSegments(KEY), self.now).answer
        assert isinstance(page, RemoteSegmentsPage)
        return [segment_head(each).state for each in page.segments]


class World:
    """A leader with a log of several closed segments."""

    def __init__(self, *, retention_bytes: int = -1, bench: Bench | None = None) -> None:
        self.bench = bench or filled(bench=Bench(replace(TIERED, retention_bytes=retention_bytes)))
        self.log = self.bench.log
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.bench.directory.write_checkpoints()
        self.directory = HeldDirectory(self.bench.directory)
        self.replica = SeenReplica(self.log, self.directory)
        self.coordinator, self.store = Coordinator(), FakeObjectStore()
        self._rng = random.Random(7)
        self.partition = self.new_partition()

    def new_partition(self) -> TieredPartition:
        """As the tier makes one for the present role."""
        services = TierServices(
            me=NodeId(1),
            client=cast("RemoteLogClient", self.coordinator),
            store=self.store,
            executor=InlineExecutor(),
            clock=MachineClock(),
            new_id=lambda: UUID(int=self._rng.getrandbits(128), version=4),
            pace=iter,
            log_start_moved=lambda _log: None,
        )
        return TieredPartition(cast("Replica", self.replica), services)

    def following(self, bench: Bench) -> TieredPartition:
        """A replica with this log follows from now on."""
        role = FollowerReplica.__new__(FollowerReplica)
        self.replica = SeenReplica(bench.log, HeldDirectory(bench.directory), role=role)
        return self.new_partition()

    def leading(self, bench: Bench, epoch: int) -> TieredPartition:
        """A replica with this log leads from now on."""
        bench.log.advance_high_watermark(bench.log.log_end_offset)
        self.log, directory = bench.log, HeldDirectory(bench.directory)
        self.replica = SeenReplica(bench.log, directory, leader_epoch=LeaderEpoch(epoch))
        return self.new_partition()

    async def copy_all(self) -> None:
        """Steps until nothing is left to copy."""
        while await self.partition.step():
            pass

    def at(self, moment: object, do: Callable[[], object]) -> None:
        """Do something once: while an object is put, or between a decision of the coordinator and its answer."""
        left = [do]

        def once(now: object) -> None:
            if left and now == moment:
                left.pop()()

        self.coordinator.answered = lambda request: once(type(request))
        self.store.on_call = lambda call: once(call.operation)


async def test_a_leader_copies_its_closed_segments_in_order() -> None:
    world = World()
    await world.copy_all()
    log = world.log
    assert len(log.segments) > 3
    assert log.copied_end == log.active.base_offset
    assert world.coordinator.states() == [FINISHED] * (len(log.segments) - 1)


async def test_a_copy_is_in_the_page_cache_until_it_was_read_back() -> None:
    """Before that, reading it back would wait for the disk; later, it would take the place of local segments."""
    world = World()
    while not world.store.objects:
        assert await world.partition.step()
    first = next(iter(world.store.objects))
    calls = [call.operation for call in world.store.calls if call.key == first]
    assert (calls[0], calls.count("drop_cached"), calls[-1]) == ("put", 1, "drop_cached")
    assert "get_range" in calls


@pytest.mark.parametrize("known_from", [None, 1])
async def test_messages_without_leader_epochs_are_not_copied(known_from: int | None) -> None:
    """Of format v0 or v1, in a log that comes from Kafka: the next leader would not believe their segment."""
    world = World()
    entries = () if known_from is None else (EpochStart(LeaderEpoch(1), Offset(known_from)),)
    world.log.epochs.restore(entries)
    assert await world.partition.step()
    with pytest.raises(UnsupportedForMessageFormat, match="without a leader epoch"):
        await world.partition.step()
    assert (world.coordinator.states(), world.log.copied_end) == ([], 0)
    assert not world.store.objects


@pytest.mark.parametrize("moment", [BeginRemoteLog, ListRemoteSegments, BeginCopy, "put", "get_range", FinishCopy])
async def test_a_role_that_ends_while_it_waits_changes_nothing_more(moment: object) -> None:
    """The next leader may believe other segments: what the old role has learned must not let local ones leave."""
    world = World()
    world.at(moment, world.replica.end_role)
    with pytest.raises(Superseded):
        await world.copy_all()
    assert (world.log.copied_end, world.replica.remote) == (0, None)
    finished = world.coordinator.states().count(FINISHED)
    assert finished == (1 if moment is FinishCopy else 0), "a copy of an ended role is not finished"
    assert bool(world.store.objects) == (moment in ("put", "get_range", FinishCopy)), "nor is it begun"


async def test_an_expiry_is_not_decided_for_a_role_that_has_ended() -> None:
    world = World(retention_bytes=4_000)
    await world.copy_all()
    (move,) = world.directory.held
    move()
    world.at(DeleteRemoteSegments, world.replica.end_role)
    with pytest.raises(Superseded):
        await world.partition.step()


async def test_a_copy_during_which_the_log_is_truncated_does_not_count() -> None:
    """The truncation is under way while the object is written, and has ended when the next copy begins."""
    world = World()
    first_end = world.log.segments[1].base_offset

    def begin() -> None:
        ticket = world.log.begin_truncation(Offset(first_end - 1))
        assert ticket is not None

    world.at("put", begin)
    with pytest.raises(Superseded):
        await world.copy_all()
    assert world.coordinator.states() == [STARTED]
    assert not world.partition.is_current
    assert world.log.copied_end == 0
    assert not world.new_partition().is_current, "it waits for the truncation"


async def test_what_is_appended_after_a_truncation_is_not_copied() -> None:
    world = World()
    await world.copy_all()
    cut = world.log.segments[1].base_offset
    world.log.truncate_to(cut)
    assert world.log.copied_end == cut
    assert not world.partition.is_current


@pytest.mark.parametrize("moment", ["put", "get_range"])
async def test_a_copy_whose_segment_has_left_the_log_does_not_count(moment: str) -> None:
    """Records are deleted while their segment is read, and while its object is read back."""
    world = World()
    second = world.log.segments[1].base_offset
    world.at(moment, lambda: world.bench.directory.drop_before(world.log, second))
    await world.partition.step()
    assert await world.partition.step()
    assert world.log.segments[0].base_offset == second
    assert world.coordinator.states() == [STARTED]
    await world.copy_all()
    assert world.coordinator.states().count(FINISHED) == len(world.log.segments) - 1


async def test_segments_are_deleted_once_the_log_start_is_durably_behind_them() -> None:
    world = World(retention_bytes=4_000)
    await world.copy_all()
    assert len(world.directory.held) == 1, "retention has decided"
    for _ in range(3):
        await world.partition.step()
    assert not any(isinstance(each, DeleteRemoteSegments) for each in world.coordinator.requests)
    assert set(world.coordinator.states()) == {FINISHED}
    world.directory.held.pop()()
    start = world.log.log_start_offset
    assert start > 0
    await world.partition.step()
    (deletion,) = [each for each in world.coordinator.requests if isinstance(each, DeleteRemoteSegments)]
    assert deletion.log_start is not None and deletion.log_start.start_offset == start


async def test_a_segment_in_which_the_log_starts_is_believed_by_a_leader_whose_log_starts_earlier() -> None:
    """Records were deleted in the middle of a segment, and of its leader epochs: the leader that copies it does not
    know the epochs before. The next one has not learned of the deletion."""

    def of_two_epochs() -> Bench:
        bench = Bench(TIERED)
        bench.follow(*(stamped(offset, epoch=int(offset >= 5)) for offset in range(60)))
        bench.commit()
        return bench

    world = World(bench=of_two_epochs())
    world.bench.directory.move_log_start(world.log, Offset(7), lambda _error: None)
    log = world.log
    assert log.segments[0].base_offset == 0 < log.log_start_offset == 7 < log.segments[1].base_offset
    await world.copy_all()

    bench = of_two_epochs()
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    role = LeaderReplica.__new__(LeaderReplica)
    world.replica = SeenReplica(bench.log, HeldDirectory(bench.directory), leader_epoch=LeaderEpoch(2), role=role)
    await world.new_partition().step()
    assert set(world.coordinator.states()) == {FINISHED}, "it would be deleted, and local segments have left by then"
    assert bench.log.copied_end == world.log.copied_end


async def follow(partition: TieredPartition, coordinator: Coordinator) -> RemoteSegmentsPage:
    """What a follower is told, and does with it."""
    asked = partition.next_list()
    (page,) = await coordinator.first_pages([asked])
    await partition.follow(asked, page)
    return page


async def test_a_follower_is_told_only_what_it_does_not_know() -> None:
    world = World()
    await world.partition.step()  # it lists
    await world.partition.step()  # and copies one
    bench = filled(bench=Bench(TIERED))
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    follower = world.following(bench)
    assert len((await follow(follower, world.coordinator)).segments) == 1
    first = world.log.segments[1].base_offset
    assert (bench.log.copied_end, world.replica.remote is not None) == (first, True)
    assert (await follow(follower, world.coordinator)).segments == ()
    await world.copy_all()
    assert len((await follow(follower, world.coordinator)).segments) == len(world.log.segments) - 2
    assert bench.log.copied_end == world.log.copied_end


async def test_a_follower_takes_over_nothing_behind_its_high_watermark() -> None:
    """There its log may differ from the leader's."""
    world = World()
    await world.copy_all()
    bench = filled(bench=Bench(TIERED))
    second = bench.log.segments[2].base_offset
    bench.log.advance_high_watermark(Offset(second + 1))
    follower = world.following(bench)
    await follow(follower, world.coordinator)
    assert bench.log.copied_end == second
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    await follow(follower, world.coordinator)
    assert bench.log.copied_end == world.log.copied_end


async def test_a_follower_passes_over_what_an_unclean_election_has_lost() -> None:
    """A segment of the lost epoch reaches behind the end of the log that is there now, and stands in the list before
    what its leader copies."""
    world = World()
    world.partition = world.leading(filled(bench=Bench(replace(FOREVER, segment_bytes=4_000))), epoch=1)
    await world.copy_all()
    world.partition = world.leading(filled(40, epoch=2, bench=Bench(FOREVER)), epoch=2)
    await world.copy_all()
    bench = filled(40, epoch=2, bench=Bench(FOREVER))
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    await follow(world.following(bench), world.coordinator)
    assert bench.log.copied_end == world.log.copied_end > 0


async def test_history_outlives_the_election_of_an_empty_replica(caplog: pytest.LogCaptureFixture) -> None:
    """The objects are kept, so that the election can be taken back: then all of them are believed again."""
    world = World()
    await world.copy_all()
    original, copied = world.bench, world.coordinator.states()
    world.partition = world.leading(Bench(FOREVER), epoch=2)
    await world.copy_all()
    assert (world.partition.lost, world.coordinator.states()) == (len(copied), copied)
    assert "make a replica the leader before that still has their records" in caplog.text
    world.partition = world.leading(original, epoch=3)
    await world.copy_all()
    assert (world.partition.lost, original.log.copied_end) == (0, original.log.active.base_offset)


@pytest.mark.parametrize("why", ["the hold has ended", "they have expired"])
async def test_lost_segments_are_deleted_in_the_end(why: str) -> None:
    world = World()
    await world.copy_all()
    if why == "the hold has ended":
        world.coordinator.config = TieringConfig(unreferenced_ms=0)
    config = FOREVER if why == "the hold has ended" else replace(FOREVER, retention_ms=1_000)
    world.partition = world.leading(Bench(config), epoch=2)
    await world.copy_all()
    assert (world.partition.lost, {*world.coordinator.states()}) == (0, {RemoteSegmentState.DELETE_SEGMENT_STARTED})


async def test_lost_segments_of_a_snapshot_do_not_expire() -> None:
    """Retention waits for the snapshot, and its records are there again if the election is taken back."""
    world = World()
    await world.copy_all()
    copied = world.coordinator.states()
    empty = Bench(replace(FOREVER, retention_ms=1_000))
    empty.log.pinned = True
    world.partition = world.leading(empty, epoch=2)
    await world.copy_all()
    assert (world.partition.lost, world.coordinator.states()) == (len(copied), copied)
    empty.log.pinned = False
    await world.copy_all()
    assert world.partition.lost == 0, "the snapshot has ended"


class Manager:
    """What the tier sees of a replica manager."""

    node_id, remote_starts = NodeId(1), None

    def __init__(self, replicas: Sequence[SeenReplica]) -> None:
        self._replicas = replicas

    def partitions(self) -> Sequence[SeenReplica]:
        return self._replicas

    def log_start_moved(self, _log: Log) -> None:
        pass


class OneLook:
    """A clock on which the second look never comes."""

    def __init__(self) -> None:
        self.looked = asyncio.Event()

    def monotonic_ms(self) -> Millis:
        return Millis(1)

    def wall_ms(self) -> Millis:
        return NOW

    async def sleep_ms(self, duration: int) -> None:
        await MachineClock().sleep_ms(0)
        if duration == TICK_MS:
            self.looked.set()
            await asyncio.Event().wait()


async def test_followers_of_many_partitions_send_few_requests() -> None:
    bench = filled(bench=Bench(TIERED))
    role = FollowerReplica.__new__(FollowerReplica)
    replicas = [
        SeenReplica(
            bench.log, HeldDirectory(bench.directory), key=PartitionKey(KEY.topic_id, PartitionIndex(number)), role=role
        )
        for number in range(2 * FOLLOWED_MAX + 1)
    ]
    coordinator, clock = Coordinator(), OneLook()
    tier = RemoteTier(
        cast("ReplicaManager", Manager(replicas)),
        cast("RemoteLogClient", coordinator),
        StoreCalls(FakeObjectStore(), InlineExecutor()),
        clock=clock,
        rng=random.Random(7),
        pause_ms=lambda _ms: None,
    )
    running = asyncio.get_running_loop().create_task(tier.run())
    await clock.looked.wait()
    while any(each.remote is None for each in replicas):
        await clock.sleep_ms(0)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert [len(each.lists) for each in coordinator.requests if isinstance(each, FollowRemoteLogs)] == [500, 500, 1]


class JumpingClock:
    """Sleeps take no time of the test's. `hour`: set once an hour has gone by, and `second` once the next has."""

    def __init__(self) -> None:
        self.now = Millis(1)
        self.hour, self.second = asyncio.Event(), asyncio.Event()

    def monotonic_ms(self) -> Millis:
        return self.now

    def wall_ms(self) -> Millis:
        return NOW

    async def sleep_ms(self, duration: int) -> None:
        await MachineClock().sleep_ms(0)
        if duration == TICK_MS:  # of the looks
            self.now = Millis(self.now + 30_000)
        elif duration > 0:
            await asyncio.Event().wait()
        for hours, event in ((1, self.hour), (2, self.second)):
            if self.now > hours * 3_600_000:
                event.set()


async def test_a_leader_that_stays_fenced_says_why_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """As after the cluster's metadata were restored from an older copy: no election passes this leader over."""
    world, clock = World(), JumpingClock()
    newer = replace(world.partition._leader, leader_epoch=LeaderEpoch(7), node_id=NodeId(3))
    await world.coordinator.change(BeginRemoteLog(newer))
    tier = RemoteTier(
        cast("ReplicaManager", Manager([world.replica])),
        cast("RemoteLogClient", world.coordinator),
        StoreCalls(world.store, InlineExecutor()),
        clock=clock,
        rng=random.Random(7),
        pause_ms=lambda _ms: None,
    )
    running = asyncio.get_running_loop().create_task(tier.run())

    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if "still leads, and is fenced" in each.getMessage()]

    await clock.hour.wait()
    assert len(told()) == 1
    assert "has registered epoch 7" in told()[0]
    assert "raise the leader epoch" in told()[0]
    assert tier.figures(None).failing == 1
    await clock.second.wait()
    assert len(told()) == 2, "once an hour"
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert world.coordinator.states() == [], "it copies nothing"


async def test_a_store_that_is_away_for_an_hour_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Of many partitions, each of which is tried again every minute."""
    world, clock = World(bench=filled(bench=Bench(FOREVER))), JumpingClock()
    caplog.set_level(logging.INFO)
    replicas = [
        SeenReplica(world.log, world.directory, key=PartitionKey(KEY.topic_id, PartitionIndex(number)))
        for number in range(30)
    ]

    def be_away(_call: StoreCall) -> None:
        if not clock.hour.is_set():
            raise ObjectStoreUnavailable("the store does not answer; look at it")

    world.store.on_call = be_away
    tier = RemoteTier(
        cast("ReplicaManager", Manager(replicas)),
        cast("RemoteLogClient", world.coordinator),
        StoreCalls(world.store, InlineExecutor()),
        clock=clock,
        rng=random.Random(7),
        pause_ms=lambda _ms: None,
    )
    running = asyncio.get_running_loop().create_task(tier.run())
    await clock.hour.wait()
    failed = [each for each in caplog.messages if "the store does not answer" in each]
    assert 30 <= len(failed) <= 61
    assert "orders-0: the remote tier waits for" in failed[0]
    assert "more failures since the last line" in failed[-1]
    assert ", beside 29 that fail too:" in failed[-1]
    assert world.store.objects == {}
    away = CopyFailure("ObjectStoreUnavailable: the store does not answer; look at it", NOW)
    assert {each.copy_failure for each in replicas} == {away}, "for `tidelog tier describe`"
    await clock.second.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert world.store.objects
    assert len([each for each in caplog.messages if "the object store takes copies again, after" in each]) == 1
    assert tier.figures(None).failing == 0
    assert {each.copy_failure for each in replicas} == {None}
