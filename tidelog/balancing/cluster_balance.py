"""Looks at a cluster, and executes a plan of moves in waves: an Admin client drives it, the controller keeps no plan.

Invariants:
  1. Every step can be repeated: a plan names nothing that has moved, and takes what is moving where it goes. After a
     crash of this process, or of any node, the same command continues.
  2. A node fetches at most `moves_per_node` partitions of the plan at a time, also counting moves that others began.
  3. A move is complete when the partition has its new replicas and no others: what was cancelled or replaced meanwhile
     counts as refused, and what an earlier run began is waited for. Else a node could be wiped with its last copies.

Not here: the plan (move_planner.py); the rate at which a node fetches (its `follower.replication.throttled.rate`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, ReplicaMove, plan_moves, unplaceable
from tidelog.client.admin import Admin, TopicDescription
from tidelog.clock import Clock
from tidelog.cluster_descriptions import ClusterDescription, PartitionResult, ReassignmentDescription
from tidelog.errors import (
    InvalidRequest,
    NodeIdNotRegistered,
    NoReassignmentInProgress,
    Retry,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.types import NO_NODE, NodeId, TopicPartition

REVIEW_MS: Final = 1_000
"""How often the progress is looked at; also the pause after an error that may pass."""

WAVE_MAX: Final = 500
"""Moves that are begun, or found complete, at a time. Moves that fetch nothing are bounded by this alone, and nodes
refuse requests with more than 10,000 partitions."""

THROTTLE: Final = "follower.replication.throttled.rate"


@dataclass(frozen=True, slots=True)
class ClusterBalance:
    """What a plan is made of."""

    nodes: tuple[BalancedNode, ...]
    partitions: tuple[PlacedPartition, ...]
    """With the replicas that they have once the reassignments in progress are complete."""
    moving: tuple[ReplicaMove, ...] = ()
    """The reassignments in progress."""
    unanswered: tuple[NodeId, ...] = ()
    """Nodes that did not report the sizes of their logs: what only they have counts as empty."""
    trouble: str = ""
    """Why no change is possible now; the placement is as old as that."""
    hidden: tuple[str, ...] = ()
    """Topics with logs on the nodes that are not among `partitions`. Of a look at the whole cluster: the caller may not
    describe them, or they were deleted just now."""
    log_dirs: Mapping[NodeId, tuple[str, ...]] = field(default_factory=dict)
    """The log directories of each node that reported them."""

    def planned(
        self, emptied: Collection[int], staying: Collection[TopicPartition] = (), *, log_dirs: Collection[str] = ()
    ) -> tuple[list[ReplicaMove], list[ReplicaMove]]:
        """The moves that empty these nodes or, without any, even out all of them; and the moves in progress that belong
        to the same task. staying: partitions that stay where they are. log_dirs: empty only these log directories of
        the nodes. Raises NodeIdNotRegistered, TooFewNodes, InvalidRequest for an unknown log directory."""
        leaving, dirs = self._emptied(emptied, log_dirs)
        moves = plan_moves(
            self.nodes,
            self.partitions,
            emptied=leaving,
            emptied_dirs=dirs,
            evens_out=not (leaving or dirs),
            staying=staying,
        )
        named = {move.partition for move in moves}
        begun = [
            move
            for move in self.moving
            if not (leaving or dirs)
            or leaving.intersection(move.before) - {*move.after}
            or dirs.intersection(move.leaving_dirs.items())
        ]
        return moves, [move for move in begun if move.partition not in named]

    def staying(self, emptied: Collection[int], *, log_dirs: Collection[str] = ()) -> dict[TopicPartition, str]:
        """The partitions that keep these nodes, or log directories of them, from being emptied, with the reason. Raises
        NodeIdNotRegistered, InvalidRequest."""
        return unplaceable(self.nodes, self.partitions, *self._emptied(emptied, log_dirs))

    def open_dirs(self, nodes: Collection[int], log_dirs: Collection[str]) -> list[str]:
        """Those of the log directories of the nodes that are not cordoned."""
        cordoned = [each.cordoned_dirs for each in self.nodes if each.node_id in nodes]
        return [log_dir for log_dir in log_dirs if not all(log_dir in each for each in cordoned)]

    def _emptied(
        self, nodes: Collection[int], log_dirs: Collection[str]
    ) -> tuple[set[NodeId], set[tuple[NodeId, str]]]:
        """The nodes and the log directories that are emptied."""
        leaving = self._registered(nodes)
        if not log_dirs:
            return leaving, set()
        for node in sorted(leaving):
            known = self.log_dirs.get(node, ())
            for log_dir in log_dirs:
                if log_dir not in known:
                    raise InvalidRequest(
                        f"node {node} has no log directory {log_dir!r}: name one of {', '.join(known) or '(unknown)'}, "
                        f"as `tidelog log-dirs --node {node}` shows them while the node is alive"
                    )
        return set(), {(node, log_dir) for node in leaving for log_dir in log_dirs}

    def _registered(self, nodes: Collection[int]) -> set[NodeId]:
        known = {node.node_id for node in self.nodes}
        for node in nodes:
            if node not in known:
                raise NodeIdNotRegistered(
                    f"there is no node {node}; the registered nodes are {', '.join(map(str, sorted(known)))}"
                )
        return {NodeId(node) for node in nodes}

    def moves_to(self, targets: Mapping[TopicPartition, tuple[NodeId, ...]]) -> list[ReplicaMove]:
        """The moves that give these partitions these replicas. Raises UnknownTopicOrPartition."""
        placed = {each.partition: each for each in self.partitions}
        unknown = [str(partition) for partition in targets if partition not in placed]
        if unknown:
            raise UnknownTopicOrPartition(f"the plan names partitions that do not exist: {', '.join(unknown[:5])}")
        return [
            ReplicaMove(partition, now.replicas, after, now.size_bytes, now.log_dirs)
            for partition, after in targets.items()
            if after != (now := placed[partition]).replicas
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
    waits_for: str = ""
    """What the first of the running moves lacks, or why the cluster could not be asked."""


async def look_at_balance(admin: Admin) -> ClusterBalance:
    """Ask for nodes, replicas and the sizes of logs."""
    cluster = await admin.describe_cluster()
    topics = await admin.list_topics()
    return await _balance_of(admin, cluster, topics)


async def _balance_of(admin: Admin, cluster: ClusterDescription, topics: Sequence[TopicDescription]) -> ClusterBalance:
    sizes: dict[TopicPartition, int] = {}
    places: dict[tuple[NodeId, TopicPartition], str] = {}
    log_dirs: dict[NodeId, tuple[str, ...]] = {}
    cordoned: dict[NodeId, frozenset[str]] = {}
    unanswered = []
    for node, directories in (await admin.describe_log_dirs()).items():
        if isinstance(directories, TidelogError):
            unanswered.append(node)
            continue
        log_dirs[node] = tuple(directory.path for directory in directories)
        cordoned[node] = frozenset(directory.path for directory in directories if directory.cordoned)
        for directory in directories:
            for log in directory.logs:
                sizes[log.partition] = max(sizes.get(log.partition, 0), log.size)
                places[node, log.partition] = directory.path

    def dirs_of(partition: TopicPartition, replicas: Iterable[NodeId]) -> tuple[str, ...]:
        return tuple(places.get((node, partition), "") for node in replicas)

    nodes = tuple(
        BalancedNode(node.node_id, node.rack, node.takes_replicas, cordoned.get(node.node_id, frozenset()))
        for node in cluster.nodes
    )
    partitions = tuple(
        PlacedPartition(
            name := TopicPartition(topic.name, each.partition),
            replicas := tuple(node for node in each.replicas if node not in each.removing),
            sizes.get(name, 0),
            dirs_of(name, replicas),
        )
        for topic in topics
        for each in topic.partitions
    )
    moving = tuple(
        ReplicaMove(
            name := TopicPartition(topic.name, each.partition),
            before := tuple(node for node in each.replicas if node not in each.adding),
            tuple(node for node in each.replicas if node not in each.removing),
            sizes.get(name, 0),
            dirs_of(name, before),
        )
        for topic in topics
        for each in topic.partitions
        if each.adding or each.removing
    )
    hidden = {partition.topic for partition in sizes} - {topic.name for topic in topics}
    return ClusterBalance(
        nodes, partitions, moving, tuple(unanswered), cluster.trouble, tuple(sorted(hidden)), log_dirs
    )


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
    begun: Sequence[ReplicaMove] = (),
    before_wave: Callable[[], Awaitable[None]] | None = None,
) -> list[PartitionResult]:
    """Begin moves as earlier ones complete, until all are complete. Returns those that were refused, cancelled or
    replaced by others. begun: moves in progress that are waited for too. before_wave: raises if no more moves may
    begin.

    An error that may pass is waited for: the cluster may be electing a controller. Raises any other one.
    """
    execution = _Execution(admin, moves, begun, moves_per_node, before_wave)
    began = clock.monotonic_ms()
    while True:
        waits_for = ""
        try:
            waits_for = await execution.review()
        except TidelogError as error:
            if error.retry is Retry.NEVER:
                raise
            waits_for = error.message
        on_progress(execution.progress(clock.monotonic_ms() - began, waits_for))
        if execution.ended:
            return execution.refused
        await clock.sleep_ms(REVIEW_MS)


class _Execution:
    """Moves while they are executed."""

    def __init__(
        self,
        admin: Admin,
        moves: Sequence[ReplicaMove],
        begun: Sequence[ReplicaMove],
        moves_per_node: int,
        before_wave: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._admin, self._moves_per_node, self._before_wave = admin, moves_per_node, before_wave
        self._pending = {move.partition: move for move in moves}
        self._running = {move.partition: move for move in begun if move.partition not in self._pending}
        self._all = [*self._running.values(), *moves]
        self._done: list[ReplicaMove] = []
        self._doubtful: set[TopicPartition] = set()
        """Partitions that are not moving, and did not have their new replicas at the last review. The node that was
        asked may have been behind."""
        self._first: TopicPartition | None = None
        """The running move that the last review looked at."""
        self.refused: list[PartitionResult] = []

    @property
    def ended(self) -> bool:
        """Whether no move is left."""
        return not (self._pending or self._running)

    async def review(self) -> str:
        """Look what is complete and begin what may begin. Returns what the first running move waits for."""
        ongoing = {each.partition: each for each in await self._admin.list_reassignments()}
        await self._settle([each for each in self._running if each not in ongoing][:WAVE_MAX])
        busy = Counter(node for each in ongoing.values() for node in each.adding)
        wave = _next_wave(self._pending.values(), busy, self._moves_per_node)
        if wave and self._before_wave is not None:
            await self._before_wave()
        if wave:
            results = await self._admin.reassign({move.partition: move.after for move in wave})
            for move, result in zip(wave, results, strict=True):
                del self._pending[move.partition]
                if result.error is None:
                    self._running[move.partition] = move
                else:
                    self.refused.append(result)
        first = next((ongoing[each] for each in self._running if each in ongoing), None)
        return "" if first is None else await self._waits_for(first)

    async def _waits_for(self, move: ReassignmentDescription) -> str:
        """The replicas that are not in sync: new ones, or one that stays and without which too few would be in sync;
        or that none leads from which they could fetch."""
        partition, was_first = move.partition, self._first == move.partition
        self._first = partition
        missing = [node for node in move.replicas if node not in move.removing and node not in move.isr]
        if not missing:
            return ""
        # Asked only about a move that is still the first one: most complete before the next review.
        topic = (await self._admin.describe_topics({partition.topic}))[partition.topic] if was_first else None
        if isinstance(topic, TopicDescription) and _is_leaderless(topic, partition):
            return (
                f"{partition} has no leader, so nothing can be fetched: `tidelog partition why-unavailable` says what "
                "to start"
            )
        return f"{partition} waits for node {', '.join(map(str, missing))} to be in sync"

    async def _settle(self, stopped: Sequence[TopicPartition]) -> None:
        """Tell complete moves from cancelled ones. stopped: running moves that are not in progress any more."""
        described = await self._admin.describe_topics({each.topic for each in stopped}) if stopped else {}
        self._doubtful.intersection_update(stopped)
        for partition in stopped:
            topic, wanted = described[partition.topic], self._running[partition].after
            error: TidelogError
            if isinstance(topic, TidelogError):
                error = topic
            elif (replicas := _replicas_of(topic, partition)) == wanted:
                self._done.append(self._running.pop(partition))
                continue
            else:
                error = NoReassignmentInProgress(
                    f"the move to {list(wanted)} was cancelled or replaced, the replicas are {list(replicas)}: run the "
                    "command again for a new plan"
                )
            if partition in self._doubtful:
                del self._running[partition]
                self.refused.append(PartitionResult(partition, error))
            self._doubtful.add(partition)

    def progress(self, elapsed_ms: int, waits_for: str) -> MoveProgress:
        """How far the moves are. elapsed_ms: since the first one was begun."""
        done_bytes, total_bytes = (sum(move.moved_bytes for move in each) for each in (self._done, self._all))
        left_ms = elapsed_ms * (total_bytes - done_bytes) // done_bytes if done_bytes else None
        return MoveProgress(
            len(self._done), len(self._running), len(self._all), done_bytes, total_bytes, left_ms, waits_for
        )


def _replicas_of(topic: TopicDescription, partition: TopicPartition) -> tuple[NodeId, ...]:
    """The replicas of a partition; none if the topic has fewer partitions."""
    return next((each.replicas for each in topic.partitions if each.partition == partition.partition), ())


def _is_leaderless(topic: TopicDescription, partition: TopicPartition) -> bool:
    return any(each.partition == partition.partition and each.leader == NO_NODE for each in topic.partitions)


def _next_wave(pending: Iterable[ReplicaMove], busy: Counter[NodeId], moves_per_node: int) -> list[ReplicaMove]:
    """The moves to begin now. busy: how many partitions each node is fetching."""
    wave: list[ReplicaMove] = []
    for move in pending:
        if len(wave) == WAVE_MAX:
            break
        if all(busy[node] < moves_per_node for node in move.adding):
            busy.update(move.adding)
            wave.append(move)
    return wave
