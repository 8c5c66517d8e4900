"""Reassignment: replaces replicas of a partition while it is led and written.

Invariants:
  1. New replicas are added at once. Old ones stay until every new one is in sync and the in-sync set without the old
     ones is not too small: the number of copies never falls below the requested one.
  2. The removal is one record: replicas, in-sync set, eligible set and leader change together.
  3. Cancelling a reassignment removes the replicas that it added, and nothing else. A new reassignment replaces one in
     progress. Both replace a queued one (move_queue.py).
  4. The removal of a replica starts a new leader epoch: its log is deleted, and if it is added again within the same
     process, no earlier report of it may count.

Not here: copying the records, which is an ordinary follower fetch, and its throttle (node/replicas/replica_fetcher.py).
Source: the behaviour of Kafka's reassignment (KIP-455, KIP-860); own algorithm.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from replication.controller.elections import name_of, reformed
from replication.controller.events import Reassignment
from replication.controller.image import ClusterImage, PartitionState, changed
from replication.controller.metadata_records import PartitionChangeRecord
from replication.controller.placement import DirectoryChooser, refuse_replicas
from tidelog.errors import InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress
from tidelog.types import DirectoryId, NodeId


def begin(
    image: ClusterImage, state: PartitionState, wanted: Reassignment, chooser: DirectoryChooser
) -> PartitionChangeRecord | None:
    """The record that starts, replaces or cancels a reassignment; None if the partition already has the wanted
    replicas, and no move is queued. chooser: one for all partitions of a request, because each counts the replicas of
    the whole cluster.

    Raises InvalidReplicaAssignment, InvalidReplicationFactor, NoReassignmentInProgress.
    """
    change = _change_of(image, state, wanted, chooser)
    if not state.queued:
        return change
    # Without this, a wave would begin a move that is in progress already, was replaced, or was cancelled.
    return replace(change or PartitionChangeRecord(state.topic_id, state.partition), queued=())


def _change_of(
    image: ClusterImage, state: PartitionState, wanted: Reassignment, chooser: DirectoryChooser
) -> PartitionChangeRecord | None:
    if wanted.cancel:
        if not (state.adding or state.removing or state.queued):
            raise NoReassignmentInProgress(f"no reassignment of {name_of(image, state)} is in progress")
        return _become(image, state, _before(state), chooser)
    _refuse_new(image, state, wanted.replicas)
    factor = len(state.replicas) - len(state.removing)  # of the reassignment in progress, if there is one
    if wanted.keeps_factor and len(wanted.replicas) != factor:
        raise InvalidReplicationFactor(
            f"{name_of(image, state)} has {factor} replicas and cannot get {len(wanted.replicas)}: the request forbids "
            f"another number; name {factor}, or allow it"
        )
    before = _before(state)
    target = wanted.replicas
    adding = tuple(node for node in target if node not in before)
    removing = tuple(node for node in before if node not in target)
    if not adding and not removing:
        return _become(image, state, target, chooser)
    return _become(image, state, (*target, *removing), chooser, adding=adding, removing=removing)


def _refuse_new(image: ClusterImage, state: PartitionState, replicas: tuple[NodeId, ...]) -> None:
    """Raise InvalidReplicaAssignment if the partition cannot get these replicas now. A new one must be able to copy the
    records: until it is in sync, those that it replaces stay."""
    name = name_of(image, state)
    refuse_replicas(image, name, replicas, present=state.replicas)
    for node_id in replicas:
        node = image.nodes[node_id]
        if node_id not in state.replicas and not node.active:
            why = "fenced" if node.fenced else "being stopped"
            raise InvalidReplicaAssignment(f"{name} cannot get a replica on node {node_id} now: the node is {why}")


def finished(image: ClusterImage, state: PartitionState) -> PartitionChangeRecord | None:
    """The record that completes a reassignment whose new replicas are in sync; None if there is none."""
    if not (state.adding or state.removing):
        return None
    target = tuple(node for node in state.replicas if node not in state.removing)
    staying = [node for node in state.isr if node in target]
    enough = min(len(target), len(state.isr), image.topics[state.topic_id].min_insync_replicas)
    if not staying or not set(state.adding) <= set(staying) or len(staying) < enough:
        return None
    return _become(image, state, target, DirectoryChooser(image))


def _before(state: PartitionState) -> tuple[NodeId, ...]:
    """The replicas without those that a reassignment in progress has added."""
    return tuple(node for node in state.replicas if node not in state.adding)


def _become(
    image: ClusterImage,
    state: PartitionState,
    replicas: tuple[NodeId, ...],
    chooser: DirectoryChooser,
    adding: tuple[NodeId, ...] = (),
    removing: tuple[NodeId, ...] = (),
) -> PartitionChangeRecord | None:
    """The record that makes these the replicas. Raises InvalidReplicaAssignment if none of them is in sync or, while no
    replica is in sync, if none of them is eligible or the last leader."""
    if (replicas, adding, removing) == (state.replicas, state.adding, state.removing):
        return None
    kept = state.isr or state.elr or state.last_known_elr
    if not set(kept) & set(replicas):
        what = "in sync" if state.isr else "awaited because it may have records that others lack"
        raise InvalidReplicaAssignment(
            f"{name_of(image, state)}: none of the requested replicas {list(replicas)} is {what}; keep one of "
            f"{list(kept)} until a new one is in sync"
        )
    placed = PartitionChangeRecord(
        state.topic_id,
        state.partition,
        replicas=replicas,
        directories=_directories(image, state, replicas, chooser),
        elr=_only(state.elr, replicas),
        last_known_elr=_last_known(state, replicas),
        adding=adding,
        removing=removing,
    )
    moved = changed(state, placed)
    sets = reformed(image, moved, _only(state.isr, replicas))
    if sets is not None:
        placed = replace(
            placed,
            leader=sets.leader,
            isr=sets.isr,
            elr=moved.elr if sets.elr is None else sets.elr,
            last_known_elr=moved.last_known_elr if sets.last_known_elr is None else sets.last_known_elr,
            directories=placed.directories if sets.directories is None else sets.directories,
        )
    if placed.leader is None and not set(state.replicas) <= set(replicas):
        return replace(placed, leader=state.leader)
    return placed


def _last_known(state: PartitionState, replicas: Collection[NodeId]) -> tuple[NodeId, ...]:
    """The last leader, while no replica is in sync, from the replicas that stay."""
    return _only(state.last_known_elr, replicas) or (_only(state.elr, replicas)[:1] if state.last_known_elr else ())


def _only(nodes: tuple[NodeId, ...], replicas: Collection[NodeId]) -> tuple[NodeId, ...]:
    return tuple(node for node in nodes if node in replicas)


def _directories(
    image: ClusterImage, state: PartitionState, replicas: tuple[NodeId, ...], chooser: DirectoryChooser
) -> tuple[DirectoryId, ...]:
    """The directories of the replicas: unchanged for present ones, chosen on its node for each new one."""
    has = dict(zip(state.replicas, state.directories, strict=True))
    return tuple(has[node] if node in has else chooser.choose(image.nodes[node]) for node in replicas)
