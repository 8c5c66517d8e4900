"""Evens out the replicas of the cluster without a command, while this node's controller is the active one.

The plan is that of `tidelog cluster rebalance`, without the sizes of logs, which the metadata do not have. It is queued
as that of an operator is, so that `tidelog cluster rebalance --status` shows and `--cancel` ends it.

Not here: when a plan is due (replication/controller/auto_rebalance.py), the plan (tidelog/balancing/move_planner.py),
its execution (replication/controller/move_queue.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from node.controller.controller_driver import ControllerDriver
from node.runtime.work import run_in
from replication.controller import events, features
from replication.controller.auto_rebalance import AutoRebalance
from replication.controller.image import ClusterImage
from storage.files.disk_executor import Executor
from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, plan_moves
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.types import TopicPartition

_log = logging.getLogger("node.controller")

REVIEW_MS: Final = 1_000

MOVES_MAX: Final = 1_000
"""Moves that one plan queues: the controller decides on a request at once. The rest is planned when these are
complete."""


class Rebalancer:
    """Plans where a plan is due, and queues it."""

    def __init__(self, controller: ControllerDriver, *, delay_ms: int, planner: Executor, clock: Clock) -> None:
        """planner: runs the planner, which takes seconds for a large cluster. delay_ms: see AutoRebalance."""
        self._controller, self._planner, self._clock = controller, planner, clock
        self._auto = AutoRebalance(delay_ms)

    async def run(self) -> None:
        """Review the cluster every second, until cancelled."""
        while True:
            await self._clock.sleep_ms(REVIEW_MS)
            image = self._controller.image
            if not self._controller.active or image.feature_level < features.QUEUED_MOVES:
                self._auto.forget()
            elif self._auto.is_due(image, self._controller.now()):
                await self._plan(image)

    async def _plan(self, image: ClusterImage) -> None:
        try:
            moves = await run_in(self._planner, lambda: moves_of(image))
            latest = self._controller.image
            if latest.topics is not image.topics or latest.nodes is not image.nodes:
                return  # An operator may have begun to drain a node since: this plan would replace those moves.
            if moves:
                await self._queue(moves[:MOVES_MAX])
        except TidelogError as error:
            _log.info("the plan that evens out the replicas is not queued, and is made again: %s", error.message)
            return
        if len(moves) <= MOVES_MAX:
            self._auto.planned(image)

    async def _queue(self, moves: Sequence[events.Reassignment]) -> None:
        outcomes = await self._controller.ask(events.AlterReassignments(tuple(moves)), events.PartitionOutcomes)
        refused = sum(isinstance(each.outcome, TidelogError) for each in outcomes.partitions)
        _log.info(
            "the nodes have uneven numbers of replicas: %d moves are queued (`tidelog cluster rebalance --status`)",
            len(moves) - refused,
        )


def moves_of(image: ClusterImage) -> list[events.Reassignment]:
    """The moves that even out replicas and preferred leaderships."""
    nodes = [
        BalancedNode(node.node_id, node.rack, takes_replicas=node.active and not node.gets_no_replicas)
        for node in image.nodes.values()
    ]
    states = list(image.partitions())
    names = [TopicPartition(image.topics[state.topic_id].name, state.partition) for state in states]
    keys = {name: state.key for name, state in zip(names, states, strict=True)}
    placed = [PlacedPartition(name, state.replicas) for name, state in zip(names, states, strict=True)]
    return [events.Reassignment(keys[move.partition], move.after, queued=True) for move in plan_moves(nodes, placed)]
