"""Changes of the metadata quorum's voter set: one member at a time, decided by the active controller.

Invariants:
  1. Consecutive sets differ by at most one voter, so any majority of one overlaps any majority of the other.
  2. No change is made while an earlier one is not committed. Only the active controller, which has committed in its own
     epoch, decides (this closes the hole in Raft's single-server changes: raft-dev, 2015).
  3. Only a replica that has caught up is added, so that it can count at once.
  4. An operator cannot remove a voter while fewer than a majority of the others is alive: the change could not be
     committed, and no replica without the record could be elected.
  5. A voter whose node returned with another directory is removed: its directory is gone, and the new one is no voter.

Not here: appending the record (controller.py), counting majorities with it (replication/raft/quorum.py).
Source: KIP-853; KIP-1186 for voters that join on their own.
"""

from __future__ import annotations

from collections.abc import Collection

from replication.controller.image import ClusterImage, NodeRegistration
from replication.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.errors import InvalidRequest, VoterNotFound
from tidelog.types import DirectoryId, NodeId


def next_voters(image: ClusterImage, caught_up: Collection[ReplicaKey], wanted: int) -> tuple[Voter, ...] | None:
    """The set after the next change; None if no change is needed.

    image: of the whole log, with its voters committed. caught_up: replicas that have all committed records. wanted:
    target number of voters; a larger set is not reduced.
    """
    return _moved(image) or _without_emptied(image) or _grown(image, caught_up, wanted)


def without_voter(image: ClusterImage, node_id: NodeId, directory_id: DirectoryId | None) -> tuple[Voter, ...]:
    """The set without a voter whose node is gone. directory_id: None for the one that votes.

    Raises VoterNotFound; InvalidRequest if the node is alive, is the only voter, or too few of the other voters are
    alive.
    """
    leaving = [
        voter for voter in image.voters if voter.node_id == node_id and directory_id in (None, voter.directory_id)
    ]
    if not leaving:
        names = ", ".join(str(voter.node_id) for voter in image.voters)
        raise VoterNotFound(f"node {node_id} is not a voter with that directory; the voters are nodes {names}")
    if any(_is_running(image, voter) for voter in leaving):
        raise InvalidRequest(f"node {node_id} is alive and would be added again: stop it first")
    left = tuple(voter for voter in image.voters if voter is not leaving[0])
    if not left:
        raise InvalidRequest(f"node {node_id} is the only voter: its removal would lose the metadata")
    alive = {ReplicaKey(voter.node_id, voter.directory_id) for voter in left if _is_running(image, voter)}
    if not VoterSet.of(left).is_majority(alive):
        raise InvalidRequest(
            f"only {len(alive)} of the {len(left)} other voters are alive, no majority without node {node_id}: "
            "start the others first"
        )
    return left


def home_directory(node: NodeRegistration) -> ReplicaKey:
    """The node's replica of the metadata log, which is in the first of its directories."""
    return ReplicaKey(node.node_id, node.directories[0].directory_id)


def _is_running(image: ClusterImage, voter: Voter) -> bool:
    """Whether the node is unfenced and has the directory that votes."""
    node = image.nodes.get(voter.node_id)
    return node is not None and not node.fenced and home_directory(node).directory_id == voter.directory_id


def _moved(image: ClusterImage) -> tuple[Voter, ...] | None:
    """The same voters with the current listeners of live nodes; None if unchanged."""
    voters = tuple(_where_it_is(image, voter) for voter in image.voters)
    return voters if voters != image.voters else None


def _where_it_is(image: ClusterImage, voter: Voter) -> Voter:
    if not _is_running(image, voter):
        return voter
    return Voter(voter.node_id, voter.directory_id, image.nodes[voter.node_id].listeners)


def _without_emptied(image: ClusterImage) -> tuple[Voter, ...] | None:
    for voter in image.voters:
        node = image.nodes.get(voter.node_id)
        if node is not None and not node.fenced and home_directory(node).directory_id != voter.directory_id:
            left = tuple(other for other in image.voters if other is not voter)
            return left or None
    return None


def _grown(image: ClusterImage, caught_up: Collection[ReplicaKey], wanted: int) -> tuple[Voter, ...] | None:
    if len(image.voters) >= wanted:
        return None
    voting = {voter.node_id for voter in image.voters}
    for node_id, node in sorted(image.nodes.items()):
        if node_id in voting or node.fenced or node.draining or home_directory(node) not in caught_up:
            continue
        joined = Voter(node_id, home_directory(node).directory_id, node.listeners)
        return tuple(sorted((*image.voters, joined), key=lambda voter: voter.node_id))
    return None
