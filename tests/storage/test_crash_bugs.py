"""Crash points find planted bugs: each rule, weakened, must lead to a violated promise within seconds.

A planted bug that no crash point finds shows a missing check of the model or a missing step of the machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from storage.compaction import cleaning
from storage.log import log_writer
from storage.log.directory_claims import DirectoryClaims
from storage.log.flush import FlushState, FlushTicket
from storage.log.log_producers import LogProducers
from storage.log.log_start import LogStart
from storage.log.log_truncation import LogTruncator
from storage.producers.aborted_transactions import AbortedTransactions
from storage.producers.producer_state import ProducerStateManager
from storage.recovery.recovery import Recovery
from storage.segment.epoch_cache import EpochFile
from storage.segment.segments import LogSegments
from tests.storage.crash_machine import BASE, CrashMachine
from tests.storage.crash_runs import draw_example
from tidelog.types import Durability

Patch = pytest.MonkeyPatch
POINTS = 60_000
"""Crash points after which a planted bug counts as not found; most are found within some hundred, rare ones within
some ten thousand."""


pytestmark = pytest.mark.timeout(900)


class Plain(CrashMachine):
    pass


class PageCache(CrashMachine):
    config = replace(BASE, durability=Durability.PAGE_CACHE, flush_messages=20)


class OldFormat(CrashMachine):
    config = replace(BASE, magic=1)


class Compacted(CrashMachine):
    config = replace(BASE, compact=True, delete=False, min_cleanable_ratio=0.0, delete_retention_ms=2_000)


class CompactedPageCache(CrashMachine):
    config = replace(Compacted.config, durability=Durability.PAGE_CACHE, flush_messages=20)


def nothing(*_: object, **__: object) -> None:
    return None


def records_are_durable_before_the_sync(patch: Patch) -> None:
    """A flush counts as finished when it begins."""
    run = FlushTicket.run
    patch.setattr(FlushTicket, "run", lambda self: None if self.up_to else run(self))


def names_are_not_synced(patch: Patch) -> None:
    """A flush syncs bytes and epochs but no directory: the new segment's name may be lost."""
    fill = FlushState._fill

    def without_directories(self: FlushState, ticket: FlushTicket, *rest: Any) -> None:
        fill(self, ticket, *rest)
        if ticket.up_to:
            ticket.directories = []

    patch.setattr(FlushState, "_fill", without_directories)


def a_truncation_lowers_nothing(patch: Patch) -> None:
    """Scenario 3: flushed to 100, truncated to 80, filled again to 100, and the flush is skipped."""
    patch.setattr(FlushState, "lower", nothing)


def a_truncation_leaves_the_claims(patch: Patch) -> None:
    """Scenario 3, variant: the checkpoint file still has 100 when the follower crashes at 90."""
    patch.setattr(DirectoryClaims, "lowering", lambda *_: nothing)


def a_sync_begun_before_a_truncation_counts(patch: Patch) -> None:
    """Scenario 2, the part of storage."""

    def lower(self: FlushState, offset: Any) -> None:
        self.recovery_point = min(self.recovery_point, offset)
        self.synced = min(self.synced, offset)

    patch.setattr(FlushState, "lower", lower)


def producers_survive_a_truncation(patch: Patch) -> None:
    """Scenario 3, variant: a resend of a truncated batch would be answered as a duplicate."""
    patch.setattr(LogProducers, "truncated", nothing)


def snapshots_survive_a_truncation(patch: Patch) -> None:
    """Scenario 3, variant: the same, after a restart."""
    patch.setattr(LogTruncator, "_snapshots_above", lambda *_: [])


def recovery_does_not_rewrite(patch: Patch) -> None:
    """Scenario 14: after a failed fsync the pages only appear written."""
    patch.setattr(Recovery, "_rewrite", staticmethod(nothing))


def recovery_leaves_nothing_to_flush(patch: Patch) -> None:
    """Names and indexes that the previous process left in the page cache count as durable."""
    patch.setattr(Recovery, "_leave_to_flush", nothing)


def epochs_come_behind_bytes(patch: Patch) -> None:
    """Scenario 3, variant: v1 bytes reach the disk before their epoch does."""
    patch.setattr(log_writer, "any", lambda _: False, raising=False)


