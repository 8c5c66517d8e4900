"""Removal of a node that is gone for good: its registration, and its vote in the metadata quorum.

Invariants:
  1. No replica is on the node: a partition would be left with a replica that no node could bring back, and with one
     copy less than its topic asks for.
  2. The node does not run: it would register again at its next heartbeat.
  3. Its vote ends in the same batch, under the rules of voter_changes.py: a voter that is not registered would count in
     every majority without ever answering.

A node of that number that starts later registers as a new one.
Not here: moving the replicas away (reassignment.py).
Source: UnregisterBrokerRecord of KIP-631, whose controller refuses nothing; own rules.
"""

from __future__ import annotations

from typing import Final

from replication.controller import features, voter_changes
from replication.controller.elections import name_of
from replication.controller.image import ClusterImage
from replication.controller.metadata_records import NodeRemovalRecord, VotersRecord
from replication.controller.node_state import registered_node
from tidelog.errors import InvalidRequest
from tidelog.types import NodeId

_NAMED_MAX: Final = 5
"""Partitions that an error names."""


def records_of(
    image: ClusterImage, node_id: NodeId, *, in_session: bool
) -> tuple[NodeRemovalRecord] | tuple[VotersRecord, NodeRemovalRecord]:
    """The records that remove the node. in_session: it was heard from within a session, though it may be fenced.

    Raises NodeIdNotRegistered; InvalidRequest if the node is alive or has replicas, or if its vote may not be removed;
    UnsupportedVersion.
    """
    features.require(image, features.NODE_REMOVAL, "the removal of a node")
    node = registered_node(image, node_id)
    if not node.fenced or in_session:
        raise InvalidRequest(
            f"node {node_id} is alive and would register again: stop it, and retry once it is fenced "
            "(`tidelog cluster status`)"
        )
    _refuse_replicas(image, node_id)
    removal = NodeRemovalRecord(node_id, node.node_epoch)
    if all(voter.node_id != node_id for voter in image.voters):
        return (removal,)
    return VotersRecord(voter_changes.without_voter(image, node_id, None)), removal


def _refuse_replicas(image: ClusterImage, node_id: NodeId) -> None:
    """Raise InvalidRequest if the node has replicas; it names first what no other replica can restore."""
    held = [state for state in image.partitions() if node_id in state.replicas]
    if not held:
        return
    only = [state for state in held if state.counted_on <= {node_id}]
    names = [name_of(image, state) for state in (*only, *(state for state in held if state not in only))]
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    loss = (
        f"; of {len(only)} of them, the first named, no other replica is known to have every record: records would be "
        "LOST, start the node again"
        if only
        else ""
    )
    raise InvalidRequest(
        f"node {node_id} has replicas of {len(held)} partitions ({', '.join(names[:_NAMED_MAX])}{more}){loss}; move "
        f"them to other nodes first (`tidelog node drain {node_id}`)"
    )
