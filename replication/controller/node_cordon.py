"""Cordon: a node, or a log directory of it, gets no new replicas, and keeps those that it has.

Invariants:
  1. No replica is placed on a cordoned node: not by the placement of new partitions (topics.py), and not where a
     request names the replicas (placement.py). A reassignment that began before may still complete.
  2. No new replica gets a cordoned log directory (placement.py). A node whose working directories are all cordoned
     counts as a cordoned one.
  3. A cordon holds for the node and not for one registration: a restart of the node does not end it. Its removal does.

A cordoned node serves, leads and votes as before. Not here: moving its replicas away (reassignment.py).
Source: KIP-1066, where only directories are cordoned, and a node tells the controller of them with its heartbeats. Here
they are in the metadata log, as the cordon of a node is: no heartbeat has to come before a new controller knows them.
"""

from __future__ import annotations

from replication.controller import features
from replication.controller.events import AlterCordon
from replication.controller.image import ClusterImage, NodeRegistration
from replication.controller.metadata_records import NodeCordonRecord
from replication.controller.node_state import registered_node
from tidelog.errors import InvalidRequest
from tidelog.types import DirectoryId


def records_of(image: ClusterImage, request: AlterCordon) -> tuple[NodeCordonRecord, ...]:
    """The record that cordons a node or directories of it, or ends that; none if it is so already. Raises
    NodeIdNotRegistered, UnsupportedVersion; InvalidRequest for a directory that the node never had."""
    features.require(image, features.CORDONS, "the cordon of a node")
    node = registered_node(image, request.node_id)
    before = NodeCordonRecord(node.node_id, node.cordoned, node.cordoned_directories)
    if request.directories:
        # Without this, a controller of an older version would ignore the directories, and go on placing replicas there.
        features.require(image, features.DIRECTORY_CORDONS, "the cordon of a log directory")
        after = NodeCordonRecord(node.node_id, node.cordoned, _directories(node, request))
    else:
        after = NodeCordonRecord(node.node_id, request.cordoned, node.cordoned_directories)
    return () if after == before else (after,)


def _directories(node: NodeRegistration, request: AlterCordon) -> tuple[DirectoryId, ...]:
    """The cordoned directories after the change."""
    known = node.known_directories()
    for directory in request.directories:
        if directory not in known:
            raise InvalidRequest(
                f"node {node.node_id} has no log directory {directory}: name one of its own "
                f"(`tidelog log-dirs --node {node.node_id}` shows them)"
            )
    present = set(node.cordoned_directories)
    changed = present.union(request.directories) if request.cordoned else present.difference(request.directories)
    return tuple(sorted(changed))


def end_of_cordon(node: NodeRegistration) -> str:
    """The command that lets the node get replicas again, for errors."""
    if node.cordoned:
        return f"`tidelog node uncordon {node.node_id}`"
    return (
        f"`tidelog node uncordon {node.node_id} --log-dir PATH`; `tidelog log-dirs --node {node.node_id}` shows the "
        "paths"
    )
