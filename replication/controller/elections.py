"""Elections: which replica may lead, which one is chosen, and how both sets change when a member leaves or returns
(KIP-966).

Invariants:
  1. A leader is a member of the in-sync set or else an eligible leader replica. It is unfenced and has the log
     directory that the metadata names. Only if both sets are empty, the last known leader leads, also with that
     directory.
  2. A member that leaves while the set is smaller than `min.insync.replicas` becomes eligible, unless it lost records:
     nothing is committed without it from then on. A set that is large enough has no eligible replicas beside it.
  3. The last in-sync member stays in the set, unless it lost records: the partition waits for it.
  4. A leader that leaves the set loses its leadership in the same record, and each leadership has its own epoch.

Not here: unclean elections (unclean.py), what a registration has lost (registration.py).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from replication.controller.image import ClusterImage, NodeRegistration, PartitionState
from replication.controller.metadata_records import LOST_DIRECTORY, PartitionChangeRecord
from replication.controller.placement import DirectoryChooser
from tidelog.errors import ElectionNotNeeded, PreferredLeaderNotAvailable
from tidelog.types import NO_NODE, DirectoryId, LeaderEpoch, NodeId


def electable(image: ClusterImage, state: PartitionState, node_id: NodeId) -> bool:
    """Whether this member may lead: it is registered, unfenced, and has the directory that the metadata names."""
    node = image.nodes.get(node_id)
    return node is not None and not node.fenced and node_id in state.replicas and has_directory(state, node)


def has_directory(state: PartitionState, node: NodeRegistration) -> bool:
    """Whether the node has the directory that the metadata names for this replica, and it works."""
    directory = state.directory_of(node.node_id)
    return any(named.directory_id == directory for named in node.directories)


def _lacks(node: NodeRegistration, directory: DirectoryId) -> bool:
    return all(named.directory_id != directory for named in (*node.directories, *node.offline_directories))


def choose_leader(image: ClusterImage, state: PartitionState, members: Collection[NodeId]) -> NodeId:
    """The first of `members` that may lead, in the order of the replicas, draining nodes last; `NO_NODE` if none
    may."""
    able = [node for node in state.replicas if node in members and electable(image, state, node)]
    staying = [node for node in able if not image.nodes[node].draining]
    return next(iter([*staying, *able]), NO_NODE)


def reformed(
    image: ClusterImage, state: PartitionState, isr: Collection[NodeId], *, lost: Collection[NodeId] = ()
) -> PartitionChangeRecord | None:
    """The record that makes `isr` the in-sync set, with the resulting eligible set and leader; None if nothing changes.
    lost: nodes that lost records and leave both sets."""
    members = tuple(node for node in state.replicas if node in isr)
    eligible = eligible_beside(image, state, members, lost)
    leader = state.leader if state.leader in members and electable(image, state, state.leader) else NO_NODE
    if leader == NO_NODE:
        leader = choose_leader(image, state, members)
    if leader == NO_NODE:
        leader = choose_leader(image, state, eligible)
        if leader != NO_NODE:
            rest = {*members, *eligible} - {leader}
            members, eligible = (leader,), tuple(node for node in state.replicas if node in rest)
            eligible = eligible if image.min_insync(state) > 1 else ()
    last_known = _last_known(state, members, eligible)
    if leader == NO_NODE and not (members or eligible):
        leader = choose_leader(image, state, last_known)
        if leader != NO_NODE:
            members, last_known = (leader,), ()
    if (members, eligible, leader, last_known) == (state.isr, state.elr, state.leader, state.last_known_elr):
        return None
    return PartitionChangeRecord(
        state.topic_id,
        state.partition,
        leader=None if leader == state.leader else leader,
        isr=None if members == state.isr else members,
        elr=None if eligible == state.elr else eligible,
        last_known_elr=None if last_known == state.last_known_elr else last_known,
        directories=None if leader == NO_NODE else directories_for_all(image, state, (*members, *eligible)),
    )


def eligible_beside(
    image: ClusterImage, state: PartitionState, isr: Collection[NodeId], lost: Collection[NodeId] = ()
) -> tuple[NodeId, ...]:
    """The eligible leader replicas once `isr` is the in-sync set."""
    if len(isr) >= image.min_insync(state):
        return ()
    had = {*state.elr, *state.isr}
    return tuple(node for node in state.replicas if node in had and node not in isr and node not in lost)


def _last_known(state: PartitionState, members: tuple[NodeId, ...], eligible: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """The last leader, from the moment when no replica is in sync until one is in sync again."""
    if members:
        return ()
    if state.last_known_elr:
        return state.last_known_elr
    return next(((node,) for node in (state.leader, *state.isr, *eligible) if node in state.replicas), ())


def directories_for_all(
    image: ClusterImage, state: PartitionState, keep: Collection[NodeId]
) -> tuple[DirectoryId, ...] | None:
    """The replicas' directories, with an existing one for each replica that no longer needs its old log; None if
    nothing changes. keep: replicas that keep their present directory. A directory that failed while its node runs is
    kept too: it may work again after the node's next start, and its records need not be copied before that is known."""
    chooser = DirectoryChooser(image)
    directories = tuple(
        chooser.choose(node)
        if replica not in keep and (node := image.nodes.get(replica)) is not None and _lacks(node, directory)
        else directory
        for replica, directory in zip(state.replicas, state.directories, strict=True)
    )
    return None if directories == state.directories else directories


