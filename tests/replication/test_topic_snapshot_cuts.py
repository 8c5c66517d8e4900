"""The cut of a topic snapshot, over random interleavings: each transaction is in all partitions, or in none.

Two coordinators decide, their markers are written one partition after another, and the snapshot is taken step by step
in between, by the rule of decision 0034."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from replication.coordination.coordinator_machine import Instant
from replication.coordination.transaction_requests import HoldStep, LocalHeld, LocalHold, MarkersWritten, WriteMarkers
from replication.coordination.transactions.commit_holds import HOLD_MS_MAX, HOLDS_MAX, REST_FACTOR, CommitHolds
from tests.replication.transaction_world import World, is_error
from tidelog.errors import ConcurrentTransactions, PolicyViolation, TidelogError
from tidelog.types import Millis

PLACES: Final = ("orders-0", "orders-1", "orders-2", "payments-0", "payments-1")
NAMES: Final = ("a-1", "b-2", "c-1", "d-2")
"""Transactional ids; the number is the version of their transactions."""
HOLD: Final = UUID(int=7)


def hold(step: HoldStep, hold_id: UUID = HOLD, topics: tuple[str, ...] = ("orders", "payments")) -> LocalHold:
    return LocalHold(hold_id, step, topics, HOLD_MS_MAX)


class Entry(NamedTuple):
    """What is in the log of a partition: a record of a transaction, or its marker."""

    producer_id: int
    transaction: tuple[str, int] | None
    committed: bool = False


class Cluster:
    """Coordinators, producers and the logs of partitions."""

    def __init__(self) -> None:
        self.worlds = (World(), World())
        self.worlds[1].next_id = 5_000
        self.logs: dict[str, list[Entry]] = {place: [] for place in PLACES}
        self.producers = {name: self.world_of(name).init(name=name, version=int(name[-1])) for name in NAMES}
        self.numbers = dict.fromkeys(NAMES, 0)
        self.unwritten: dict[int, list[str]] = {}
        """The partitions that lack a marker, by the identity of the request for markers."""

    def world_of(self, name: str) -> World:
        return self.worlds[NAMES.index(name) % 2]

    def write(self, name: str, place: str) -> None:
        """One record, if the coordinator lets its transaction begin or go on."""
        producer = self.producers[name]
        now, world = (producer.producer_id, producer.producer_epoch), self.world_of(name)
        if name.endswith("1"):
            answer = world.add(now, place, name=name)
            refused = isinstance(answer, TidelogError) or any(each.error for each in answer.partitions)
        else:
            refused = any(world.write(now, place, name=name))
        if not refused:
            self.logs[place].append(Entry(producer.producer_id, (name, self.numbers[name])))

    def end(self, name: str, *, committed: bool) -> None:
        producer, version = self.producers[name], int(name[-1])
        answer = self.world_of(name).end(
            (producer.producer_id, producer.producer_epoch), committed=committed, name=name, version=version
        )
        if not isinstance(answer, Exception):
            self.producers[name] = answer
            self.numbers[name] += 1

    def write_marker(self, which: int, place: int) -> None:
        """One of the markers that are to be written; with the last one, the transaction is reported as complete."""
        wanted = [(world, markers) for world in self.worlds for markers in world.markers]
        if wanted:
            world, markers = wanted[which % len(wanted)]
            left = self.unwritten.setdefault(
                id(markers), [f"{each.topic}-{each.partition}" for each in markers.partitions]
            )
            self.mark(markers, left.pop(place % len(left)))
            if not left:
                del self.unwritten[id(markers)]
                world.markers.remove(markers)
                world.decide(MarkersWritten(markers))

    def mark(self, markers: WriteMarkers, place: str) -> None:
        self.logs[place].append(Entry(markers.producer_id, None, markers.committed))

    def finish(self) -> None:
        """Everything that is open is committed, and all markers are written."""
        for name in ("", *NAMES):
            if name:
                self.end(name, committed=True)
            while any(world.markers for world in self.worlds):
                self.write_marker(0, 0)

    def open_in(self, place: str) -> dict[int, int]:
        """The first offset of each open transaction, by producer."""
        found: dict[int, int] = {}
        for offset, entry in enumerate(self.logs[place]):
            if entry.transaction is None:
                found.pop(entry.producer_id, None)
            else:
                found.setdefault(entry.producer_id, offset)
        return found


class Cut:
    """A snapshot that is taken step by step."""

    def __init__(self, cluster: Cluster) -> None:
        self.ends: dict[str, tuple[int, dict[int, int]]] = {}
        self.decided_before: set[tuple[str, int]] = set()
        self._steps = self._take(cluster)
        self.done = False

    def step(self) -> None:
        self.done = self.done or next(self._steps, None) is None

    def _take(self, cluster: Cluster) -> Iterator[bool]:
        for world in cluster.worlds:
            assert world.decide(hold(HoldStep.BEGIN)).held
            yield True
        for world in cluster.worlds:
            while world.decide(hold(HoldStep.LOOK)).completing:
                yield True
        for place in PLACES:
            self.ends[place] = len(cluster.logs[place]), cluster.open_in(place)
            yield True
        for world in cluster.worlds:
            assert world.decide(hold(HoldStep.RELEASE)).held
            yield True


def transactions_in(cluster: Cluster, place: str, end: int, left_out: dict[int, int]) -> set[tuple[str, int]]:
    """The committed transactions that a reader of the snapshot sees in a partition."""
    log = cluster.logs[place]

    def is_committed(offset: int) -> bool:
        producer = log[offset].producer_id
        return next(each.committed for each in log[offset:] if each[:2] == (producer, None))

    return {
        entry.transaction
        for offset, entry in enumerate(log[:end])
        if entry.transaction is not None and offset < left_out.get(entry.producer_id, end) and is_committed(offset)
    }


steps = st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 4))


@given(before=st.lists(steps, max_size=40), during=st.lists(steps, min_size=10, max_size=80))
def test_a_transaction_is_in_all_partitions_of_a_cut_or_in_none(
    before: list[tuple[int, int, int]], during: list[tuple[int, int, int]]
) -> None:
    cluster = Cluster()

    def act(kind: int, which: int, place: int) -> None:
        if kind <= 3:
            cluster.write(NAMES[which], PLACES[place])
        elif kind <= 5:
            cluster.end(NAMES[which], committed=kind == 5 or place > 0)
        else:
            cluster.write_marker(which, place)

    for step in before:
        act(*step)
    cut = Cut(cluster)
    for kind, which, place in during:
        if kind >= 8:
            cut.step()
        else:
            act(kind, which, place)
    while not cut.done:
        cluster.write_marker(0, 0)
        cut.step()
    cluster.finish()
    seen = {place: transactions_in(cluster, place, *cut.ends[place]) for place in PLACES}
    everywhere = {entry.transaction for log in cluster.logs.values() for entry in log if entry.transaction is not None}
    for transaction in everywhere:
        places = [place for place in PLACES if any(entry.transaction == transaction for entry in cluster.logs[place])]
        whole = [
            transaction in seen[place]
            and all(
                offset < cut.ends[place][0]
                for offset, entry in enumerate(cluster.logs[place])
                if entry.transaction == transaction
            )
            for place in places
        ]
        assert all(whole) or not any(transaction in seen[place] for place in places)


def test_commits_of_the_topics_wait_and_all_else_goes_on() -> None:
    world = World()
    producer = world.started()
    world.write(producer, "orders-0")
    assert world.decide(hold(HoldStep.BEGIN, topics=("orders",))) == LocalHeld(held=True, completing=0)
    assert is_error(world.commit(producer), ConcurrentTransactions)
    assert world.abort(producer)
    world.settle()

    other = world.init(name="other")
    assert world.write((other.producer_id, other.producer_epoch), "payments-0", name="other") == [None]
    assert world.end((other.producer_id, other.producer_epoch), committed=True, name="other")
    assert world.decide(hold(HoldStep.LOOK, topics=("payments",))).completing == 1
    assert world.decide(hold(HoldStep.RELEASE)).held
    assert not world.decide(hold(HoldStep.LOOK)).held


def test_a_hold_ends_by_itself_and_says_so() -> None:
    """Without that, a node that dies while it takes a snapshot would stop all commits."""
    world = World()
    producer = world.started()
    world.write(producer, "orders-0")
    assert world.decide(hold(HoldStep.BEGIN)).held
    world.later(HOLD_MS_MAX - 1)
    assert is_error(world.commit(producer), ConcurrentTransactions)
    world.later(1)
    assert world.commit(producer)
    assert not world.decide(hold(HoldStep.RELEASE)).held


def test_the_next_coordinator_does_not_vouch_for_a_hold() -> None:
    world = World()
    assert world.decide(hold(HoldStep.BEGIN)).held
    world.replace()
    assert not world.decide(hold(HoldStep.LOOK)).held
    assert not world.decide(hold(HoldStep.RELEASE)).held


def test_many_snapshots_cannot_be_taken_at_once() -> None:
    world = World()
    for number in range(HOLDS_MAX):
        assert world.decide(hold(HoldStep.BEGIN, UUID(int=number), (f"t{number}",))).held
    assert is_error(world.decide(hold(HoldStep.BEGIN, UUID(int=99))), PolicyViolation)
    world.later(HOLD_MS_MAX)
    assert world.decide(hold(HoldStep.BEGIN, UUID(int=99))).held


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(HoldStep), st.integers(0, 300)), max_size=200))
def test_commits_of_a_topic_wait_for_a_tenth_of_the_time(asked: list[tuple[int, HoldStep, int]]) -> None:
    """Whatever is asked for, and however often: who may take snapshots must not stop the commits of others with it.
    Method: holds of three nodes, begun and ended at random; how long each has lasted, and what followed it."""
    holds, now = CommitHolds(), 0
    held: int | None = None
    began = free_from = 0
    for number, step, passed in asked:
        now += passed
        instant = Instant(Millis(now), Millis(now))
        is_held = holds.step(LocalHold(UUID(int=number), step, ("orders",), 1_000), instant)
        if held is not None and now >= began + 1_000:
            free_from, held = began + 1_000 * (1 + REST_FACTOR), None
        if step is HoldStep.BEGIN and is_held and held is None:
            assert now >= free_from, "commits have gone on for nine times as long as they had waited"
            held, began = number, now
        assert is_held == (held == number), "one hold at a time"
        if step is HoldStep.RELEASE and is_held:
            free_from, held = now + REST_FACTOR * (now - began), None
