"""Storage that trusts a disk too early, and truncation, recovery and retention that lose durable records."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from node.replicas import replica as node_replica
from node.replicas.replica_damage import ReplicaDamage
from storage.directory import cleanable, log_cleaner, log_directory
from storage.files.file_system import sync_all
from storage.log import directory_claims, flush, log_start, log_writer, retention, truncation_ticket
from storage.log import log as storage_log
from storage.recovery import epoch_recovery, loading_site, recovery
from testbed import fake_disk
from tests.sim.mutants.mutant import Patch
from tidelog.errors import KafkaStorageError
from tidelog.types import Offset, PartitionKey


def unsynced_bytes_count_as_durable(patch: Patch) -> None:
    """A replica reports records as durable that it has only written."""
    patch.setattr(storage_log.Log, "durable_offset", property(lambda self: self.log_end_offset))


def a_flush_counts_beyond_a_truncation(patch: Patch) -> None:
    """An fsync that began before a truncation makes offsets durable that were truncated since."""

    def lower(self: Any, offset: Any) -> None:
        self.recovery_point = min(self.recovery_point, offset)
        self.synced = min(self.synced, offset)

    patch.setattr(flush.FlushState, "lower", lower)


def names_are_not_synced(patch: Patch) -> None:
    """A flush fsyncs files but not their directory."""

    def run(self: Any) -> None:
        sync_all(self.handles)
        self.epoch_file.write(self.epoch_version, self.epochs)

    patch.setattr(flush.FlushTicket, "run", run)


def a_truncation_leaves_the_recovery_point(patch: Patch) -> None:
    """A truncation leaves the recovery point above the new log end."""
    patch.setattr(flush.FlushState, "lower", lambda *_: None)


def a_failed_sync_is_repeated(patch: Patch) -> None:
    """After a failed fsync the log directory stays in use, and the next fsync succeeds."""

    def run(self: Any, work: Any) -> None:
        with self._lock:
            work()

    def fail(self: Any, doing: str, error: Any) -> Any:
        return KafkaStorageError(f"{doing}: {error}")

    patch.setattr(flush.SyncOrder, "run", run)
    patch.setattr(log_directory.LogDirectory, "fail", fail)


def recovery_does_not_rewrite(patch: Patch) -> None:
    """Recovery fsyncs the bytes that it reads without writing them again."""
    patch.setattr(recovery.Recovery, "_rewrite", staticmethod(lambda *_: None))


def retention_deletes_uncommitted_records(patch: Patch) -> None:
    """Retention deletes old segments that are not replicated yet."""
    count = retention.count_deletable

    def counting(segments: Any, config: Any, **rest: Any) -> int:
        return count(segments, config, **{**rest, "limit": rest["log_end"]})

    patch.setattr(log_start, "count_deletable", counting)


def records_are_deleted_too_early(patch: Patch) -> None:
    """Retention treats records as twice as old as they are."""
    age = retention._age
    patch.setattr(retention, "_age", lambda *given: 2 * age(*given))


def a_truncation_is_not_synced(patch: Patch) -> None:
    """A truncation is not fsynced."""
    patch.setattr(truncation_ticket, "sync_all", lambda _: None)


def a_damaged_leader_does_not_resign(patch: Patch) -> None:
    """A read that finds damage fails, and the damage is not reported."""
    patch.setattr(ReplicaDamage, "known", lambda *_: None)
    patch.setattr(ReplicaDamage, "found", lambda *_: None)


def a_truncation_leaves_the_checkpoint(patch: Patch) -> None:
    """A truncation does not update the checkpoint of recovery points."""

    def lowering(self: Any, log: Any, offset: Any) -> Any:
        return self.marks.lowering(PartitionKey(log.topic_id, log.topic_partition.partition), offset)

    patch.setattr(directory_claims.DirectoryClaims, "lowering", lowering)


def a_truncation_leaves_the_watermark(patch: Patch) -> None:
    """A truncation does not update the checkpoint of high watermarks until it is written for another reason."""

    def lowering(self: Any, log: Any, offset: Any) -> Any:
        watermarks, self._high_watermarks = self._high_watermarks, self._recovery_points
        try:
            return lower(self, log, offset)
        finally:
            self._high_watermarks = watermarks

    lower = directory_claims.DirectoryClaims.lowering
    patch.setattr(directory_claims.DirectoryClaims, "lowering", lowering)


def epochs_are_written_behind_the_bytes(patch: Patch) -> None:
    """The epochs of v0 and v1 messages reach their file with the next flush, after the messages."""

    def writing(self: Any, *given: Any) -> None:
        file = self._flush.epoch_file
        file.written, kept = sys.maxsize, file.written
        try:
            write(self, *given)
        finally:
            file.written = kept

    write = log_writer.LogWriter.write
    patch.setattr(log_writer.LogWriter, "write", writing)


def lost_epochs_are_no_damage(patch: Patch) -> None:
    """A log of v0 and v1 messages without its file of epochs starts empty, as if it had no durable records."""

    def finishing(self: Any, *given: Any) -> None:
        site, known = self._site, self._site.known
        site.known = replace(known, recovery_point=Offset(0), durable_offset=Offset(0))
        try:
            finish(self, *given)
        finally:
            site.known = known

    def following(self: Any, state: Any, fetcher: Any) -> None:
        if self.log.log_end_offset > 0 and not self.log.epochs.entries:
            self.log.truncate_fully_and_start_at(Offset(0))
        follow(self, state, fetcher)

    finish, follow = epoch_recovery.EpochRecovery.finish, node_replica.Replica.follow
    patch.setattr(epoch_recovery.EpochRecovery, "finish", finishing)
    patch.setattr(node_replica.Replica, "follow", following)


def rot_is_taken_for_a_torn_tail(patch: Patch) -> None:
    """Recovery truncates everything above the recovery point, even what was reported as durable."""
    patch.setattr(loading_site.LoadingSite, "protected", property(lambda self: self.known.recovery_point))


def known_damage_is_forgotten(patch: Patch) -> None:
    """Damage that was found while the node ran is not recorded on disk."""
    patch.setattr(log_directory.LogDirectory, "keep_damage", lambda *_, **__: None)


def the_cleaner_compacts_to_the_log_end(patch: Patch) -> None:
    """Compaction removes records that a later uncommitted record of the key replaces."""
    measure = cleanable.measure
    patch.setattr(log_cleaner, "measure", lambda *given, **rest: measure(*given, **{**rest, "limit": rest["log_end"]}))


def a_full_disk_takes_its_directory_offline(patch: Patch) -> None:
    """A full disk takes its log directory offline until the node is restarted."""
    patch.setattr(log_directory, "is_full", lambda _: False)


def an_index_page_that_cannot_be_read_ends_the_node(patch: Patch) -> None:
    """Mapped pages are accessed without the guard: the signal of the kernel ends the process; here a defect does."""
    page_fault = fake_disk.FakeDisk.page_fault

    def unguarded(self: Any, operation: str, path: str) -> None:
        try:
            page_fault(self, operation, path)
        except OSError as error:
            raise SystemError(f"SIGBUS: {error}") from None

    patch.setattr(fake_disk.FakeDisk, "page_fault", unguarded)
