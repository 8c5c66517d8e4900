"""Disks that are believed too early, and logs that are cut or recovered too lightly."""

from __future__ import annotations

from typing import Any

from node import replica_manager
from storage import data_folder, flush, log_start, retention
from storage import log as storage_log
from storage.files import sync_all
from tests.sim.mutants.mutant import Patch
from tidelog.errors import KafkaStorageError


def unsynced_bytes_count_as_held(patch: Patch) -> None:
    """A replica says that it holds what it has only written."""
    patch.setattr(storage_log.Log, "held", property(lambda self: self.log_end_offset))


def a_flush_counts_beyond_a_cut(patch: Patch) -> None:
    """An fsync that was begun before the log was cut counts as far as it was meant to."""

    def lower(self: Any, offset: Any) -> None:
        self.recovery_point = min(self.recovery_point, offset)
        self.synced = min(self.synced, offset)

    patch.setattr(flush.FlushState, "lower", lower)


def names_are_not_synced(patch: Patch) -> None:
    """A flush syncs files, and forgets the folder that names them."""

    def run(self: Any) -> None:
        sync_all(self.handles)
        self.epoch_file.write(self.epoch_version, self.epochs)

    patch.setattr(flush.FlushTicket, "run", run)


def a_cut_leaves_the_recovery_point(patch: Patch) -> None:
    """What was flushed below an offset counts as flushed, whatever lies there by now."""
    patch.setattr(flush.FlushState, "lower", lambda *_: None)


def a_failed_sync_is_asked_again(patch: Patch) -> None:
    """After an error of fsync the same folder is used on: the next sync says that all is well."""

    def run(self: Any, work: Any) -> None:
        with self._lock:
            work()

    def fail(self: Any, doing: str, error: Any) -> Any:
        return KafkaStorageError(f"{doing}: {error}")

    patch.setattr(flush.SyncOrder, "run", run)
    patch.setattr(data_folder.DataFolder, "fail", fail)


def retention_takes_what_is_not_committed(patch: Patch) -> None:
    """Old segments go, replicated or not."""
    count = retention.count_deletable

    def counting(segments: Any, config: Any, **rest: Any) -> int:
        return count(segments, config, **{**rest, "limit": rest["log_end"]})

    patch.setattr(log_start, "count_deletable", counting)


def a_cut_is_not_synced(patch: Patch) -> None:
    """A cut reaches the disk when it likes."""
    patch.setattr(storage_log, "sync_all", lambda _: None)


def a_damaged_log_leads_on(patch: Patch) -> None:
    """A read that finds damage fails, and nobody is told."""
    patch.setattr(replica_manager.ReplicaManager, "log_damaged", lambda *_: None)
    patch.setattr(replica_manager.ReplicaManager, "damage_found", lambda *_: None)
