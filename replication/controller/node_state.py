"""State of a registered node in the controller, and the transitions between states.

`TRANSITIONS` is complete: a node's change records are made from it alone, and the diagram in docs/metadata.md is drawn
from it. A registration, the first one or that of a new process, makes any node fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from replication.controller.image import ClusterImage, NodeRegistration
from replication.controller.metadata_records import NodeChangeRecord
from tidelog.errors import NodeIdNotRegistered
from tidelog.types import NodeId


class NodeState(Enum):
    """State of a node."""

    FENCED = "registered: it leads no partition and joins no in-sync set"
    SERVING = "it may lead and follow"
    DRAINING = "it is being stopped: it gets no new replicas, and its leaderships and set memberships move away"
    STOPPED = "it was stopped, or its session ended while it drained: it returns by a new registration"


class NodeCause(Enum):
    """Cause of a transition."""

    READY = "it has applied the log beyond its registration and recorded the number in its directories"
    SESSION_ENDED = "no heartbeat for a session, or another process of this node leads the quorum now"
    REFUSED = "its address refuses the connections of two other nodes: its process has ended"
    DRAIN_REQUESTED = "it requested to stop"
    DRAIN_WITHDRAWN = "its process knows that it is marked as draining, and does not request it: another sender did"
    DRAINED = "everything movable has moved and all other nodes know it, or the time limit is reached"


TRANSITIONS: Final[Mapping[tuple[NodeState, NodeCause], NodeState]] = {
    (NodeState.FENCED, NodeCause.READY): NodeState.SERVING,
    (NodeState.FENCED, NodeCause.DRAIN_REQUESTED): NodeState.STOPPED,
    (NodeState.SERVING, NodeCause.SESSION_ENDED): NodeState.FENCED,
    (NodeState.SERVING, NodeCause.REFUSED): NodeState.FENCED,
    (NodeState.SERVING, NodeCause.DRAIN_REQUESTED): NodeState.DRAINING,
    (NodeState.DRAINING, NodeCause.SESSION_ENDED): NodeState.STOPPED,
    (NodeState.DRAINING, NodeCause.REFUSED): NodeState.STOPPED,
    (NodeState.DRAINING, NodeCause.DRAINED): NodeState.STOPPED,
    (NodeState.DRAINING, NodeCause.DRAIN_WITHDRAWN): NodeState.SERVING,
    (NodeState.STOPPED, NodeCause.DRAIN_WITHDRAWN): NodeState.FENCED,
}
"""Next state by state and cause."""


def node_state_of(node: NodeRegistration) -> NodeState:
    """The node's state in the metadata."""
    if node.fenced:
        return NodeState.STOPPED if node.draining else NodeState.FENCED
    return NodeState.DRAINING if node.draining else NodeState.SERVING


def registered_node(image: ClusterImage, node_id: NodeId) -> NodeRegistration:
    """The node that an operator names. Raises NodeIdNotRegistered."""
    node = image.nodes.get(node_id)
    if node is None:
        known = ", ".join(map(str, sorted(image.nodes)))
        raise NodeIdNotRegistered(
            f"there is no node {node_id}: it was removed before, also if the answer to that request was lost, or never "
            f"registered; the registered nodes are {known} (`tidelog cluster status`)"
        )
    return node


def moved(node: NodeRegistration, cause: NodeCause) -> NodeChangeRecord:
    """The record that moves a node to the next state of the table."""
    match TRANSITIONS[node_state_of(node), cause]:
        case NodeState.FENCED:
            return NodeChangeRecord(node.node_id, node.node_epoch, fenced=True, draining=False)
        case NodeState.STOPPED:
            return NodeChangeRecord(node.node_id, node.node_epoch, fenced=True, draining=True)
        case NodeState.SERVING:
            return NodeChangeRecord(node.node_id, node.node_epoch, fenced=False, draining=False)
        case NodeState.DRAINING:
            return NodeChangeRecord(node.node_id, node.node_epoch, draining=True)
