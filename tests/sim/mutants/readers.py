"""Consumers that trust the answers of nodes without a check."""

from __future__ import annotations

from typing import Any

from tests.sim.mutants.mutant import Patch
from tidelog.client import fetch_core as _fetch_core


def an_epoch_end_counts_by_its_offset_alone(patch: Patch) -> None:
    """A reader continues if the leader has as many records, whatever their epoch (KIP-320)."""
    note = _fetch_core.FetchCore._note_epoch_end

    def trusting(self: Any, cursor: Any, end: Any, effects: Any) -> None:
        if end.end_offset >= cursor.ahead:
            cursor.ahead_epoch = end.epoch
        note(self, cursor, end, effects)

    patch.setattr(_fetch_core.FetchCore, "_note_epoch_end", trusting)
