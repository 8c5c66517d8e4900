"""How a registered node stands with the controller, and every way from one standing to another.

`TRANSITIONS` is the whole truth: a node's record is made by it alone, and docs/metadata.md is drawn from it. A
registration, of a new process or the first one, makes any node fenced.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from replication.controller.image import NodeRegistration
from replication.controller.metadata import NodeChangeRecord


class NodeState(Enum):
    """What a node may do."""

    FENCED = "registered: it leads nothing and joins no in-sync set"
    SERVING = "it leads and follows"
    DRAINING = "it is being stopped: it is given nothing, and what it has moves away"
    GONE = "it was stopped, or fell silent over it: only another registration brings it back"


class NodeCause(Enum):
    """Why that changes."""

    READY = "it has applied the log beyond its registration, and its directories know of that"
    SILENT = "no heartbeat for a session, or another process of it leads the quorum now"
    DRAIN_ASKED = "it wants to stop"
    DRAINED = "what can move away has, and all others know; or it waited for long enough"


TRANSITIONS: Final[Mapping[tuple[NodeState, NodeCause], NodeState]] = {
    (NodeState.FENCED, NodeCause.READY): NodeState.SERVING,
    (NodeState.FENCED, NodeCause.DRAIN_ASKED): NodeState.GONE,
    (NodeState.SERVING, NodeCause.SILENT): NodeState.FENCED,
    (NodeState.SERVING, NodeCause.DRAIN_ASKED): NodeState.DRAINING,
    (NodeState.DRAINING, NodeCause.SILENT): NodeState.GONE,
    (NodeState.DRAINING, NodeCause.DRAINED): NodeState.GONE,
}
"""Every way that there is."""


def node_state_of(node: NodeRegistration) -> NodeState:
    """How a node stands by the metadata."""
    if node.fenced:
        return NodeState.GONE if node.draining else NodeState.FENCED
    return NodeState.DRAINING if node.draining else NodeState.SERVING


def moved(node: NodeRegistration, cause: NodeCause) -> NodeChangeRecord:
    """The record by which a node comes to stand as the table says."""
    match TRANSITIONS[node_state_of(node), cause]:
        case NodeState.FENCED:
            return NodeChangeRecord(node.node_id, node.node_epoch, fenced=True)
        case NodeState.GONE:
            return NodeChangeRecord(node.node_id, node.node_epoch, fenced=True, draining=True)
        case NodeState.SERVING:
            return NodeChangeRecord(node.node_id, node.node_epoch, fenced=False, draining=False)
        case NodeState.DRAINING:
            return NodeChangeRecord(node.node_id, node.node_epoch, draining=True)
