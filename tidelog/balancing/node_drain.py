"""Drains a node: cordons it, and moves every replica away from it, in rounds until none is left.

Invariants:
  1. The plan is made again once the node is cordoned: a topic that was placed on it before is in that plan, and nothing
     is placed on it after.
  2. A drain that cannot be planned leaves no cordon behind.
  3. Every step can be repeated: after a crash of this process, or of any node, the same call continues.
  4. A drain that was cancelled elsewhere queues no more moves: it looks for the cordon before each plan is queued.

Not here: the plan (move_planner.py), the queue (cluster_balance.py), the waves and what a cordon refuses (the
controller).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidelog.balancing.cluster_balance import (
    REVIEW_MS,
    ROUNDS_MAX,
    ClusterBalance,
    MoveProgress,
    cancel_moves,
    ensure_moves_are_queued,
    execute_moves,
    look_at_balance,
)
from tidelog.balancing.move_planner import ReplicaMove
from tidelog.client.admin import Admin
from tidelog.clock import Clock
from tidelog.cluster_descriptions import PartitionResult, ReassignmentDescription
from tidelog.errors import InvalidRequest
from tidelog.types import NodeId


@dataclass(frozen=True, slots=True)
class DrainOutcome:
    """What a drain did."""

    moved: int = 0
    moved_bytes: int = 0
    refused: tuple[PartitionResult, ...] = ()
    left: int = 0
    """Replicas that the node still has."""


async def drain_node(
    admin: Admin,
    node: NodeId,
    clock: Clock,
    *,
    on_plan: Callable[[ClusterBalance, list[ReplicaMove], list[ReplicaMove]], Awaitable[None]],
    on_progress: Callable[[MoveProgress], None],
) -> DrainOutcome:
    """Cordon the node and move its replicas away; it stays cordoned. on_plan: awaited with what a plan was made of, its
    moves, and the moves in progress that are waited for too.

    Raises NodeIdNotRegistered, TooFewNodes, UnsupportedVersion below the feature level of cordons or of queued moves;
    InvalidRequest if the cordon ended meanwhile.
    """
    moves, _ = (await look_at_balance(admin)).planned({node})
    if moves:
        await ensure_moves_are_queued(admin)  # else the cordon would stay, and nothing would move
    await admin.cordon_node(node)
    watch, outcome = _CordonWatch(admin, node, clock), DrainOutcome()
    await watch.begin()
    # More than one plan is needed where the new node of a move went down, and where the node that was asked is behind,
    # or does not show all topics.
    for _ in range(ROUNDS_MAX):
        balance = await look_at_balance(admin)
        moves, begun = balance.planned({node})
        await on_plan(balance, moves, begun)
        await watch.ensure_cordoned()
        refused = await execute_moves(admin, moves, clock, on_progress=on_progress, begun=begun, gives_up=True)
        stopped = {each.partition for each in refused}
        moved = [move for move in (*begun, *moves) if move.partition not in stopped]
        outcome = DrainOutcome(
            outcome.moved + len(moved),
            outcome.moved_bytes + sum(move.moved_bytes for move in moved),
            tuple(refused),
            await _replicas_on(admin, node),
        )
        if not outcome.left:
            break
        # Refused moves too are planned again: in a rolling restart, the node that they name is fenced for a moment.
        await clock.sleep_ms(REVIEW_MS)
    return outcome


async def cancel_drain(admin: Admin, node: NodeId, clock: Clock) -> list[PartitionResult]:
    """Let the node get new replicas again, and cancel the reassignments, queued or in progress, that take replicas away
    from it. Returns the results of these; what has moved stays where it is. Raises NodeIdNotRegistered,
    UnsupportedVersion."""
    # The cordon ends first: a drain that another process runs then queues no more moves.
    await admin.uncordon_node(node)

    def leaves(move: ReassignmentDescription) -> bool:
        return node in move.removing or (bool(move.queued) and node in move.replicas and node not in move.queued)

    return await cancel_moves(admin, clock, leaves)


async def _replicas_on(admin: Admin, node: NodeId) -> int:
    """As a node knows it, also of topics that the caller may not describe."""
    return sum(each.replicas for each in (await admin.describe_cluster()).nodes if each.node_id == node)


class _CordonWatch:
    """Notices that the cordon of a node has ended."""

    def __init__(self, admin: Admin, node: NodeId, clock: Clock) -> None:
        self._admin, self._node, self._clock = admin, node, clock
        self._offset = -1

    async def begin(self) -> None:
        """Wait until a node shows the cordon. Raises InvalidRequest if none does: it ended at once."""
        # Without this, a drain that is cancelled before its first plan would take the missing cordon for one that the
        # node that was asked does not know yet, and would move everything.
        for _ in range(ROUNDS_MAX):
            if await self._is_cordoned():
                return
            await self._clock.sleep_ms(REVIEW_MS)
        raise self._cancelled()

    async def ensure_cordoned(self) -> None:
        """Raise InvalidRequest if the node is not cordoned any more."""
        if not await self._is_cordoned():
            raise self._cancelled()

    async def _is_cordoned(self) -> bool:
        cluster = await self._admin.describe_cluster()
        if cluster.metadata_offset < self._offset:
            return True  # that node is behind another one that has shown the cordon: it may not know of it yet
        cordoned = any(each.node_id == self._node and each.cordoned for each in cluster.nodes)
        if cordoned:
            self._offset = cluster.metadata_offset
        return cordoned

    def _cancelled(self) -> InvalidRequest:
        return InvalidRequest(
            f"node {self._node} is not cordoned any more, so its drain was cancelled: no more moves are queued; those "
            "that were complete unless they were cancelled too; run the command again to drain it"
        )