def retention_syncs_no_snapshot(patch: Patch) -> None:
    """The state of producers whose batches are deleted may be lost."""
    patch.setattr(ProducerStateManager, "keeping", lambda *_: nothing)


def a_log_start_is_not_written(patch: Patch) -> None:
    """The log start exists only in memory."""
    patch.setattr(DirectoryClaims, "starting", lambda *_: nothing)


def cleaned_segments_are_not_synced(patch: Patch) -> None:
    """A cleaned segment replaces its sources before its bytes are durable."""
    patch.setattr(cleaning, "sync_paths", nothing)


def swaps_are_not_synced(patch: Patch) -> None:
    """The old segments are removed before the new one's name is durable."""
    replace_ = LogSegments.replace

    def unsynced(self: LogSegments, *arguments: Any) -> list[str]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(self._files), "sync_directory", nothing)
            return replace_(self, *arguments)

    patch.setattr(LogSegments, "replace", unsynced)


def epoch_files_are_never_written(patch: Patch) -> None:
    """The epochs of v1 messages are in no file."""
    patch.setattr(EpochFile, "write", nothing)


def compaction_goes_by_markers_that_may_be_lost(patch: Patch) -> None:
    """A record is removed because of a record whose transaction has no durable marker."""
    patch.setattr(LogStart, "durably_decided", lambda self: self._log.recovery_point)


def an_unverified_index_is_trusted(patch: Patch) -> None:
    """Entries lost from the transaction index of a log that was never flushed are not noticed."""
    recovered = AbortedTransactions.recovered

    def trusting(self: AbortedTransactions, read_from: Any) -> None:
        recovered(self, read_from)
        self.begin(read_from)

    patch.setattr(AbortedTransactions, "recovered", trusting)


class Bug(NamedTuple):
    plant: Callable[[Patch], None]
    machine: type[CrashMachine]


BUGS = [
    Bug(records_are_durable_before_the_sync, Plain),
    Bug(names_are_not_synced, Plain),
    Bug(a_truncation_lowers_nothing, Plain),
    Bug(a_truncation_leaves_the_claims, Plain),
    Bug(producers_survive_a_truncation, Plain),
    Bug(recovery_does_not_rewrite, Plain),
    Bug(epochs_come_behind_bytes, OldFormat),
    Bug(epoch_files_are_never_written, OldFormat),
    Bug(a_log_start_is_not_written, Plain),
]
RARE_BUGS = [
    Bug(snapshots_survive_a_truncation, Plain),
    Bug(recovery_does_not_rewrite, PageCache),
    Bug(retention_syncs_no_snapshot, Plain),
    Bug(cleaned_segments_are_not_synced, Compacted),
]
if os.environ.get("FULL") == "1":
    RARE_BUGS += [
        Bug(a_sync_begun_before_a_truncation_counts, Plain),
        Bug(recovery_leaves_nothing_to_flush, PageCache),
        Bug(swaps_are_not_synced, Compacted),
        Bug(compaction_goes_by_markers_that_may_be_lost, CompactedPageCache),
        Bug(an_unverified_index_is_trusted, CompactedPageCache),
    ]


def name_of(bug: Bug) -> str:
    return f"{bug.plant.__name__}-{bug.machine.__name__}"


@pytest.mark.parametrize("bug", BUGS, ids=name_of)
def test_crashes_find_a_planted_bug(bug: Bug, monkeypatch: Patch) -> None:
    find(bug, monkeypatch)


@pytest.mark.deep
@pytest.mark.parametrize("bug", RARE_BUGS, ids=name_of)
def test_crashes_find_a_rare_bug(bug: Bug, monkeypatch: Patch) -> None:
    """Above 10 s: these bugs need a crash at each of more than 5,000 points."""
    find(bug, monkeypatch)


def find(bug: Bug, monkeypatch: Patch) -> None:
    bug.plant(monkeypatch)
    machine, seed, found = bug.machine, 1, None
    machine.points = 0
    while found is None:
        assert machine.points < POINTS, f"not found within {POINTS} crash points"
        found, seed = draw_example(machine, seed).error, seed + 1
    print(f"noticed after {machine.points} crash points: {found!r}")
