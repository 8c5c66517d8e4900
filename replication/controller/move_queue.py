"""Queue of moves: reassignments that the controller begins in waves. The client that asked for them may have gone.

A queued move is a field of its partition (`PartitionRecord.queued`), so it outlives the controller and its snapshots,
and a deleted topic has none.

Invariants:
  1. A wave leaves no node with more than `moves_per_node` partitions to fetch, also counting reassignments that were
     begun without the queue. A node gets as many in a second, spread over it: begun together, they would be copied in
     one burst, for which the records of producers wait.
  2. The record that begins a move also takes it from the queue. After a crash of the controller it is queued or in
     progress, and never both or neither.
  3. A later request for the partition, a reassignment or a cancel, takes its move from the queue: what an operator
     asked for last is not undone by a wave.
  4. A move waits for its new nodes to be in service, and for the reassignment of its partition in progress. One that
     can never begin is dropped (administration.py), so that the queue becomes empty.

Not here: what a reassignment does once it has begun (reassignment.py); the rate at which a node fetches
(`follower.replication.throttled.rate`).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from replication.controller import features
from replication.controller.elections import name_of
from replication.controller.events import Reassignment
from replication.controller.image import ClusterImage, PartitionState
from replication.controller.metadata_records import PartitionChangeRecord
from replication.controller.placement import refuse_replicas
from tidelog.types import NodeId

WAVES_PER_S: Final = 5
"""The most waves in a second: each looks at all partitions of the cluster."""

WAVE_MAX: Final = 500
"""Moves that begin at a time. Those that fetch nothing are bounded by this alone, and a wave is one atomic batch."""


def enqueue(image: ClusterImage, state: PartitionState, replicas: tuple[NodeId, ...]) -> PartitionChangeRecord | None:
    """The record that queues the move of a partition to these replicas, instead of the one that was queued; None if
    nothing changes. Raises InvalidReplicaAssignment, UnsupportedVersion."""
    features.require(image, features.QUEUED_MOVES, "a queued move")
    refuse_replicas(image, name_of(image, state), replicas, present=state.replicas)
    target = tuple(node for node in state.replicas if node not in state.removing)
    queued = () if replicas == target else replicas
    return None if queued == state.queued else PartitionChangeRecord(state.topic_id, state.partition, queued=queued)


def next_wave(image: ClusterImage, moves_per_node: int) -> list[Reassignment]:
    """The moves to begin now, in the order of the partitions. Some may be refused."""
    waiting = [state for state in image.partitions() if state.queued and not (state.adding or state.removing)]
    busy = Counter(node for state in (image.partitions() if waiting else ()) for node in state.adding)
    at_once, begun = _at_once(moves_per_node), Counter[NodeId]()
    wave: list[Reassignment] = []
    for state in waiting:
        new = [node for node in state.queued if node not in state.replicas]
        if any(_takes_none(image, node) for node in new):
            new = []  # it is refused: counted, thousands of these would be dropped a few per second
        elif any(busy[node] >= moves_per_node or begun[node] >= at_once or _is_away(image, node) for node in new):
            continue
        busy.update(new)
        begun.update(new)
        wave.append(Reassignment(state.key, state.queued))
        if len(wave) == WAVE_MAX:
            break
    return wave


def wave_ms(moves_per_node: int) -> int:
    """From one wave to the next while moves begin: `moves_per_node` for each node in a second."""
    return 1_000 * _at_once(moves_per_node) // moves_per_node


def _at_once(moves_per_node: int) -> int:
    """How many moves to one node a wave begins."""
    return -(-moves_per_node // WAVES_PER_S)


def _takes_none(image: ClusterImage, node_id: NodeId) -> bool:
    """Whether the node was removed or cordoned, so that no move to it begins."""
    node = image.nodes.get(node_id)
    return node is None or node.gets_no_replicas


def _is_away(image: ClusterImage, node_id: NodeId) -> bool:
    """Whether the node is registered, and cannot get replicas before it is in service again."""
    node = image.nodes.get(node_id)
    return node is not None and not node.active
