"""Cordon: a node gets no new replicas, and keeps those that it has.

Invariants:
  1. No replica is placed on a cordoned node: not by the placement of new partitions (topics.py), and not where a
     request names the replicas (placement.py). A reassignment that began before may still complete.
  2. A cordon holds for the node and not for one registration: a restart of the node does not end it. Its removal does.

A cordoned node serves, leads and votes as before. Not here: moving its replicas away (reassignment.py).
Source: KIP-1066, where a broker is cordoned if all of its log directories are.
"""

from __future__ import annotations

from replication.controller import features
from replication.controller.image import ClusterImage
from replication.controller.metadata_records import NodeCordonRecord
from replication.controller.node_state import registered_node
from tidelog.types import NodeId


def records_of(image: ClusterImage, node_id: NodeId, *, cordoned: bool) -> tuple[NodeCordonRecord, ...]:
    """The record that cordons the node or ends that; none if it is so already. Raises NodeIdNotRegistered,
    UnsupportedVersion."""
    features.require(image, features.CORDONS, "the cordon of a node")
    if registered_node(image, node_id).cordoned == cordoned:
        return ()
    return (NodeCordonRecord(node_id, cordoned),)