# --- nodes that leave and return ----------------------------------------------------------------------------------


def fence_changes(image: ClusterImage, node_id: NodeId) -> Iterator[PartitionChangeRecord]:
    """The partition changes after a node was fenced or its log directory failed. `image` already contains that. The
    last member of a set stays."""
    affected = (each for each in image.partitions() if not electable(image, each, node_id))
    return _changes(without(image, each, node_id) for each in affected)


def without(image: ClusterImage, state: PartitionState, node_id: NodeId) -> PartitionChangeRecord | None:
    """The change after a node that may not lead this partition any more left its in-sync set, unless it is the last
    member; None if nothing changes."""
    if node_id not in state.isr:
        return None
    return reformed(image, state, _without(node_id, state.isr) or state.isr)


def drain_changes(image: ClusterImage, node_id: NodeId) -> Iterator[PartitionChangeRecord]:
    """The changes that move sets and leaderships away from a draining node, where another member can take over."""
    return _changes(moved_away(image, state, node_id) for state in image.partitions())


def _changes(found: Iterable[PartitionChangeRecord | None]) -> Iterator[PartitionChangeRecord]:
    return (change for change in found if change is not None)


def _without(node_id: NodeId, members: Iterable[NodeId]) -> tuple[NodeId, ...]:
    return tuple(node for node in members if node != node_id)


def moved_away(
    image: ClusterImage, state: PartitionState, node_id: NodeId, *, lost: bool = False
) -> PartitionChangeRecord | None:
    """The change that takes a node out of the partition's set and leadership; None if it has no part in them, or if no
    other member can take over. lost: it lost records, so it leaves the eligible set too."""
    out = (node_id,) if lost else ()
    if node_id not in state.isr:
        return reformed(image, state, state.isr, lost=out) if lost and node_id in state.elr else None
    staying = _without(node_id, state.isr)
    eligible = [node for node in state.elr if node in image.nodes and not image.nodes[node].draining]
    if state.leader in (node_id, NO_NODE) and choose_leader(image, state, (*staying, *eligible)) == NO_NODE:
        return None
    return reformed(image, state, staying, lost=out)


def taken_out(
    image: ClusterImage, state: PartitionState, node_id: NodeId, used_in: LeaderEpoch
) -> PartitionChangeRecord | None:
    """The change after which a replica that lost records may start again empty: it is in neither set, and its earlier
    reports belong to a leader epoch that has ended. None if that is already so, or if no other replica can take over.
    used_in: the last epoch in which the replica was used."""
    if node_id in state.isr or node_id in state.elr:
        change = moved_away(image, state, node_id, lost=True)
    elif node_id in state.replicas and node_id not in state.last_known_elr:
        change = PartitionChangeRecord(state.topic_id, state.partition) if state.leader_epoch <= used_in else None
    else:
        return None
    if change is None or change.leader is not None or state.leader_epoch > used_in:
        return change
    return replace(change, leader=state.leader)


