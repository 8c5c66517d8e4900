"""Sending the markers of decided transactions: repeated until each has reached the leader of its partition, whichever
node that is by then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from node.api.marker_requests import (
    MarkedPartition,
    WriteTxnMarkersAnswer,
    WriteTxnMarkersRequest,
    WrittenMarker,
)
from node.coordinators.transactions import node_requests
from node.coordinators.transactions.marker_sender import MarkerSender
from node.coordinators.transactions.node_requests import REQUESTS_MAX
from node.coordinators.transactions.transaction_location import TransactionLocation
from replication.controller.image import EMPTY, NodeRegistration, PartitionState, TopicState
from replication.coordination.group_requests import NamedPartition
from replication.coordination.transaction_requests import MarkersRefused, MarkersWritten, WriteMarkers
from testbed.sim.clock import SimClock
from testbed.sim.loop import SimLoop
from tidelog.errors import (
    ConnectionFailed,
    InvalidProducerEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    TidelogError,
    TransactionCoordinatorFenced,
    UnknownTopicId,
)
from tidelog.types import (
    NO_NODE,
    DirectoryId,
    Endpoint,
    Incarnation,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    PartitionIndex,
    ProducerId,
    TopicId,
)

TOPIC_ID = TopicId(UUID(int=70))
HERE = NodeId(1)
COORDINATOR = PartitionIndex(4)


class World:
    """A sender on node 1, and leaders that answer what the test says."""

    def __init__(self) -> None:
        self.loop = SimLoop(random.Random(1))
        self.leaders = {0: 1, 1: 2, 2: 3}
        """By partition of topic `t`."""
        self.exists = True
        self.sent: list[tuple[int, list[int]]] = []
        """Node, and the partitions of all markers, of each request."""
        self.requests: list[WriteTxnMarkersRequest] = []
        self.errors: dict[int, list[TidelogError]] = {}
        """By partition: the errors of the next attempts."""
        self.holding: dict[int, asyncio.Event] = {}
        """By partition: its requests wait for this."""
        self.reports: list[MarkersWritten | MarkersRefused] = []
        self.open = self.open_most = 0
        self.sender = MarkerSender(
            TransactionLocation(HERE, self.image, "between"),
            clock=SimClock(self.loop),
            peers=cast("Any", self),
            local=lambda request: self.answer(1, request),
            report=self.report,
        )
        self.running = self.loop.create_task(self.sender.run())
        self.run(0.001)

    def report(self, coordinator: PartitionIndex, outcome: MarkersWritten | MarkersRefused) -> None:
        assert coordinator == COORDINATOR
        self.reports.append(outcome)

    def image(self) -> Any:
        states = tuple(
            PartitionState(
                TOPIC_ID,
                PartitionIndex(index),
                (NodeId(1),),
                (DirectoryId(UUID(int=0)),),
                (NodeId(1),),
                (),
                (),
                NodeId(leader),
                LeaderEpoch(0),
                PartitionEpoch(0),
            )
            for index, leader in self.leaders.items()
        )
        nodes = {
            NodeId(number): NodeRegistration(
                NodeId(number),
                NodeEpoch(number),
                Incarnation(UUID(int=number)),
                {"between": Endpoint(f"node-{number}", 9092)},
                "",
                b"",
                (),
                fenced=False,
                draining=False,
            )
            for number in (1, 2, 3)
        }
        image = replace(EMPTY, nodes=nodes)
        if not self.exists:
            return image
        topic = TopicState("t", TOPIC_ID, {}, states)
        return replace(image, topics={TOPIC_ID: topic}, topic_ids={"t": TOPIC_ID})

    async def call(self, to: Endpoint, _api: Any, asked: WriteTxnMarkersRequest, *, timeout_ms: int) -> Any:
        assert timeout_ms > 0
        return await self.answer(int(to.host.removeprefix("node-")), asked)

    async def answer(self, node: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersAnswer:
        partitions = [each.partition for marker in request.markers for each in marker.partitions]
        self.sent.append((node, partitions))
        self.requests.append(request)
        self.open += 1
        self.open_most = max(self.open, self.open_most)
        try:
            for held in [self.holding[each] for each in partitions if each in self.holding]:
                await held.wait()
            for each in partitions:
                if self.errors.get(each) and isinstance(self.errors[each][0], ConnectionFailed):
                    raise self.errors[each].pop(0)
            return WriteTxnMarkersAnswer(
                tuple(
                    WrittenMarker(
                        tuple(
                            MarkedPartition(each.topic_id, each.partition, self.next_error(each.partition))
                            for each in marker.partitions
                        )
                    )
                    for marker in request.markers
                )
            )
        finally:
            self.open -= 1

    def next_error(self, partition: int) -> TidelogError | None:
        errors = self.errors.get(partition)
        return errors.pop(0) if errors else None

    def write(self, *partitions: int, producer: int = 9, run: bool = True) -> WriteMarkers:
        markers = WriteMarkers(
            f"t{producer}",
            ProducerId(producer),
            producer_epoch=1,
            coordinator_epoch=7,
            committed=True,
            partitions=tuple(NamedPartition("t", PartitionIndex(each)) for each in partitions),
            transaction_version=2,
        )
        self.sender.write(COORDINATOR, markers)
        if run:
            self.run(0.001)
        return markers

    def run(self, seconds: float) -> None:
        self.loop.run_for(seconds)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.loop.raise_defects()
    world.loop.dispose()


def test_each_leader_gets_its_markers_and_then_the_transaction_is_reported(world: World) -> None:
    world.leaders[1] = 3
    markers = world.write(0, 1, 2)
    assert sorted(world.sent) == [(1, [0]), (3, [1, 2])]
    assert world.reports == [MarkersWritten(markers)]
    assert world.sender.waiting == 0
    [sent] = world.requests[0].markers
    assert (sent.producer_id, sent.producer_epoch, sent.coordinator_epoch) == (9, 1, 7)
    assert (sent.committed, sent.transaction_version) == (True, 2)


def test_the_markers_of_one_turn_go_in_one_request_to_each_node(world: World) -> None:
    for producer in range(5):
        world.write(1, 2, producer=producer, run=False)
    world.run(0.001)
    assert sorted(world.sent) == [(2, [1] * 5), (3, [2] * 5)]
    assert len(world.reports) == 5


@pytest.mark.parametrize(
    "error", [NotLeaderOrFollower("moved"), NotEnoughReplicas("few"), ConnectionFailed("broken"), UnknownTopicId("?")]
)
def test_what_fails_is_repeated_until_it_is_written(world: World, error: TidelogError) -> None:
    world.errors[1] = [error] * 5
    world.write(0, 1)
    assert (world.reports, world.sender.waiting) == ([], 1)
    world.run(1)
    assert len(world.reports) == 1
    assert [partitions for node, partitions in world.sent if node == 2] == [[1]] * 6


def test_a_partition_without_a_leader_gets_its_marker_when_it_has_one(world: World) -> None:
    """And those with a leader do not wait for it."""
    world.leaders[1] = NO_NODE
    world.write(1, 2)
    other = world.write(2, producer=4)
    assert world.reports == [MarkersWritten(other)]
    world.run(60)
    assert world.sender.waiting == 1
    world.leaders[1] = 3
    world.run(1)
    assert len(world.reports) == 2
    assert world.sent[-1] == (3, [1])


def test_a_new_leader_is_followed(world: World) -> None:
    world.errors[1] = [NotLeaderOrFollower("moved")]
    world.write(1)
    world.leaders[1] = 3
    world.run(0.1)
    assert world.sent == [(2, [1]), (3, [1])]


def test_a_deleted_topic_counts_as_written(world: World) -> None:
    world.errors[1] = [UnknownTopicId("deleted")] * 3
    world.write(1)
    assert world.reports == []
    world.exists = False
    world.run(0.1)
    assert len(world.reports) == 1
    world.write(0, producer=4)
    assert len(world.reports) == 2


def test_a_replaced_coordinator_is_told_once_and_sends_nothing_more(world: World) -> None:
    world.errors[1] = [TransactionCoordinatorFenced("newer")]
    world.errors[2] = [NotLeaderOrFollower("moved")] * 3
    held = world.holding[1] = asyncio.Event()
    markers = world.write(1, 2)
    held.set()
    world.run(5)
    [refused] = world.reports
    assert isinstance(refused, MarkersRefused)
    assert refused.markers is markers
    assert len(world.sent) == 2
    assert world.sender.waiting == 0


def test_a_partition_in_which_the_producer_has_a_newer_epoch_needs_no_marker(world: World) -> None:
    world.errors[1] = [InvalidProducerEpoch("newer")]
    world.write(1, 2)
    assert [type(report) for report in world.reports] == [MarkersWritten]


def test_an_unloaded_coordinator_sends_and_reports_nothing_more(world: World) -> None:
    world.holding[1] = asyncio.Event()
    world.errors[2] = [NotLeaderOrFollower("moved")] * 3
    world.write(1, 2)
    world.sender.cancel(COORDINATOR)
    world.holding.pop(1).set()
    sent = len(world.sent)
    world.run(5)
    assert (world.reports, len(world.sent), world.sender.waiting) == ([], sent, 0)
    world.write(1, producer=9)
    assert len(world.reports) == 1, "it was loaded again"


def test_a_slow_partition_delays_no_other_one(world: World) -> None:
    """Its next markers wait for the answer, those of other partitions of the same node do not."""
    world.leaders = dict.fromkeys(range(40), 2)
    world.holding[0] = asyncio.Event()
    for producer in range(30):
        world.write(0, producer=producer)
    for index in range(1, 40):
        world.write(index, producer=100 + index)
    assert len(world.reports) == 39
    world.holding.pop(0).set()
    world.run(0.1)
    assert len(world.reports) == 69
    assert [partitions for _, partitions in world.sent if partitions[0] == 0] == [[0], [0] * 29]


def test_a_node_gets_a_bounded_number_of_requests_at_once(world: World) -> None:
    world.leaders = dict.fromkeys(range(40), 2)
    for index in range(40):
        world.holding[index] = asyncio.Event()
        world.write(index, producer=index)
    assert world.open_most == REQUESTS_MAX
    for held in list(world.holding.values()):
        held.set()
    world.run(0.1)
    assert len(world.reports) == 40
    assert len(world.sent) == REQUESTS_MAX + 1


def test_a_request_has_a_bounded_number_of_markers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_requests, "ITEMS_MAX", 10)
    world.leaders = dict.fromkeys(range(35), 2)
    world.write(*range(35))
    assert [len(partitions) for _, partitions in world.sent] == [10, 10, 10, 5]
    assert len(world.reports) == 1


def test_a_transaction_without_partitions_is_complete_at_once(world: World) -> None:
    world.write()
    assert (len(world.reports), world.sent) == (1, [])
