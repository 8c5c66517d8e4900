"""Planted bugs in the treatment of damaged logs: verification, reports, salvage, and deletion."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from node.replicas import log_registry, own_log_check, replica
from node.requests import log_dirs
from storage.checkpoints import directory_identity
from storage.directory import kept_copy, salvage
from storage.segment import segment
from storage.segment.batch_walk import Link
from tests.sim import damage_stories, log_stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.types import NO_NODE


def a_clean_stop_is_ignored(patch: Patch) -> None:
    """After a reboot a page-cache replica counts as lost although its node was stopped cleanly."""
    begin, read = directory_identity.DirectoryIdentity.__init__, directory_identity.DirectoryIdentity._read_registration

    def reading(self: Any) -> Any:
        number, self.boot_found = read(self)
        return number, self.boot_found

    def beginning(self: Any, *given: Any) -> None:
        begin(self, *given)
        self.intact = self.boot_found == self._boot

    patch.setattr(directory_identity.DirectoryIdentity, "_read_registration", reading)
    patch.setattr(directory_identity.DirectoryIdentity, "__init__", beginning)


def a_damaged_log_is_truncated_at_its_damage(patch: Patch) -> None:
    """An elected damaged log is truncated at its damage, and all records after it are lost."""
    sound = salvage.Salvage._sound

    def before_the_damage(self: Any, file: Any, base: int, behind: int) -> Any:
        found, whole = sound(self, file, base, behind)
        kept: list[Any] = []
        for batch in found:
            if batch.first != (kept[-1].last + 1 if kept else base):
                break
            kept.append(batch)
        return kept, whole

    patch.setattr(salvage.Salvage, "_sound", before_the_damage)


def lost_records_are_not_copied(patch: Patch) -> None:
    """Records that an unclean election loses are deleted from the disk as well."""
    patch.setattr(salvage, "keep_copy", lambda *_: None)
    patch.setattr(kept_copy, "keep_copy", lambda *_: None)


def the_loss_of_a_missing_log_cannot_be_accepted(patch: Patch) -> None:
    """The log of an uncleanly elected leader is not created if it had records and is missing."""
    make = log_registry.LogRegistry.make

    async def unless_it_had_records(self: Any, topic: Any, state: Any) -> Any:
        return await make(self, topic, replace(state, leader=NO_NODE))

    patch.setattr(log_registry.LogRegistry, "make", unless_it_had_records)


def rejected_bytes_are_not_verified(patch: Patch) -> None:
    """A leader does not verify the bytes that a consumer reports as damaged, and sends them again."""
    patch.setattr(own_log_check, "ensure_sound", lambda *_: None)


def the_size_of_a_segment_file_is_not_checked(patch: Patch) -> None:
    """The number of bytes that a read returns is not compared with the size of the segment."""
    patch.setattr(segment.LogSegment, "_present_size", lambda self: self.size)


def messages_of_old_formats_may_leave_gaps(patch: Patch) -> None:
    """A v0 or v1 message after which the chain breaks is returned behind a gap as well, if its checksum is correct."""
    leads_on = segment._leads_on

    def whatever_its_offset(data: Any, at: int, link: Link) -> bool:
        header = link.read(data, link.position - at)
        if header is not None and header.magic < 2:
            link = link._replace(next_offset=header.base_offset)
        return leads_on(data, at, link)

    patch.setattr(segment, "_leads_on", whatever_its_offset)


def a_damaged_log_is_set_aside_without_a_leader(patch: Patch) -> None:
    """A damaged log is set aside while there is no leader to fetch it from."""
    why = log_registry.LogRegistry.why_unfit

    def hasty(self: Any, directory: Any, log: Any, state: Any) -> Any:
        return why(self, directory, log, replace(state, leader=state.replicas[0]))

    patch.setattr(log_registry.LogRegistry, "why_unfit", hasty)


def damage_is_not_reported(patch: Patch) -> None:
    """Nodes do not report which of their logs are damaged."""
    own = log_dirs.LogDirs.own

    def silent(self: Any) -> Any:
        return tuple(replace(each, damaged=()) for each in own(self))

    patch.setattr(log_dirs.LogDirs, "own", silent)


def a_time_lookup_reports_no_damage(patch: Patch) -> None:
    """A lookup by time that meets damage refuses the request, and the replica continues to lead."""

    def offset_at(self: Any, *asked: Any) -> Any:
        services, self._services = self._services, replace(self._services, log_damaged=lambda *_: None)
        try:
            return look_up(self, *asked)
        finally:
            self._services = services

    look_up = replica.Replica.offset_at
    patch.setattr(replica.Replica, "offset_at", offset_at)


MUTANTS: Final = (
    Mutant(
        messages_of_old_formats_may_leave_gaps,
        "S15, found",
        log_stories.rot_moves_a_message,
        "is missing, below",
    ),
    Mutant(
        a_clean_stop_is_ignored,
        "rule 6",
        damage_stories.clean_stop_and_reboot_of_all,
        "its stop was clean",
    ),
    Mutant(
        a_damaged_log_is_truncated_at_its_damage,
        "rule 6",
        damage_stories.unclean_election_keeps_sound_batches,
        "one offset is lost",
    ),
    Mutant(
        lost_records_are_not_copied,
        "rule 6",
        damage_stories.unclean_election_keeps_sound_batches,
        "has the whole corrupt log",
    ),
    Mutant(
        lost_records_are_not_copied,
        "rule 6",
        damage_stories.unclean_leader_has_fewer_records,
        "the copy has the removed records",
    ),
    Mutant(
        the_loss_of_a_missing_log_cannot_be_accepted,
        "rule 6",
        damage_stories.unclean_election_of_a_log_that_is_gone,
        "it leads with a new log",
    ),
    Mutant(
        rejected_bytes_are_not_verified,
        "rule 4",
        damage_stories.consumer_reads_rot,
        "were changed|checksum",
    ),
    Mutant(
        a_time_lookup_reports_no_damage,
        "rule 4",
        damage_stories.time_lookup_reads_rot,
        "another replica leads and answers",
    ),
    Mutant(
        the_size_of_a_segment_file_is_not_checked,
        "rule 4",
        damage_stories.consumer_reads_a_truncated_segment,
        "whole batch|checksum",
    ),
    Mutant(
        a_damaged_log_is_set_aside_without_a_leader,
        "rule 6",
        damage_stories.unclean_election_of_a_replica_found_damaged,
        "set aside while no replica leads",
    ),
    Mutant(
        damage_is_not_reported,
        "rule 4",
        damage_stories.consumer_reads_rot_in_the_only_replica,
        "the status reports it",
    ),
)