def return_changes(image: ClusterImage, node_id: NodeId) -> Iterator[PartitionChangeRecord]:
    """The changes when a node is unfenced: partitions without a leader that waited for it."""
    waiting = (each for each in image.partitions() if each.leader == NO_NODE and node_id in each.counted_on)
    return _changes(reformed(image, each, each.isr) for each in waiting)


def changes_after_moves(
    image: ClusterImage, node_id: NodeId, moved: Iterable[PartitionChangeRecord]
) -> Iterator[PartitionChangeRecord]:
    """The changes of sets and leaders after replicas of this node moved to other directories of it. `image` already
    contains the moves. A replica in a directory that failed leaves its sets; a partition that lost its leader with the
    old directory gets one again."""
    return _changes(
        _after_move(image, image.topics[each.topic_id].partitions[each.partition], node_id) for each in moved
    )


def _after_move(image: ClusterImage, state: PartitionState, node_id: NodeId) -> PartitionChangeRecord | None:
    if not electable(image, state, node_id):
        return without(image, state, node_id)
    is_waiting = state.leader == NO_NODE and node_id in state.counted_on
    return reformed(image, state, state.isr) if is_waiting else None


# --- preferred leaders --------------------------------------------------------------------------------------------


def wants_preferred(state: PartitionState) -> bool:
    """Whether a replica other than the first one leads."""
    return state.leader not in (state.replicas[0], NO_NODE)


def preferred_change(image: ClusterImage, state: PartitionState) -> PartitionChangeRecord:
    """The election of the preferred leader, the first of the replicas. Raises ElectionNotNeeded,
    PreferredLeaderNotAvailable."""
    preferred = state.replicas[0]
    name = name_of(image, state)
    if state.leader == preferred:
        raise ElectionNotNeeded(f"{name} is already led by its preferred leader, node {preferred}")
    node = image.nodes.get(preferred)
    if preferred not in state.isr or node is None or node.draining or not electable(image, state, preferred):
        why = "not in sync" if preferred not in state.isr else "fenced or being stopped"
        raise PreferredLeaderNotAvailable(f"node {preferred}, the preferred leader of {name}, is {why}: retry later")
    return PartitionChangeRecord(state.topic_id, state.partition, leader=preferred)


def rebalance_changes(image: ClusterImage, percentage: int) -> Iterator[PartitionChangeRecord]:
    """The preferred leader elections for each node of whose preferred partitions more than `percentage` per cent are
    led by other nodes."""
    ought = Counter(state.replicas[0] for state in image.partitions())
    away = Counter(state.replicas[0] for state in image.partitions() if wants_preferred(state))
    uneven = {node for node, count in away.items() if 100 * count > percentage * ought[node]}
    for state in image.partitions():
        if state.replicas[0] in uneven and wants_preferred(state):
            with contextlib.suppress(PreferredLeaderNotAvailable):
                yield preferred_change(image, state)


def name_of(image: ClusterImage, state: PartitionState) -> str:
    """The partition's name, for messages."""
    return f"{image.topics[state.topic_id].name}-{state.partition}"


# --- messages -----------------------------------------------------------------------------------------------------


def why_leaderless(image: ClusterImage, state: PartitionState) -> str:
    """Why a partition has no leader, and how it gets one."""
    if state.isr or state.elr:
        reasons = [f"node {node}: {_why_not(image, state, node)}" for node in (*state.isr, *state.elr)]
        return f"no in-sync or eligible replica can lead ({'; '.join(reasons)})"
    reasons = [f"node {node}, the last leader: {_why_not(image, state, node)}" for node in state.last_known_elr]
    return (
        f"every in-sync replica lost records ({'; '.join(reasons)}); restore that log directory, or run an unclean "
        "election, which loses the records that only these replicas had"
    )


def _why_not(image: ClusterImage, state: PartitionState, node_id: NodeId) -> str:
    node = image.nodes.get(node_id)
    directory = state.directory_of(node_id)
    if node is None:
        return "not registered; start it"
    if directory == LOST_DIRECTORY:
        return "its log is damaged, or its log directory is an older copy; only an unclean election can make it leader"
    if not has_directory(state, node):
        return (
            f"its log directory {directory}, which contains the records, is gone or has failed; restore it and "
            f"restart the node"
        )
    if node.fenced:
        return "fenced: not running, or not ready yet; start it"
    return "can lead, an election is in progress"
