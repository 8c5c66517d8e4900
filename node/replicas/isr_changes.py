"""Counts the changes of in-sync sets, by the node that leads after the change: over all nodes, each counts once."""

from __future__ import annotations

from collections.abc import Collection

from tidelog.types import NodeId


class IsrChanges:
    """The counters of one node."""

    def __init__(self) -> None:
        self.shrinks = 0
        self.expansions = 0
        self.failed_proposals = 0
        """Proposed sets that the controller rejected, or did not answer in time."""

    def changed(self, before: Collection[NodeId], after: Collection[NodeId]) -> None:
        """The set of a partition that this node leads has changed from `before` to `after`."""
        members, former = set(after), set(before)
        self.shrinks += not former <= members
        self.expansions += not members <= former
