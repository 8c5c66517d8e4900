"""Looks at a cluster, and executes a plan of moves in waves: an Admin client drives it, the controller keeps no plan.

Invariants:
  1. Every step can be repeated: a plan names nothing that has moved, and takes what is moving where it goes. After a
     crash of this process, or of any node, the same command continues.
  2. A node fetches at most `moves_per_node` partitions of the plan at a time, also counting moves that others began.

Not here: the plan (move_planner.py); the rate at which a node fetches (its `follower.replication.throttled.rate`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, ReplicaMove, plan_moves
from tidelog.client.admin import Admin, TopicDescription
from tidelog.clock import Clock
from tidelog.cluster_descriptions import ClusterDescription, PartitionResult
from tidelog.errors import Retry, TidelogError, UnknownTopicOrPartition
from tidelog.types import NodeId, TopicPartition

REVIEW_MS: Final = 1_000
"""How often the progress is looked at; also the pause after an error that may pass."""

THROTTLE: Final = "follower.replication.throttled.rate"


@dataclass(frozen=True, slots=True)
class ClusterBalance:
    """What a plan is made of."""

    nodes: tuple[BalancedNode, ...]
    partitions: tuple[PlacedPartition, ...]
    """With the replicas that they have once the reassignments in progress are complete."""
    unanswered: tuple[NodeId, ...] = ()
    """Nodes that did not report the sizes of their logs: what only they have counts as empty."""

    def moves_to(self, targets: Mapping[TopicPartition, tuple[NodeId, ...]]) -> list[ReplicaMove]:
        """The moves that give these partitions these replicas. Raises UnknownTopicOrPartition."""
        placed = {each.partition: each for each in self.partitions}
        unknown = [str(partition) for partition in targets if partition not in placed]
        if unknown:
            raise UnknownTopicOrPartition(f"the plan names partitions that do not exist: {', '.join(unknown[:5])}")
        return [
            ReplicaMove(partition, placed[partition].replicas, after, placed[partition].size_bytes)
            for partition, after in targets.items()
            if after != placed[partition].replicas
        ]


@dataclass(frozen=True, slots=True)
class MoveProgress:
    """How far the execution of a plan is."""

    done: int
    """Moves that are complete."""
    running: int
    total: int
    done_bytes: int
    total_bytes: int
    left_ms: int | None
    """Estimate at the rate so far; None: no move with bytes is complete yet."""


async def look_at_balance(admin: Admin) -> ClusterBalance:
    """Ask for nodes, replicas and the sizes of logs."""
    cluster = await admin.describe_cluster()
    topics = await admin.list_topics()
    return await _balance_of(admin, cluster, topics)


async def _balance_of(admin: Admin, cluster: ClusterDescription, topics: Sequence[TopicDescription]) -> ClusterBalance:
    sizes: dict[TopicPartition, int] = {}
    unanswered = []
    for node, directories in (await admin.describe_log_dirs()).items():
        if isinstance(directories, TidelogError):
            unanswered.append(node)
            continue
        for log in (log for directory in directories for log in directory.logs):
            sizes[log.partition] = max(sizes.get(log.partition, 0), log.size)
    nodes = tuple(
        BalancedNode(node.node_id, node.rack, takes_replicas=not (node.fenced or node.draining))
        for node in cluster.nodes
    )
    partitions = tuple(
        PlacedPartition(
            name := TopicPartition(topic.name, each.partition),
            tuple(node for node in each.replicas if node not in each.removing),
            sizes.get(name, 0),
        )
        for topic in topics
        for each in topic.partitions
    )
    return ClusterBalance(nodes, partitions, tuple(unanswered))


async def change_replication_factor(
    admin: Admin, topic: str, factor: int, *, validate_only: bool = False
) -> list[PartitionResult]:
    """Begin the reassignments that give each partition of a topic this many replicas; those that stay do not move. The
    results are of the partitions that change. Raises TooFewNodes, UnknownTopicOrPartition."""
    cluster, described = await admin.describe_cluster(), await admin.describe_topic(topic)
    balance = await _balance_of(admin, cluster, [described])
    moves = plan_moves(balance.nodes, balance.partitions, replication_factors={topic: factor}, evens_out=False)
    if validate_only or not moves:
        return []
    return await admin.reassign({move.partition: move.after for move in moves})


async def expected_ms(admin: Admin, moves: Iterable[ReplicaMove], assumed_rate: int) -> int:
    """How long the moves take at least: that of the node that fetches for longest. assumed_rate: bytes per second of a
    node without a lower `follower.replication.throttled.rate`."""
    fetched: Counter[NodeId] = Counter()
    for move in moves:
        for node in move.adding:
            fetched[node] += move.size_bytes
    longest = 0
    for node, size in fetched.items():
        rate = min(await _throttled_rate(admin, node) or assumed_rate, assumed_rate)
        longest = max(longest, size * 1_000 // rate)
    return longest


async def _throttled_rate(admin: Admin, node: NodeId) -> int:
    """The limit of the node in bytes per second; 0 if it has none, or does not tell this caller."""
    try:
        settings = (await admin.describe_node_settings(node)).configs
    except TidelogError:
        return 0
    return next((int(each.value or 0) for each in settings if each.key == THROTTLE), 0)


async def execute_moves(
    admin: Admin,
    moves: Sequence[ReplicaMove],
    clock: Clock,
    *,
    moves_per_node: int,
    on_progress: Callable[[MoveProgress], None],
) -> list[PartitionResult]:
    """Begin moves as earlier ones complete, until all are complete. Returns those that were refused.

    An error that may pass is waited for: the cluster may be electing a controller. Raises any other one.
    """
    pending, running = {move.partition: move for move in moves}, dict[TopicPartition, ReplicaMove]()
    done: list[ReplicaMove] = []
    refused: list[PartitionResult] = []
    began = clock.monotonic_ms()
    while True:
        try:
            ongoing = await admin.list_reassignments()
            moving = {each.partition for each in ongoing}
            done += [running.pop(each) for each in [*running] if each not in moving]
            wave = _next_wave(
                pending.values(), Counter(node for each in ongoing for node in each.adding), moves_per_node
            )
            if wave:
                results = await admin.reassign({move.partition: move.after for move in wave})
                for move, result in zip(wave, results, strict=True):
                    del pending[move.partition]
                    if result.error is None:
                        running[move.partition] = move
                    else:
                        refused.append(result)
        except TidelogError as error:
            if error.retry is Retry.NEVER:
                raise
        on_progress(_progress(done, len(running), moves, clock.monotonic_ms() - began))
        if not (pending or running):
            return refused
        await clock.sleep_ms(REVIEW_MS)


def _next_wave(pending: Iterable[ReplicaMove], busy: Counter[NodeId], moves_per_node: int) -> list[ReplicaMove]:
    """The moves to begin now. busy: how many partitions each node is fetching."""
    wave = []
    for move in pending:
        if all(busy[node] < moves_per_node for node in move.adding):
            busy.update(move.adding)
            wave.append(move)
    return wave


def _progress(done: Sequence[ReplicaMove], running: int, moves: Sequence[ReplicaMove], elapsed_ms: int) -> MoveProgress:
    done_bytes, total_bytes = (sum(move.moved_bytes for move in each) for each in (done, moves))
    left_ms = elapsed_ms * (total_bytes - done_bytes) // done_bytes if done_bytes else None
    return MoveProgress(len(done), running, len(moves), done_bytes, total_bytes, left_ms)
