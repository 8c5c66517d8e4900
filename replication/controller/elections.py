"""Who may lead a partition, who is chosen, and what becomes of both sets when a member comes or goes (KIP-966).

Kept true:
  1. A leader comes from the in-sync set, else from the eligible leader replicas: unfenced, and with the very data
     directory that the metadata names. Only where both sets are empty the last known leader leads, with that directory
     too.
  2. A member that leaves while the set is smaller than `min.insync.replicas` becomes eligible, unless it lost what it
     held: nothing is committed without it from then on. A set that suffices leaves nobody eligible.
  3. The last in-sync member stays in the set, unless it lost what it held: the partition waits for it.
  4. Whoever leaves the set ends its leadership in the same record, and each leadership has its own epoch.

Left to others: unclean elections (unclean.py), what a registration has lost (registration.py).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from replication.controller.image import ClusterImage, NodeRegistration, PartitionState
from replication.controller.metadata import LOST_DIRECTORY, PartitionChangeRecord
from replication.controller.placement import DirectoryChooser
from tidelog.errors import ElectionNotNeeded, PreferredLeaderNotAvailable
from tidelog.types import NO_NODE, DirectoryId, LeaderEpoch, NodeId


def electable(image: ClusterImage, state: PartitionState, node_id: NodeId) -> bool:
    """May this member lead? It is registered, unfenced, and its directory is the one that the metadata names."""
    node = image.nodes.get(node_id)
    return node is not None and not node.fenced and node_id in state.replicas and has_directory(state, node)


def has_directory(state: PartitionState, node: NodeRegistration) -> bool:
    """Is the directory that the metadata name for this replica there, and works?"""
    directory = state.directory_of(node.node_id)
    return any(named.directory_id == directory for named in node.directories)


def _lacks(node: NodeRegistration, directory: DirectoryId) -> bool:
    return all(named.directory_id != directory for named in (*node.directories, *node.offline_directories))


def choose_leader(image: ClusterImage, state: PartitionState, members: Collection[NodeId]) -> NodeId:
    """The best of `members` to lead, in the order of the replicas, draining ones last; `NO_NODE` where none may."""
    able = [node for node in state.replicas if node in members and electable(image, state, node)]
    staying = [node for node in able if not image.nodes[node].draining]
    return next(iter([*staying, *able]), NO_NODE)


def reformed(
    image: ClusterImage, state: PartitionState, isr: Collection[NodeId], *, lost: Collection[NodeId] = ()
) -> PartitionChangeRecord | None:
    """The record by which `isr` becomes the in-sync set, with the eligible set and the leader that follow from it; None
    where nothing changes. lost: nodes that count for nothing any more, in neither set."""
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
    """Who led last, from the moment on when nobody is in sync until somebody is again."""
    if members:
        return ()
    if state.last_known_elr:
        return state.last_known_elr
    return next(((node,) for node in (state.leader, *state.isr, *eligible) if node in state.replicas), ())


def directories_for_all(
    image: ClusterImage, state: PartitionState, keep: Collection[NodeId]
) -> tuple[DirectoryId, ...] | None:
    """The replicas' directories, with one that is there for each replica that need not have its bytes any more; None
    where nothing changes. keep: replicas that count by the directory they have. A directory that has failed while its
    node runs may be well again with the node's next start: what lies there is not to be sent again before that
    tells."""
    chooser = DirectoryChooser(image)
    directories = tuple(
        chooser.choose(node)
        if replica not in keep and (node := image.nodes.get(replica)) is not None and _lacks(node, directory)
        else directory
        for replica, directory in zip(state.replicas, state.directories, strict=True)
    )
    return None if directories == state.directories else directories


# --- nodes that come and go ---------------------------------------------------------------------------------------


def fence_changes(image: ClusterImage, node_id: NodeId) -> Iterator[PartitionChangeRecord]:
    """What it does to every partition that a node is fenced, or that a log directory of it has failed, as it is in this
    image already. The last member stays."""
    for state in image.partitions():
        if node_id in state.isr and not electable(image, state, node_id):
            staying = tuple(node for node in state.isr if node != node_id)
            change = reformed(image, state, staying or state.isr)
            if change is not None:
                yield change


def drain_changes(image: ClusterImage, node_id: NodeId) -> Iterator[PartitionChangeRecord]:
    """What moves away from a draining node: each set and leadership in which another member is able to go on."""
    for state in image.partitions():
        if (change := moved_away(image, state, node_id)) is not None:
            yield change


def moved_away(
    image: ClusterImage, state: PartitionState, node_id: NodeId, *, lost: bool = False
) -> PartitionChangeRecord | None:
    """The change that takes a node out of the partition's set and leadership; None where it has no part in them, or
    where no other member is able to go on. lost: it has not got what it held, so it leaves the eligible set too."""
    out = (node_id,) if lost else ()
    if node_id not in state.isr:
        return reformed(image, state, state.isr, lost=out) if lost and node_id in state.elr else None
    staying = tuple(node for node in state.isr if node != node_id)
    eligible = [node for node in state.elr if node in image.nodes and not image.nodes[node].draining]
    if state.leader in (node_id, NO_NODE) and choose_leader(image, state, (*staying, *eligible)) == NO_NODE:
        return None
    return reformed(image, state, staying, lost=out)


def taken_out(
    image: ClusterImage, state: PartitionState, node_id: NodeId, used_in: LeaderEpoch
) -> PartitionChangeRecord | None:
    """The change after which a replica that lost what it held may begin anew: it is in neither set, and what it said
    before is of a leader epoch that is over. None where that is so, or where nobody else is able to go on. used_in: the
    last epoch in which it was used."""
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
    """What an unfenced node takes up again: the partitions that waited for it without a leader."""
    for state in image.partitions():
        if state.leader == NO_NODE and node_id in state.counted_on:
            change = reformed(image, state, state.isr)
            if change is not None:
                yield change


# --- preferred leaders --------------------------------------------------------------------------------------------


def wants_preferred(state: PartitionState) -> bool:
    """Does another replica lead than the first one named?"""
    return state.leader not in (state.replicas[0], NO_NODE)


def preferred_change(image: ClusterImage, state: PartitionState) -> PartitionChangeRecord:
    """The election of the preferred leader, the first of the replicas. Raises ElectionNotNeeded,
    PreferredLeaderNotAvailable."""
    preferred = state.replicas[0]
    name = name_of(image, state)
    if state.leader == preferred:
        raise ElectionNotNeeded(f"{name} is led by its preferred leader, node {preferred}, already")
    node = image.nodes.get(preferred)
    if preferred not in state.isr or node is None or node.draining or not electable(image, state, preferred):
        why = "not in sync" if preferred not in state.isr else "fenced or being stopped"
        raise PreferredLeaderNotAvailable(
            f"node {preferred}, the preferred leader of {name}, is {why}: try again later"
        )
    return PartitionChangeRecord(state.topic_id, state.partition, leader=preferred)


def rebalance_changes(image: ClusterImage, percentage: int) -> Iterator[PartitionChangeRecord]:
    """The elections of preferred leaders that give every node back what it ought to lead, where more than so much of
    that (in per cent) is led by others."""
    ought = Counter(state.replicas[0] for state in image.partitions())
    away = Counter(state.replicas[0] for state in image.partitions() if wants_preferred(state))
    uneven = {node for node, count in away.items() if 100 * count > percentage * ought[node]}
    for state in image.partitions():
        if state.replicas[0] in uneven and wants_preferred(state):
            with contextlib.suppress(PreferredLeaderNotAvailable):
                yield preferred_change(image, state)


def name_of(image: ClusterImage, state: PartitionState) -> str:
    """The partition's name, for people."""
    return f"{image.topics[state.topic_id].name}-{state.partition}"


