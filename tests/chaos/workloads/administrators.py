"""Topics that come and go, replicas that move, leaderships that are given back, nodes that are drained."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Final

from tests.chaos.history import Begun, Failed, Step, Topic, now
from tests.chaos.workloads.work import ORDERS, PARTITIONS, REPLICAS, Work, pause
from tidelog import Admin, TopicPartition
from tidelog.balancing.cluster_balance import ClusterBalance, cancel_moves, execute_moves, look_at_balance
from tidelog.balancing.move_planner import ReplicaMove
from tidelog.balancing.node_drain import cancel_drain, drain_node
from tidelog.clock import MachineClock
from tidelog.errors import TidelogError
from tidelog.types import NodeId

PAUSE_S: Final = 2.0
KEPT: Final = 3
"""Topics that are there at once."""
DRAIN_S: Final = 30.0
"""A drain that lasts longer is cancelled: the run must be able to end."""


async def create_and_delete(work: Work, name: str) -> None:
    """Until producers stop. An outcome that is unknown is noted as begun."""
    work.history.note(Begun(now(), name, []))
    kept: deque[str] = deque()
    number = 0
    async with Admin(work.bootstrap) as admin:
        while not work.stopping_producers.is_set():
            topic = f"brief-{number}"
            number += 1
            work.history.note(Topic(now(), name, topic, "creating"))
            try:
                await admin.create_topic(topic, partitions=1, replication_factor=REPLICAS)
                work.history.note(Topic(now(), name, topic, "created"))
                kept.append(topic)
                while len(kept) > KEPT:
                    oldest = kept.popleft()
                    work.history.note(Topic(now(), name, oldest, "deleting"))
                    await admin.delete_topic(oldest)
                    work.history.note(Topic(now(), name, oldest, "deleted"))
            except TidelogError as failure:
                work.history.note(Failed(now(), name, f"{topic}: {type(failure).__name__}: {failure}"))
            await pause(work.stopping_producers, PAUSE_S)


async def move_replicas(work: Work, name: str) -> None:
    """Until producers stop: a partition of `orders` moves to other nodes, or gets another preferred leader, which
    is then elected."""
    work.history.note(Begun(now(), name, []))
    rng = Random(work.seed)
    async with Admin(work.bootstrap) as admin:
        while not work.stopping_producers.is_set():
            place = TopicPartition(ORDERS, rng.randrange(PARTITIONS[ORDERS]))
            replicas = rng.sample(range(work.nodes), REPLICAS)
            try:
                (outcome,) = await admin.reassign({place: replicas})
                if outcome.error is not None:
                    raise outcome.error
                work.history.note(Step(now(), name, f"{place} to {replicas}"))
                await pause(work.stopping_producers, PAUSE_S)
                await admin.elect_leaders([place])
            except TidelogError as failure:
                work.history.note(Failed(now(), name, f"{place}: {type(failure).__name__}: {failure}"))
            await pause(work.stopping_producers, PAUSE_S)


async def drain_and_rebalance(work: Work, name: str) -> None:
    """Until producers stop: a node is emptied and gets its share of the replicas again. Only where a replica can leave
    a node for another one."""
    if work.nodes == REPLICAS:
        return
    work.history.note(Begun(now(), name, []))
    rng = Random(work.seed)
    async with Admin(work.bootstrap) as admin:
        while not work.stopping_producers.is_set():
            node = NodeId(rng.randrange(work.nodes))
            try:
                async with asyncio.timeout(DRAIN_S):
                    await _drain(work, name, admin, node)
            except TidelogError as failure:
                work.history.note(Failed(now(), name, f"node {node}: {type(failure).__name__}: {failure}"))
            except TimeoutError:
                work.history.note(Failed(now(), name, f"node {node} is not drained within {DRAIN_S:g} s"))
            await _end_drain(work, name, admin, node)
            await pause(work.stopping_producers, PAUSE_S)


async def _drain(work: Work, name: str, admin: Admin, node: NodeId) -> None:
    async def planned(_balance: ClusterBalance, moves: Sequence[ReplicaMove], begun: Sequence[ReplicaMove]) -> None:
        work.history.note(Step(now(), name, f"{len(moves) + len(begun)} replicas leave node {node}"))

    outcome = await drain_node(
        admin,
        node,
        MachineClock(),
        on_plan=planned,
        on_progress=lambda _: None,
    )
    work.history.note(Step(now(), name, f"node {node} has {outcome.left} replicas left"))


async def _end_drain(work: Work, name: str, admin: Admin, node: NodeId) -> None:
    """Until the node may get replicas again, and has got some, or that has failed."""
    clock = MachineClock()
    while True:
        try:
            await cancel_drain(admin, node, clock)
            break
        except TidelogError as failure:
            # A node that stays cordoned would leave too few for all drains that follow.
            work.history.note(Failed(now(), name, f"the drain of node {node}: {type(failure).__name__}: {failure}"))
            if work.stopping_producers.is_set():
                return
            await pause(work.stopping_producers, PAUSE_S)
    try:
        async with asyncio.timeout(DRAIN_S):
            moves, begun = (await look_at_balance(admin)).planned(())
            refused = await execute_moves(admin, moves, clock, on_progress=lambda _: None, begun=begun)
            work.history.note(Step(now(), name, f"{len(moves) - len(refused)} of {len(moves)} replicas rebalanced"))
    except TidelogError as failure:
        work.history.note(Failed(now(), name, f"rebalance: {type(failure).__name__}: {failure}"))
    except TimeoutError:
        work.history.note(Failed(now(), name, f"not rebalanced within {DRAIN_S:g} s"))
        await _cancel_queued(work, name, admin)


async def _cancel_queued(work: Work, name: str, admin: Admin) -> None:
    """Cancel the moves that no wave has begun: the controller would go on with them when the run has ended."""
    try:
        await cancel_moves(admin, MachineClock(), lambda move: bool(move.queued))
    except TidelogError as failure:
        work.history.note(Failed(now(), name, f"the queued moves: {type(failure).__name__}: {failure}"))
