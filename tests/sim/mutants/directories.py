"""Nodes that wait for a disk on the event loop, or trust files beside their logs without a check."""

from __future__ import annotations

from typing import Any, Final

import pytest

from replication.partition import leader as partition_leader
from replication.partition.leader_events import Acknowledge
from storage.directory import directory_changes, group_commit, log_directory
from storage.files.disk_executor import InlineExecutor
from storage.log import cold_read
from storage.log import log as storage_log
from storage.recovery import epoch_recovery
from storage.segment.batch_walk import BrokenChain
from storage.segment.segment import LogSegment
from tests.sim import disk_stories
from tests.sim.mutants import disks
from tests.sim.mutants.mutant import Mutant, Patch


def a_deleted_topic_is_synced_on_the_loop(patch: Patch) -> None:
    """The event loop itself fsyncs the claims and names of deleted logs, one batch at a time."""
    hand_over = directory_changes.DirectoryChanges._hand_over_some

    def at_once(self: Any) -> None:
        with pytest.MonkeyPatch.context() as while_it_runs:
            while_it_runs.setattr(self, "_executor", InlineExecutor())
            hand_over(self)

    patch.setattr(directory_changes.DirectoryChanges, "_hand_over_some", at_once)


def a_flush_counts_later_appends(patch: Patch) -> None:
    """A completed flush makes the whole log count as durable, including records appended while it ran."""
    finish = storage_log.Log.finish_flush

    def finishing(self: Any, ticket: Any) -> None:
        ticket.up_to = max(ticket.up_to, self.log_end_offset)
        finish(self, ticket)

    patch.setattr(storage_log.Log, "finish_flush", finishing)


def an_index_is_trusted(patch: Patch) -> None:
    """A position from an index is not compared with the batch at that position."""
    patch.setattr(LogSegment, "_ends_below", lambda *_, **__: True)
    start = cold_read.BytesRead._start

    def starting(self: Any, file: Any) -> int:
        try:
            return start(self, file)
        except BrokenChain as error:
            return error.position

    patch.setattr(cold_read.BytesRead, "_start", starting)


def lost_epochs_are_recorded_as_none(patch: Patch) -> None:
    """For a log whose leader epochs are lost a file without entries is written, which the next start accepts."""
    finish = epoch_recovery.EpochRecovery.finish

    def finishing(self: Any, *given: Any) -> None:
        finish(self, *given)
        if self.lost:
            self.file.written = -1

    patch.setattr(epoch_recovery.EpochRecovery, "finish", finishing)


def checkpoints_are_written_on_the_loop(patch: Patch) -> None:
    """The event loop writes the checkpoints of a directory as soon as they change."""

    def write_now(self: Any, write: Any) -> None:
        if write is not None:
            write()

    patch.setattr(log_directory.LogDirectory, "_write_later", write_now)


def flushes_run_on_the_loop(patch: Patch) -> None:
    """A flush runs on the event loop."""

    def submit(self: Any, log: Any, ticket: Any) -> None:
        self.flushes += 1
        self._flushing[log] = None
        ticket.run()
        self._end(log, ticket, None)

    patch.setattr(group_commit.GroupCommit, "_submit", submit)


def acknowledgements_do_not_wait_after_an_unclean_election(patch: Patch) -> None:
    """In the epoch after an unclean election the leader acknowledges at once."""
    await_ack = partition_leader.PartitionLeader._await_ack

    def awaiting(self: Any, event: Any) -> Any:
        return [Acknowledge((event.ticket,))] if self.leader_epoch > 0 else await_ack(self, event)

    patch.setattr(partition_leader.PartitionLeader, "_await_ack", awaiting)


MUTANTS: Final = (
    Mutant(
        a_deleted_topic_is_synced_on_the_loop,
        "the loop",
        disk_stories.topic_deleted_while_others_write,
        r"on the event loop, by .*DirectoryChanges\._run",
    ),
    Mutant(
        a_flush_counts_later_appends,
        "durability",
        disk_stories.records_appended_during_a_flush,
        "but a crash may lose",
    ),
    Mutant(an_index_is_trusted, "rot", disk_stories.index_rots, "without being given offset"),
    Mutant(
        lost_epochs_are_recorded_as_none,
        "found",
        disk_stories.epochs_rot_without_a_report,
        "is in the in-sync set and (holds offsets below|has no log)",
    ),
    Mutant(
        checkpoints_are_written_on_the_loop,
        "the loop",
        disk_stories.one_of_two_directories_hangs,
        r"(a write of .*-checkpoint.tmp|a sync of .*held-offset-marks) on the event loop",
    ),
    Mutant(
        flushes_run_on_the_loop,
        "the loop",
        disk_stories.one_of_two_directories_hangs,
        r"a sync of .*\.log on the event loop",
    ),
    Mutant(
        acknowledgements_do_not_wait_after_an_unclean_election,
        "unclean",
        disk_stories.unclean_leader_keeps_all_guarantees,
        r"to orders-0: acknowledged, but offset \d is not committed|acknowledged while only the leader has it",
    ),
    Mutant(
        disks.a_damaged_leader_does_not_resign,
        "availability",
        disk_stories.record_is_read_from_a_sound_replica,
        "the record is read in time",
    ),
)
