"""Consumers that trust the answers of nodes without a check."""

from __future__ import annotations

from typing import Any, Final

from node.replicas import replica as _replica
from tests.sim import deposed_reader_stories, unclean_reader_stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.client import cursor as _cursor
from tidelog.client import fetch_client as _fetch_client
from tidelog.client import fetch_core as _fetch_core
from tidelog.client import fetch_events as _fetch_events
from tidelog.types import NO_LEADER_EPOCH as _NO_LEADER_EPOCH


def an_epoch_end_counts_by_its_offset_alone(patch: Patch) -> None:
    """A reader continues if the leader has as many records, whatever their epoch (KIP-320)."""
    note = _fetch_core.FetchCore._note_epoch_end

    def trusting(self: Any, cursor: Any, end: Any, effects: Any) -> None:
        if end.end_offset >= cursor.ahead:
            cursor.ahead_epoch = end.epoch
        note(self, cursor, end, effects)

    patch.setattr(_fetch_core.FetchCore, "_note_epoch_end", trusting)


def a_node_judges_newer_epochs(patch: Patch) -> None:
    """A node says where its log diverges from a record of an epoch that it does not know (KIP-320)."""
    patch.setattr(_replica, "ensure_known", lambda *_: None)


def an_older_leader_is_believed(patch: Patch) -> None:
    """Neither does a node refuse to judge a newer epoch, nor does a reader ask for metadata that know it (KIP-320)."""
    a_node_judges_newer_epochs(patch)
    an_older_leader_is_asked(patch)


def an_older_leader_is_asked(patch: Patch) -> None:
    """A reader asks a leader of an epoch older than that of the records that were read or committed (KIP-320)."""
    patch.setattr(_cursor.Cursor, "known_epoch", property(lambda _: _NO_LEADER_EPOCH))


def out_of_range_is_believed_at_once(patch: Patch) -> None:
    """A reader believes that its position is out of range although the leader that says so may be deposed."""

    async def believing(self: Any, effect: Any) -> Any:
        return _fetch_events.LeaderVerified(effect.topic_partition, effect.number, self._clock.monotonic_ms())

    patch.setattr(_fetch_client.FetchClient, "_confirm_leader", believing)


MUTANTS: Final = (
    Mutant(
        an_epoch_end_counts_by_its_offset_alone,
        "KIP-320",
        unclean_reader_stories.older_epoch_ends_behind_the_reader,
        "the reader at 10 got",
    ),
    Mutant(
        an_older_leader_is_believed,
        "KIP-320",
        deposed_reader_stories.committed_offset_at_a_deposed_leader,
        "a deposed leader is believed",
    ),
    Mutant(
        a_node_judges_newer_epochs,
        "KIP-320",
        deposed_reader_stories.newer_epoch_is_asked_of_a_deposed_leader,
        "a deposed leader judges a newer epoch",
    ),
    Mutant(
        out_of_range_is_believed_at_once,
        "KIP-320",
        deposed_reader_stories.out_of_range_at_a_deposed_leader,
        "reading continues at 0",
    ),
    Mutant(
        an_older_leader_is_asked,
        "KIP-320",
        deposed_reader_stories.ends_at_a_deposed_leader,
        "the log ends at 8",
    ),
)
