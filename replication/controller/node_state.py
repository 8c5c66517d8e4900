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


class Standing(Enum):
    """What a node may do."""

    FENCED = "registered: it leads nothing and joins no in-sync set"
    SERVING = "it leads and follows"
    DRAINING = "it is being stopped: it is given nothing, and what it has moves away"
    GONE = "it was stopped, or fell silent over it: only another registration brings it back"


class NodeCause(Enum):
    """Why that changes."""

    READY = "it has applied the log beyond its registration, and its folders know of that"
    SILENT = "no heartbeat for a session, or another process of it leads the quorum now"
    DRAIN_ASKED = "it wants to stop"
    DRAINED = "what can move away has, and all others know; or it waited for long enough"


TRANSITIONS: Final[Mapping[tuple[Standing, NodeCause], Standing]] = {
    (Standing.FENCED, NodeCause.READY): Standing.SERVING,
    (Standing.FENCED, NodeCause.DRAIN_ASKED): Standing.GONE,
    (Standing.SERVING, NodeCause.SILENT): Standing.FENCED,
    (Standing.SERVING, NodeCause.DRAIN_ASKED): Standing.DRAINING,
    (Standing.DRAINING, NodeCause.SILENT): Standing.GONE,
    (Standing.DRAINING, NodeCause.DRAINED): Standing.GONE,
}
"""Every way that there is."""


def standing_of(node: NodeRegistration) -> Standing:
    """How a node stands by the metadata."""
    if node.fenced:
        return Standing.GONE if node.draining else Standing.FENCED
    return Standing.DRAINING if node.draining else Standing.SERVING


def moved(node: NodeRegistration, cause: NodeCause) -> NodeChangeRecord:
    """The record by which a node comes to stand as the table says."""
    match TRANSITIONS[standing_of(node), cause]:
        case Standing.FENCED:
            return NodeChangeRecord(node.node_id, node.node_epoch, fenced=True)
        case Standing.GONE:
            return NodeChangeRecord(node.node_id, node.node_epoch, fenced=True, draining=True)
        case Standing.SERVING:
            return NodeChangeRecord(node.node_id, node.node_epoch, fenced=False, draining=False)
        case Standing.DRAINING:
            return NodeChangeRecord(node.node_id, node.node_epoch, draining=True)
