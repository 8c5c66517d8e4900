"""Planted bugs in snapshots of topics: what they pin, what they leave out, and when they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from node.controller import snapshot_expiry
from node.requests import snapshot_end_handlers
from replication.controller import pinned_topics
from storage.log.log_start import LogStart
from tests.sim import snapshot_stories as stories
from tests.sim.mutants.mutant import Mutant, Patch


def retention_passes_over_snapshots(patch: Patch) -> None:
    """Retention removes what a snapshot needs."""
    expired = LogStart.expired

    def unpinned(self: Any, now: Any, **_: Any) -> Any:
        return expired(self, now)

    patch.setattr(LogStart, "expired", unpinned)


def open_transactions_are_in_a_snapshot(patch: Patch) -> None:
    """The leader does not say which transactions are open: a part of one is in the snapshot once it is committed."""
    end_of = snapshot_end_handlers._end_of

    def without_open(*asked: Any) -> Any:
        stated: Any = end_of(*asked)
        return replace(stated, end=replace(stated.end, left_out=()))

    patch.setattr(snapshot_end_handlers, "_end_of", without_open)


def extensions_are_not_recorded(patch: Patch) -> None:
    """A snapshot that was extended expires when it would have."""
    patch.setattr(pinned_topics, "extended", lambda image, request: image.topic_snapshots[request.name])


def pinned_topics_are_deleted(patch: Patch) -> None:
    """A topic is deleted with the records that a snapshot needs."""
    patch.setattr(pinned_topics, "ensure_unpinned", lambda *_: None)


def snapshots_never_expire(patch: Patch) -> None:
    """The controller does not look for snapshots whose time has passed."""
    patch.setattr(snapshot_expiry, "expired", lambda *_: [])


RULE: Final = "snapshots"
REMOVED: Final = r"offset 0 of orders-\d is outside the readable range"

MUTANTS: Final = (
    Mutant(retention_passes_over_snapshots, RULE, stories.snapshot_outlives_its_nodes, REMOVED),
    Mutant(
        open_transactions_are_in_a_snapshot,
        RULE,
        stories.snapshot_outlives_its_nodes,
        r"has the transactions \[0, 1, 2, 3\]",
    ),
    Mutant(extensions_are_not_recorded, RULE, stories.snapshot_outlives_its_nodes, REMOVED),
    Mutant(pinned_topics_are_deleted, RULE, stories.snapshot_outlives_its_nodes, "a topic in a snapshot is deleted"),
    Mutant(snapshots_never_expire, RULE, stories.snapshot_expires_under_another_controller, "it has expired"),
)
