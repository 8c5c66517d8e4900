"""Who may lead a partition, who is chosen, and what happens to a partition when a member goes.

Kept true:
  1. A leader comes from the in-sync set only: unfenced, and with the very data folder that the metadata names.
  2. The last in-sync member is never taken out: the partition waits for it without a leader.
  3. Whoever leaves the set ends its leadership in the same record, and each leadership has its own epoch.

Eligible leader replicas (KIP-966) and unclean elections are not decided here yet: no set is ever emptied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replication.image import ClusterImage, PartitionState
from replication.metadata import LOST_FOLDER, PartitionChangeRecord
from tidelog.types import NO_NODE, NodeId


def electable(image: ClusterImage, state: PartitionState, node_id: NodeId) -> bool:
    """May this in-sync member lead? It is registered, unfenced, and its folder is the one that the metadata names."""
    node = image.nodes.get(node_id)
    if node is None or node.fenced or node_id not in state.replicas:
        return False
    folder = state.folder_of(node_id)
    return any(named.folder_id == folder for named in node.folders)


def choose_leader(image: ClusterImage, state: PartitionState, members: Sequence[NodeId]) -> NodeId:
    """The best of `members` to lead, in the order of the replicas, draining ones last; `NO_NODE` where none may."""
    able = [node for node in state.replicas if node in members and electable(image, state, node)]
    staying = [node for node in able if not image.nodes[node].draining]
    return next(iter([*staying, *able]), NO_NODE)


def without(image: ClusterImage, state: PartitionState, node_id: NodeId) -> PartitionChangeRecord | None:
    """The change that takes a fenced node out of the partition's set and leadership; None where there is nothing to do.

    The last member stays in the set, without leading.
    """
    if node_id not in state.isr:
        return None
    staying = tuple(node for node in state.isr if node != node_id)
    if state.leader != node_id:
        return _change(state, isr=staying) if staying else None
    return _change(state, leader=choose_leader(image, state, staying), isr=staying or None)


def fence_changes(image: ClusterImage, node_id: NodeId) -> Iterator[PartitionChangeRecord]:
    """What the fencing of a node does to every partition."""
    for state in image.partitions():
        if (change := without(image, state, node_id)) is not None:
            yield change


def drain_changes(image: ClusterImage, node_id: NodeId) -> Iterator[PartitionChangeRecord]:
    """What moves away from a draining node: each set and leadership in which another member is able to go on."""
    for state in image.partitions():
        if (change := moved_away(image, state, node_id)) is not None:
            yield change


def moved_away(image: ClusterImage, state: PartitionState, node_id: NodeId) -> PartitionChangeRecord | None:
    """The change that takes a node out of the partition's set and leadership; None where it has no part in them, or
    where no other member is able to go on."""
    if node_id not in state.isr:
        return None
    staying = tuple(node for node in state.isr if node != node_id)
    if state.leader not in (node_id, NO_NODE):
        return _change(state, isr=staying)
    leader = choose_leader(image, state, staying)
    return None if leader == NO_NODE else _change(state, leader=leader, isr=staying)


def return_changes(image: ClusterImage, node_id: NodeId) -> Iterator[PartitionChangeRecord]:
    """What an unfenced node takes up again: the partitions that waited for it without a leader."""
    for state in image.partitions():
        if state.leader == NO_NODE and node_id in state.isr and electable(image, state, node_id):
            yield _change(state, leader=node_id)


def why_leaderless(image: ClusterImage, state: PartitionState) -> str:
    """For people: why a partition has no leader, and what brings it back."""
    reasons = [f"node {node}: {_why_not(image, state, node)}" for node in state.isr]
    return f"no in-sync replica can lead ({'; '.join(reasons)})"


def _why_not(image: ClusterImage, state: PartitionState, node_id: NodeId) -> str:
    node = image.nodes.get(node_id)
    folder = state.folder_of(node_id)
    if node is None:
        return "not registered; start it"
    if folder == LOST_FOLDER:
        return "what it held is damaged, or its data folder is an older copy; only an unclean election could go on"
    if all(named.folder_id != folder for named in node.folders):
        return f"its data folder {folder}, which held the records, is gone; give it back"
    if node.fenced:
        return "fenced: not running, or not ready yet; start it"
    return "could lead, an election is under way"


def _change(
    state: PartitionState, *, leader: NodeId | None = None, isr: tuple[NodeId, ...] | None = None
) -> PartitionChangeRecord:
    return PartitionChangeRecord(state.topic_id, state.partition, leader=leader, isr=isr)
