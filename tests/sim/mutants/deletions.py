"""Planted bugs in deletions of records."""

from __future__ import annotations

from typing import Any, Final

from replication.partition import follower, isr
from replication.partition import leader as partition_leader
from replication.partition.follower_events import LogView
from storage.directory.log_directory import LogDirectory
from storage.log.directory_claims import DirectoryClaims
from tests.sim import deletion_stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.epochs import divergence
from tidelog.types import Offset


def a_deletion_is_acknowledged_by_the_leader_alone(patch: Patch) -> None:
    """The low watermark is the log start of the leader."""
    patch.setattr(isr.InSyncSet, "low_watermark", property(lambda self: self.log_start))


def a_log_start_is_not_made_durable(patch: Patch) -> None:
    """A new log start is in memory, and in the checkpoint only some seconds later."""
    patch.setattr(DirectoryClaims, "starting_all", lambda self, starts: lambda: None)
    patch.setattr(DirectoryClaims, "take_start", lambda self, name, offset: True)


def a_log_start_is_reported_before_it_is_durable(patch: Patch) -> None:
    """A follower reports the log start that it is about to move to."""

    def advance(self: Any, committed: Any) -> Any:
        effects = moved(self, committed)
        log = self._log
        start = max(log.log_start, min(committed.log_start, committed.watermark, log.log_end))
        self._log = LogView(Offset(start), log.log_end, log.durable_offset, log.last_epoch)
        return [*effects, *self._report()]

    moved = follower.PartitionFollower._advance
    patch.setattr(follower.PartitionFollower, "_advance", advance)


def a_replica_joins_with_deleted_records(patch: Patch) -> None:
    """A replica joins the in-sync set whatever its log start is."""

    def may_join(self: Any, replica: Any) -> bool:
        start, self.log_start = self.log_start, Offset(-1)
        try:
            return bool(joins(self, replica))
        finally:
            self.log_start = start

    joins = isr.InSyncSet.may_join
    patch.setattr(isr.InSyncSet, "may_join", may_join)


def an_eligible_replica_keeps_deleted_records(patch: Patch) -> None:
    """A deletion does not wait for replicas that are eligible to lead."""

    def low_watermark(self: Any) -> Any:
        elr, self._elr = self._elr, ()
        try:
            return lowest(self)
        finally:
            self._elr = elr

    lowest = vars(isr.InSyncSet)["low_watermark"].fget
    patch.setattr(isr.InSyncSet, "low_watermark", property(low_watermark))


def uncommitted_records_are_deleted(patch: Patch) -> None:
    """Records up to the log end may be deleted."""

    def move_log_start(self: Any, log: Any, offset: Any, moved: Any) -> None:
        self.drop_before(log, offset, moved=moved)

    patch.setattr(partition_leader.PartitionLeader, "deletable", lambda self, offset: min(offset, self._set.log_end))
    patch.setattr(LogDirectory, "move_log_start", move_log_start)


def deleted_epochs_are_told_as_truncated(patch: Patch) -> None:
    """A reader whose records are deleted, with their epoch, is told that its log diverges from that of the leader."""
    patch.setattr(partition_leader, "divergence_for_reader", divergence)


STARTS_BELOW: Final = "but the deletion of everything below 3 was acknowledged"

MUTANTS: Final = (
    Mutant(
        a_deletion_is_acknowledged_by_the_leader_alone,
        "deletions",
        deletion_stories.deletion_waits_for_the_followers,
        STARTS_BELOW,
    ),
    Mutant(a_log_start_is_not_made_durable, "deletions", deletion_stories.deletion_outlives_a_power_loss, STARTS_BELOW),
    Mutant(
        a_log_start_is_reported_before_it_is_durable,
        "deletions",
        deletion_stories.deletion_waits_for_a_slow_disk,
        STARTS_BELOW,
    ),
    Mutant(
        a_replica_joins_with_deleted_records,
        "deletions",
        deletion_stories.deletion_while_a_replica_is_down,
        STARTS_BELOW,
    ),
    Mutant(
        an_eligible_replica_keeps_deleted_records,
        "deletions",
        deletion_stories.deletion_while_an_eligible_replica_is_down,
        "an eligible replica has the records",
    ),
    Mutant(
        uncommitted_records_are_deleted,
        "deletions",
        deletion_stories.deletion_above_the_watermark,
        "but the committed log ends at 5",
    ),
    Mutant(
        deleted_epochs_are_told_as_truncated,
        "KIP-320, found",
        deletion_stories.reader_at_the_end_of_an_empty_log,
        "the reader at the end is told of",
    ),
)
