"""Evens out the replicas of the cluster without a command, while this node's controller is the active one.

The plan is that of `tidelog cluster rebalance`: once it is due, the nodes are asked for the sizes and rates of their
logs. It is queued as that of an operator is, so that `tidelog cluster rebalance --status` shows and `--cancel` ends it.

Not here: when a plan is due (replication/controller/auto_rebalance.py), the plan (tidelog/balancing/move_planner.py),
its execution (replication/controller/move_queue.py).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from node.controller.controller_driver import ControllerDriver
from node.runtime.work import run_in
from replication.controller import events, features
from replication.controller.auto_rebalance import AutoRebalance
from replication.controller.image import ClusterImage
from storage.files.disk_executor import Executor
from tidelog.balancing.measured_logs import MeasuredLogs
from tidelog.balancing.move_planner import BalancedNode, plan_moves
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.types import NodeId, PartitionKey, TopicPartition

_log = logging.getLogger("node.controller")

REVIEW_MS: Final = 1_000

MOVES_MAX: Final = 1_000
"""Moves that one plan queues: the controller decides on a request at once. The rest is planned when these are
complete."""


class Rebalancer:
    """Plans where a plan is due, and queues it."""

    def __init__(
        self,
        controller: ControllerDriver,
        measured: Callable[[ClusterImage], Awaitable[MeasuredLogs]],
        *,
        delay_ms: int,
        planner: Executor,
        clock: Clock,
    ) -> None:
        """measured: asks the nodes for their logs. planner: runs the planner, which takes seconds for a large cluster.
        delay_ms: see AutoRebalance."""
        self._measured = measured
        self._controller, self._planner, self._clock = controller, planner, clock
        self._auto = AutoRebalance(delay_ms)

    async def run(self) -> None:
        """Review the cluster every second, until cancelled."""
        while True:
            await self._clock.sleep_ms(REVIEW_MS)
            image = self._controller.image
            if not self._controller.active or image.feature_level < features.QUEUED_MOVES:
                self._auto.forget()
                continue
            was_held = self._auto.is_held
            if self._auto.is_due(image, self._controller.now()):
                await self._plan(image)
            elif self._auto.is_held and not was_held:
                _log.warning(
                    "moves that even out the replicas were cancelled: no more are planned before a node joins, leaves, "
                    "is cordoned or uncordoned, or gets another rack; `tidelog cluster rebalance` plans them at once"
                )

    async def _plan(self, image: ClusterImage) -> None:
        queued: dict[PartitionKey, tuple[NodeId, ...]] = {}
        try:
            measured = await self._measured(image)
            moves = await run_in(self._planner, lambda: moves_of(image, measured))
            if valid := self._still_valid(moves, image):
                queued = await self._queue(valid[:MOVES_MAX])
        except TidelogError as error:
            _log.warning("the plan that evens out the replicas is made again later: %s", error.message)
            self._auto.failed(self._controller.now())
            return
        if queued or not moves:
            self._auto.planned(image, queued, is_whole=len(queued) == len(moves))
        else:
            _log.info("the plan that evens out the replicas is made again later: the cluster has changed meanwhile")
            self._auto.failed(self._controller.now())

    def _still_valid(self, moves: Sequence[events.Reassignment], image: ClusterImage) -> list[events.Reassignment]:
        """The moves of partitions that are as they were when the plan was made; none if the nodes are not, or something
        else moves: an operator may have begun to drain a node since, and this plan would replace those moves."""
        latest = self._controller.image
        if latest.nodes is not image.nodes or not self._auto.look(latest).is_settled:
            return []
        return [move for move in moves if _replicas(latest, move.partition) == _replicas(image, move.partition)]

    async def _queue(self, moves: Sequence[events.Reassignment]) -> dict[PartitionKey, tuple[NodeId, ...]]:
        """Queue the moves. Returns the new replicas by those that were not refused."""
        answer = await self._controller.ask(events.AlterReassignments(tuple(moves)), events.PartitionOutcomes)
        refused = {each.key: each.outcome for each in answer.partitions if isinstance(each.outcome, TidelogError)}
        if len(refused) == len(moves):
            raise next(iter(refused.values()))
        _log.info(
            "the nodes have uneven numbers of replicas: %d moves are queued (`tidelog cluster rebalance --status`)",
            len(moves) - len(refused),
        )
        return {move.partition: move.replicas for move in moves if move.partition not in refused}


def _replicas(image: ClusterImage, key: PartitionKey) -> tuple[NodeId, ...]:
    """The replicas of a partition; none if it is gone."""
    state = image.partition(key)
    return () if state is None else state.replicas


def moves_of(image: ClusterImage, measured: MeasuredLogs) -> list[events.Reassignment]:
    """The moves that even out replicas, preferred leaderships, bytes and load, as far as nodes reported their logs."""
    nodes = [
        BalancedNode(
            node.node_id,
            node.rack,
            node.active and not node.gets_no_replicas,
            measured.cordoned.get(node.node_id, frozenset()),
        )
        for node in image.nodes.values()
    ]
    keys = {TopicPartition(image.topics[state.topic_id].name, state.partition): state for state in image.partitions()}
    placed = [measured.placed(name, state.replicas) for name, state in keys.items()]
    return [
        events.Reassignment(keys[move.partition].key, move.after, queued=True) for move in plan_moves(nodes, placed)
    ]
