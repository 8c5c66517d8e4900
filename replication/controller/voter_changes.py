"""How the voter set of the metadata quorum changes: by one member at a time, decided by the active controller.

Kept true:
  1. Two sets that follow each other differ by one voter at most, so any majority of one meets any of the other.
  2. No change while an earlier one is not committed; only the active controller, which has committed in its own epoch,
     decides (the hole in Raft's single-server changes that this closes: raft-dev, 2015).
  3. Only a replica that has caught up is added, so that it can count at once.
  4. By an operator's word no voter goes while less than a majority of the others is alive: that could not be
     committed, and nobody who does not have the record could be elected.
  5. A voter whose node came back with another directory is removed: that directory is gone, and the new one is no
  voter.

Left to others: appending the record, counting by it (controller.py, quorum.py).
Source: KIP-853; KIP-1186 for voters that join by themselves.
"""

from __future__ import annotations

from collections.abc import Collection

from replication.controller.image import ClusterImage, NodeRegistration
from replication.raft.voters import ReplicaKey, Voter, VoterSet
from tidelog.errors import InvalidRequest, VoterNotFound
from tidelog.types import DirectoryId, NodeId


def next_voters(image: ClusterImage, caught_up: Collection[ReplicaKey], wanted: int) -> tuple[Voter, ...] | None:
    """The set after the next change, None where nothing is to be changed.

    image: of the whole log, its voters committed. caught_up: replicas that hold all that is committed. wanted: how many
    voters the cluster should have; a set that has more keeps them.
    """
    return _moved(image) or _without_emptied(image) or _grown(image, caught_up, wanted)


def without_voter(image: ClusterImage, node_id: NodeId, directory_id: DirectoryId | None) -> tuple[Voter, ...]:
    """The set without a voter whose node is gone. directory_id: None means whichever votes.

    Raises VoterNotFound, InvalidRequest where the node is alive, or too few of the other voters are.
    """
    leaving = [
        voter for voter in image.voters if voter.node_id == node_id and directory_id in (None, voter.directory_id)
    ]
    if not leaving:
        names = ", ".join(str(voter.node_id) for voter in image.voters)
        raise VoterNotFound(f"node {node_id} does not vote by that directory; the voters are nodes {names}")
    if any(_lives(image, voter) for voter in leaving):
        raise InvalidRequest(f"node {node_id} is alive: it would be added again; stop it first")
    left = tuple(voter for voter in image.voters if voter is not leaving[0])
    if not left:
        raise InvalidRequest(f"node {node_id} is the only voter: without it the metadata would be lost")
    alive = {ReplicaKey(voter.node_id, voter.directory_id) for voter in left if _lives(image, voter)}
    if not VoterSet.of(left).is_majority(alive):
        raise InvalidRequest(
            f"only {len(alive)} of the {len(left)} other voters are alive, too few to decide without node {node_id}: "
            "start the others first"
        )
    return left


def home_directory(node: NodeRegistration) -> ReplicaKey:
    """The replica of the metadata log that a node has: in the first of its directories."""
    return ReplicaKey(node.node_id, node.directories[0].directory_id)


def _lives(image: ClusterImage, voter: Voter) -> bool:
    """Is the node there, with the directory that votes?"""
    node = image.nodes.get(voter.node_id)
    return node is not None and not node.fenced and home_directory(node).directory_id == voter.directory_id


def _moved(image: ClusterImage) -> tuple[Voter, ...] | None:
    """The same voters, where one of them is reached elsewhere now."""
    voters = tuple(_where_it_is(image, voter) for voter in image.voters)
    return voters if voters != image.voters else None


def _where_it_is(image: ClusterImage, voter: Voter) -> Voter:
    if not _lives(image, voter):
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