# --- for people ---------------------------------------------------------------------------------------------------


def why_leaderless(image: ClusterImage, state: PartitionState) -> str:
    """Why a partition has no leader, and what brings it back."""
    if state.isr or state.elr:
        reasons = [f"node {node}: {_why_not(image, state, node)}" for node in (*state.isr, *state.elr)]
        return f"no in-sync or eligible replica can lead ({'; '.join(reasons)})"
    reasons = [f"node {node}, which led last: {_why_not(image, state, node)}" for node in state.last_known_elr]
    return (
        f"every in-sync replica lost what it held ({'; '.join(reasons)}); give that back, or command an unclean "
        "election: what only the lost ones had is gone then"
    )


def _why_not(image: ClusterImage, state: PartitionState, node_id: NodeId) -> str:
    node = image.nodes.get(node_id)
    directory = state.directory_of(node_id)
    if node is None:
        return "not registered; start it"
    if directory == LOST_DIRECTORY:
        return "what it held is damaged, or its log directory is an older copy; only an unclean election could go on"
    if not has_directory(state, node):
        return (
            f"its log directory {directory}, which held the records, is gone or has failed; give it back and "
            f"start it again"
        )
    if node.fenced:
        return "fenced: not running, or not ready yet; start it"
    return "could lead, an election is under way"
