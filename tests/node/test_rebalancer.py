"""The active controller evens out replicas: what becomes of a plan while it is made, queued, and after a cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from node.controller.controller_driver import ControllerDriver
from node.controller.rebalancer import Rebalancer
from replication.controller.auto_rebalance import PAUSE_MS
from replication.controller.events import AlterCordon, Request
from replication.controller.image import ClusterImage
from storage.files.disk_executor import InlineExecutor
from tests.replication.controlled import Controlled
from tidelog.balancing.measured_logs import MeasuredLogs
from tidelog.clock import Clock
from tidelog.cluster_descriptions import ReplicaLog, ReplicaLogDir
from tidelog.errors import RequestTimedOut, TidelogError
from tidelog.types import Millis, NodeId, PartitionIndex, TopicPartition

DELAY_MS = 5_000


class _Over(Exception):
    """The story is told."""


class Cluster(InlineExecutor):
    """Partitions on nodes 1 and 2, which node 3 has joined: the driver of its controller, the clock, and the executor
    of the planner."""

    active = True

    def __init__(self) -> None:
        self.world = Controlled()
        self.world.start(1, 2)
        self.world.made(partitions=6, replicas=2)
        self.world.start(3)
        self.alive = [1, 2, 3]
        self.planned_at: list[int] = []
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens while a plan is made."""
        self.is_lost = False
        self.logs = MeasuredLogs()
        self._left = 0
        parts = cast("ControllerDriver", self), cast("Clock", self)
        self._rebalancer = Rebalancer(parts[0], self.measured, delay_ms=DELAY_MS, planner=self, clock=parts[1])

    async def run(self, seconds: int) -> None:
        self._left = seconds
        with pytest.raises(_Over):
            await self._rebalancer.run()

    def queued(self) -> int:
        """The moves that are queued or in progress."""
        return sum(bool(state.queued or state.adding) for state in self.world.image.partitions())

    # --- what the rebalancer sees ---

    @property
    def image(self) -> ClusterImage:
        return self.world.image

    def now(self) -> Millis:
        return self.world.now

    async def ask(self, request: Request, _expected: object) -> Any:
        if self.is_lost:
            raise RequestTimedOut("the outcome is unknown")
        answer = self.world.ask(request)
        if isinstance(answer, TidelogError):
            raise answer
        return answer

    async def measured(self, _image: ClusterImage) -> MeasuredLogs:
        return self.logs

    async def sleep_ms(self, ms: int) -> None:
        if not self._left:
            raise _Over
        self._left -= 1
        self.world.pass_time(ms, *self.alive)

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.planned_at.append(self.now())
        result = work()
        self.meanwhile()
        done(result)


async def test_the_plan_evens_out_what_nodes_report_of_their_logs() -> None:
    """The new node gets one of the two large partitions, and not only small ones."""
    cluster = Cluster()
    names = [TopicPartition("orders", PartitionIndex(index)) for index in range(6)]
    logs = tuple(ReplicaLog(name, size, 0) for name, size in zip(names, (1, 1, 1, 1, 100, 100), strict=True))
    for node in (1, 2):
        cluster.logs.add(NodeId(node), [ReplicaLogDir("/data", None, logs)])
    await cluster.run(seconds=8)
    large = [cluster.world.partition(index) for index in (4, 5)]
    assert any(3 in (*state.queued, *state.adding) for state in large)


async def test_a_topic_that_is_created_while_a_plan_is_made_does_not_spoil_it() -> None:
    cluster = Cluster()
    cluster.meanwhile = lambda: cluster.world.made("events", replicas=1)
    await cluster.run(seconds=8)
    assert cluster.queued() > 0
    assert len(cluster.planned_at) == 1


async def test_a_plan_for_other_nodes_is_not_queued_and_the_next_one_waits() -> None:
    """Else a cluster that changes all the time would plan all the time."""
    cluster = Cluster()

    def cordon_for_a_moment() -> None:
        for cordoned in (True, False):
            cluster.world.ask(AlterCordon(NodeId(3), cordoned=cordoned))

    cluster.meanwhile = cordon_for_a_moment
    await cluster.run(seconds=100)
    assert cluster.queued() == 0
    first, second, *_ = cluster.planned_at
    assert second - first >= PAUSE_MS
    cluster.meanwhile = lambda: None
    await cluster.run(seconds=40)
    assert cluster.queued() > 0


async def test_what_an_operator_began_while_a_plan_was_made_is_not_replaced() -> None:
    cluster = Cluster()
    key = cluster.world.partition().key
    cluster.meanwhile = lambda: cluster.world.reassign(key, (3, 1), queued=True)
    await cluster.run(seconds=8)
    assert len(cluster.planned_at) == 1
    assert cluster.queued() == 1


async def test_a_plan_that_could_not_be_queued_is_not_made_again_at_once() -> None:
    cluster = Cluster()
    cluster.is_lost = True
    await cluster.run(seconds=30)
    assert len(cluster.planned_at) == 1
    cluster.is_lost = False
    await cluster.run(seconds=20)
    assert cluster.queued() > 0


async def test_a_cancelled_plan_is_not_made_again_before_another_node_joins(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    await cluster.run(seconds=8)
    for state in cluster.world.topic().partitions:
        cluster.world.reassign(state.key, None)
    assert cluster.queued() == 0
    cluster.world.made("events", partitions=6, replicas=1)
    await cluster.run(seconds=60)
    assert (cluster.queued(), len(cluster.planned_at)) == (0, 1)
    assert sum("were cancelled" in each.message for each in caplog.records) == 1
    cluster.world.start(4)
    cluster.alive.append(4)
    await cluster.run(seconds=10)
    assert cluster.queued() > 0
