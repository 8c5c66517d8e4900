"""Looks at a cluster, queues the moves of a plan at the controller, and waits until they are complete.

Invariants:
  1. Every step can be repeated: a plan names nothing that has moved, and takes what is moving, or queued, where it
     goes. After a crash of this process, or of any node, the same call continues.
  2. A move is complete when the partition has its new replicas and no others: what was cancelled, dropped or replaced
     meanwhile counts as refused, and what an earlier run queued is waited for. Else a node could be wiped with its last
     copies.

Not here: the plan (move_planner.py); the waves, which the controller begins whether anyone waits or not
(replication/controller/move_queue.py); the rate at which a node fetches (its `follower.replication.throttled.rate`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.balancing.dir_planner import Disk, even_directories
from tidelog.balancing.measured_logs import MeasuredLogs
from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, ReplicaMove, plan_moves, unplaceable
from tidelog.balancing.node_shares import DirectoryShare, NodeShare, directory_shares, node_shares
from tidelog.client.admin import Admin, TopicDescription
from tidelog.clock import Clock
from tidelog.cluster_descriptions import ClusterDescription, PartitionResult, ReassignmentDescription
from tidelog.errors import (
    InvalidReplicaAssignment,
    InvalidRequest,
    NodeIdNotRegistered,
    NoReassignmentInProgress,
    Retry,
    TidelogError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tidelog.types import NO_NODE, NodeId, TopicPartition

REVIEW_MS: Final = 1_000
"""How often the progress is looked at, if few moves are queued; also the pause after an error that may pass."""

LISTED_PER_MS: Final = 10
"""Each review lists every move that is queued: the pause grows with their number. Else the node that is asked would
spend a third of its time on the list of 50,000."""

QUEUED_MOVES: Final = 10
"""The feature level from which on the controller begins queued moves."""

BATCH_MAX: Final = 500
"""Moves that are queued, cancelled, or found complete, at a time. Nodes refuse requests with more than 10,000
partitions, and the controller decides on a whole request at once."""

ROUNDS_MAX: Final = 5
"""Attempts where the node that was asked may be behind the controller."""

STALLED_MAX: Final = 10
"""Reviews at which a node was down, after which moves to it are given up once no others are left."""

THROTTLE: Final = "follower.replication.throttled.rate"


@dataclass(frozen=True, slots=True)
class ClusterBalance:
    """What a plan is made of."""

    nodes: tuple[BalancedNode, ...]
    partitions: tuple[PlacedPartition, ...]
    """With the replicas that they have once the reassignments in progress and the queued ones are complete."""
    moving: tuple[ReplicaMove, ...] = ()
    """The reassignments in progress, and the queued ones whose new nodes take replicas."""
    unanswered: tuple[NodeId, ...] = ()
    """Nodes that did not report the sizes of their logs: what only they have counts as empty."""
    trouble: str = ""
    """Why no change is possible now; the placement is as old as that."""
    hidden: tuple[str, ...] = ()
    """Topics with logs on the nodes that are not among `partitions`. Of a look at the whole cluster: the caller may not
    describe them, or they were deleted just now."""
    log_dirs: Mapping[NodeId, tuple[str, ...]] = field(default_factory=dict)
    """The log directories of each node that reported them."""
    taking_dirs: Mapping[NodeId, tuple[str, ...]] = field(default_factory=dict)
    """Those of them that work and are not cordoned."""
    copies: Mapping[tuple[NodeId, TopicPartition], str] = field(default_factory=dict)
    """The log directories to which replicas are being copied within their nodes."""
    disks: Mapping[NodeId, Mapping[str, Disk]] = field(default_factory=dict)
    """Of the log directories, by their paths."""

    def dir_moves(self, nodes: Collection[int], log_dirs: Collection[str]) -> dict[NodeId, dict[TopicPartition, str]]:
        """The moves within these nodes that empty log directories of them: the largest logs first, each to the
        directory that has the fewest bytes by then, or in which its copy is already. Empty if a node has no other
        directory that takes replicas: then they must leave it. Raises NodeIdNotRegistered, InvalidRequest."""
        _, emptied = self._emptied(nodes, log_dirs)
        found: dict[NodeId, dict[TopicPartition, str]] = {}
        for node in sorted({node for node, _ in emptied}):
            held = {path: 0 for path in self.taking_dirs.get(node, ()) if (node, path) not in emptied}
            if not held:
                return {}
            leaving: list[PlacedPartition] = []
            for placed in self.partitions:
                path = dict(zip(placed.replicas, placed.log_dirs, strict=False)).get(node, "")
                if (node, path) in emptied:
                    leaving.append(placed)
                elif path in held:
                    held[path] += placed.size_bytes
            for placed in sorted(leaving, key=lambda each: (-each.size_bytes, each.partition)):
                copy = self.copies.get((node, placed.partition), "")
                target = copy if copy in held else min(held, key=lambda path: (held[path], path))
                held[target] += placed.size_bytes
                found.setdefault(node, {})[placed.partition] = target
        return found

    def even_dirs(self, moves: Iterable[ReplicaMove]) -> dict[NodeId, dict[TopicPartition, str]]:
        """The moves within nodes that even out the bytes of their log directories once `moves` are complete, and those
        in progress. Only directories that take replicas give or get any. A replica that `moves` bring to a node counts
        nowhere: the controller chooses its directory."""
        after = {move.partition: move.after for move in moves}
        held: dict[NodeId, dict[str, dict[TopicPartition, int]]] = {}
        for each in self.nodes:
            paths = self.taking_dirs.get(each.node_id, ())
            if each.takes_replicas and len(paths) > 1:
                held[each.node_id] = {path: {} for path in paths}
        copied: dict[NodeId, Counter[str]] = {node: Counter() for node in held}
        found: dict[NodeId, dict[TopicPartition, str]] = {}
        for placed in self.partitions:
            left = after.get(placed.partition, placed.replicas)
            for node, path in zip(placed.replicas, placed.log_dirs, strict=False):
                if node not in held or node not in left:
                    continue
                copy = self.copies.get((node, placed.partition))
                if copy is None and path in held[node]:
                    held[node][path][placed.partition] = placed.size_bytes
                elif copy in held[node]:
                    copied[node][copy] += placed.size_bytes
                    found.setdefault(node, {})[placed.partition] = copy
        for node, directories in held.items():
            if moved := even_directories(directories, self.disks.get(node, {}), copied[node]):
                found.setdefault(node, {}).update(moved)
        return found

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

    def shares(self, moves: Iterable[ReplicaMove] = ()) -> dict[NodeId, NodeShare]:
        """What each node has once the moves are complete."""
        return node_shares(self.nodes, self.partitions, moves)

    def dir_shares(
        self,
        moves: Iterable[ReplicaMove] = (),
        placed: Mapping[NodeId, Mapping[TopicPartition, str]] | None = None,
    ) -> dict[NodeId, dict[str, DirectoryShare]]:
        """What each log directory has once the moves are complete. placed: as of `dir_moves`."""
        return directory_shares(self.log_dirs, self.partitions, moves, placed)

    def sizes(self) -> dict[TopicPartition, int]:
        """The bytes of a replica of each partition."""
        return {each.partition: each.size_bytes for each in self.partitions}

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
    """Moves in progress; the others are queued."""
    total: int
    done_bytes: int
    total_bytes: int
    left_ms: int | None
    """Estimate at the rate so far; None: no move with bytes is complete yet."""
    waits_for: str = ""
    """What the first of the running moves lacks, or why the cluster could not be asked."""


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """What is moving in the cluster, also what other commands or the controller itself began."""

    queued: int
    running: int
    left_bytes: int
    """Of the logs that are still to be fetched, whole."""
    waits_for: str = ""
    copies: int = 0
    """Replicas that are being copied to another log directory of their node. Those that wait for that are known to the
    node only."""


async def look_at_balance(admin: Admin) -> ClusterBalance:
    """Ask for nodes, replicas, and the sizes and rates of logs."""
    cluster = await admin.describe_cluster()
    topics = await admin.list_topics()
    return await _balance_of(admin, cluster, topics)


async def _balance_of(admin: Admin, cluster: ClusterDescription, topics: Sequence[TopicDescription]) -> ClusterBalance:
    measured = MeasuredLogs()
    unanswered: list[NodeId] = []
    for node, directories in (await admin.describe_log_dirs()).items():
        if isinstance(directories, TidelogError):
            unanswered.append(node)
        else:
            measured.add(node, directories)
    nodes = tuple(
        BalancedNode(node.node_id, node.rack, node.takes_replicas, measured.cordoned.get(node.node_id, frozenset()))
        for node in cluster.nodes
    )
    taking = {node.node_id for node in nodes if node.takes_replicas}
    partitions: list[PlacedPartition] = []
    moving: list[ReplicaMove] = []
    for topic in topics:
        for each in topic.partitions:
            name = TopicPartition(topic.name, each.partition)
            target = tuple(node for node in each.replicas if node not in each.removing)
            # A queued move to a node that is down may wait for ever: it is planned again, and replaced.
            if each.queued and taking.issuperset({*each.queued} - {*each.replicas}):
                target = each.queued
            partitions.append(placed := measured.placed(name, target))
            before = tuple(node for node in each.replicas if node not in each.adding)
            if before != target or each.adding:
                moving.append(ReplicaMove(name, before, target, placed.size_bytes, measured.dirs_of(name, before)))
    hidden = {partition.topic for partition in measured.sizes} - {topic.name for topic in topics}
    return ClusterBalance(
        nodes,
        tuple(partitions),
        tuple(moving),
        tuple(unanswered),
        cluster.trouble,
        tuple(sorted(hidden)),
        measured.log_dirs,
        measured.taking_dirs,
        measured.copies,
        measured.disks,
    )


async def look_at_queue(admin: Admin) -> QueueProgress:
    """Ask what is queued and in progress."""
    listed = await admin.list_reassignments()
    balance = await look_at_balance(admin)
    sizes = balance.sizes()
    left = sum(sizes.get(each.partition, 0) * len(_to_fetch(each)) for each in listed)
    running = [each for each in listed if each.in_progress]
    waits_for = _waits_for((running or listed)[0]) if listed else ""
    queued = sum(bool(each.queued) for each in listed)
    return QueueProgress(queued, len(running), left, waits_for, len(balance.copies))


async def cancel_moves(
    admin: Admin, clock: Clock, is_meant: Callable[[ReassignmentDescription], bool] = lambda _move: True
) -> list[PartitionResult]:
    """Cancel reassignments, queued ones and those in progress. Returns their results; what has moved stays where it
    is."""
    results: dict[TopicPartition, PartitionResult] = {}
    for _ in range(ROUNDS_MAX):
        meant = [each.partition for each in await admin.list_reassignments() if is_meant(each)]
        if not meant:
            break
        for first in range(0, len(meant), BATCH_MAX):
            for result in await admin.reassign(dict.fromkeys(meant[first : first + BATCH_MAX])):
                if not isinstance(result.error, NoReassignmentInProgress):  # else it has just completed
                    results[result.partition] = result
        await clock.sleep_ms(REVIEW_MS)
    return list(results.values())


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


async def queue_moves(admin: Admin, moves: Sequence[ReplicaMove]) -> list[PartitionResult]:
    """Queue moves at the controller. Returns those that were refused. Raises UnsupportedVersion below feature level 10;
    after any other error, the same call continues."""
    if moves:
        await ensure_moves_are_queued(admin)
    results: list[PartitionResult] = []
    for first in range(0, len(moves), BATCH_MAX):
        batch = moves[first : first + BATCH_MAX]
        results += await admin.reassign({move.partition: move.after for move in batch}, queued=True)
    return [each for each in results if each.error is not None]


async def ensure_moves_are_queued(admin: Admin) -> None:
    """Raise UnsupportedVersion below feature level 10."""
    level = (await admin.describe_cluster()).feature_level
    if level < QUEUED_MOVES:
        # A node of an earlier version does not know what a queued move is: it would begin all of them at once.
        raise UnsupportedVersion(
            f"moves are queued from feature level {QUEUED_MOVES} on, the cluster has level {level}: once every node "
            "runs this version, raise it (`tidelog cluster upgrade`), or move single partitions "
            "(`tidelog partition reassign`)"
        )


async def execute_moves(
    admin: Admin,
    moves: Sequence[ReplicaMove],
    clock: Clock,
    *,
    on_progress: Callable[[MoveProgress], None],
    begun: Sequence[ReplicaMove] = (),
    gives_up: bool = False,
) -> list[PartitionResult]:
    """Queue moves, and wait until all are complete. Returns those that were refused, cancelled, dropped or replaced by
    others. begun: earlier moves that are waited for too. gives_up: cancel those of which a new node is down once all
    others are complete, whatever else moves in the cluster; they count as refused.

    An error that may pass is waited for: the cluster may be electing a controller. Raises any other one.
    """
    execution = _Execution(admin, moves, begun, gives_up=gives_up)
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
        await clock.sleep_ms(REVIEW_MS + execution.listed // LISTED_PER_MS)


class _Execution:
    """Moves while they are executed."""

    def __init__(
        self, admin: Admin, moves: Sequence[ReplicaMove], begun: Sequence[ReplicaMove], *, gives_up: bool
    ) -> None:
        self._admin, self._gives_up = admin, gives_up
        self._unsent = list(moves)
        named = {move.partition for move in moves}
        self._waiting = {move.partition: move for move in begun if move.partition not in named}
        """Queued and in progress."""
        self._all = [*self._waiting.values(), *moves]
        self.listed = 0
        """The reassignments of the cluster, queued and in progress, at the last review."""
        self._running = 0
        self._away: Counter[NodeId] = Counter()
        """The reviews at which each node that is down was so, one after the other."""
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
        return not (self._unsent or self._waiting)

    async def review(self) -> str:
        """Queue what is not queued yet, and look what is complete. Returns what the first running move waits for."""
        if self._unsent:
            self.refused += await queue_moves(self._admin, self._unsent)
            refused = {each.partition for each in self.refused}
            self._waiting |= {move.partition: move for move in self._unsent if move.partition not in refused}
            self._unsent = []
        listed = {each.partition: each for each in await self._admin.list_reassignments()}
        self.listed = len(listed)
        await self._settle([each for each in self._waiting if each not in listed][:BATCH_MAX])
        ours = [listed[each] for each in self._waiting if each in listed]
        running = [each for each in ours if each.in_progress]
        self._running = len(running)
        if self._gives_up and ours and await self._are_stalled(ours):
            await self._cancel(ours)
        return await self._waits_for((running or ours)[0]) if ours else ""

    async def _are_stalled(self, moves: Sequence[ReassignmentDescription]) -> bool:
        """Whether each of the moves waits for a node that has been down for a while."""
        nodes = (await self._admin.describe_cluster()).nodes
        self._away = Counter({node.node_id: self._away[node.node_id] + 1 for node in nodes if node.fenced})
        return all(any(self._away[node] > STALLED_MAX for node in _to_fetch(move)) for move in moves)

    async def _waits_for(self, move: ReassignmentDescription) -> str:
        """As `_waits_for` below; or that none leads from which replicas could fetch."""
        partition, was_first = move.partition, self._first == move.partition
        self._first = partition
        waits_for = _waits_for(move)
        # Asked only about a move that is still the first one: most complete before the next review.
        if not (was_first and move.in_progress and waits_for):
            return waits_for
        topic = (await self._admin.describe_topics({partition.topic}))[partition.topic]
        if isinstance(topic, TopicDescription) and _is_leaderless(topic, partition):
            return (
                f"{partition} has no leader, so nothing can be fetched: `tidelog partition why-unavailable` says what "
                "to start"
            )
        return waits_for

    async def _cancel(self, stalled: Sequence[ReassignmentDescription]) -> None:
        for first in range(0, len(stalled), BATCH_MAX):
            batch = stalled[first : first + BATCH_MAX]
            await self._admin.reassign(dict.fromkeys(each.partition for each in batch))
            for each in batch:
                del self._waiting[each.partition]
                error = InvalidReplicaAssignment(f"{_waits_for(each)}: the move was cancelled")
                self.refused.append(PartitionResult(each.partition, error))

    async def _settle(self, stopped: Sequence[TopicPartition]) -> None:
        """Tell complete moves from cancelled ones. stopped: moves that are neither queued nor in progress any more."""
        described = await self._admin.describe_topics({each.topic for each in stopped}) if stopped else {}
        self._doubtful.intersection_update(stopped)
        for partition in stopped:
            topic, wanted = described[partition.topic], self._waiting[partition].after
            error: TidelogError
            if isinstance(topic, TidelogError):
                error = topic
            elif (replicas := _replicas_of(topic, partition)) == wanted:
                self._done.append(self._waiting.pop(partition))
                continue
            else:
                error = NoReassignmentInProgress(
                    f"the move to {list(wanted)} was cancelled, replaced, or dropped by the controller, whose log says "
                    f"why; the replicas are {list(replicas)}: run the command again for a new plan"
                )
            if partition in self._doubtful:
                del self._waiting[partition]
                self.refused.append(PartitionResult(partition, error))
            self._doubtful.add(partition)

    def progress(self, elapsed_ms: int, waits_for: str) -> MoveProgress:
        """How far the moves are. elapsed_ms: since the first one was begun."""
        done_bytes, total_bytes = (sum(move.moved_bytes for move in each) for each in (self._done, self._all))
        left_ms = elapsed_ms * (total_bytes - done_bytes) // done_bytes if done_bytes else None
        return MoveProgress(len(self._done), self._running, len(self._all), done_bytes, total_bytes, left_ms, waits_for)


def _replicas_of(topic: TopicDescription, partition: TopicPartition) -> tuple[NodeId, ...]:
    """The replicas of a partition; none if the topic has fewer partitions."""
    return next((each.replicas for each in topic.partitions if each.partition == partition.partition), ())


def _is_leaderless(topic: TopicDescription, partition: TopicPartition) -> bool:
    return any(each.partition == partition.partition and each.leader == NO_NODE for each in topic.partitions)


def _to_fetch(move: ReassignmentDescription) -> list[NodeId]:
    """The nodes that fetch the partition, or will, and are not in sync."""
    new = [node for node in move.queued if node not in move.replicas]
    return [node for node in (*move.adding, *new) if node not in move.isr]


def _waits_for(move: ReassignmentDescription) -> str:
    """The replicas that are not in sync: new ones, or one that stays and without which too few would be in sync. Of a
    queued move: the nodes that it needs."""
    if not move.in_progress:
        nodes = ", ".join(map(str, _to_fetch(move)))
        return f"{move.partition} waits for its turn" + (f", and for node {nodes} to be in service" if nodes else "")
    missing = [node for node in move.replicas if node not in move.removing and node not in move.isr]
    return f"{move.partition} waits for node {', '.join(map(str, missing))} to be in sync" if missing else ""
